// @platformatic/kafka as applications use it: produce with each codec, read, group, admin.

import { createRequire } from 'node:module'
import { Admin, Consumer, ListOffsetTimestamps, MessagesStreamModes, ProduceAcks, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const s = createRequire(import.meta.url)('./steps.js')
const common = { clientId: 'tarn-test', bootstrapBrokers: [s.bootstrap], retries: 5 }

async function produce (messages, compression = 'none') {
  const producer = new Producer({ ...common, serializers: stringSerializers })
  try {
    await producer.send({ messages, acks: ProduceAcks.ALL, compression })
  } finally {
    await producer.close()
  }
}

const consumer = group => new Consumer({ ...common, groupId: s.name(group), deserializers: stringDeserializers, heartbeatInterval: 500, sessionTimeout: 10_000, rebalanceTimeout: 15_000, maxWaitTime: 200 })

async function read (stem, from, count, group) {
  const reader = consumer(group)
  const stream = await reader.consume({
    topics: [s.name(stem)], mode: from > 0 ? MessagesStreamModes.MANUAL : MessagesStreamModes.EARLIEST, autocommit: false,
    ...(from > 0 ? { offsets: [{ topic: s.name(stem), partition: 0, offset: BigInt(from) }] } : {})
  })
  const values = []
  stream.on('data', message => values.push(message.value))
  stream.on('error', () => {})
  try {
    await s.until('records', () => values.length >= count)
  } finally {
    await reader.close(true)
  }
  return s.digest(values)
}

async function fromTime () {
  for (let i = 0; i < s.records; i++) {
    await produce([{ topic: s.name('time'), value: `t-${i}`, timestamp: BigInt(s.timeBaseMs + i * 1000) }])
  }
  const reader = consumer('g-list')
  const list = async timestamp => (await reader.listOffsets({ topics: [s.name('time')], timestamp })).get(s.name('time'))[0]
  const offsets = [await list(BigInt(s.timeBaseMs + 6500)), await list(ListOffsetTimestamps.EARLIEST), await list(ListOffsetTimestamps.LATEST)]
  await reader.close(true)
  return `offset ${offsets.join(' ')}, ${await read('time', Number(offsets[0]), s.records - Number(offsets[0]), 'g-time')}`
}

async function fill (each) {
  await produce(Array.from({ length: each * s.partitions }, (_, i) => ({ topic: s.name('group'), value: 'v', partition: i % s.partitions })))
}

async function member (seen) {
  const reader = consumer('g')
  const stream = await reader.consume({ topics: [s.name('group')], mode: MessagesStreamModes.COMMITTED, fallbackMode: 'earliest', autocommit: false })
  stream.on('error', () => {})
  stream.on('data', async message => {
    seen.add(`${message.partition}@${message.offset}`)
    await message.commit()
  })
  return reader
}

const share = reader => (reader.assignments ?? []).reduce((sum, a) => sum + a.partitions.length, 0)

async function group () {
  await fill(10)
  const seen = new Set()
  const members = await Promise.all([member(seen), member(seen)])
  await s.until('records', () => seen.size === 10 * s.partitions)
  await s.until('shares of 2', () => members.every(m => share(m) === 2))
  await s.sleep(500)
  await Promise.all(members.map(m => m.close(true)))
  await fill(1)
  const again = new Set()
  const alone = await member(again)
  await s.until('records', () => again.size >= s.partitions)
  await s.sleep(500)
  await alone.close(true)
  return `${seen.size} read by two with shares of 2, then ${again.size}`
}

async function main () {
  const admin = new Admin(common)
  await s.step('admin create', async () => {
    await admin.createTopics({ topics: [s.name('codecs'), s.name('time')], partitions: 1, replicas: 1 })
    await admin.createTopics({ topics: [s.name('group')], partitions: s.partitions, replicas: 1 })
    return 'created'
  })
  const codecs = ['none', 'gzip', 'snappy', 'lz4', 'zstd']
  for (const codec of codecs) {
    await s.step(`produce ${codec}`, async () => {
      await produce(Array.from({ length: s.records }, (_, i) => ({ topic: s.name('codecs'), key: 'k', value: `${codec}-${i}` })), codec)
      return `${s.records} acknowledged`
    })
  }
  await s.step('read from the start', () => read('codecs', 0, s.records * codecs.length, 'g-codecs'))
  await s.step('read from a time', fromTime)
  await s.step('group', group)
  await s.step('admin topics', async () => (await admin.listTopics()).includes(s.name('group')))
  await s.step('admin metadata', async () => (await admin.metadata({ topics: [s.name('group')] })).topics.get(s.name('group')).partitionsCount)
  await s.step('admin describe group', async () => (await admin.describeGroups({ groups: [s.name('g')] })).get(s.name('g')).state)
  await s.step('admin list groups', async () => (await admin.listGroups()).has(s.name('g')))
  await s.step('admin group offsets', async () => {
    const [found] = await admin.listConsumerGroupOffsets({ groups: [s.name('g')] })
    return found.topics.flatMap(t => t.partitions).reduce((sum, p) => sum + Number(p.committedOffset), 0)
  })
  await s.step('admin delete group', async () => { await admin.deleteGroups({ groups: [s.name('g')] }); return 'deleted' })
  await s.step('admin delete topic', async () => { await admin.deleteTopics({ topics: [s.name('codecs')] }); return 'deleted' })
  // Timers of a client that hangs must not keep the process.
  process.exit(0)
}

main()
