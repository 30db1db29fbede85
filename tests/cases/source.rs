//! The source: what happens there must show here, and never hurt what is already stored.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::json;
use tarn_tests::jars::KAFKA_CURRENT;
use tarn_tests::kafka::Kafka;
use tarn_tests::ports::free_port;
use tarn_tests::segments;
use tarn_tests::tarn::Tarn;
use tarn_tests::wait;

use crate::fixture::{SOON, assert_same, assert_same_bytes, mirrored, sample_topic, unique};

fn error_of(tarn: &Tarn, topic: &str) -> String {
    tarn.describe("m")
        .iter()
        .find(|r| r["topic"] == topic)
        .map(|r| r["errorMessage"].as_str().unwrap_or_default().to_owned())
        .unwrap_or_default()
}

/// The log start follows the source's exactly, also after a restart at the end of the log.
#[test]
fn the_log_start_follows_the_source_exactly() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "log-start", 1, 4000);
    let mut tarn = mirrored(source, &[(&topic, 1)]);
    tarn.kill();
    tarn.restart();
    source
        .cluster()
        .call("delete_records", json!({"topic": topic, "before": 1000}));
    source.cluster().produce_many(&topic, 1, 1, 10, json!({}));
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    wait::until(SOON, "log start 1000", || {
        match tarn.cluster().start_offset(&topic, 0) {
            1000 => Ok(()),
            other => Err(other.to_string()),
        }
    });
    assert_eq!(
        tarn.cluster().consume(&topic, 0, false),
        source.cluster().consume(&topic, 0, false)
    );
    // It is written down within a second.
    std::thread::sleep(Duration::from_secs(1));
    tarn.kill();
    tarn.restart();
    assert_eq!(
        tarn.cluster().start_offset(&topic, 0),
        1000,
        "kept over a restart"
    );
}

/// Retention at the source overtook a pause.
#[test]
fn a_gap_that_the_source_left_is_jumped_and_told() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "overtaken", 1, 50);
    let mut tarn = mirrored(source, &[(&topic, 1)]);
    tarn.mirrors_ok(&["--pause", "--mirror", "m", "--topic", &topic, "--wait"]);
    source.cluster().produce_many(&topic, 1, 100, 10, json!({}));
    source
        .cluster()
        .call("delete_records", json!({"topic": topic, "before": 100}));
    tarn.mirrors_ok(&["--resume", "--mirror", "m", "--topic", &topic, "--wait"]);
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    assert_eq!(tarn.cluster().start_offset(&topic, 0), 100);
    assert_eq!(
        tarn.cluster().consume(&topic, 0, false),
        source.cluster().consume(&topic, 0, false)
    );
    assert!(tarn.describe("m").iter().all(|r| r["state"] == "MIRRORING"));
    let log = tarn.process().output();
    assert!(
        log.lines().any(
            |l| l.contains("50 offsets skipped") || (l.contains("skipped") && l.contains("50"))
        ),
        "no event tells of the 50 offsets"
    );
}

/// The same name with another id is another topic.
#[test]
fn a_topic_made_anew_at_the_source_fails_and_keeps_the_old_data() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "anew", 1, 20);
    let tarn = mirrored(source, &[(&topic, 1)]);
    let before = segments::batches(&tarn.partition_dir(&topic, 0)).unwrap();
    let old_id = source.cluster().topic_id(&topic);
    source
        .cluster()
        .call("delete_topic", json!({"topic": topic}));
    let new_id = wait::until(SOON, "the topic is made anew", || {
        let made = source
            .cluster()
            .try_call("create_topic", json!({"topic": topic, "partitions": 1}));
        made.map(|a| a["topicId"].as_str().unwrap().to_owned())
            .map_err(|e| e.to_string())
    });
    source.cluster().produce_many(&topic, 1, 40, 10, json!({}));
    wait::until(SOON, "FAILED with both ids", || {
        let (rows, text) = (tarn.describe("m"), error_of(&tarn, &topic));
        if rows[0]["state"] == "FAILED" && text.contains(&old_id) && text.contains(&new_id) {
            Ok(())
        } else {
            Err(format!("{rows:?}"))
        }
    });
    assert_eq!(
        segments::batches(&tarn.partition_dir(&topic, 0)).unwrap(),
        before
    );
    assert_eq!(tarn.describe("m")[0]["retryAttempt"], -1, "not retried");
}

