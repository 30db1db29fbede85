//! Faults found from outside: the mirror and its source over time: verdicts expire, one bad item
//! spoils only itself, reasons are on show.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tarn_tests::driver::Cluster;
use tarn_tests::jars::KAFKA_CURRENT;
use tarn_tests::kafka::Kafka;
use tarn_tests::ports::free_port;
use tarn_tests::proxy::{self, Switch};
use tarn_tests::tarn::Tarn;
use tarn_tests::{tools, wait};

use crate::fixture::{SOON, unique};

/// 30 records of 30 days ago.
fn produce_old(cluster: &Cluster, topic: &str) {
    const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let then = (now - MONTH).as_millis() as u64;
    let records: Vec<Value> = (0..30)
        .map(|n| json!({"value": format!("v{n}"), "timestamp": then + n}))
        .collect();
    cluster.produce(topic, json!(records), json!({}));
}

/// The source's broker keeps for ever; the copy does so too, as a mirror and after failover,
/// although this broker's own topics expire.
#[test]
fn records_that_only_the_sources_broker_keeps_are_kept_here_too() {
    let source = Kafka::start_with(KAFKA_CURRENT, &[("log.retention.ms", "-1")]);
    let topic = unique("kept");
    source.cluster().create_topic(&topic, 1, json!({}));
    produce_old(&source.cluster(), &topic);
    let tarn = Tarn::start_with(&[("log.retention.check.interval.ms", "200")]);
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    tarn.add_topics("m", &topic);
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    // Proof that retention is at work here: a topic of this broker's own with the same records is
    // emptied.
    let expires = |name: &str| {
        tarn.cluster().create_topic(name, 1, json!({}));
        produce_old(&tarn.cluster(), name);
        wait::until(SOON, "retention empties a local topic", || {
            match tarn.cluster().start_offset(name, 0) {
                30 => Ok(()),
                other => Err(other.to_string()),
            }
        });
    };
    expires("local-before");
    assert_eq!(tarn.cluster().start_offset(&topic, 0), 0, "while a mirror");
    let deleted = tarn
        .cluster()
        .try_call("delete_records", json!({"topic": topic, "before": 10}));
    assert!(deleted.is_err(), "{deleted:?}");
    let shown = tarn.cluster().call("topic_config", json!({"topic": topic}));
    assert_eq!(shown["configs"]["retention.ms"], "-1", "{shown}");
    assert_eq!(shown["sources"]["retention.ms"], "DYNAMIC_TOPIC_CONFIG");
    tarn.mirrors_ok(&["--remove", "--mirror", "m", "--topic", &topic, "--wait"]);
    expires("local-after");
    assert_eq!(tarn.cluster().start_offset(&topic, 0), 0, "after failover");
    let read = tarn.cluster().consume(&topic, 0, false);
    assert_eq!(read, source.cluster().consume(&topic, 0, false));
}

