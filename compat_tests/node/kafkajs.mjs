// kafkajs behind compat_tests/line_driver.py. Its consumer knows only groups: a read by partition is a group of
// its own, thrown away afterwards, in which the other partitions are paused.

import { randomUUID } from 'node:crypto'
import { createRequire } from 'node:module'
import { decompress as zstdDecompress, compress as zstdCompress, init as initZstd } from '@bokuweb/zstd-wasm'
import kafkajs from 'kafkajs'
import SnappyCodec from 'kafkajs-snappy'
import lz4 from 'lz4-napi'
import { Numbered, batches, bytes, eachRound, offsetsOf, option, serve, sleep, text } from './line.mjs'
import { transactions } from './kafkajs_transactions.mjs'
import { connectionKey, login, tls } from './security.mjs'

const { AssignerProtocol, CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, Partitioners, logLevel } = kafkajs

const CODECS = { none: 'None', gzip: 'GZIP', snappy: 'Snappy', lz4: 'LZ4', zstd: 'ZSTD' }
const DEFAULT_MAX_WAIT_MS = 500 // the Java client's
const ZSTD_HEAP = { defaultHeapSize: 16 << 20 } // for frames that do not tell their size
const ALREADY_EXISTS = { type: 'TOPIC_ALREADY_EXISTS', code: 36, message: 'createTopics answered false' }

await initZstd()
CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstdCompress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstdDecompress(buffer, ZSTD_HEAP)),
})

// -- clients ---------------------------------------------------------------------------------------------------

const clients = new Map()
const producers = new Map()
const admins = new Map()
const tails = new Numbered()
const members = new Numbered()
const leaving = new Set()

async function once(cache, key, make) {
  if (!cache.has(key)) cache.set(key, await make())
  return cache.get(key)
}

function client({ settings }) {
  const key = connectionKey(settings)
  if (!clients.has(key)) clients.set(key, newClient(settings))
  return clients.get(key)
}

function newClient(settings, options) {
  const logCreator = () => (entry) => console.error(entry.namespace, entry.log.message, entry.log.error ?? '')
  const where = { brokers: settings['bootstrap.servers'].split(','), ssl: tls(settings), sasl: sasl(settings) }
  return new Kafka({ clientId: 'kafkajs', logLevel: logLevel.WARN, logCreator, ...where, ...options })
}

function sasl(settings) {
  const found = login(settings)
  if (found?.token === undefined) return found
  return { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: found.token }) }
}

/** A new client's first question, answered or given up soon. */
async function firstContact({ settings }) {
  const made = newClient(settings, { retry: { retries: 0 }, connectionTimeout: 2000, authenticationTimeout: 2000 }).admin()
  try {
    await made.connect()
    await made.listTopics()
  } finally {
    await made.disconnect()
  }
}

const admin = (ask) =>
  once(admins, connectionKey(ask.settings), async () => {
    const made = client(ask).admin({ retry: { retries: 3 } }) // for what is not there it would go on for 10 s
    await made.connect()
    return made
  })

const producer = (ask) =>
  once(producers, JSON.stringify(ask.settings), () => newProducer(ask))

async function newProducer(ask) {
  const idempotent = ask.settings['enable.idempotence'] === 'true'
  const made = client(ask).producer({
    idempotent,
    createPartitioner: Partitioners.DefaultPartitioner,
    ...(idempotent && { maxInFlightRequests: 1 }),
  })
  await made.connect()
  return made
}

function consumer(ask, groupId) {
  const { settings } = ask
  return client(ask).consumer({
    groupId,
    maxWaitTimeInMs: option(settings, 'fetch.max.wait.ms') ?? DEFAULT_MAX_WAIT_MS,
    maxBytesPerPartition: option(settings, 'max.partition.fetch.bytes'),
    sessionTimeout: option(settings, 'session.timeout.ms'),
    heartbeatInterval: option(settings, 'heartbeat.interval.ms'),
    allowAutoTopicCreation: false,
    readUncommitted: settings['isolation.level'] === 'read_uncommitted',
  })
}

/** An ordinary end waits for the long poll in flight, so it goes on in the background. */
function endLater(consumer) {
  const ended = consumer.disconnect().catch(() => {}).finally(() => leaving.delete(ended))
  leaving.add(ended)
}

