"""librdkafka as it is now, through the Python client that carries it: produce with each codec, read, group, admin."""

import os
import threading
import time

from confluent_kafka import (OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicCollection,
                             TopicPartition, libversion)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec

from steps import BOOTSTRAP, CODECS, LIMIT_S, PARTITIONS, RECORDS, TIME_BASE_MS, digest, name, step, until


def send(codec, records):
    """Sends (topic, partition, value, timestamp or 0)."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "compression.type": codec, "acks": "all", "linger.ms": 20,
                         "message.timeout.ms": 30000})
    errors = []
    for stem, partition, value, timestamp in records:
        producer.produce(name(stem), value, partition=partition, timestamp=timestamp,
                         on_delivery=lambda error, _: errors.append(error))
    producer.flush(LIMIT_S)
    failed = [e for e in errors if e is not None]
    if failed or len(errors) != len(records):
        raise KafkaException(failed[0] if failed else "not delivered")


def produce(codec):
    send(codec, [("codecs", 0, f"{codec}-{i}", 0) for i in range(RECORDS)])
    return f"{RECORDS} acknowledged"


def consumer(group):
    return Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                     "session.timeout.ms": 10000, "heartbeat.interval.ms": 500})


def read(stem, start, count):
    reader = consumer(name("alone"))
    reader.assign([TopicPartition(name(stem), 0, start)])
    values, end = [], time.time() + LIMIT_S
    while len(values) < count and time.time() < end:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value().decode())
    reader.close()
    return digest(values)


def from_time():
    send("none", [("time", 0, f"t-{i}", TIME_BASE_MS + i * 1000) for i in range(RECORDS)])
    reader = consumer(name("alone"))
    [at] = reader.offsets_for_times([TopicPartition(name("time"), 0, TIME_BASE_MS + 6500)], timeout=20)
    ends = reader.get_watermark_offsets(TopicPartition(name("time"), 0), timeout=20)
    reader.close()
    return f"offset {at.offset} of {ends}, {read('time', at.offset, RECORDS - at.offset)}"


def fill(each):
    send("none", [("group", i % PARTITIONS, "v", 0) for i in range(each * PARTITIONS)])


class Member:
    """Reads in the group until it is stopped; each record is committed."""

    def __init__(self, seen):
        self.seen = seen
        self.share = 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        reader = consumer(name("g"))
        reader.subscribe([name("group")])
        while not self.stopping.is_set():
            message = reader.poll(0.1)
            if message is not None and message.error() is None:
                self.seen.add((message.partition(), message.offset()))
                reader.commit(message, asynchronous=False)
            self.share = len(reader.assignment())
        reader.close()

    def stop(self):
        self.stopping.set()
        self.thread.join(LIMIT_S)


def group():
    fill(10)
    seen = set()
    members = [Member(seen), Member(seen)]
    until("records", lambda: len(seen) == 10 * PARTITIONS)
    until("shares of 2", lambda: [m.share for m in members] == [2, 2])
    for member in members:
        member.stop()
    fill(1)
    again = set()
    member = Member(again)
    until("records", lambda: len(again) >= PARTITIONS)
    time.sleep(0.5)
    member.stop()
    return f"{len(seen)} read by two with shares of 2, then {len(again)}"


def one(futures):
    """The result of the only future."""
    [future] = futures.values()
    return future.result(LIMIT_S)


def admin_steps(admin):
    topic = ConfigResource(ConfigResource.Type.TOPIC, name("codecs"))
    step("admin metadata", lambda: len(admin.list_topics(name("group"), timeout=20).topics[name("group")].partitions))
    step("admin describe topics", lambda: len(one(admin.describe_topics(TopicCollection([name("group")]))).partitions))
    step("admin describe cluster", lambda: len(admin.describe_cluster().result(LIMIT_S).nodes))
    step("admin describe configs", lambda: one(admin.describe_configs([topic]))["retention.ms"].value)
    topic.add_incremental_config(ConfigEntry("retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET))
    step("admin alter configs", lambda: one(admin.incremental_alter_configs([topic])))
    step("admin create partitions", lambda: one(admin.create_partitions([NewPartitions(name("time"), 3)])))
    for spec in ("earliest", "latest"):
        step(f"admin list {spec} offset", lambda spec=spec: one(
            admin.list_offsets({TopicPartition(name("codecs"), 0): getattr(OffsetSpec, spec)()})).offset)
    step("admin delete records", lambda: one(admin.delete_records([TopicPartition(name("codecs"), 0, 5)])).low_watermark)
    step("admin list groups", lambda: any(g.group_id == name("g") for g in admin.list_consumer_groups().result(LIMIT_S).valid))
    step("admin describe group", lambda: str(one(admin.describe_consumer_groups([name("g")])).state))
    step("admin group offsets", lambda: sum(
        p.offset for p in one(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name("g"))])).topic_partitions))
    step("admin delete group", lambda: one(admin.delete_consumer_groups([name("g")])))
    step("admin delete topic", lambda: one(admin.delete_topics([name("codecs")])))
    step("admin delete a missing topic", lambda: one(admin.delete_topics([name("nowhere")])))


def main():
    step("version", lambda: libversion()[0])
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "log_level": 0})

    def create():
        made = admin.create_topics([NewTopic(name("codecs"), 1, 1), NewTopic(name("time"), 1, 1), NewTopic(name("group"), PARTITIONS, 1)])
        for future in made.values():
            future.result(LIMIT_S)
        return "created"

    step("admin create", create)
    for codec in CODECS:
        step(f"produce {codec}", lambda codec=codec: produce(codec))
    step("read from the start", lambda: read("codecs", OFFSET_BEGINNING, len(CODECS) * RECORDS))
    step("read from a time", from_time)
    step("group", group)
    admin_steps(admin)
    # Threads of a client that hangs must not keep the process.
    os._exit(0)


main()
