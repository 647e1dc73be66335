// @platformatic/kafka behind compat_tests/line_driver.py. Its stream stands within a group always: a read by
// partition is mode "manual" in a group of its own, with the other partitions at their end.

import { randomUUID } from 'node:crypto'
import { createRequire } from 'node:module'
import {
  Admin,
  ConfigResourceTypes,
  Consumer,
  FetchIsolationLevels,
  IncrementalAlterConfigOperationTypes,
  Producer,
} from '@platformatic/kafka'
import { Numbered, batches, bytes, eachRound, offsetsOf, option, serve, sleep, text } from './line.mjs'
import { connectionKey, login, tls } from './security.mjs'
import { transactions } from './platformatic_transactions.mjs'

const EARLIEST = -2n
const LATEST = -1n
const DEFAULT_MAX_WAIT_MS = 500 // the Java client's

const producers = new Map()
const admins = new Map()
const tails = new Numbered()
const members = new Numbered()
const leaving = new Set()

// -- clients ---------------------------------------------------------------------------------------------------

function once(cache, key, make) {
  if (!cache.has(key)) cache.set(key, make())
  return cache.get(key)
}

function base({ settings }) {
  const found = { clientId: 'platformatic', bootstrapBrokers: settings['bootstrap.servers'].split(',') }
  const [encryption, sasl] = [tls(settings), login(settings)]
  if (encryption !== undefined) found.tls = encryption
  if (sasl !== undefined) found.sasl = Object.fromEntries(Object.entries(sasl).filter(([, value]) => value !== undefined))
  return found
}

const admin = (ask) => once(admins, connectionKey(ask.settings), () => new Admin(base(ask)))

/** A new client's first question, answered or given up soon. */
async function firstContact(ask) {
  const made = new Admin({ ...base(ask), retries: 0, connectTimeout: 2000, timeout: 2000 })
  try {
    await made.listTopics()
  } catch (error) {
    throw new Error(reasons(error).join('\n'))
  } finally {
    await made.close()
  }
}

/** It wraps one error into another, several deep. */
const reasons = (error) =>
  [error, error.cause, ...(error.errors ?? [])]
    .filter(Boolean)
    .flatMap((each) => (each === error ? [`${each.name}: ${each.message}`] : reasons(each)))

const producer = (ask) =>
  once(producers, JSON.stringify(ask.settings), () => newProducer(ask))

function newProducer(ask) {
  const idempotent = ask.settings['enable.idempotence'] === 'true'
  return new Producer({ ...base(ask), autocreateTopics: true, idempotent })
}

function consumer(ask, groupId) {
  const { settings } = ask
  const sessionTimeout = option(settings, 'session.timeout.ms')
  const options = {
    sessionTimeout,
    rebalanceTimeout: sessionTimeout,
    heartbeatInterval: option(settings, 'heartbeat.interval.ms'),
    groupInstanceId: option(settings, 'group.instance.id', String),
    maxBytesPerPartition: option(settings, 'max.partition.fetch.bytes'),
    isolationLevel: option(settings, 'isolation.level', (name) => FetchIsolationLevels[name.toUpperCase()]),
  }
  for (const name of Object.keys(options)) if (options[name] === undefined) delete options[name]
  const maxWaitTime = option(settings, 'fetch.max.wait.ms') ?? DEFAULT_MAX_WAIT_MS
  const autocommit = settings['enable.auto.commit'] === 'true'
  return new Consumer({ ...base(ask), groupId, maxWaitTime, autocommit, ...options })
}

/** An ordinary end waits for the long poll in flight, so it goes on in the background. */
function endLater(consumer) {
  const ended = consumer.close(true).catch(() => {}).finally(() => leaving.delete(ended))
  leaving.add(ended)
}

// -- produce ---------------------------------------------------------------------------------------------------

