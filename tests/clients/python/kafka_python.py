"""kafka-python (2.0.2 and 3) as applications use it: produce with each codec, read, group, admin."""

import os
import threading
import time

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic

from steps import BOOTSTRAP, CODECS, LIMIT_S, PARTITIONS, RECORDS, TIME_BASE_MS, digest, name, step, until


def produce(codec):
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", linger_ms=20,
                             compression_type=None if codec == "none" else codec)
    sent = [producer.send(name("codecs"), key=b"k", value=f"{codec}-{i}".encode()) for i in range(RECORDS)]
    for future in sent:
        future.get(timeout=LIMIT_S)
    producer.close()
    return f"{RECORDS} acknowledged"


def read(stem, start, count):
    consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP, consumer_timeout_ms=LIMIT_S * 1000, auto_offset_reset="earliest")
    at = TopicPartition(name(stem), 0)
    consumer.assign([at])
    consumer.seek(at, start)
    values = []
    for record in consumer:
        values.append(record.value.decode())
        if len(values) == count:
            break
    consumer.close()
    return digest(values)


def from_time():
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all")
    for i in range(RECORDS):
        producer.send(name("time"), value=f"t-{i}".encode(), timestamp_ms=TIME_BASE_MS + i * 1000).get(timeout=LIMIT_S)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP)
    at = TopicPartition(name("time"), 0)
    offset = consumer.offsets_for_times({at: TIME_BASE_MS + 6500})[at].offset
    ends = consumer.beginning_offsets([at])[at], consumer.end_offsets([at])[at]
    consumer.close()
    return f"offset {offset} of {ends}, {read('time', offset, RECORDS - offset)}"


def fill(each):
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all")
    for i in range(each * PARTITIONS):
        producer.send(name("group"), value=b"v", partition=i % PARTITIONS).get(timeout=LIMIT_S)
    producer.close()


class Member:
    """Reads in the group until it is stopped; each poll is committed."""

    def __init__(self, seen):
        self.seen = seen
        self.share = 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        consumer = KafkaConsumer(name("group"), bootstrap_servers=BOOTSTRAP, group_id=name("g"), auto_offset_reset="earliest",
                                 enable_auto_commit=False, session_timeout_ms=10000, heartbeat_interval_ms=500)
        while not self.stopping.is_set():
            for records in consumer.poll(timeout_ms=200).values():
                self.seen.update((r.partition, r.offset) for r in records)
                consumer.commit()
            self.share = len(consumer.assignment())
        consumer.close()

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


def admin_steps(admin):
    step("admin list topics", lambda: name("group") in admin.list_topics())
    step("admin describe topics", lambda: sorted(
        (t.get("error_code"), len(t["partitions"])) for t in admin.describe_topics([name("group"), name("nowhere")])))
    step("admin describe configs", lambda: "retention.ms" in str(
        admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name("codecs"))])))
    step("admin describe cluster", lambda: len(admin.describe_cluster()["brokers"]))
    step("admin alter configs", lambda: "altered" if admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, name("codecs"), {"retention.ms": "86400000"})]) is not None else None)
    step("admin create partitions", lambda: "grown" if admin.create_partitions({name("time"): NewPartitions(3)}) is not None else None)
    step("admin list groups", lambda: name("g") in str(admin.list_consumer_groups() if hasattr(admin, "list_consumer_groups") else admin.list_groups()))
    step("admin describe group", lambda: "Empty" in str(
        admin.describe_consumer_groups([name("g")]) if hasattr(admin, "describe_consumer_groups") else admin.describe_groups([name("g")])))
    offsets = getattr(admin, "list_consumer_group_offsets", None) or admin.list_group_offsets
    step("admin group offsets", lambda: sum(_offset(o) for o in _flat(offsets(name("g")))))
    delete_groups = getattr(admin, "delete_consumer_groups", None) or admin.delete_groups
    step("admin delete group", lambda: "deleted" if delete_groups([name("g")]) is not None else None)
    step("admin delete topic", lambda: "deleted" if admin.delete_topics([name("codecs")]) is not None else None)


def _flat(found):
    for value in found.values():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield value


def _offset(value):
    return value.offset if hasattr(value, "offset") else int(value)


def main():
    step("version", lambda: kafka.__version__)
    admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    step("admin create", lambda: "created" if admin.create_topics(
        [NewTopic(name("codecs"), 1, 1), NewTopic(name("time"), 1, 1), NewTopic(name("group"), PARTITIONS, 1)]) is not None else None)
    for codec in CODECS:
        step(f"produce {codec}", lambda codec=codec: produce(codec))
    step("read from the start", lambda: read("codecs", 0, len(CODECS) * RECORDS))
    step("read from a time", from_time)
    step("group", group)
    admin_steps(admin)
    # Threads of a client that hangs must not keep the process.
    os._exit(0)


main()