/// A deletion at the source deletes nothing here.
#[test]
fn a_topic_deleted_at_the_source_stays_readable() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "gone", 1, 20);
    let tarn = mirrored(source, &[(&topic, 1)]);
    source
        .cluster()
        .call("delete_topic", json!({"topic": topic}));
    tarn.await_state("m", "FAILED", SOON, |_| true);
    assert!(
        error_of(&tarn, &topic).contains("deleted"),
        "{}",
        error_of(&tarn, &topic)
    );
    assert_eq!(tarn.cluster().consume(&topic, 0, false).len(), 20);
    assert_eq!(tarn.describe("m")[0]["retryAttempt"], -1);
    let output = tarn.mirrors(&["--describe", "--failed"]);
    assert!(output.stdout.contains("NonRetryable"), "{output:?}");
}

/// Another address of the same cluster.
#[test]
fn a_new_bootstrap_address_keeps_the_data_flowing() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "rebootstrap", 1, 5);
    let tarn = mirrored(source, &[(&topic, 1)]);
    let other = format!("bootstrap.servers=localhost:{}", source.port());
    assert_eq!(
        tarn.mirrors_ok(&["--alter", "--mirror", "m", "--add-config", &other]),
        "Altered mirror m\n"
    );
    source.cluster().produce_many(&topic, 1, 5, 10, json!({}));
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    wait::until(SOON, "lag 0 with a fresh fetch", || {
        let row = tarn.describe("m")[0].clone();
        let fresh = row["lastFetchAgeMs"]
            .as_i64()
            .is_some_and(|age| (0..5000).contains(&age));
        if row["lag"] == 0 && fresh {
            Ok(())
        } else {
            Err(row.to_string())
        }
    });
    assert!(
        tarn.mirrors_ok(&["--list"])
            .contains(&format!("localhost:{}", source.port()))
    );
}

/// The first bootstrap entry is dead.
#[test]
fn every_bootstrap_entry_is_tried() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "second-entry", 1, 5);
    let tarn = Tarn::start();
    tarn.create_mirror(
        "m",
        &format!("127.0.0.1:{},{}", free_port(), source.bootstrap()),
        &[],
    );
    tarn.add_topics("m", &topic);
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
}

/// A broker of the source dies while it is in use; what it led is fetched from the one that took
/// over.
#[test]
fn a_source_broker_that_dies_is_replaced_by_the_others() {
    const PARTITIONS: i32 = 6;
    let first = Kafka::start_with(KAFKA_CURRENT, &[("broker.session.timeout.ms", "3000")]);
    let mut second = first.join(2);
    let topic = unique("two-brokers");
    first.cluster().call(
        "create_topic",
        json!({"topic": topic, "partitions": PARTITIONS, "rf": 2}),
    );
    first
        .cluster()
        .produce_many(&topic, PARTITIONS, 12, 100, json!({}));
    let tarn = Tarn::start();
    tarn.create_mirror(
        "m",
        &format!("{},{}", second.bootstrap(), first.bootstrap()),
        &[],
    );
    tarn.add_topics("m", &topic);
    tarn.await_caught_up(&first.cluster(), &topic, PARTITIONS, SOON);
    second.kill();
    let died = Instant::now();
    first
        .cluster()
        .produce_many(&topic, PARTITIONS, 12, 100, json!({}));
    tarn.await_caught_up(&first.cluster(), &topic, PARTITIONS, SOON);
    // Three seconds until the source itself notices, ten for us.
    assert!(
        died.elapsed() < Duration::from_secs(25),
        "{:?}",
        died.elapsed()
    );
    for partition in 0..PARTITIONS {
        assert_same_bytes(&first, &tarn, &topic, partition);
    }
}

