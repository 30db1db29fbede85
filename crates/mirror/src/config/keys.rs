//! The table of mirror-level keys and the aliases of their names. Data only; the types are in
//! [`tarn_metadata::config`].

use tarn_metadata::config::ConfigType::{
    Boolean, Class, Int, List, Long, Password, String as Text,
};
use tarn_metadata::config::{ConfigDef, ConfigValue, Importance, Validator};

use super::patterns::Patterns;

/// Longest `bootstrap.servers`, in entries.
const BOOTSTRAP_ENTRIES_MAX: usize = 256;

fn addresses(value: &ConfigValue) -> Result<(), String> {
    let ConfigValue::List(list) = value else {
        return Err("must be a list of host:port".into());
    };
    if list.is_empty() || list.len() > BOOTSTRAP_ENTRIES_MAX {
        return Err(format!(
            "must name between 1 and {BOOTSTRAP_ENTRIES_MAX} addresses, each host:port"
        ));
    }
    for address in list {
        let port = address
            .rsplit_once(':')
            .filter(|(host, _)| !host.is_empty())
            .and_then(|(_, p)| p.parse::<u16>().ok());
        if port.is_none_or(|p| p == 0) {
            return Err(format!("'{address}' is not host:port"));
        }
    }
    Ok(())
}

fn regexes(value: &ConfigValue) -> Result<(), String> {
    match value {
        ConfigValue::List(list) => Patterns::shared(list)
            .map(|_| ())
            .map_err(|e| e.to_string()),
        _ => Err("must be a list of regular expressions".into()),
    }
}

const ADDRESSES: Validator = Validator::Rule(addresses, "must be a list of host:port");
const REGEXES: Validator =
    Validator::Rule(regexes, "must be a list of names or regular expressions");

/// Topic configs that stay local by default: those that describe brokers of one cluster, and those
/// that would change the bytes or the safety of the copy. Both spellings of the timestamp limits,
/// because the prototype's default names keys that do not exist.
const EXCLUDED_PROPERTIES: &str = "follower.replication.throttled.replicas,leader.replication.throttled.replicas,\
message.timestamp.difference.max.ms,log.message.timestamp.before.max.ms,log.message.timestamp.after.max.ms,\
message.timestamp.before.max.ms,message.timestamp.after.max.ms,unclean.leader.election.enable,mirror.local.retention,\
min.insync.replicas,mirror.replication.throttled.replicas,mirror.support.unclean.leader.election";

/// Topic configs whose *effective* values at the source hold here too, whoever decides them there
/// (topic, broker or Kafka's default): how long records live and in which form they are kept. What
/// a copy is worth after failover must not depend on this broker's defaults.
pub const CARRIED: &[&str] = &[
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
];

const fn key(
    name: &'static str,
    kind: tarn_metadata::config::ConfigType,
    default: Option<&'static str>,
    doc: &'static str,
) -> ConfigDef {
    ConfigDef::new(name, kind, default, doc)
}