async function produce(ask) {
  const { settings } = ask
  const acks = settings.acks === 'all' ? -1 : Number(settings.acks)
  const compression = settings['compression.type']
  const found = []
  for (const messages of batches(ask.messages.map((each) => message(ask.topic, each)), option(settings, 'batch.size'))) {
    const { offsets } = await producer(ask).send({ messages, acks, compression })
    const bases = new Map((offsets ?? []).map((each) => [each.partition, Number(each.offset)]))
    if (acks !== 0) found.push(...offsetsOf(messages, (partition) => bases.get(partition)))
  }
  return found
}

/** A send is a batch. */
async function sendEach(ask) {
  const made = newProducer(ask)
  const send = async (each) => {
    const { offsets } = await made.send({ messages: [message(ask.topic, each)], acks: -1 })
    return Number(offsets[0].offset)
  }
  try {
    return await eachRound(ask, send, codeOf, nameOf)
  } finally {
    await made.close()
  }
}

function message(topic, each) {
  return {
    topic,
    key: bytes(each.key) ?? undefined,
    value: bytes(each.value),
    partition: each.partition,
    headers: new Map(each.headers.map(([name, value]) => [Buffer.from(name), bytes(value)])),
    ...(each.timestamp_ms !== null && { timestamp: BigInt(each.timestamp_ms) }),
  }
}

// -- consume ---------------------------------------------------------------------------------------------------

/** Takes from a stream as its asynchronous iterator gives, with a time limit. */
class Puller {
  #iterator
  #next = null

  constructor(stream) {
    this.stream = stream
    this.#iterator = stream[Symbol.asyncIterator]()
  }