/// With real nodes: an old source of three brokers, whose Fetch tells no divergence, loses a tail
/// that was copied already: the leader dies alone in its ISR, a follower without the tail takes
/// over, and other records come to stand at the same offsets, as many or more. The two histories
/// are never mixed: the copy is cut to what both have, the cut is told, and the copy equals the
/// source.
#[test]
fn a_tail_that_an_old_source_lost_is_cut_here_too() {
    const LOST: u32 = 10;
    let first = Kafka::start_with("2.1.1", &[]);
    let (mut second, mut third) = (first.join(2), first.join(3));
    let cluster = first.cluster();
    let topics = [("as-long", LOST), ("longer", 3 * LOST)];
    for (topic, _) in topics {
        let configs = json!({"unclean.leader.election.enable": "true", "min.insync.replicas": "1"});
        cluster.call(
            "create_topic",
            json!({"topic": topic, "assignment": [[2, 3]], "configs": configs}),
        );
        cluster.produce_many(topic, 1, 20, 100, json!({"acks": "all"}));
    }
    let names = topics.map(|(topic, _)| (topic, 1));
    let tarn = mirrored(&first, &names);
    third.stop();
    for (topic, _) in topics {
        cluster.produce_many(topic, 1, LOST, 100, json!({"acks": "1"}));
        tarn.await_caught_up(&cluster, topic, 1, SOON);
    }
    let lost: Vec<Vec<segments::Batch>> = topics
        .iter()
        .map(|(topic, _)| segments::batches(&tarn.partition_dir(topic, 0)).unwrap())
        .collect();
    second.kill();
    third.restart();
    for (topic, records) in topics {
        cluster.produce_many(topic, 1, records, 100, json!({"acks": "1"}));
        assert_eq!(cluster.end_offset(topic, 0), i64::from(20 + records));
    }
    for (topic, lost) in topics.iter().map(|(topic, _)| topic).zip(&lost) {
        wait::until(SOON, "the lost tail is gone and the copy is whole", || {
            let rows = tarn.describe("m");
            let row = rows.iter().find(|r| r["topic"] == *topic).cloned();
            let row = row.unwrap_or_default();
            let here =
                segments::batches(&tarn.partition_dir(topic, 0)).map_err(|e| e.to_string())?;
            let there =
                segments::batches(&third.partition_dir(topic, 0)).map_err(|e| e.to_string())?;
            // What is here is one history: the old one, or what both have and then the new one.
            let is_one = lost.starts_with(&here) || there.starts_with(&here) || here == *lost;
            assert!(is_one, "two histories in {topic}: {here:?}");
            if here == there && row["state"] == "MIRRORING" && row["truncatedOffsets"] == LOST {
                Ok(())
            } else {
                Err(row.to_string())
            }
        });
        assert_same_bytes(&third, &tarn, topic, 0);
    }
}

/// The way back is refused before anything becomes read-only.
#[test]
fn a_loop_is_refused_and_the_source_stays_writable() {
    let a = Tarn::start();
    a.cluster().create_topic("t", 1, json!({}));
    a.cluster().produce_many("t", 1, 3, 10, json!({}));
    let b = Tarn::start();
    b.create_mirror("m", &a.bootstrap(), &[]);
    b.add_topics("m", "t");
    b.await_caught_up(&a.cluster(), "t", 1, SOON);
    a.create_mirror("back", &b.bootstrap(), &[]);
    let added = a.mirrors(&["--add", "--mirror", "back", "--topic", "t"]);
    assert_eq!(added.code, 1, "{added:?}");
    assert!(added.stderr.to_lowercase().contains("loop"), "{added:?}");
    a.cluster().produce_many("t", 1, 1, 10, json!({}));
    b.await_caught_up(&a.cluster(), "t", 1, SOON);
}

