//! Clients in wide use, the oldest and the newest of each, beside a real Kafka: the same program
//! (`tests/clients`) produces with every codec, reads from the start and from a time, shares a
//! group, and administers, once here and once there, and what it sees must be the same.
//!
//! Not here: what a client does (the programs), and where it comes from
//! (`tests/clients/install.sh`).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tarn_tests::kafka::Kafka;
use tarn_tests::not_run;
use tarn_tests::process;
use tarn_tests::tarn::Tarn;

use crate::fixture::unique;

/// Installing compiles librdkafka's wrapper or fetches a hundred packages.
const INSTALL_LIMIT: Duration = Duration::from_secs(900);
const RUN_LIMIT: Duration = Duration::from_secs(420);
/// `install.sh` ends with this when the machine lacks a language.
const LANGUAGE_IS_MISSING: i32 = 3;

/// What every client must be able to do here, whatever it can do at a Kafka.
const MUST_WORK: &[&str] = &["produce none", "read from the start", "group"];

fn command_of(client: &str) -> Option<Vec<String>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/install.sh");
    let mut install = Command::new(script);
    install.arg(client);
    let installed = process::run(install, INSTALL_LIMIT).unwrap_or_else(|e| panic!("{e:#}"));
    if installed.code == LANGUAGE_IS_MISSING {
        not_run::note(installed.stderr.trim());
        return None;
    }
    assert_eq!(
        installed.code, 0,
        "{client} was not installed: {}",
        installed.stderr
    );
    Some(installed.stdout.lines().map(str::to_owned).collect())
}

/// The outcome of each step of a client at one address.
fn outcomes(words: &[String], bootstrap: &str, prefix: &str) -> Vec<(String, String)> {
    let mut run = Command::new(&words[0]);
    run.args(&words[1..]).args([bootstrap, prefix]);
    let output = process::run(run, RUN_LIMIT).unwrap_or_else(|e| panic!("{e:#}"));
    let steps: Vec<_> = output
        .stdout
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(step, outcome)| (step.to_owned(), outcome.to_owned()))
        .collect();
    assert_eq!(
        output.code, 0,
        "the client ended at {bootstrap} after {steps:?}: {}",
        output.stderr
    );
    steps
}

/// Runs a client at a real Kafka and here, at the same time, and compares.
fn beside_kafka(client: &str) {
    let Some(words) = command_of(client) else {
        return;
    };
    let kafka = Kafka::shared();
    let mut tarn = Tarn::start();
    let prefix = unique(client);
    let (there, here) = std::thread::scope(|scope| {
        let there = scope.spawn(|| outcomes(&words, &kafka.bootstrap(), &prefix));
        let here = outcomes(&words, &tarn.bootstrap(), &prefix);
        (there.join().expect("the client at Kafka"), here)
    });
    for step in MUST_WORK {
        let outcome = here.iter().find(|(name, _)| name == step);
        let works = outcome.is_some_and(|(_, o)| !o.starts_with("failed") && o != "hangs");
        assert!(works, "{client}: {step}: {outcome:?}");
    }
    let differ: Vec<_> = here
        .iter()
        .zip(&there)
        .filter(|(h, t)| h != t)
        .map(|(h, t)| format!("{}: here {:?}, Kafka {:?}", h.0, h.1, t.1))
        .collect();
    assert!(differ.is_empty(), "{client}:\n{}", differ.join("\n"));
    assert_eq!(here.len(), there.len(), "{client}: steps");
    tarn.check_healthy();
}

#[test]
fn java_2_1() {
    beside_kafka("java-2.1.1");
}

#[test]
fn java_4_4() {
    beside_kafka("java-4.4.0");
}

#[test]
fn librdkafka_1_9() {
    beside_kafka("librdkafka-1.9");
}

#[test]
fn librdkafka_now() {
    beside_kafka("librdkafka");
}

/// Could not read from a time, nor in a group.
#[test]
fn kafka_python_2() {
    beside_kafka("kafka-python-2");
}

#[test]
fn kafka_python_3() {
    beside_kafka("kafka-python-3");
}

/// Could not read from a time, nor in a group.
#[test]
fn aiokafka() {
    beside_kafka("aiokafka");
}

/// Could not read at all.
#[test]
fn kafkajs() {
    beside_kafka("kafkajs");
}

#[test]
fn platformatic_kafka() {
    beside_kafka("platformatic");
}

/// Could not read at all.
#[test]
fn sarama_1_26() {
    beside_kafka("sarama-1.26");
}

#[test]
fn sarama_now() {
    beside_kafka("sarama");
}

/// Could not read at all.
#[test]
fn kafka_go() {
    beside_kafka("kafka-go");
}

#[test]
fn franz_go() {
    beside_kafka("franz-go");
}
