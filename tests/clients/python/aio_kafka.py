"""aiokafka as applications use it: produce with each codec, read, group, admin."""

import asyncio

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from steps import BOOTSTRAP, CODECS, LIMIT_S, PARTITIONS, RECORDS, TIME_BASE_MS, digest, failure, name, tell


async def step(what, run):
    try:
        outcome = await asyncio.wait_for(run(), 2 * LIMIT_S)
    except TimeoutError:
        outcome = "hangs"
    except Exception as error:  # noqa: BLE001 - every failure is an outcome
        outcome = failure(error)
    tell(what, outcome)


async def produce(codec):
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", linger_ms=20,
                                compression_type=None if codec == "none" else codec) as producer:
        sent = [await producer.send(name("codecs"), key=b"k", value=f"{codec}-{i}".encode()) for i in range(RECORDS)]
        for future in sent:
            await future
    return f"{RECORDS} acknowledged"


async def read(stem, start, count):
    async with AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest") as consumer:
        at = TopicPartition(name(stem), 0)
        consumer.assign([at])
        consumer.seek(at, start)
        values = []
        while len(values) < count:
            record = await asyncio.wait_for(consumer.getone(), LIMIT_S)
            values.append(record.value.decode())
        return digest(values)


async def from_time():
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all") as producer:
        for i in range(RECORDS):
            await producer.send_and_wait(name("time"), f"t-{i}".encode(), timestamp_ms=TIME_BASE_MS + i * 1000)
    async with AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP) as consumer:
        at = TopicPartition(name("time"), 0)
        offset = (await consumer.offsets_for_times({at: TIME_BASE_MS + 6500}))[at].offset
        ends = (await consumer.beginning_offsets([at]))[at], (await consumer.end_offsets([at]))[at]
    return f"offset {offset} of {ends}, {await read('time', offset, RECORDS - offset)}"


async def fill(each):
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all") as producer:
        for i in range(each * PARTITIONS):
            await producer.send_and_wait(name("group"), b"v", partition=i % PARTITIONS)


async def member(seen, stopping):
    """Reads in the group until it is stopped; each read is committed. Its value is the largest share it had beside another member."""
    share = 0
    async with AIOKafkaConsumer(name("group"), bootstrap_servers=BOOTSTRAP, group_id=name("g"), auto_offset_reset="earliest",
                                enable_auto_commit=False, session_timeout_ms=10000, heartbeat_interval_ms=500) as consumer:
        while not stopping.is_set():
            for records in (await consumer.getmany(timeout_ms=200)).values():
                seen.update((r.partition, r.offset) for r in records)
                await consumer.commit()
            share = len(consumer.assignment())
            seen.shares[id(stopping), asyncio.current_task()] = share


class Seen(set):
    """Records that were read, and how many partitions each member holds."""

    def __init__(self):
        super().__init__()
        self.shares = {}


async def until(what, holds):
    for _ in range(LIMIT_S * 20):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(what)


async def group():
    await fill(10)
    seen, stopping = Seen(), asyncio.Event()
    members = [asyncio.create_task(member(seen, stopping)) for _ in range(2)]
    try:
        await until("records", lambda: len(seen) == 10 * PARTITIONS)
        await until("shares of 2", lambda: list(seen.shares.values()) == [2, 2])
    finally:
        stopping.set()
    await asyncio.gather(*members)
    await fill(1)
    again, stopping = Seen(), asyncio.Event()
    alone = asyncio.create_task(member(again, stopping))
    try:
        await until("records", lambda: len(again) >= PARTITIONS)
        await asyncio.sleep(0.5)
    finally:
        stopping.set()
    await alone
    return f"{len(seen)} read by two with shares of 2, then {len(again)}"


async def admin_steps(admin):
    async def ok(call, outcome="done"):
        await call
        return outcome

    async def describe_topics():
        return sorted((t["error_code"], len(t["partitions"])) for t in await admin.describe_topics([name("group"), name("nowhere")]))

    async def describe_configs():
        found = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name("codecs"))])
        return "retention.ms" in str(found)

    async def list_groups():
        return name("g") in str(await admin.list_consumer_groups())

    async def group_offsets():
        return sum(o.offset for o in (await admin.list_consumer_group_offsets(name("g"))).values())

    await step("admin describe topics", describe_topics)
    await step("admin describe configs", describe_configs)
    await step("admin alter configs", lambda: ok(admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, name("codecs"), {"retention.ms": "86400000"})])))
    await step("admin create partitions", lambda: ok(admin.create_partitions({name("time"): NewPartitions(3)})))
    await step("admin delete records", lambda: ok(admin.delete_records({TopicPartition(name("codecs"), 0): _before(5)})))
    await step("admin list groups", list_groups)
    await step("admin group offsets", group_offsets)
    await step("admin delete topic", lambda: ok(admin.delete_topics([name("codecs")])))


def _before(offset):
    from aiokafka.admin import RecordsToDelete
    return RecordsToDelete(before_offset=offset)


async def main():
    tell("version", aiokafka.__version__)
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await admin.start()

    async def create():
        await admin.create_topics([NewTopic(name("codecs"), 1, 1), NewTopic(name("time"), 1, 1), NewTopic(name("group"), PARTITIONS, 1)])
        return "created"

    await step("admin create", create)
    for codec in CODECS:
        await step(f"produce {codec}", lambda codec=codec: produce(codec))
    await step("read from the start", lambda: read("codecs", 0, len(CODECS) * RECORDS))
    await step("read from a time", from_time)
    await step("group", group)
    await admin_steps(admin)
    await admin.close()


asyncio.run(main())
