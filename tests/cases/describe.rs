//! What describe and list show, with the source alive and dead.

use std::time::{Duration, Instant};

use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::tarn::Tarn;
use tarn_tests::wait;

use crate::fixture::{SOON, mirrored, sample_topic};

fn line(topic: &str, offsets: [&str; 3], state: &str) -> String {
    let [source, destination, lag] = offsets;
    format!(
        "{:<30} {topic:<40} {:<10} {source:<15} {destination:<18} {lag:<8} {state:<12}\n",
        "m", 0
    )
}

const HEADER: &str = "MIRROR                         TOPIC                                    PARTITION  SOURCE-OFFSET   DESTINATION-OFFSET LAG      STATE       \n";

#[test]
fn describe_prints_the_exact_table_and_list_the_source() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "table", 1, 7);
    let tarn = mirrored(source, &[(&topic, 1)]);
    let want = format!("{HEADER}{}", line(&topic, ["7", "7", "0"], "MIRRORING"));
    wait::until(SOON, "the table", || {
        let output = tarn.mirrors(&["--describe", "--mirror", "m"]);
        if output.stdout == want && output.stderr.is_empty() && output.code == 0 {
            Ok(())
        } else {
            Err(format!("{output:?}"))
        }
    });
    let id = source.cluster().call("cluster_id", json!({}))["clusterId"]
        .as_str()
        .unwrap()
        .to_owned();
    let want = format!(
        "{:<30} {:<10} {:<26} {:<50}\n{:<30} {:<10} {id:<26} {:<50}\n",
        "MIRROR",
        "TOPICS",
        "SOURCE-CLUSTER-ID",
        "SOURCE-BOOTSTRAP",
        "m",
        1,
        source.bootstrap()
    );
    assert_eq!(tarn.mirrors_ok(&["--list"]), want);
    let late = tarn.cluster_mirrors(&["--describe"]).stdout;
    assert!(late.starts_with("MIRROR                         TOPIC                                    PARTITION  SOURCE-OFFSET   DESTINATION-OFFSET LAG        STATE       \n"), "{late}");
    let row = &tarn.describe("m")[0];
    assert_eq!(
        (&row["mirror"], &row["topic"], &row["partition"]),
        (&json!("m"), &json!(topic), &json!(0))
    );
    assert_eq!(
        (
            &row["sourceOffset"],
            &row["destinationOffset"],
            &row["lag"],
            &row["state"]
        ),
        (&json!(7), &json!(7), &json!(0), &json!("MIRRORING"))
    );
    assert_eq!(
        (&row["desiredState"], &row["leader"], &row["errorMessage"]),
        (&json!("MIRRORING"), &json!(1), &json!(null))
    );
}

#[test]
fn with_the_source_dead_the_last_known_offsets_stay_and_stderr_says_why() {
    let mut source = Kafka::start();
    let topic = sample_topic(&source, "dead", 1, 7);
    let tarn = mirrored(&source, &[(&topic, 1)]);
    let want = format!("{HEADER}{}", line(&topic, ["7", "7", "0"], "MIRRORING"));
    wait::until(SOON, "the table", || {
        (tarn.mirrors_ok(&["--describe"]) == want)
            .then_some(())
            .ok_or_else(String::new)
    });
    source.kill();
    let pattern = regex::Regex::new(&format!(
        r"^Mirror m: source unreachable since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ: .*{}.*\n$",
        source.port()
    ))
    .unwrap();
    wait::until(SOON, "stderr tells of the dead source", || {
        let output = tarn.mirrors(&["--describe", "--mirror", "m"]);
        assert_eq!(output.stdout, want, "the table stays as it was");
        assert_eq!(output.code, 0);
        if pattern.is_match(&output.stderr) {
            Ok(())
        } else {
            Err(format!("{output:?}"))
        }
    });
    let started = Instant::now();
    tarn.mirrors_ok(&["--remove", "--mirror", "m", "--topic", &topic, "--wait"]);
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "remove and wait with the source dead: {:?}",
        started.elapsed()
    );
    let output = tarn.mirrors(&["--describe"]);
    assert_eq!(output.stderr, "", "a stopped topic waits for no source");
    assert!(output.stdout.contains("STOPPED"), "{output:?}");
}

#[test]
fn a_source_that_comes_back_is_followed_again_by_itself() {
    let mut source = Kafka::start();
    let topic = sample_topic(&source, "back", 1, 7);
    let tarn = mirrored(&source, &[(&topic, 1)]);
    source.kill();
    wait::until(SOON, "the outage is seen", || {
        let output = tarn.mirrors(&["--describe"]);
        if output.stderr.contains("source unreachable") {
            Ok(())
        } else {
            Err(format!("{output:?}"))
        }
    });
    assert!(
        tarn.describe("m").iter().all(|r| r["state"] == "MIRRORING"),
        "an outage is no failure"
    );
    source.restart();
    source.cluster().produce_many(&topic, 1, 3, 100, json!({}));
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    wait::until(SOON, "stderr is quiet again", || {
        let output = tarn.mirrors(&["--describe"]);
        if output.stderr.is_empty() {
            Ok(())
        } else {
            Err(output.stderr)
        }
    });
}

/// One dead source stalls no other mirror.
#[test]
fn a_dead_source_stalls_no_other_mirror() {
    let mut dead = Kafka::start();
    let alive = Kafka::shared();
    let (lost, kept) = (
        sample_topic(&dead, "lost", 1, 3),
        sample_topic(alive, "kept", 1, 3),
    );
    let tarn = Tarn::start();
    tarn.create_mirror("a", &dead.bootstrap(), &[]);
    tarn.create_mirror("b", &alive.bootstrap(), &[]);
    tarn.add_topics("a", &lost);
    tarn.add_topics("b", &kept);
    dead.process().freeze(true);
    std::thread::sleep(Duration::from_secs(2));
    alive
        .cluster()
        .call("create_partitions", json!({"topic": kept, "count": 3}));
    alive.cluster().call(
        "alter_topic",
        json!({"topic": kept, "set": {"retention.ms": "7777777"}}),
    );
    wait::until(
        Duration::from_secs(10),
        "growth and settings of the living source arrive",
        || {
            let config = tarn.cluster().call("topic_config", json!({"topic": kept}))["configs"]["retention.ms"].clone();
            let partitions = tarn
                .cluster()
                .call("describe_topic", json!({"topic": kept}))["partitions"]
                .clone();
            if config == "7777777" && partitions == 3 {
                Ok(())
            } else {
                Err(format!("retention.ms {config}, {partitions} partitions"))
            }
        },
    );
    dead.process().freeze(false);
    dead.kill();
}

/// A healthy start shows no failure on the way.
#[test]
fn a_healthy_start_never_shows_failed() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "healthy", 4, 40);
    let tarn = Tarn::start();
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    tarn.mirrors_ok(&["--add", "--mirror", "m", "--topic", &topic]);
    wait::until(SOON, "all four are MIRRORING", || {
        let rows = tarn.describe("m");
        assert!(rows.iter().all(|r| r["state"] != "FAILED"), "{rows:?}");
        if rows.len() == 4
            && rows
                .iter()
                .all(|r| r["state"] == "MIRRORING" && r["lag"] == 0)
        {
            Ok(())
        } else {
            Err(format!("{rows:?}"))
        }
    });
}