// -- produce ---------------------------------------------------------------------------------------------------

async function produce(ask) {
  const { settings } = ask
  const made = await producer(ask)
  const acks = settings.acks === 'all' ? -1 : Number(settings.acks)
  const compression = CompressionTypes[CODECS[settings['compression.type']]]
  const found = []
  for (const messages of batches(ask.messages.map(message), option(settings, 'batch.size'))) {
    const told = await made.send({ topic: ask.topic, acks, compression, messages })
    const bases = new Map(told.map((each) => [each.partition, Number(each.baseOffset ?? -1)]))
    if (acks !== 0) found.push(...offsetsOf(messages, (partition) => bases.get(partition)))
  }
  return found
}

/** A send is a batch. */
async function sendEach(ask) {
  const made = await newProducer(ask)
  const send = async (each) => {
    const [told] = await made.send({ topic: ask.topic, acks: -1, messages: [message(each)] })
    return Number(told.baseOffset)
  }
  try {
    return await eachRound(ask, send, codeOf, (error) => error.type ?? error.name)
  } finally {
    await made.disconnect()
  }
}

function message(each) {
  const headers = {}
  for (const [name, value] of each.headers) (headers[name] ??= []).push(bytes(value))
  const timestamp = each.timestamp_ms === null ? undefined : String(each.timestamp_ms)
  return { key: bytes(each.key), value: bytes(each.value), partition: each.partition, headers, timestamp }
}

// -- consume ---------------------------------------------------------------------------------------------------

/** Turns eachMessage round: a handler waits, heartbeating, until somebody takes its record. */
class Puller {
  #waiting = []
  #arrived = () => {}
  #closed = false

  constructor(heartbeatMs = 1000) {
    this.heartbeatMs = heartbeatMs
  }

