//! Broker keys that Kafka 4.3 does not have: durability, and the broker-wide keys of cluster
//! mirroring.

use super::{BrokerKey, dynamic, inert, read_only};
use tarn_metadata::config::ConfigType::{Boolean, Int, Long, String};
use tarn_metadata::config::ConfigValue;
use tarn_metadata::config::Validator::{Any, AtLeast, Between, OneOf, Rule};

#[rustfmt::skip]
pub(super) const KEYS: &[BrokerKey] = &[
    read_only("log.ack.durability", String, Some("disk"), OneOf(&["disk", "page-cache"]), "When acks=all is answered: after the records are on disk, or once they are in the page cache as Kafka does."),
    read_only("log.dir.stall.timeout.ms", Long, Some("30000"), AtLeast(1000), "A log directory whose file system has not come back from a call for this long is offline. Before that, what needs it is refused and everything else goes on."),
    read_only("log.open.files.max", Int, Some("-1"), AtLeast(-1), "Most files of logs kept open; at the bound idle ones are synced and closed. -1: half of the limit of open files of the process, at most 65536. The rest is for connections."),
    dynamic("log.scrub.bytes.per.second", Long, Some("4194304"), AtLeast(0), "How fast each log directory is read in the background to find rot before a reader does; 0 = never."),
    dynamic("log.scrub.interval.ms", Long, Some("604800000"), AtLeast(1000), "How often each log directory is read as a whole by the scrub; the first time ten minutes after the start, or after this time when it is shorter."),
    dynamic("log.roll.min.interval.ms", Long, Some("1000"), AtLeast(0), "How fast a partition may start segments before the last one is full (segment.ms, segment.index.bytes, offsets that do not fit), after ten at once. A roll that is only due waits for it; a batch that cannot wait is refused with an error that can be retried. 0 = no limit."),
    read_only("decompression.threads", Int, Some("2"), AtLeast(1), "How many compressed batches are read at the same time, to check what producers send, to bring it into another codec, and to find offsets by time. They take turns piece by piece."),
    read_only("decompression.memory.bytes", Long, Some("134217728"), AtLeast(1048576), "What codecs may hold while they read compressed batches, all of them together. A batch that claims more than all of it is read alone."),
    read_only("socket.frame.timeout.ms", Int, Some("60000"), AtLeast(1000), "A request that began to arrive must be complete after this time, the wait for memory included; else its connection is closed."),
    read_only("request.max.elements", Int, Some("100000"), AtLeast(1000), "Most elements in the lists of one request, nested ones included; a request with more is refused by closing its connection."),
    read_only("request.partitions.max", Int, Some("10000"), Between(1, 100000), "Most new partitions that one CreateTopics or CreatePartitions request may ask for, all its topics together, as in Kafka; more are refused with POLICY_VIOLATION. Topics that a mirror copies are not bound by it."),
    read_only("response.max.bytes", Int, Some("67108864"), AtLeast(65536), "Longest answer whose length its request does not bound (descriptions, committed offsets); what does not fit is answered with POLICY_VIOLATION."),
    read_only("queued.max.response.bytes", Long, Some("-1"), Any, "Budget for the bytes of large answers in memory over all connections; what does not fit is answered with THROTTLING_QUOTA_EXCEEDED; -1: an eighth of the machine's memory."),
    read_only("queued.max.percent.per.connection", Int, Some("25"), Between(1, 100), "Share of the budgets of requests and answers that one connection may use; it is not read until its share is free."),
    read_only("queued.max.percent.per.ip", Int, Some("50"), Between(1, 100), "Share of the budgets of requests and answers that all connections of one address may use together."),
    read_only("socket.unread.response.max.bytes", Int, Some("1048576"), Between(1024, 536870911), "Bytes of answers that a client has not taken yet before no further request of its connection is read."),
    dynamic("fetch.wait.max.ms", Int, Some("60000"), AtLeast(0), "Longest wait of a Fetch for its minimum of bytes, whatever the client asks for; it is answered with what is there then."),
    dynamic("produce.wait.max.ms", Int, Some("300000"), AtLeast(0), "Longest wait of a Produce for its acknowledgement, whatever the client asks for; it is answered with REQUEST_TIMED_OUT then."),
    read_only("fetch.session.max.partitions", Int, Some("20000"), AtLeast(1), "Most partitions of one incremental fetch session; a client with more is served without a session."),
    read_only("fetch.sessions.max.partitions", Int, Some("200000"), AtLeast(1), "Most partitions of all incremental fetch sessions together; idle sessions give way, and clients without a place are served without a session."),
    read_only("auto.create.topics.request.max", Int, Some("1000"), AtLeast(1), "Most topics that one Metadata request creates; the others are unknown until the client asks again."),
    dynamic("producer.ids.per.partition.max", Int, Some("10000"), AtLeast(100), "Most producer ids remembered for one partition; beyond it the one idle longest is forgotten, and its next batch is taken for a new producer's."),
    read_only("group.max.id.bytes", Int, Some("8192"), Between(249, 32000), "Longest id or name that the group coordinator stores (group, instance, client, protocol); longer ones are refused with INVALID_REQUEST or INVALID_GROUP_ID."),
    read_only("group.max.protocols", Int, Some("128"), AtLeast(1), "Most protocols that one member may offer; more are refused with INVALID_REQUEST."),
    read_only("group.max.bytes", Int, Some("16777216"), Between(65536, 67108864), "Most bytes of ids, metadata and assignments of one group; a member that does not fit is refused with GROUP_MAX_SIZE_REACHED."),
    read_only("group.max.rebalance.timeout.ms", Int, Some("86400000"), AtLeast(1000), "Longest wait for the members of a group to join again; a longer rebalance timeout is lowered to it."),
    read_only("mirror.enable", Boolean, Some("true"), Any, "Whether this broker mirrors topics and announces the mirror APIs."),
    read_only("mirror.read.only.error.code", Int, Some("44"), Rule(read_only_code, "must be 44 or 134"), "Error code of writes to a mirror topic: 44 for stock clients, 134 as the prototype answers."),
    read_only("mirror.wire.dialect", String, Some("auto"), OneOf(&["auto", "early", "late", "next"]), "Which bodies of the mirror APIs are accepted, and which form answers an ambiguous request. auto: each caller is answered in the form that it, or else anybody, has proven last."),
    read_only("mirror.wire.dialect.callers.max", Int, Some("1000"), Between(1, 1_000_000), "Callers (address and client id) of the mirror APIs whose form is remembered; beyond it the one that proved its form first is forgotten."),
    read_only("mirror.state.topic.num.partitions", Int, Some("50"), AtLeast(1), "Partition count of __mirror_state, used when it is created."),
    read_only("mirror.topic.num.partitions", Int, None, AtLeast(1), "Other spelling of mirror.state.topic.num.partitions."),
    read_only("mirror.state.topic.replication.factor", Int, None, Between(1, 32767), "Replication factor of __mirror_state; not set: the smaller of 3 and the live brokers."),
    read_only("mirror.topic.replication.factor", Int, None, Between(1, 32767), "Other spelling of mirror.state.topic.replication.factor."),
    read_only("mirror.num.replica.fetchers", Int, Some("2"), AtLeast(1), "Fetchers for each source broker; while one receives, the other one's answer is on its way. With 2, a source 20 ms away or more gets 4."),
    dynamic("mirror.metadata.refresh.interval.ms", Long, Some("30000"), AtLeast(0), "How often the topics, partitions and settings of a source are looked at."),
    dynamic("mirror.fetch.backoff.ms", Long, Some("1000"), AtLeast(0), "Pause of a fetcher after an error."),
    read_only("mirror.truncation.backoff.ms", Long, Some("5000"), AtLeast(0), "Pause before a truncation or a reset marker is tried again."),
    read_only("mirror.failed.retry.initial.backoff.ms", Long, Some("1000"), AtLeast(1), "First pause before a failed partition is tried again."),
    read_only("mirror.failed.retry.max.backoff.ms", Long, Some("300000"), AtLeast(1), "Longest pause before a failed partition is tried again."),
    read_only("mirror.failed.retry.max.attempts", Int, Some("100"), Between(0, 32767), "How often a failed partition is tried again; 0 = never."),
    dynamic("mirror.fetch.wait.max.ms", Int, Some("1000"), AtLeast(0), "Default of the mirror key of this name: how long a fetch waits at the source."),
    dynamic("mirror.fetch.min.bytes", Int, Some("1"), AtLeast(0), "Default of the mirror key of this name: bytes for which a fetch waits."),
    dynamic("mirror.fetch.max.bytes", Int, Some("1048576"), AtLeast(0), "Default of the mirror key of this name: bytes of one partition in a fetch."),
    dynamic("mirror.fetch.response.max.bytes", Int, Some("10485760"), AtLeast(0), "Default of the mirror key of this name: bytes of one fetch."),
    dynamic("mirror.socket.timeout.ms", Int, Some("30000"), AtLeast(1), "Default of the mirror key of this name: longest wait for an answer of the source."),
    dynamic("mirror.socket.receive.buffer.bytes", Int, Some("-1"), AtLeast(-1), "Default of the mirror key of this name; -1 leaves it to the system."),
    inert("mirror.replication.throttled.rate", Long, Some("9223372036854775807"), AtLeast(0), "throttling of mirror traffic"),
    inert("mirror.admin.listener.name", String, None, Any, "the prototype's own admin client"),
    inert("sasl.mechanism.mirror.admin.protocol", String, None, Any, "the prototype's own admin client"),
    inert("mirror.coordinator.threads", Int, Some("1"), AtLeast(1), "tuning of another coordinator implementation"),
    inert("mirror.coordinator.write.timeout.ms", Int, Some("5000"), AtLeast(1), "tuning of another coordinator implementation"),
    inert("mirror.coordinator.append.linger.ms", Int, Some("10"), AtLeast(-1), "tuning of another coordinator implementation"),
    inert("mirror.coordinator.load.buffer.size", Int, Some("5242880"), AtLeast(1), "tuning of another coordinator implementation"),
    dynamic("mirror.fetch.isolation.level", String, Some("read_uncommitted"), OneOf(&["read_uncommitted", "read_committed"]), "Default of the mirror key of this name: how far a mirror reads at the source."),
    dynamic("mirror.visible.after", String, Some("append"), OneOf(&["append", "durable"]), "Default of the mirror key of this name: when readers here see copied records, once a batch is whole or once it is on disk."),
    dynamic("mirror.source.topic.deletion.policy", String, Some("fail"), OneOf(&["fail", "stop"]), "Default of the mirror key of this name: what happens when a topic is deleted at the source."),
    dynamic("mirror.source.topic.deletion.after.ms", Long, Some("30000"), AtLeast(0), "Default of the mirror key of this name: how long the source must go on lacking a topic before it counts as deleted."),
    dynamic("mirror.local.retention", Boolean, Some("false"), Any, "Default of the mirror key of this name: whether local retention deletes from topics that are mirrors."),
    dynamic("mirror.allow.adopting.topics", Boolean, Some("false"), Any, "Default of the mirror key of this name: whether topics with data that no mirror made may be added."),
    dynamic("mirror.allow.full.truncation", Boolean, Some("false"), Any, "Default of the mirror key of this name: whether a log with own writes may be discarded."),
    dynamic("mirror.lme.lookup.timeout.ms", Long, Some("30000"), AtLeast(1), "Default of the mirror key of this name: longest wait for the look-up of the last mirrored epoch."),
    dynamic("mirror.disconnect.fail.after.ms", Long, Some("-1"), AtLeast(-1), "Default of the mirror key of this name: when an unreachable source turns partitions FAILED; -1 = never."),
    inert("mirror.acl.sync.enable", Boolean, Some("false"), Any, "synchronisation of ACLs"),
    read_only("mirror.describe.configs.sensitive.values", Boolean, Some("false"), Any, "Whether DescribeConfigs of a mirror shows passwords, which the prototype's tool needs."),
];

fn read_only_code(value: &ConfigValue) -> Result<(), std::string::String> {
    match value.as_i64() {
        Some(44 | 134) => Ok(()),
        _ => Err("must be 44 or 134".to_owned()),
    }
}