  /** The next record, null when none came until `until` (ms). */
  async take(until) {
    this.#next ??= this.#iterator.next()
    this.#next.catch(() => {}) // it is asked for again below
    const timer = new AbortController()
    const late = new Promise((resolve) => {
      const handle = setTimeout(resolve, Math.max(0, until - performance.now()), null)
      timer.signal.addEventListener('abort', () => clearTimeout(handle))
    })
    const found = await Promise.race([this.#next, late])
    timer.abort()
    if (found === null) return null
    this.#next = null
    return found.done ? null : found.value
  }
}

const deadline = (seconds) => performance.now() + seconds * 1000

async function positioned(ask, partitions, start) {
  const { topic } = ask
  const made = consumer(ask, `throw-away-${randomUUID()}`)
  const offsets = await Promise.all(
    partitions.map(async (partition) => ({ topic, partition, offset: await offsetAt(ask, partition, start) })),
  )
  const stream = await made.consume({ topics: [topic], mode: 'manual', offsets })
  return { consumer: made, puller: new Puller(stream) }
}

async function offsetAt(ask, partition, start) {
  if (start === 'earliest' || start === 'latest') return listed(ask, partition, start === 'earliest' ? EARLIEST : LATEST)
  return BigInt(start)
}

async function read(ask) {
  const { consumer, puller } = await positioned(ask, ask.partitions, ask.start)
  const found = []
  const until = deadline(ask.timeout_s)
  try {
    while (found.length < ask.count) {
      const record = await puller.take(until)
      if (record === null) break
      if (ask.partitions.includes(record.partition)) found.push(stored(record))
    }
  } finally {
    endLater(consumer)
  }
  return found
}

async function tailOpen(ask) {
  const opened = await positioned(ask, [ask.partition], 'latest')
  await opened.puller.take(deadline(0.3)) // its fetch waits at the broker
  return tails.add(opened)
}

async function tailNext(ask) {
  const record = await tails.get(ask.tail).puller.take(deadline(ask.timeout_s))
  return record === null ? null : stored(record)
}

function stored(record) {
  return {
    partition: record.partition,
    offset: Number(record.offset),
    key: text(record.key),
    value: text(record.value),
    headers: [...record.headers].map(([name, value]) => [name.toString(), text(value)]),
    timestamp_ms: Number(record.timestamp),
    timestamp_type: null,
  }
}

async function listed(ask, partition, timestamp) {
  const topics = [{ name: ask.topic, partitions: [{ partitionIndex: partition, timestamp }] }]
  const [found] = await admin(ask).listOffsets({ topics })
  return found.partitions[0].offset
}

async function offsets(ask) {
  const found = await Promise.all([EARLIEST, LATEST].map((each) => listed(ask, ask.partition, each)))
  return found.map(Number)
}

async function offsetForTime(ask) {
  const found = Number(await listed(ask, ask.partition, BigInt(ask.timestamp_ms)))
  return found < 0 ? null : found
}

// -- groups ----------------------------------------------------------------------------------------------------

class Member {
  #last = new Map()
  #joins = 0
  #failed = null
  #puller = null

  constructor(ask) {
    this.consumer = consumer(ask, ask.settings['group.id'])
    this.consumer.on('consumer:group:join', () => {
      this.#joins += 1
      this.#last.clear()
    })
    this.started = this.#start(ask).catch((error) => (this.#failed = error))
  }

  async #start({ topics, settings }) {
    const fallbackMode = settings['auto.offset.reset']
    this.#puller = new Puller(await this.consumer.consume({ topics, mode: 'committed', fallbackMode }))
  }

  async poll(count, timeoutS) {
    const found = []
    const joins = this.#joins
    const until = deadline(timeoutS)
    while ((count === 0 || this.#puller === null) && performance.now() < until) {
      if (count === 0 && joins !== this.#joins) break
      await sleep(10)
    }
    if (this.#failed) throw this.#failed
    while (found.length < count) {
      const record = await this.#puller?.take(until)
      if (!record) break
      this.#last.set(`${record.topic}/${record.partition}`, record)
      found.push(stored(record))
    }
    return found
  }

  /** The last record that was polled of each partition. */
  last() {
    return [...this.#last.values()]
  }

  assignment() {
    return (this.consumer.assignments ?? []).flatMap(({ topic, partitions }) => partitions.map((each) => [topic, each]))
  }

  async commit() {
    for (const record of this.#last.values()) await record.commit()
  }

  leave() {
    return this.consumer.close(true)
  }
}

async function committed(ask) {
  const topics = [{ name: ask.topic, partitionIndexes: [ask.partition] }]
  const [found] = await admin(ask).listConsumerGroupOffsets({ groups: [{ groupId: ask.group, topics }] })
  const offset = Number(found.topics[0]?.partitions[0]?.committedOffset ?? -1)
  return offset < 0 ? null : offset
}

async function describeGroup(ask) {
  const found = (await admin(ask).describeGroups({ groups: [ask.group] })).get(ask.group)
  return {
    state: found.state.toLowerCase().replaceAll('_', ''),
    protocol_type: found.protocolType,
    protocol: found.protocol,
    members: [...found.members.values()].map((each) => ({
      member_id: each.id,
      client_id: each.clientId,
      host: each.clientHost,
      assignment: [...(each.assignments?.values() ?? [])].flatMap(({ topic, partitions }) =>
        partitions.map((partition) => [topic, partition]),
      ),
    })),
  }
}

// -- administration --------------------------------------------------------------------------------------------

async function createTopic(ask) {
  await admin(ask).createTopics({
    topics: [ask.topic],
    partitions: ask.partitions,
    replicas: ask.replication_factor,
    configs: Object.entries(ask.configs).map(([name, value]) => ({ name, value })),
  })
}

async function describeTopic(ask) {
  const { topics } = await admin(ask).metadata({ topics: [ask.topic], forceUpdate: true })
  const found = topics.get(ask.topic)
  return { partitions: found.partitionsCount, topic_id: found.id }
}

async function topicConfig(ask) {
  const resources = [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: ask.topic }]
  const [found] = await admin(ask).describeConfigs({ resources })
  return Object.fromEntries(found.configs.map((each) => [each.name, each.value]))
}

async function setConfig(ask) {
  const { DELETE, SET } = IncrementalAlterConfigOperationTypes
  const configs = Object.entries(ask.configs).map(([name, value]) =>
    value === null ? { name, configOperation: DELETE } : { name, configOperation: SET, value },
  )
  const resources = [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: ask.topic, configs }]
  await admin(ask).incrementalAlterConfigs({ resources })
}

async function cluster(ask) {
  const found = await admin(ask).metadata({ topics: [], forceUpdate: true })
  return {
    cluster_id: found.id,
    controller_id: found.controllerId,
    brokers: [...found.brokers].map(([id, { host, port }]) => [id, host, port]),
  }
}

async function deleteRecords(ask) {
  const partitions = [{ partition: ask.partition, offset: BigInt(ask.before_offset) }]
  const [found] = await admin(ask).deleteRecords({ topics: [{ name: ask.topic, partitions }] })
  return Number(found.partitions[0].lowWatermark)
}

async function setOffset(ask) {
  const partitionOffsets = [{ partition: ask.partition, offset: BigInt(ask.offset) }]
  await admin(ask).alterConsumerGroupOffsets({ groupId: ask.group, topics: [{ name: ask.topic, partitionOffsets }] })
}

async function deleteOffset(ask) {
  const topics = [{ name: ask.topic, partitionIndexes: [ask.partition] }]
  await admin(ask).deleteConsumerGroupOffsets({ groupId: ask.group, topics })
}

// -- the pipe --------------------------------------------------------------------------------------------------

const transacting = transactions({ base, joined: (ask) => new Member(ask), message })

const commands = {
  ...transacting.commands,
  version: () => createRequire(import.meta.url)('@platformatic/kafka/package.json').version,
  first_contact: firstContact,
  produce,
  read,
  send_each: sendEach,
  tail_open: tailOpen,
  tail_next: tailNext,
  tail_close: (ask) => endLater(tails.take(ask.tail).consumer),
  offsets,
  offset_for_time: offsetForTime,
  create_topic: createTopic,
  delete_topic: (ask) => admin(ask).deleteTopics({ topics: [ask.topic] }),
  topics: (ask) => admin(ask).listTopics({ includeInternals: true }),
  describe_topic: describeTopic,
  topic_config: topicConfig,
  set_config: setConfig,
  cluster,
  join: (ask) => members.add(new Member(ask)),
  poll: (ask) => members.get(ask.member).poll(ask.count, ask.timeout_s),
  assignment: (ask) => members.get(ask.member).assignment(),
  commit: (ask) => members.get(ask.member).commit(),
  leave: (ask) => members.take(ask.member).leave(),
  committed,
  groups: async (ask) => [...(await admin(ask).listGroups()).keys()],
  describe_group: describeGroup,
  delete_group: (ask) => admin(ask).deleteGroups({ groups: [ask.group] }),
  set_offset: setOffset,
  delete_offset: deleteOffset,
  add_partitions: (ask) => admin(ask).createPartitions({ topics: [{ name: ask.topic, count: ask.total, assignments: null }] }),
  delete_records: deleteRecords,
}

/** Kafka's number from an error, whatever it is wrapped in. */
function codeOf(error) {
  if (Number.isInteger(error?.apiCode)) return error.apiCode
  const inner = [error?.cause, ...(error?.errors ?? [])].filter(Boolean)
  return inner.map(codeOf).find((code) => code !== undefined)
}

/** What the client calls it, whatever it is wrapped in. */
function nameOf(error) {
  if (Number.isInteger(error?.apiCode)) return error.apiId
  const inner = [error?.cause, ...(error?.errors ?? [])].filter(Boolean)
  return inner.map(nameOf).find((name) => name !== undefined)
}

async function close() {
  const consumers = [...tails.all(), ...members.all()].map(({ consumer }) => consumer.close(true))
  const others = [...producers.values(), ...admins.values()].map((each) => each.close())
  await Promise.allSettled([...consumers, ...others, ...leaving, transacting.close()])
}

await serve(commands, codeOf, close)