/// Another cluster answers at the source's address for a moment, again and again. FAILED is right;
/// after the source is back and a resume, records flow each time, and nothing of the other cluster
/// was ever copied.
#[test]
fn another_cluster_for_a_moment_leaves_no_verdict_behind() {
    const ROUNDS: i64 = 8;
    let door = free_port();
    let advertised = format!("PLAINTEXT://127.0.0.1:{door}");
    let settings = [("advertised.listeners", advertised.as_str())];
    let (source, other) = (Tarn::start_with(&settings), Tarn::start_with(&settings));
    // The Java client must not follow the source's advertised address while another cluster is
    // behind it.
    let switch = Switch::start(door, other.port());
    other.cluster().create_topic("t", 1, json!({}));
    other.cluster().produce_many("t", 1, 1_000, 10, json!({}));
    other.cluster().call("forget", json!({}));
    switch.to(source.port());
    source.cluster().create_topic("t", 1, json!({}));
    source.cluster().produce_many("t", 1, 10, 10, json!({}));
    let tarn = Tarn::start();
    tarn.create_mirror("m", &format!("127.0.0.1:{door}"), &[]);
    tarn.add_topics("m", "t");
    for round in 1..=ROUNDS {
        switch.to(other.port());
        tarn.await_state("m", "FAILED", SOON, |_| true);
        switch.to(source.port());
        wait::until(SOON, "a resume", || {
            let output = tarn.mirrors(&["--resume", "--mirror", "m", "--topic", "t"]);
            if output.code == 0 {
                Ok(())
            } else {
                Err(format!("{output:?}"))
            }
        });
        source.cluster().produce_many("t", 1, 1, 10, json!({}));
        wait::until(SOON, &format!("records of round {round}"), || {
            match tarn.cluster().end_offset("t", 0) {
                end if end == 10 + round => Ok(()),
                end => Err(format!("log end {end}, {:?}", tarn.describe("m"))),
            }
        });
    }
    let read = tarn.cluster().consume("t", 0, false);
    assert_eq!(read, source.cluster().consume("t", 0, false));
}

/// An add right after the source came back asks it afresh; what earlier attempts met is no answer.
#[test]
fn an_add_right_after_the_source_came_back_is_not_refused_with_the_past() {
    let mut source = Tarn::start();
    let names: Vec<String> = (0..5).map(|n| format!("t{n}")).collect();
    for name in &names {
        source.cluster().create_topic(name, 1, json!({}));
    }
    let tarn = Tarn::start();
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    tarn.add_topics("m", &names[0]);
    for name in &names[1..] {
        source.kill();
        wait::until(SOON, "the source is missed", || {
            let rows = tarn.describe("m");
            let text = rows[0]["errorMessage"].as_str().unwrap_or_default();
            if text.contains("unreachable") {
                Ok(())
            } else {
                Err(format!("{rows:?}"))
            }
        });
        source.restart();
        let added = tarn.mirrors(&["--add", "--mirror", "m", "--topic", name]);
        assert_eq!(added.code, 0, "{added:?}");
    }
    tarn.await_state("m", "MIRRORING", SOON, |_| true);
}

/// A broker of the source is away for long (it stays in its metadata). What the others lead goes
/// on, and so do adds, patterns and configs.
#[test]
fn a_source_broker_that_is_away_spoils_only_what_it_leads() {
    let settings = [("broker.session.timeout.ms", "300000")];
    let first = Kafka::start_with(KAFKA_CURRENT, &settings);
    let mut second = first.join(2);
    let stem = unique("apart");
    let source = first.cluster();
    let led_by = |topic: &str, partition: usize| {
        let shown = source.call("describe_topic", json!({"topic": topic}));
        shown["leaders"][partition].as_i64().unwrap()
    };
    // Topics of one partition on the broker that stays: enough are made until there are three.
    let mut stay = Vec::new();
    for n in 0..40 {
        let name = format!("{stem}-{n}");
        source.create_topic(&name, 1, json!({}));
        if led_by(&name, 0) == 1 {
            stay.push(name);
        }
        if stay.len() == 3 {
            break;
        }
    }
    let both = format!("{stem}-both");
    source.create_topic(&both, 2, json!({}));
    let here = (0..2).find(|p| led_by(&both, *p) == 1).unwrap() as i32;
    let tarn = Tarn::start();
    let addresses = format!("{},{}", second.bootstrap(), first.bootstrap());
    tarn.create_mirror("m", &addresses, &[]);
    tarn.add_topics("m", &format!("{both}|{}", stay[0]));
    second.kill();
    let added = tarn.mirrors(&["--add", "--mirror", "m", "--topic", &stay[1], "--wait"]);
    assert_eq!(added.code, 0, "{added:?}");
    let include = format!("mirror.topics.include={}", stay[2]);
    tarn.mirrors_ok(&["--alter", "--mirror", "m", "--add-config", &include]);
    source.call(
        "alter_topic",
        json!({"topic": stay[0], "set": {"retention.ms": "123456789"}}),
    );
    source.produce(
        &both,
        json!([{"value": "new", "partition": here}]),
        json!({}),
    );
    wait::until(SOON, "what the living broker leads goes on", || {
        let rows = tarn.describe("m");
        let row = |topic: &str, partition: i32| {
            let found = rows
                .iter()
                .find(|r| r["topic"] == topic && r["partition"] == partition);
            found.cloned().unwrap_or_default()
        };
        let healthy = row(&both, here);
        let retention = tarn
            .cluster()
            .call("topic_config", json!({"topic": stay[0]}));
        let retention = retention["configs"]["retention.ms"] == "123456789";
        let joined = row(&stay[2], 0)["state"] == "MIRRORING";
        let goes_on = healthy["state"] == "MIRRORING"
            && healthy["sourceOffset"] == 1
            && healthy["lag"] == 0
            && healthy["errorMessage"].is_null();
        if retention && joined && goes_on {
            Ok(())
        } else {
            Err(format!("config {retention}, joined {joined}, {rows:?}"))
        }
    });
    // The other one says what is wrong with it, by itself.
    wait::until(
        SOON,
        "the reason of the partition without its leader",
        || {
            let rows = tarn.describe("m");
            let of_dead = rows
                .iter()
                .find(|r| r["topic"] == both.as_str() && r["partition"] == 1 - here);
            match of_dead.and_then(|r| r["errorMessage"].as_str()) {
                Some(text) if text.contains("cannot connect") => Ok(()),
                _ => Err(format!("{rows:?}")),
            }
        },
    );
}