  eachMessage = async ({ topic, partition, message, heartbeat }) => {
    const slot = { record: { topic, partition, message }, taken: false }
    const taken = new Promise((resolve) => {
      slot.take = () => {
        slot.taken = true
        resolve()
      }
    })
    this.#waiting.push(slot)
    this.#arrived()
    try {
      while (!slot.taken) {
        if (this.#closed) throw new Error('closed before the record was taken')
        await Promise.race([taken, sleep(Math.min(this.heartbeatMs, 200))])
        if (!slot.taken) await heartbeat()
      }
    } finally {
      this.#waiting = this.#waiting.filter((each) => each !== slot)
    }
  }

  /** The next record, null when none came until `until` (ms). */
  async take(until) {
    while (this.#waiting.length === 0) {
      const left = until - performance.now()
      if (left <= 0) return null
      await Promise.race([new Promise((resolve) => (this.#arrived = resolve)), sleep(Math.min(left, 50))])
    }
    const slot = this.#waiting.shift()
    slot.take()
    return slot.record
  }

  close() {
    this.#closed = true
  }
}

const deadline = (seconds) => performance.now() + seconds * 1000

/** A consumer that stands where asked in `partitions` alone. */
async function positioned(ask, partitions, start) {
  const { topic } = ask
  const made = consumer(ask, `throw-away-${randomUUID()}`)
  const known = await (await admin(ask)).fetchTopicMetadata({ topics: [topic] })
  const others = known.topics[0].partitions.map((each) => each.partitionId).filter((each) => !partitions.includes(each))
  await made.connect()
  await made.subscribe({ topics: [topic], fromBeginning: start === 'earliest' })
  const puller = new Puller()
  await made.run({ autoCommit: false, eachMessage: puller.eachMessage })
  await running(() => made.pause([{ topic, partitions: others }]))
  if (start !== 'earliest' && start !== 'latest') {
    for (const partition of partitions) await running(() => made.seek({ topic, partition, offset: String(start) }))
  }
  return { puller, consumer: made }
}

/** A consumer that starts again by itself (its coordinator was not ready) has no group for a moment. */
async function running(act) {
  const until = deadline(5)
  for (;;) {
    try {
      return act()
    } catch (error) {
      if (!/not initialized/.test(error.message) || performance.now() > until) throw error
      await sleep(50)
    }
  }
}

async function read(ask) {
  const { puller, consumer } = await positioned(ask, ask.partitions, ask.start)
  const found = []
  const until = deadline(ask.timeout_s)
  while (found.length < ask.count) {
    const record = await puller.take(until)
    if (record === null) break
    found.push(stored(record))
  }
  puller.close()
  endLater(consumer)
  return found
}

async function tailOpen(ask) {
  const { high } = await watermarks(ask)
  const opened = await positioned(ask, [ask.partition], high)
  await sleep(300) // until its fetch waits at the broker
  return tails.add(opened)
}

async function tailNext(ask) {
  const record = await tails.get(ask.tail).puller.take(deadline(ask.timeout_s))
  return record === null ? null : stored(record)
}

function tailClose(ask) {
  const { puller, consumer } = tails.take(ask.tail)
  puller.close()
  endLater(consumer)
}

function stored({ partition, message }) {
  const headers = Object.entries(message.headers ?? {}).flatMap(([name, value]) =>
    Array.isArray(value) ? value.map((each) => [name, text(each)]) : [[name, text(value)]],
  )
  return {
    partition,
    offset: Number(message.offset),
    key: text(message.key),
    value: text(message.value),
    headers,
    timestamp_ms: Number(message.timestamp),
    timestamp_type: null,
  }
}

async function watermarks(ask) {
  const found = await (await admin(ask)).fetchTopicOffsets(ask.topic)
  return found.find((each) => each.partition === ask.partition)
}

async function offsets(ask) {
  const { low, high } = await watermarks(ask)
  return [Number(low), Number(high)]
}

async function offsetForTime(ask) {
  const found = await (await admin(ask)).fetchTopicOffsetsByTimestamp(ask.topic, ask.timestamp_ms)
  return Number(found.find((each) => each.partition === ask.partition).offset)
}

// -- groups ----------------------------------------------------------------------------------------------------

class Member {
  #positions = new Map()
  #owned = []
  #joins = 0
  #failed = null

  constructor(ask) {
    this.consumer = consumer(ask, ask.settings['group.id'])
    this.puller = new Puller(option(ask.settings, 'heartbeat.interval.ms'))
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.#joins += 1
      this.#positions.clear()
      this.#owned = Object.entries(payload.memberAssignment).flatMap(([topic, all]) => all.map((each) => [topic, each]))
    })
    this.consumer.on(this.consumer.events.REBALANCING, () => (this.#owned = []))
    this.started = this.#start(ask).catch((error) => (this.#failed = error))
  }

  async #start({ topics, settings }) {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics, fromBeginning: settings['auto.offset.reset'] === 'earliest' })
    const autoCommit = settings['enable.auto.commit'] === 'true'
    await this.consumer.run({ autoCommit, eachMessage: this.puller.eachMessage })
  }

  async poll(count, timeoutS) {
    const found = []
    const joins = this.#joins
    const until = deadline(timeoutS)
    while (count === 0 && joins === this.#joins && performance.now() < until) await sleep(10)
    while (found.length < count) {
      const record = await this.puller.take(until)
      if (record === null) break
      this.#positions.set(`${record.topic}/${record.partition}`, record)
      found.push(stored(record))
    }
    if (this.#failed) throw this.#failed
    return found
  }

  assignment() {
    return this.#owned
  }

  async commit() {
    await this.consumer.commitOffsets(
      [...this.#positions.values()].map(({ topic, partition, message }) => ({
        topic,
        partition,
        offset: String(BigInt(message.offset) + 1n),
      })),
    )
  }

  async leave() {
    this.puller.close()
    await this.consumer.disconnect()
  }
}

async function committed(ask) {
  const found = await (await admin(ask)).fetchOffsets({ groupId: ask.group, topics: [ask.topic] })
  const offset = Number(found[0].partitions.find((each) => each.partition === ask.partition)?.offset ?? -1)
  return offset < 0 ? null : offset
}

async function describeGroup(ask) {
  const [found] = (await (await admin(ask)).describeGroups([ask.group])).groups
  return {
    state: found.state.toLowerCase(),
    protocol_type: found.protocolType,
    protocol: found.protocol,
    members: found.members.map((each) => ({
      member_id: each.memberId,
      client_id: each.clientId,
      host: each.clientHost,
      assignment: assigned(each.memberAssignment),
    })),
  }
}

function assigned(data) {
  const decoded = data.length > 0 ? AssignerProtocol.MemberAssignment.decode(data) : null
  return Object.entries(decoded?.assignment ?? {}).flatMap(([topic, all]) => all.map((each) => [topic, each]))
}

// -- administration --------------------------------------------------------------------------------------------

async function createTopic(ask) {
  const configEntries = Object.entries(ask.configs).map(([name, value]) => ({ name, value }))
  const topic = { topic: ask.topic, numPartitions: ask.partitions, replicationFactor: ask.replication_factor, configEntries }
  const made = await (await admin(ask)).createTopics({ topics: [topic] })
  if (!made) throw ALREADY_EXISTS // its documented way of saying so
}

async function describeTopic(ask) {
  const { topics } = await (await admin(ask)).fetchTopicMetadata({ topics: [ask.topic] })
  return { partitions: topics[0].partitions.length, topic_id: null }
}

async function topicConfig(ask) {
  const found = await (await admin(ask)).describeConfigs({
    includeSynonyms: false,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: ask.topic }],
  })
  return Object.fromEntries(found.resources[0].configEntries.map((each) => [each.configName, each.configValue]))
}

async function cluster(ask) {
  const found = await (await admin(ask)).describeCluster()
  return {
    cluster_id: found.clusterId,
    controller_id: found.controller,
    brokers: found.brokers.map((each) => [each.nodeId, each.host, each.port]),
  }
}

async function deleteRecords(ask) {
  const partitions = [{ partition: ask.partition, offset: String(ask.before_offset) }]
  const made = await admin(ask)
  await made.fetchTopicOffsets(ask.topic) // it looks for the leader in metadata that it has already
  await made.deleteTopicRecords({ topic: ask.topic, partitions })
  return Number((await watermarks(ask)).low) // it does not tell the new beginning
}

// -- the pipe --------------------------------------------------------------------------------------------------

const transacting = transactions({ client, joined: (ask) => new Member(ask), message })

const commands = {
  ...transacting.commands,
  version: () => createRequire(import.meta.url)('kafkajs/package.json').version,
  first_contact: firstContact,
  produce,
  read,
  send_each: sendEach,
  tail_open: tailOpen,
  tail_next: tailNext,
  tail_close: tailClose,
  offsets,
  offset_for_time: offsetForTime,
  create_topic: createTopic,
  delete_topic: async (ask) => (await admin(ask)).deleteTopics({ topics: [ask.topic] }),
  topics: async (ask) => (await admin(ask)).listTopics(),
  describe_topic: describeTopic,
  topic_config: topicConfig,
  cluster,
  join: (ask) => members.add(new Member(ask)),
  poll: (ask) => members.get(ask.member).poll(ask.count, ask.timeout_s),
  assignment: (ask) => members.get(ask.member).assignment(),
  commit: (ask) => members.get(ask.member).commit(),
  leave: (ask) => members.take(ask.member).leave(),
  committed,
  groups: async (ask) => (await (await admin(ask)).listGroups()).groups.map((each) => each.groupId),
  describe_group: describeGroup,
  delete_group: async (ask) => void (await (await admin(ask)).deleteGroups([ask.group])),
  set_offset: async (ask) =>
    (await admin(ask)).setOffsets({
      groupId: ask.group,
      topic: ask.topic,
      partitions: [{ partition: ask.partition, offset: String(ask.offset) }],
    }),
  add_partitions: async (ask) =>
    void (await (await admin(ask)).createPartitions({ topicPartitions: [{ topic: ask.topic, count: ask.total }] })),
  delete_records: deleteRecords,
}

/** Kafka's number from an error, whatever it is wrapped in. */
function codeOf(error) {
  if (typeof error !== 'object' || error === null) return undefined
  if (typeof error.type === 'string' && Number.isInteger(error.code)) return error.code
  const inner = [error.cause, error.error, ...(error.errors ?? []), ...(error.groups ?? []), ...(error.partitions ?? [])]
  return inner.map(codeOf).find((code) => code !== undefined)
}

async function close() {
  const consumers = [...tails.all(), ...members.all()].map(({ puller, consumer }) => {
    puller.close()
    return consumer.disconnect()
  })
  const others = [...producers.values(), ...admins.values()].map((each) => each.disconnect())
  await Promise.allSettled([...consumers, ...others, ...leaving, transacting.close()])
}

await serve(commands, codeOf, close)