/// Every key of a mirror, connection keys first.
pub static KEYS: &[ConfigDef] = &[
    key("bootstrap.servers", List, None, "Addresses of brokers of the source cluster, host:port.").valid(ADDRESSES).importance(Importance::High),
    key("mirror.source.cluster.id", Text, None, "Id of the source cluster. Filled at the first contact, then it cannot be changed.").importance(Importance::High),
    key("request.timeout.ms", Int, Some("30000"), "Longest wait for an answer of the source.").valid(Validator::AtLeast(1)),
    key("socket.connection.setup.timeout.ms", Long, Some("10000"), "Longest wait for a connection to the source.").valid(Validator::AtLeast(1)),
    key("socket.connection.setup.timeout.max.ms", Long, Some("30000"), "Longest wait for a connection after repeated failures.").valid(Validator::AtLeast(1)),
    key("connections.max.idle.ms", Long, Some("600000"), "Idle connections to the source are closed after this time.").valid(Validator::AtLeast(-1)),
    key("mirror.fetch.wait.max.ms", Int, Some("1000"), "How long the source may hold back a fetch answer; twice that while nothing comes.").valid(Validator::AtLeast(0)),
    key("mirror.fetch.backoff.ms", Long, Some("1000"), "First pause of a fetcher after an error; it grows.").valid(Validator::AtLeast(0)),
    key("mirror.fetch.min.bytes", Int, Some("1"), "Bytes the source gathers before it answers a fetch.").valid(Validator::AtLeast(0)),
    key("mirror.fetch.response.max.bytes", Int, Some("10485760"), "Most bytes of one fetch answer. At its default answers grow up to 55 MiB where a distant source would leave the line idle.").valid(Validator::AtLeast(1)),
    key("mirror.fetch.max.bytes", Int, Some("1048576"), "Most bytes of one partition in a fetch answer; the few that are behind share the whole answer.").valid(Validator::AtLeast(1)),
    key("mirror.fetch.isolation.level", Text, Some("read_uncommitted"), "read_committed never copies past the source's last stable offset.")
        .valid(Validator::OneOf(&["read_uncommitted", "read_committed"])),
    key("mirror.socket.timeout.ms", Int, Some("30000"), "How long a fetch may take beyond its own wait.").valid(Validator::AtLeast(1)),
    key("mirror.socket.receive.buffer.bytes", Int, Some("65536"), "Receive buffer of fetch connections if set; -1 or unset leaves it to the system.")
        .valid(Validator::AtLeast(-1)),
    key("mirror.topic.properties.exclude", List, Some(EXCLUDED_PROPERTIES), "Topic configs that are not synchronised (regular expressions).")
        .valid(REGEXES).importance(Importance::Low),
    key("mirror.topics.include", List, Some(""), "Source topics that join by themselves (names or regular expressions).").valid(REGEXES).importance(Importance::Low),
    key("mirror.topics.exclude", List, Some("__.*"), "Topics that never join by themselves; wins over include.").valid(REGEXES).importance(Importance::Low),
    key("mirror.groups.include", List, Some(".*"), "Consumer groups whose offsets are synchronised.").valid(REGEXES).importance(Importance::Low),
    key("mirror.groups.exclude", List, Some(""), "Consumer groups whose offsets are not synchronised; wins over include.").valid(REGEXES).importance(Importance::Low),
    key("mirror.acl.include", List, Some("*"), "ACL rules that are synchronised.").importance(Importance::Low),
    key("mirror.acl.sync.enable", Boolean, Some("false"), "Synchronise ACLs although mirror.acl.include is not set.").importance(Importance::Low),
    key("mirror.source.topic.deletion.policy", Text, Some("fail"), "When a topic is deleted at the source: fail keeps it read-only, stop fails it over.")
        .valid(Validator::OneOf(&["fail", "stop"])),
    key("mirror.source.topic.deletion.after.ms", Long, Some("30000"), "How long the source must go on lacking a topic before it counts as deleted there; two looks must agree as well.")
        .valid(Validator::AtLeast(0)),
    key("mirror.allow.adopting.topics", Boolean, Some("false"), "Adding may take over an existing topic whose data this mirror did not write."),
    key("mirror.allow.full.truncation", Boolean, Some("false"), "Preparation may discard the whole local log of a topic."),
    key("mirror.local.retention", Boolean, Some("false"), "Local retention deletes from the topics of this mirror; otherwise their beginning follows the source alone."),
    key("mirror.visible.after", Text, Some("append"), "When readers here see copied records: append, as soon as a batch is whole, or durable, once it is on disk.")
        .valid(Validator::OneOf(&["append", "durable"])),
    key("mirror.lme.lookup.timeout.ms", Long, Some("60000"), "How long preparation waits for a source that knows our last mirror epoch but cannot say it.")
        .valid(Validator::AtLeast(0)),
    key("mirror.disconnect.fail.after.ms", Long, Some("-1"), "Partitions become FAILED when the source is away for so long; -1 = never.").valid(Validator::AtLeast(-1)),
    key("mirror.metadata.refresh.interval.ms", Long, None, "Pause between refreshes from the source; unset = the broker's.").valid(Validator::AtLeast(100)),
    key("security.protocol", Text, Some("PLAINTEXT"), "Protocol towards the source.").valid(Validator::OneOf(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])),
    key("security.providers", Text, None, "Kept for compatibility, not used.").importance(Importance::Low),
    key("sasl.mechanism", Text, Some("PLAIN"), "SASL mechanism towards the source."),
    key("sasl.jaas.config", Password, None, "SASL login towards the source."),
    key("sasl.client.callback.handler.class", Class, None, "Kept for compatibility, not used."),
    key("sasl.login.callback.handler.class", Class, None, "Kept for compatibility, not used."),
    key("sasl.login.class", Class, None, "Kept for compatibility, not used."),
    key("sasl.kerberos.service.name", Text, None, "Kerberos service name of the source."),
    key("ssl.protocol", Text, Some("TLSv1.3"), "TLS protocol towards the source."),
    key("ssl.provider", Text, None, "Kept for compatibility, not used."),
    key("ssl.cipher.suites", List, None, "Cipher suites towards the source."),
    key("ssl.enabled.protocols", List, Some("TLSv1.2,TLSv1.3"), "TLS versions towards the source."),
    key("ssl.keystore.type", Text, Some("JKS"), "Form of the key store."),
    key("ssl.keystore.location", Text, None, "Key store for client authentication."),
    key("ssl.keystore.password", Password, None, "Password of the key store."),
    key("ssl.keystore.key", Password, None, "Private key for client authentication, PEM."),
    key("ssl.keystore.certificate.chain", Password, None, "Certificate chain for client authentication, PEM."),
    key("ssl.key.password", Password, None, "Password of the private key."),
    key("ssl.truststore.type", Text, Some("JKS"), "Form of the trust store."),
    key("ssl.truststore.location", Text, None, "Trust store for the source's certificates."),
    key("ssl.truststore.password", Password, None, "Password of the trust store."),
    key("ssl.truststore.certificates", Password, None, "Trusted certificates, PEM."),
    key("ssl.keymanager.algorithm", Text, Some("SunX509"), "Kept for compatibility, not used."),
    key("ssl.trustmanager.algorithm", Text, Some("PKIX"), "Kept for compatibility, not used."),
    key("ssl.endpoint.identification.algorithm", Text, Some("https"), "Check of the source's host name; empty switches it off."),
    key("ssl.secure.random.implementation", Text, None, "Kept for compatibility, not used."),
    key("ssl.engine.factory.class", Class, None, "Kept for compatibility, not used."),
];

/// Other spellings: (alias, canonical). The late `acls` form, and the next generation's names
/// without prefix.
pub const ALIASES: &[(&str, &str)] = &[
    ("mirror.acls.include", "mirror.acl.include"),
    ("acls.include", "mirror.acl.include"),
    ("source.cluster.id", "mirror.source.cluster.id"),
    ("fetch.wait.max.ms", "mirror.fetch.wait.max.ms"),
    ("fetch.backoff.ms", "mirror.fetch.backoff.ms"),
    ("fetch.min.bytes", "mirror.fetch.min.bytes"),
    (
        "fetch.response.max.bytes",
        "mirror.fetch.response.max.bytes",
    ),
    ("fetch.max.bytes", "mirror.fetch.max.bytes"),
    ("socket.timeout.ms", "mirror.socket.timeout.ms"),
    (
        "socket.receive.buffer.bytes",
        "mirror.socket.receive.buffer.bytes",
    ),
    (
        "topic.properties.exclude",
        "mirror.topic.properties.exclude",
    ),
    ("topics.include", "mirror.topics.include"),
    ("topics.exclude", "mirror.topics.exclude"),
    ("groups.include", "mirror.groups.include"),
    ("groups.exclude", "mirror.groups.exclude"),
];
