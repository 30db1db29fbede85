//! The mirror tools as scripts use them: the walk-through word for word, errors and exit codes.

use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::ports::free_port;
use tarn_tests::tarn::Tarn;

use crate::fixture::{SOON, sample_topic, unique};

/// Scripts of this shape must run unchanged.
#[test]
fn the_walk_through_prints_what_scripts_expect() {
    let source = Kafka::shared();
    let stem = unique("walk");
    let (foo, bar) = (format!("{stem}-foo"), format!("{stem}-bar"));
    for topic in [&foo, &bar] {
        source.cluster().create_topic(topic, 1, json!({}));
    }
    let tarn = Tarn::start();
    tarn.create_mirror("my-mirror", &source.bootstrap(), &[]);
    let m = ["--mirror", "my-mirror"];
    let run = |verb: &str, rest: &[&str]| tarn.mirrors_ok(&[&[verb][..], &m, rest].concat());
    let either = format!("{foo}|{bar}");
    let both = format!("[{bar}, {foo}]");
    assert_eq!(
        run("--add", &["--topic", &either, "--replication-factor", "1"]),
        format!("Added 2 topic(s) to mirror my-mirror: {both}\n")
    );
    tarn.await_state("my-mirror", "MIRRORING", SOON, |_| true);
    assert_eq!(
        run("--pause", &["--topic", &foo, "--wait"]),
        format!("Paused mirroring for 1 topic(s) in mirror my-mirror: [{foo}]\n")
    );
    assert_eq!(
        run("--resume", &["--topic", &foo, "--wait"]),
        format!("Resumed mirroring for 1 topic(s) in mirror my-mirror: [{foo}]\n")
    );
    assert_eq!(
        run("--remove", &["--topic", ".*", "--wait"]),
        format!("Removed 2 topic(s) from mirror my-mirror: {both}\n")
    );
    assert_eq!(run("--delete", &[]), "Deleted mirror my-mirror\n");
}

#[test]
fn the_other_tool_starts_and_stops_and_saves_its_patterns() {
    let source = Kafka::shared();
    let stem = unique("late");
    let names: Vec<String> = ["a", "b", "tmp-c"]
        .iter()
        .map(|n| format!("{stem}-{n}"))
        .collect();
    for topic in &names {
        source.cluster().create_topic(topic, 1, json!({}));
    }
    let tarn = Tarn::start();
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    let run = |arguments: &[&str]| {
        let output = tarn.cluster_mirrors(arguments);
        assert_eq!(output.code, 0, "{arguments:?}: {output:?}");
        output.stdout
    };
    let said = run(&[
        "--start",
        "--mirror",
        "m",
        "--topics",
        &format!("{stem}-.*"),
        "--exclude",
        ".*-tmp-.*",
    ]);
    assert_eq!(
        said,
        format!("Started 2 mirror topic(s) in mirror m: [{stem}-a, {stem}-b]\n")
    );
    let nothing = run(&[
        "--start",
        "--mirror",
        "m",
        "--topics",
        &format!("{stem}x-.*"),
    ]);
    assert_eq!(
        nothing,
        "No matching topics found yet. Patterns saved to mirror m for auto-discovery.\n"
    );
    source
        .cluster()
        .create_topic(&format!("{stem}x-new"), 1, json!({}));
    tarn_tests::wait::until(SOON, "the saved pattern finds the new topic", || {
        let rows = tarn.describe("m");
        if rows
            .iter()
            .any(|r| r["topic"] == format!("{stem}x-new").as_str() && r["state"] == "MIRRORING")
        {
            Ok(())
        } else {
            Err(format!("{rows:?}"))
        }
    });
    let said = run(&[
        "--stop",
        "--mirror",
        "m",
        "--topics",
        &format!("{stem}-a,{stem}-b"),
        "--wait",
    ]);
    assert_eq!(
        said,
        format!("Stopped mirroring for topics [{stem}-a, {stem}-b] in mirror m\n")
    );
}

