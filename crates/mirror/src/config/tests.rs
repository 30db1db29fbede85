//! Keys, spellings, refusals and redaction.

use super::*;

#[test]
fn every_default_is_valid_and_every_alias_leads_to_a_key() {
    for def in KEYS {
        if let Some(default) = def.default {
            assert!(def.parse(default).is_ok(), "{}", def.name);
        }
        assert_eq!(
            KEYS.iter().filter(|d| d.name == def.name).count(),
            1,
            "{}",
            def.name
        );
    }
    for (alias, name) in ALIASES {
        assert!(
            definition(alias).is_some_and(|d| d.name == *name),
            "{alias}"
        );
        assert!(
            !KEYS.iter().any(|d| d.name == *alias),
            "{alias} is not a key of its own"
        );
    }
}

#[test]
fn unknown_and_malformed_keys_are_refused_with_text() {
    let text = |k, v| validate(k, v).unwrap_err().to_string();
    assert_eq!(
        text("no.such", "1"),
        "Unknown mirror configuration: no.such"
    );
    assert!(text("mirror.fetch.min.bytes", "x").contains("mirror.fetch.min.bytes"));
    assert!(text("bootstrap.servers", "nohost").contains("host:port"));
    assert!(text("mirror.topics.include", "a(").contains("Invalid topic pattern"));
    assert!(text("security.protocol", "SSL").contains("PLAINTEXT only"));
    assert!(validate("security.protocol", "PLAINTEXT").is_ok());
    assert!(validate("bootstrap.servers", "a:9092, [::1]:9093").is_ok());
}

#[test]
fn all_spellings_reach_the_same_value_and_the_asked_one_is_returned() {
    let config = MirrorConfig::new([("bootstrap.servers", "s:9092"), ("topics.include", "a.*")]);
    assert_eq!(config.get("mirror.topics.include"), Some("a.*"));
    assert_eq!(config.get("topics.include"), Some("a.*"));
    let asked = describe(&config, Some(&[Str::from("topics.include")]), false);
    assert_eq!(
        (asked[0].name.as_str(), asked[0].is_set),
        ("topics.include", true)
    );
    let (include, exclude) = config.topic_patterns().unwrap();
    assert!(
        include.matches("abc") && exclude.matches("__consumer_offsets"),
        "the default exclude stays"
    );
}

#[test]
fn passwords_are_redacted_unless_the_broker_says_otherwise() {
    let config = MirrorConfig::new([("sasl.jaas.config", "secret")]);
    let find = |show| {
        describe(&config, None, show)
            .into_iter()
            .find(|k| k.name == "sasl.jaas.config")
            .unwrap()
    };
    assert_eq!((find(false).value, find(false).sensitive), (None, true));
    assert_eq!(find(true).value.as_deref(), Some("secret"));
}

#[test]
fn both_spellings_of_timestamp_limits_stay_local() {
    let excluded = MirrorConfig::default().excluded_properties().unwrap();
    for key in [
        "message.timestamp.before.max.ms",
        "log.message.timestamp.before.max.ms",
        "min.insync.replicas",
    ] {
        assert!(excluded.matches(key), "{key}");
    }
    assert!(!excluded.matches("retention.ms"));
}

#[test]
fn settings_have_the_documented_defaults() {
    let broker = BrokerSettings::new(1, Str::from("us"));
    let settings = MirrorConfig::new([("bootstrap.servers", "a:1,b:2")])
        .source_settings(&Str::from("m"), &broker);
    assert_eq!(settings.connection.bootstrap_servers.len(), 2);
    assert_eq!(
        settings.connection.receive_buffer_bytes, -1,
        "auto-tuning unless asked"
    );
    assert_eq!(settings.fetch.partition_bytes_max, 1_048_576);
    assert_eq!(settings.fetch.disconnect_fail_after_ms, None);
    assert_eq!(settings.cluster_id, None);
    assert!(reconnects("bootstrap.servers") && !reconnects("mirror.fetch.min.bytes"));
}
