//! Guards the table of topic keys and the validators.

use tarn_metadata::config::topic::{TOPIC_CONFIGS, find};
use tarn_metadata::config::{BrokerSynonym, ConfigValue};

#[test]
fn the_table_is_sorted_and_every_default_passes_its_own_check() {
    assert!(TOPIC_CONFIGS.is_sorted_by(|a, b| a.name < b.name));
    for def in TOPIC_CONFIGS {
        let default = def.default.unwrap();
        def.parse(default).unwrap_or_else(|error| panic!("{error}"));
        assert!(
            !def.doc.is_empty() && def.doc.ends_with('.'),
            "{}",
            def.name
        );
    }
}

#[test]
fn every_topic_key_of_kafka_4_3_is_there() {
    let kafka = "cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level delete.retention.ms \
        file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas index.interval.bytes \
        leader.replication.throttled.replicas local.retention.bytes local.retention.ms max.compaction.lag.ms max.message.bytes \
        message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms \
        min.insync.replicas preallocate remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms \
        segment.bytes segment.index.bytes segment.jitter.ms segment.ms unclean.leader.election.enable";
    for key in kafka.split_whitespace() {
        assert!(find(key).is_some(), "{key}");
    }
    assert_eq!(TOPIC_CONFIGS.len(), kafka.split_whitespace().count() + 3);
}

#[test]
fn values_outside_the_range_are_refused_with_the_range() {
    let refused = [
        ("retention.ms", "-2"),
        ("retention.ms", "a week"),
        ("segment.bytes", "1048575"),
        ("segment.bytes", "2147483648"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", "delete,delete"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("compression.zstd.level", "23"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "NaN"),
        ("min.insync.replicas", "0"),
        ("preallocate", "yes"),
        ("message.timestamp.type", "createtime"),
        ("leader.replication.throttled.replicas", "0:1,x"),
    ];
    for (key, value) in refused {
        let error = find(key).unwrap().parse(value).unwrap_err().to_string();
        assert!(
            error.contains(key) && error.contains(value) && error.contains("must"),
            "{error}"
        );
    }
}

#[test]
fn values_inside_the_range_are_parsed() {
    let parse = |key: &str, value: &str| find(key).unwrap().parse(value).unwrap();
    assert_eq!(parse("retention.ms", " -1 "), ConfigValue::Integer(-1));
    assert_eq!(
        parse("cleanup.policy", "compact, delete"),
        ConfigValue::List(vec!["compact".into(), "delete".into()])
    );
    assert_eq!(parse("cleanup.policy", ""), ConfigValue::List(vec![]));
    assert_eq!(
        parse("compression.gzip.level", "-1"),
        ConfigValue::Integer(-1)
    );
    assert_eq!(parse("preallocate", "TRUE"), ConfigValue::Boolean(true));
    assert_eq!(
        parse("leader.replication.throttled.replicas", "*"),
        ConfigValue::List(vec!["*".into()])
    );
    assert_eq!(
        parse("min.cleanable.dirty.ratio", "0.25"),
        ConfigValue::Double(0.25)
    );
}

#[test]
fn broker_keys_in_hours_become_milliseconds() {
    assert_eq!(
        BrokerSynonym::hours("log.retention.hours").to_topic_value("168"),
        "604800000"
    );
    assert_eq!(
        BrokerSynonym::minutes("log.retention.minutes").to_topic_value("-1"),
        "-1"
    );
    assert_eq!(
        BrokerSynonym::hours("log.roll.hours").to_topic_value("9223372036854775807"),
        i64::MAX.to_string()
    );
    let names: Vec<_> = find("retention.ms")
        .unwrap()
        .synonyms
        .iter()
        .map(|s| s.name)
        .collect();
    assert_eq!(
        names,
        [
            "log.retention.ms",
            "log.retention.minutes",
            "log.retention.hours"
        ]
    );
}