/// A source that cannot be used is refused at once, with the reason; nothing is changed.
#[test]
fn a_dead_source_is_refused_at_create() {
    let tarn = Tarn::start();
    let dead = free_port();
    let file = tarn.mirror_config("m", &format!("127.0.0.1:{dead}"), &[]);
    let started = Instant::now();
    let created = tarn.mirrors(&["--create", "--mirror", "m", "--mirror-config", &file]);
    assert!(
        started.elapsed() < Duration::from_secs(16),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(created.code, 1);
    assert!(
        created
            .stderr
            .starts_with("Cannot reach the source of mirror 'm': ")
            && created.stderr.contains(&dead.to_string()),
        "{created:?}"
    );
    assert_eq!(tarn.mirrors_ok(&["--list"]), "No mirrors found\n");
    let allowed = tarn.mirrors_ok(&[
        "--create",
        "--mirror",
        "m",
        "--mirror-config",
        &file,
        "--allow-unreachable",
    ]);
    assert_eq!(allowed, "Created mirror m\n");
    let added = tarn.mirrors(&["--add", "--mirror", "m", "--topic", ".*"]);
    assert_eq!(added.code, 1);
    assert!(
        added
            .stderr
            .starts_with("Cannot reach the source of mirror 'm': "),
        "{added:?}"
    );
}

/// Something listens that is no Kafka, and something that never answers.
#[test]
fn a_source_that_never_answers_is_refused_within_fifteen_seconds() {
    let hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let tarn = Tarn::start();
    let file = tarn.mirror_config("m", &hole.local_addr().unwrap().to_string(), &[]);
    let started = Instant::now();
    let created = tarn.mirrors(&["--create", "--mirror", "m", "--mirror-config", &file]);
    assert!(
        started.elapsed() < Duration::from_secs(17),
        "{:?}",
        started.elapsed()
    );
    assert!(
        created.code == 1
            && created
                .stderr
                .starts_with("Cannot reach the source of mirror 'm': "),
        "{created:?}"
    );
}

/// The end of the process does not wait for a start-up that hangs.
#[test]
fn a_shutdown_does_not_wait_for_a_source_that_never_answers() {
    let hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut tarn = Tarn::start();
    let file = tarn.mirror_config("m", &hole.local_addr().unwrap().to_string(), &[]);
    tarn.mirrors_ok(&[
        "--create",
        "--mirror",
        "m",
        "--mirror-config",
        &file,
        "--allow-unreachable",
    ]);
    std::thread::scope(|scope| {
        let (bootstrap, dir) = (tarn.bootstrap(), tarn.dir().to_owned());
        let adding = scope.spawn(move || {
            Tarn::mirrors_at(
                &bootstrap,
                &dir,
                &["--add", "--mirror", "m", "--topic", ".*"],
            )
        });
        std::thread::sleep(Duration::from_secs(1));
        assert!(tarn.stop() < Duration::from_secs(5));
        adding.join().unwrap();
    });
}

/// The advertised address is the trouble, and the text says so.
#[test]
fn an_advertised_address_that_does_not_resolve_is_named() {
    let source = Kafka::start_with(
        "4.3.1",
        &[("advertised.listeners", "PLAINTEXT://nohost.invalid:9092")],
    );
    let tarn = Tarn::start();
    let file = tarn.mirror_config("m", &source.bootstrap(), &[]);
    let created = tarn.mirrors(&[
        "--create",
        "--mirror",
        "m",
        "--mirror-config",
        &file,
        "--allow-unreachable",
    ]);
    assert_eq!(created.code, 0, "{created:?}");
    let added = tarn.mirrors(&[
        "--add",
        "--mirror",
        "m",
        "--topic",
        ".*",
        "--wait",
        "--timeout-ms",
        "5000",
    ]);
    let told = format!("{}{}", added.stderr, tarn.mirrors(&["--describe"]).stderr);
    let empty = added.stderr.starts_with("No topics matching");
    assert!(
        empty || told.contains("advertised address nohost.invalid:9092 of node 1"),
        "{told}"
    );
}

/// Names that would share a metric name, and names at the limit.
#[test]
fn a_name_that_clashes_is_refused_with_the_other_name_and_long_names_work() {
    let source = Kafka::shared();
    let stem = unique("n").replace('-', "x");
    let (dotted, underscored) = (format!("{stem}.b"), format!("{stem}_b"));
    let long = format!("{stem}{}", "l".repeat(249 - stem.len()));
    for topic in [&dotted, &long] {
        source.cluster().create_topic(topic, 1, json!({}));
        source.cluster().produce_many(topic, 1, 3, 10, json!({}));
    }
    let tarn = Tarn::start();
    tarn.cluster().create_topic(&underscored, 1, json!({}));
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    let added = tarn.mirrors(&[
        "--add", "--mirror", "m", "--topic", &dotted, "--topic", &long,
    ]);
    let told = format!("{}{:?}", added.stderr, tarn.describe("m"));
    assert!(
        told.contains(&underscored),
        "the other name is told: {told}"
    );
    tarn.await_state("m", "MIRRORING", SOON, |r| r["topic"] == long.as_str());
    tarn.await_caught_up(&source.cluster(), &long, 1, SOON);
    assert_same_bytes(source, &tarn, &long, 0);
}

/// Two batches three thousand million offsets apart.
#[test]
fn an_offset_gap_beyond_31_bits_is_stored_and_survives_a_restart() {
    const FAR: i64 = 3_000_000_000;
    let mut source = Kafka::start();
    source.cluster().create_topic("far", 1, json!({}));
    source
        .cluster()
        .produce("far", json!([{"value": "near"}]), json!({}));
    source.stop();
    let dir = source.partition_dir("far", 0);
    let mut batch = segments::batches(&dir).unwrap()[0].bytes.clone();
    batch[..8].copy_from_slice(&FAR.to_be_bytes()); // the base offset is outside the checksum
    std::fs::write(dir.join(format!("{FAR:020}.log")), &batch).unwrap();
    std::fs::remove_file(source.data_dir().join(".kafka_cleanshutdown")).ok();
    source.restart();
    assert_eq!(source.cluster().end_offset("far", 0), FAR + 1);
    let mut tarn = mirrored(&source, &[("far", 1)]);
    assert_same(&source, &tarn, "far", 1);
    for round in 0..2 {
        if round == 0 {
            tarn.stop();
        } else {
            tarn.kill();
        }
        tarn.restart();
        assert_eq!(tarn.cluster().end_offset("far", 0), FAR + 1);
        assert_same(&source, &tarn, "far", 1);
    }
}

/// Mirrors that come and go leave nothing behind.
#[test]
fn a_hundred_mirrors_that_come_and_go_leak_no_socket_and_no_thread() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "leak", 1, 3);
    let mut tarn = Tarn::start();
    let file = tarn.mirror_config("m", &source.bootstrap(), &[]);
    let round = |tarn: &Tarn| {
        tarn.mirrors_ok(&["--create", "--mirror", "m", "--mirror-config", &file]);
        tarn.mirrors_ok(&["--add", "--mirror", "m", "--topic", &topic, "--wait"]);
        tarn.mirrors_ok(&["--remove", "--mirror", "m", "--all-topics", "--wait"]);
        tarn.mirrors_ok(&["--delete", "--mirror", "m"]);
        tarn.cluster().call("delete_topic", json!({"topic": topic}));
    };
    for _ in 0..5 {
        round(&tarn);
    }
    let open = |tarn: &mut Tarn| {
        let id = tarn.process().id();
        let count = |what: &str| {
            std::fs::read_dir(format!("/proc/{id}/{what}"))
                .map(Iterator::count)
                .unwrap_or_default()
        };
        (count("fd"), count("task"))
    };
    std::thread::sleep(Duration::from_secs(1));
    let (files, threads) = open(&mut tarn);
    for _ in 0..95 {
        round(&tarn);
    }
    wait::until(SOON, "files and threads are back where they were", || {
        let now = open(&mut tarn);
        if now.0 <= files + 4 && now.1 <= threads + 4 {
            Ok(())
        } else {
            Err(format!(
                "{now:?}, before {files} files and {threads} threads"
            ))
        }
    });
    tarn.check_healthy();
}