/// Two clusters mirror different topics to each other. A topic that was removed and is added again
/// finds out at once that the other side never mirrored it, and goes on.
#[test]
fn a_topic_added_again_does_not_wait_for_a_source_that_mirrors_something_else_from_here() {
    let (a, b) = (Tarn::start(), Tarn::start());
    for (tarn, topic) in [(&a, "x"), (&b, "y")] {
        tarn.cluster().create_topic(topic, 1, json!({}));
        tarn.cluster().produce_many(topic, 1, 20, 10, json!({}));
    }
    a.create_mirror("m", &b.bootstrap(), &[]);
    b.create_mirror("m", &a.bootstrap(), &[]);
    a.add_topics("m", "y");
    b.add_topics("m", "x");
    b.await_caught_up(&a.cluster(), "x", 1, SOON);
    b.mirrors_ok(&["--remove", "--mirror", "m", "--topic", "x", "--wait"]);
    a.cluster().produce_many("x", 1, 5, 10, json!({}));
    b.mirrors_ok(&["--add", "--mirror", "m", "--topic", "x"]);
    b.await_state("m", "MIRRORING", SOON, |_| true);
    b.await_caught_up(&a.cluster(), "x", 1, SOON);
    assert_eq!(
        b.cluster().consume("x", 0, false),
        a.cluster().consume("x", 0, false)
    );
}

/// The way back of many topics asks the source in a few questions, not in one for each partition.
#[test]
fn a_failback_of_many_topics_asks_in_few_questions() {
    const TOPICS: usize = 150;
    const DESCRIBE_MIRRORS: u16 = 99;
    let door = free_port();
    let advertised = format!("PLAINTEXT://127.0.0.1:{door}");
    let a = Tarn::start();
    let b = Tarn::start_with(&[("advertised.listeners", advertised.as_str())]);
    let frames = proxy::relay(door, b.port());
    for n in 0..TOPICS {
        let topic = format!("many-{n}");
        a.cluster().create_topic(&topic, 1, json!({}));
        a.cluster().produce_many(&topic, 1, 1, 10, json!({}));
    }
    b.create_mirror("m", &a.bootstrap(), &[]);
    b.add_topics("m", "many-.*");
    for n in 0..TOPICS {
        b.await_caught_up(&a.cluster(), &format!("many-{n}"), 1, SOON);
    }
    b.mirrors_ok(&["--remove", "--mirror", "m", "--topic", "many-.*", "--wait"]);
    let _ = frames.take();
    a.create_mirror("back", &b.bootstrap(), &[]);
    a.add_topics("back", "many-.*");
    let is_lookup = |frame: &Vec<u8>| frame[..2] == DESCRIBE_MIRRORS.to_be_bytes();
    let asked = frames.take().into_iter().filter(is_lookup).count();
    assert!((1..TOPICS / 3).contains(&asked), "{asked} questions");
}

