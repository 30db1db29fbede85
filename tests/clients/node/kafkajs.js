// kafkajs as applications use it: produce with each codec, read, group, admin.
'use strict'

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')
const zlib = require('node:zlib')
const lz4 = require('@platformatic/wasm-utils')
const s = require('./steps.js')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
// kafkajs brings gzip alone; users add the other codecs as here.
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4.lz4Compress(encoder.buffer),
  decompress: async buffer => lz4.lz4Decompress(buffer)
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => zlib.zstdCompressSync(encoder.buffer),
  decompress: async buffer => zlib.zstdDecompressSync(buffer)
})

const kafka = new Kafka({ brokers: [s.bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 8 } })
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD }

async function produce (topic, messages, compression = CompressionTypes.None) {
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic: s.name(topic), acks: -1, compression, messages })
  await producer.disconnect()
}

// kafkajs reads in groups only: a group of its own for each reading.
async function read (stem, from, count, group) {
  const consumer = kafka.consumer({ groupId: s.name(group), heartbeatInterval: 500, sessionTimeout: 10_000, maxWaitTimeInMs: 200 })
  await consumer.connect()
  await consumer.subscribe({ topics: [s.name(stem)], fromBeginning: true })
  const values = []
  await consumer.run({ autoCommit: false, eachMessage: async ({ message }) => { values.push(message.value.toString()) } })
  if (from > 0) consumer.seek({ topic: s.name(stem), partition: 0, offset: String(from) })
  try {
    await s.until('records', () => values.length >= count)
  } finally {
    await consumer.disconnect()
  }
  return s.digest(values.slice(-count))
}

async function fromTime (admin) {
  for (let i = 0; i < s.records; i++) {
    await produce('time', [{ value: `t-${i}`, timestamp: String(s.timeBaseMs + i * 1000) }])
  }
  const [at] = await admin.fetchTopicOffsetsByTimestamp(s.name('time'), s.timeBaseMs + 6500)
  const [ends] = await admin.fetchTopicOffsets(s.name('time'))
  return `offset ${at.offset} of ${ends.low}-${ends.high}, ${await read('time', Number(at.offset), s.records - Number(at.offset), 'g-time')}`
}

async function fill (each) {
  const messages = Array.from({ length: each * s.partitions }, (_, i) => ({ value: 'v', partition: i % s.partitions }))
  await produce('group', messages)
}

async function member (seen, shares, who) {
  const consumer = kafka.consumer({ groupId: s.name('g'), heartbeatInterval: 500, sessionTimeout: 10_000, maxWaitTimeInMs: 200 })
  consumer.on(consumer.events.GROUP_JOIN, e => { shares[who] = (e.payload.memberAssignment[s.name('group')] ?? []).length })
  await consumer.connect()
  await consumer.subscribe({ topics: [s.name('group')], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      seen.add(`${partition}@${message.offset}`)
      await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
    }
  })
  return consumer
}

async function group () {
  await fill(10)
  const seen = new Set()
  const shares = {}
  const members = await Promise.all([member(seen, shares, 'a'), member(seen, shares, 'b')])
  await s.until('records', () => seen.size === 10 * s.partitions)
  await s.until('shares of 2', () => shares.a === 2 && shares.b === 2)
  await s.sleep(500)
  await Promise.all(members.map(m => m.disconnect()))
  await fill(1)
  const again = new Set()
  const alone = await member(again, {}, 'c')
  await s.until('records', () => again.size >= s.partitions)
  await s.sleep(500)
  await alone.disconnect()
  return `${seen.size} read by two with shares of 2, then ${again.size}`
}

async function adminSteps (admin) {
  await s.step('admin topics', async () => (await admin.listTopics()).includes(s.name('group')))
  await s.step('admin topic metadata', async () => (await admin.fetchTopicMetadata({ topics: [s.name('group')] })).topics[0].partitions.length)
  await s.step('admin describe cluster', async () => (await admin.describeCluster()).brokers.length)
  await s.step('admin describe configs', async () => {
    const found = await admin.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: s.name('codecs'), configNames: ['retention.ms'] }] })
    return found.resources[0].configEntries.map(e => `${e.configName}=${e.configValue}`).join(' ')
  })
  await s.step('admin alter configs', async () => {
    const found = await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: s.name('codecs'), configEntries: [{ name: 'retention.ms', value: '86400000' }] }] })
    return found.resources[0].errorCode
  })
  await s.step('admin create partitions', async () => admin.createPartitions({ topicPartitions: [{ topic: s.name('time'), count: 3 }] }))
  await s.step('admin delete records', async () => admin.deleteTopicRecords({ topic: s.name('codecs'), partitions: [{ partition: 0, offset: '5' }] }))
  await s.step('admin list groups', async () => (await admin.listGroups()).groups.some(g => g.groupId === s.name('g')))
  await s.step('admin describe group', async () => (await admin.describeGroups([s.name('g')])).groups[0].state)
  await s.step('admin group offsets', async () => {
    const [topic] = await admin.fetchOffsets({ groupId: s.name('g'), topics: [s.name('group')] })
    return topic.partitions.reduce((sum, p) => sum + Number(p.offset), 0)
  })
  await s.step('admin reset offsets', async () => {
    await admin.resetOffsets({ groupId: s.name('g'), topic: s.name('group'), earliest: true })
    const [topic] = await admin.fetchOffsets({ groupId: s.name('g'), topics: [s.name('group')] })
    return topic.partitions.reduce((sum, p) => sum + Number(p.offset), 0)
  })
  await s.step('admin delete group', async () => (await admin.deleteGroups([s.name('g')])).map(g => g.errorCode ?? 0))
  await s.step('admin delete topic', async () => admin.deleteTopics({ topics: [s.name('codecs')] }))
}

async function main () {
  const admin = kafka.admin()
  await admin.connect()
  await s.step('admin create', () => admin.createTopics({
    waitForLeaders: true,
    topics: [{ topic: s.name('codecs'), numPartitions: 1 }, { topic: s.name('time'), numPartitions: 1 }, { topic: s.name('group'), numPartitions: s.partitions }]
  }))
  for (const [codec, type] of Object.entries(codecs)) {
    await s.step(`produce ${codec}`, async () => {
      await produce('codecs', Array.from({ length: s.records }, (_, i) => ({ key: 'k', value: `${codec}-${i}` })), type)
      return `${s.records} acknowledged`
    })
  }
  await s.step('read from the start', () => read('codecs', 0, s.records * Object.keys(codecs).length, 'g-codecs'))
  await s.step('read from a time', () => fromTime(admin))
  await s.step('group', group)
  await adminSteps(admin)
  // Timers of a client that hangs must not keep the process.
  process.exit(0)
}

main()
