//! Owns running Kafka's own command-line classes, one JVM a call: slow, so only where the tool
//! itself is the judge.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::jars::{self, KAFKA_CURRENT, Logging};
use crate::process::{self, Output, Scratch};

const TOOL_LIMIT: Duration = Duration::from_secs(120);

/// Runs `main_class` of the current Kafka with `arguments`.
///
/// # Panics
/// When Java cannot be started or the tool hangs.
#[must_use]
pub fn run(main_class: &str, arguments: &[&str]) -> Output {
    run_within(main_class, arguments, TOOL_LIMIT)
}

/// As [`run`], with a limit of its own.
///
/// # Panics
/// When Java cannot be started or the tool takes longer.
#[must_use]
pub fn run_within(main_class: &str, arguments: &[&str], limit: Duration) -> Output {
    let scratch = Scratch::new("tool");
    let mut command = jars::java(KAFKA_CURRENT, 256, &Logging::write(scratch.path(), "WARN"));
    command.arg(main_class).args(arguments);
    process::run(command, limit).unwrap_or_else(|e| panic!("{main_class}: {e:#}"))
}

/// The console producer of any Kafka since 2.1: sends each line of `input` to `topic`; its errors
/// are on the standard error.
///
/// # Panics
/// When Java cannot be started or the producer does not give up by itself.
#[must_use]
pub fn console_producer(version: &str, bootstrap: &str, topic: &str, input: &str) -> Output {
    let scratch = Scratch::new("producer");
    let lines = scratch.path().join("lines");
    std::fs::write(&lines, input).expect("the lines to send");
    let java = jars::java(version, 128, &Logging::write(scratch.path(), "ERROR"));
    let mut command = Command::new("sh");
    command
        .args(["-c", "lines=$1; shift; exec \"$@\" < \"$lines\"", "sh"])
        .arg(&lines)
        .arg(java.get_program())
        .args(java.get_args())
        .arg("kafka.tools.ConsoleProducer")
        .args(["--broker-list", bootstrap, "--topic", topic]);
    process::run(command, TOOL_LIMIT).unwrap_or_else(|e| panic!("producer of {version}: {e:#}"))
}

/// `DumpLogSegments --deep-iteration` over every segment file of a partition folder; `extra`
/// selects a decoder.
///
/// # Panics
/// When the tool refuses a file.
#[must_use]
pub fn dump_log(partition_dir: &Path, extra: &[&str]) -> String {
    let mut files: Vec<String> = std::fs::read_dir(partition_dir)
        .unwrap_or_else(|e| panic!("{}: {e}", partition_dir.display()))
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| {
            p.extension().is_some_and(|e| {
                ["log", "index", "timeindex", "txnindex", "snapshot"]
                    .iter()
                    .any(|x| e == *x)
            })
        })
        .map(|p| p.display().to_string())
        .collect();
    files.sort();
    let list = files.join(",");
    let mut arguments = vec!["--deep-iteration", "--files", &list];
    arguments.extend_from_slice(extra);
    let output = run("org.apache.kafka.tools.DumpLogSegments", &arguments);
    assert_eq!(output.code, 0, "DumpLogSegments {list}: {}", output.stderr);
    // Our own metadata records, which Kafka's decoder cannot know: it says so and goes on.
    let foreign = |line: &&str| !line.contains("Unknown metadata id 2000");
    let said: Vec<&str> = output.stdout.lines().filter(foreign).collect();
    let said = said.join("\n");
    for sign in [
        "Exception",
        "Mismatches in",
        "isvalid: false",
        "isValid: false",
    ] {
        assert!(
            !said.contains(sign) && !output.stderr.contains(sign),
            "DumpLogSegments complains:\n{said}\n{}",
            output.stderr
        );
    }
    output.stdout
}