#[test]
fn errors_have_their_texts_and_exit_codes() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "errors", 1, 1);
    let tarn = Tarn::start();
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    let fails = |arguments: &[&str]| {
        let output = tarn.mirrors(arguments);
        assert_eq!(output.code, 1, "{arguments:?}: {output:?}");
        assert_eq!(output.stdout, "", "{arguments:?}");
        output.stderr
    };
    for verb in ["--delete", "--describe"] {
        assert_eq!(
            fails(&[verb, "--mirror", "nope"]),
            "Mirror 'nope' not found\n",
            "{verb}"
        );
    }
    for verb in ["--add", "--remove", "--pause", "--resume"] {
        assert_eq!(
            fails(&[verb, "--mirror", "nope", "--topic", "x"]),
            "Mirror 'nope' not found\n",
            "{verb}"
        );
    }
    assert_eq!(
        fails(&[
            "--alter",
            "--mirror",
            "nope",
            "--add-config",
            "mirror.fetch.min.bytes=1"
        ]),
        "Mirror 'nope' not found\n"
    );
    for verb in ["--add", "--remove", "--pause", "--resume"] {
        assert_eq!(
            fails(&[verb, "--mirror", "m", "--topic", "no-such-.*"]),
            "No topics matching pattern 'no-such-.*' found\n",
            "{verb}"
        );
    }
    assert_eq!(
        fails(&["--add", "--mirror", "m", "--topic", "a("]),
        "Invalid topic pattern 'a(': unclosed group\n"
    );
    let file = tarn.mirror_config("m", &source.bootstrap(), &[]);
    let again = fails(&["--create", "--mirror", "m", "--mirror-config", &file]);
    assert!(again.contains("Mirror 'm' already exists"), "{again}");
    let secured = tarn.mirror_config(
        "s",
        &source.bootstrap(),
        &[("security.protocol", "SASL_SSL")],
    );
    let refused = fails(&["--create", "--mirror", "s", "--mirror-config", &secured]);
    assert!(
        refused.contains("security.protocol") && refused.contains("SASL_SSL"),
        "{refused}"
    );
    let odd = tarn.mirror_config("o", &source.bootstrap(), &[("no.such.key", "1")]);
    let refused = fails(&["--create", "--mirror", "o", "--mirror-config", &odd]);
    assert!(refused.contains("no.such.key"), "{refused}");
    for name in [".", "..", "a/b", "x.removed", "x.paused", &"l".repeat(250)] {
        fails(&["--create", "--mirror", name, "--mirror-config", &file]);
    }
    assert_eq!(
        fails(&["--list", "--mirror", "nope"]),
        "Mirror 'nope' not found\n"
    );
    let pattern = tarn.mirrors_ok(&["--add", "--mirror", "m", "--topic", &topic, "--dry-run"]);
    assert_eq!(pattern, format!("{topic}\n"));
    assert_eq!(
        tarn.mirrors_ok(&["--describe"]),
        "No mirror partitions found\n",
        "a dry run changes nothing"
    );
    assert_eq!(tarn.mirrors_ok(&["--describe", "--json"]), "[]\n");
}

#[test]
fn a_wait_that_takes_too_long_exits_with_two() {
    let source = Kafka::start();
    let topic = sample_topic(&source, "wait", 1, 3);
    let tarn = crate::fixture::mirrored(&source, &[(&topic, 1)]);
    source
        .cluster()
        .call("delete_topic", json!({"topic": topic}));
    tarn.await_state("m", "FAILED", SOON, |_| true);
    let output = tarn.mirrors(&[
        "--resume",
        "--mirror",
        "m",
        "--topic",
        &topic,
        "--wait",
        "--timeout-ms",
        "1500",
    ]);
    assert!(output.code == 2 || output.code == 1, "{output:?}");
}

#[test]
fn a_cluster_that_is_not_there_is_an_error_and_not_a_hang() {
    let output = Tarn::mirrors_at(
        &format!("127.0.0.1:{}", free_port()),
        std::path::Path::new("."),
        &["--list"],
    );
    assert_eq!(output.code, 1);
    assert!(
        output
            .stderr
            .starts_with("Cannot reach the cluster at 127.0.0.1:"),
        "{output:?}"
    );
}

/// One bad topic never fails its neighbours, and the exit code says that something failed.
#[test]
fn one_bad_topic_fails_alone() {
    let source = Kafka::shared();
    let stem = unique("alone");
    let (good, taken) = (format!("{stem}-good"), format!("{stem}-taken"));
    for topic in [&good, &taken] {
        source.cluster().create_topic(topic, 1, json!({}));
    }
    let tarn = Tarn::start();
    tarn.cluster().create_topic(&taken, 1, json!({}));
    tarn.cluster().produce_many(&taken, 1, 2, 10, json!({}));
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    let output = tarn.mirrors(&["--add", "--mirror", "m", "--topic", &format!("{stem}-.*")]);
    assert_eq!(output.code, 1, "{output:?}");
    assert_eq!(
        output.stdout,
        format!("Added 1 topic(s) to mirror m: [{good}]\n")
    );
    assert!(
        output
            .stderr
            .starts_with(&format!("Failed to add topic {taken}: ")),
        "{output:?}"
    );
    tarn.await_state("m", "MIRRORING", SOON, |r| r["topic"] == good.as_str());
    tarn.cluster().produce_many(&taken, 1, 1, 10, json!({}));
}

#[test]
fn a_kafka_that_knows_no_mirrors_is_told_apart() {
    let output = Tarn::mirrors_at(
        &Kafka::shared().bootstrap(),
        std::path::Path::new("."),
        &["--list"],
    );
    assert_eq!(output.code, 1);
    assert!(
        output.stderr.contains("does not know mirrors"),
        "{output:?}"
    );
}