#[test]
fn partitions_added_at_the_source_are_mirrored() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "growth", 1, 5);
    let tarn = mirrored(source, &[(&topic, 1)]);
    source
        .cluster()
        .call("create_partitions", json!({"topic": topic, "count": 3}));
    source.cluster().produce_many(&topic, 3, 30, 10, json!({}));
    wait::until(SOON, "three partitions", || {
        let partitions = tarn
            .cluster()
            .call("describe_topic", json!({"topic": topic}))["partitions"]
            .clone();
        if partitions == 3 {
            Ok(())
        } else {
            Err(partitions.to_string())
        }
    });
    tarn.await_caught_up(&source.cluster(), &topic, 3, SOON);
    assert_same(source, &tarn, &topic, 3);
}

/// docs/mirroring.md §5.1: settings follow the source, one lost topic does not stop the others.
#[test]
fn topic_settings_follow_the_source_even_beside_a_deleted_topic() {
    let source = Kafka::shared();
    let (gone, topic) = (
        sample_topic(source, "settings-gone", 1, 1),
        unique("settings"),
    );
    source.cluster().create_topic(&topic, 1, json!({"retention.ms": "86400001", "min.insync.replicas": "1", "cleanup.policy": "compact"}));
    let tarn = mirrored(source, &[(&gone, 1), (&topic, 1)]);
    let value = |key: &str| {
        tarn.cluster().call("topic_config", json!({"topic": topic}))["configs"][key].clone()
    };
    assert_eq!(value("retention.ms"), "86400001", "set at creation");
    assert_eq!(value("cleanup.policy"), "compact");
    source
        .cluster()
        .call("delete_topic", json!({"topic": gone}));
    tarn.await_state("m", "FAILED", SOON, |r| r["topic"] == gone.as_str());
    source.cluster().call(
        "alter_topic",
        json!({"topic": topic, "set": {"retention.ms": "86400002"}}),
    );
    wait::until(SOON, "the change arrives", || {
        if value("retention.ms") == "86400002" {
            Ok(())
        } else {
            Err(value("retention.ms").to_string())
        }
    });
}