/// Patterns that an operator changes act at once, not at the next refresh.
#[test]
fn a_changed_include_list_acts_at_once() {
    let source = Kafka::shared();
    let topic = unique("included");
    source.cluster().create_topic(&topic, 1, json!({}));
    let tarn = Tarn::start_with(&[("mirror.metadata.refresh.interval.ms", "3600000")]);
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    // The refresh that follows the creation is over.
    std::thread::sleep(Duration::from_secs(2));
    let include = format!("mirror.topics.include={topic}");
    tarn.mirrors_ok(&["--alter", "--mirror", "m", "--add-config", &include]);
    tarn.await_state("m", "MIRRORING", SOON, |_| true);
}

/// The source refuses DESCRIBE_CONFIGS of a topic. It is copied, and describe says since when its
/// configs do not follow, in the JSON and on standard error; when they may be read again, they are,
/// and the word is gone.
#[test]
fn configs_that_may_not_be_read_are_told_by_describe() {
    let settings = [
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ("allow.everyone.if.no.acl.found", "true"),
    ];
    let source = Kafka::start_with(KAFKA_CURRENT, &settings);
    let topic = unique("denied");
    let configs = json!({"retention.ms": "777000000"});
    source.cluster().create_topic(&topic, 1, configs);
    let acls = |arguments: &[&str]| {
        let bootstrap = source.bootstrap();
        let mut all = vec![
            "--bootstrap-server",
            &bootstrap,
            "--topic",
            &topic,
            "--force",
        ];
        all.extend(arguments);
        let output = tools::run("org.apache.kafka.tools.AclCommand", &all);
        assert_eq!(output.code, 0, "{output:?}");
    };
    acls(&["--add", "--allow-principal", "User:*", "--operation", "All"]);
    let denied = [
        "--deny-principal",
        "User:*",
        "--operation",
        "DescribeConfigs",
    ];
    acls(&[&["--add"], &denied[..]].concat());
    let tarn = Tarn::start();
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    tarn.add_topics("m", &topic);
    source.cluster().produce_many(&topic, 1, 5, 10, json!({}));
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    wait::until(SOON, "the notice", || {
        let rows = tarn.describe("m");
        let notice = &rows[0]["notices"][0];
        let text = notice["text"].as_str().unwrap_or_default();
        if notice["kind"] == "configs"
            && text.contains("TOPIC_AUTHORIZATION_FAILED")
            && notice["sinceMs"].is_i64()
        {
            Ok(())
        } else {
            Err(format!("{rows:?}"))
        }
    });
    let output = tarn.mirrors(&["--describe", "--mirror", "m"]);
    let told = format!("Mirror m: configs of {topic} since 20");
    assert!(output.stderr.contains(&told), "{output:?}");
    acls(&[&["--remove"], &denied[..]].concat());
    wait::until(SOON, "the configs follow", || {
        let shown = tarn.cluster().call("topic_config", json!({"topic": topic}));
        let rows = tarn.describe("m");
        let problems = rows[0]["notices"].as_array().cloned().unwrap_or_default();
        if shown["configs"]["retention.ms"] == "777000000"
            && problems.iter().all(|n| n["kind"] == "carried")
        {
            Ok(())
        } else {
            Err(format!("{rows:?}"))
        }
    });
}
