// What the Node clients share: arguments, the lines they print, and a digest of what they read.
// What is right is not here: the same program runs against a real Kafka, and the outcomes are compared.
'use strict'

const zlib = require('node:zlib')

const [bootstrap, prefix] = process.argv.slice(2)
const records = 20
const partitions = 4
const limitMs = 45_000
// The timestamp of the first record that the look-up by time is tried on: a whole second, an hour ago.
const timeBaseMs = Math.floor(Date.now() / 1000) * 1000 - 3_600_000

const name = stem => `${prefix}-${stem}`
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

// Runs one step and prints its outcome; a step that takes far too long is given up.
async function step (what, run) {
  let outcome
  const timer = sleep(2 * limitMs).then(() => 'hangs')
  try {
    outcome = await Promise.race([run(), timer])
  } catch (error) {
    outcome = `failed: ${error.name} ${error.type ?? error.code ?? ''}`.trim()
  }
  process.stdout.write(`${what}\t${outcome}\n`)
}

// Waits until a condition holds.
async function until (what, holds) {
  for (const end = Date.now() + limitMs; !(await holds());) {
    if (Date.now() > end) throw Object.assign(new Error(what), { name: 'TimeoutError' })
    await sleep(50)
  }
}

const digest = values => `${values.length} records, crc ${zlib.crc32(values.join(',')).toString(16).padStart(8, '0')}`

module.exports = { bootstrap, records, partitions, limitMs, timeBaseMs, name, sleep, step, until, digest }
