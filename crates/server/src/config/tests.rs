//! Tests of reading a configuration as a whole.

use super::*;

const BASE: &str = "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n\
    controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:9093\nlog.dirs=a, b\n";

fn load(extra: &str) -> Result<(Config, Vec<ConfigWarning>), ConfigError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.properties");
    std::fs::write(&path, format!("{BASE}{extra}")).unwrap();
    Config::load(Some(&path), &[])
}

#[test]
fn kafkas_usual_file_is_read() {
    let (config, warnings) = load("").unwrap();
    assert_eq!(
        (
            config.node_id,
            config.listeners.len(),
            config.controller_listeners.len()
        ),
        (1, 1, 1)
    );
    assert_eq!(config.advertised_listeners[0].port, 9092);
    assert_eq!(config.log_dirs.len(), 2);
    assert_eq!(config.number("num.partitions"), 1);
    assert!(warnings.is_empty());
}

#[test]
fn an_unknown_key_is_a_warning_with_its_line() {
    let (_, warnings) = load("no.such.key=1\n").unwrap();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].location.ends_with("server.properties:7")
            && warnings[0].message.contains("no.such.key")
    );
}

#[test]
fn a_bad_value_names_file_line_and_range() {
    let error = load("\nnum.partitions=0\n").unwrap_err().to_string();
    assert!(
        error.contains("server.properties:8") && error.contains("at least 1"),
        "{error}"
    );
}

#[test]
fn other_security_protocols_are_refused_with_a_sentence() {
    let error = load("listener.security.protocol.map=PLAINTEXT:SSL,CONTROLLER:PLAINTEXT\n")
        .unwrap_err()
        .to_string();
    assert!(error.contains("only PLAINTEXT is supported yet"), "{error}");
}

#[test]
fn retention_prefers_ms_over_minutes_over_hours() {
    let def = ConfigDef::new(
        "retention.ms",
        tarn_metadata::config::ConfigType::Long,
        Some("604800000"),
        "",
    )
    .synonyms(&RETENTION);
    assert_eq!(
        load("log.retention.hours=1\n")
            .unwrap()
            .0
            .topic_default(&def)
            .unwrap(),
        "3600000"
    );
    assert_eq!(
        load("log.retention.hours=1\nlog.retention.minutes=1\n")
            .unwrap()
            .0
            .topic_default(&def)
            .unwrap(),
        "60000"
    );
    assert_eq!(
        load("log.retention.ms=5\nlog.retention.minutes=1\n")
            .unwrap()
            .0
            .topic_default(&def)
            .unwrap(),
        "5"
    );
    assert_eq!(
        load("").unwrap().0.topic_default(&def).unwrap(),
        "604800000"
    );
}

const RETENTION: [tarn_metadata::config::BrokerSynonym; 3] = [
    tarn_metadata::config::BrokerSynonym::same("log.retention.ms"),
    tarn_metadata::config::BrokerSynonym::minutes("log.retention.minutes"),
    tarn_metadata::config::BrokerSynonym::hours("log.retention.hours"),
];

#[test]
fn an_override_wins_and_is_named_in_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, BASE).unwrap();
    let set = |value: &str| {
        Config::load(
            Some(&path),
            &[("num.partitions".to_owned(), value.to_owned())],
        )
    };
    assert_eq!(set("7").unwrap().0.number("num.partitions"), 7);
    assert!(set("x").unwrap_err().to_string().starts_with("--override"));
}

#[test]
fn missing_node_id_and_roles_say_what_to_write() {
    let error = Config::from_pairs(&[("process.roles", "broker,controller")])
        .unwrap_err()
        .to_string();
    assert!(error.contains("node.id"), "{error}");
    let error = Config::from_pairs(&[("node.id", "1")])
        .unwrap_err()
        .to_string();
    assert!(error.contains("process.roles=broker,controller"), "{error}");
}

/// A listener that clients use too proves nothing about its callers.
#[test]
fn only_a_listener_of_its_own_is_for_brokers() {
    let config = |listeners: &str, inter_broker: &str| {
        let pairs = [
            ("process.roles", "broker,controller"),
            ("node.id", "1"),
            ("listeners", listeners),
            (
                "listener.security.protocol.map",
                "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            ),
            ("controller.listener.names", "CONTROLLER"),
            ("controller.quorum.voters", "1@127.0.0.1:9093"),
            ("log.dirs", "a"),
            ("inter.broker.listener.name", inter_broker),
        ];
        Config::from_pairs(&pairs).unwrap()
    };
    let two = "PLAINTEXT://:9092,INTERNAL://:9094,CONTROLLER://:9093";
    assert!(config(two, "INTERNAL").is_for_brokers_only("INTERNAL"));
    assert!(!config(two, "INTERNAL").is_for_brokers_only("PLAINTEXT"));
    let one = "PLAINTEXT://:9092,CONTROLLER://:9093";
    assert!(!config(one, "PLAINTEXT").is_for_brokers_only("PLAINTEXT"));
}

/// `authorizer.class.name` and its like end the start, with file, line and a sentence.
#[test]
fn a_security_key_that_is_not_obeyed_ends_the_start() {
    for line in ["super.users=User:a", "allow.everyone.if.no.acl.found=false"] {
        let error = load(&format!("{line}\n")).unwrap_err().to_string();
        assert!(
            error.contains("server.properties:7") && error.contains("does not give"),
            "{error}"
        );
    }
}

/// The keys without effect of a stock file are one note, not a warning each.
#[test]
fn keys_without_effect_are_one_note() {
    let stock = "num.network.threads=3\nnum.io.threads=8\ntransaction.state.log.min.isr=1\n\
        transaction.state.log.replication.factor=1\nshare.coordinator.state.topic.min.isr=1\n";
    let (_, warnings) = load(stock).unwrap();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].is_note && warnings[0].message.contains("num.io.threads, num.network"));
}

/// A key that a change at run time would not reach is not alterable.
#[test]
fn only_keys_that_take_effect_at_once_can_be_altered() {
    let find = |name: &str| {
        let found = keys::definitions().iter().find(|def| def.name == name);
        found.is_some_and(|def| def.dynamic)
    };
    for name in [
        "fetch.max.bytes",
        "max.connections.per.ip",
        "mirror.fetch.max.bytes",
        "log.retention.ms",
    ] {
        assert!(find(name), "{name}");
    }
    for name in [
        "num.io.threads",
        "ssl.keystore.location",
        "listeners",
        "mirror.num.replica.fetchers",
    ] {
        assert!(!find(name), "{name}");
    }
}

/// A key that the table calls without effect is read nowhere, and so has none.
#[test]
fn keys_without_effect_are_read_nowhere() {
    fn sources(dir: &std::path::Path, all: &mut Vec<(std::path::PathBuf, String)>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, all);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                all.push((path, text));
            }
        }
    }
    let src = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    sources(&src, &mut all);
    let tables = src.join("config/keys");
    // One file names keys only to refuse them.
    let others = |path: &std::path::Path| {
        path.starts_with(&tables)
            || ["keys.rs", "tests.rs", "security.rs"]
                .iter()
                .any(|name| path.ends_with(name))
    };
    all.retain(|(path, _)| !others(path));
    assert!(all.len() > 20);
    for key in keys::all().filter(|key| !key.effect) {
        let literal = format!("\"{}\"", key.def.name);
        for (path, text) in &all {
            assert!(
                !text.contains(&literal),
                "{} reads {literal}",
                path.display()
            );
        }
    }
}
