// @platformatic/kafka's transactions: a transactional producer, and with a source a member of that source's group.

import { Producer } from '@platformatic/kafka'
import { Numbered, offsetsOf } from './line.mjs'

class Transactional {
  #last = new Map()
  #transaction = null
  #fresh = true

  constructor(producer, first, member) {
    this.producer = producer
    this.#transaction = first
    this.member = member
  }

  async begin() {
    if (!this.#fresh) this.#transaction = await this.producer.beginTransaction()
    this.#fresh = false
  }

  async send(messages) {
    const { offsets } = await this.#transaction.send({ messages, acks: -1 })
    const bases = new Map((offsets ?? []).map((each) => [each.partition, Number(each.offset)]))
    return offsetsOf(messages, (partition) => bases.get(partition))
  }

  async sendPositions() {
    await this.#transaction.addConsumer(this.member.consumer)
    for (const record of this.member.last()) await this.#transaction.addOffset(record)
  }

  commit() {
    return this.#transaction.commit()
  }

  abort() {
    return this.#transaction.abort()
  }

  async close() {
    await this.member?.leave()
    await this.producer.close()
  }
}

/** The commands, made of the driver's own: its options, its group members, its records. */
export function transactions({ base, joined, message }) {
  const open = new Numbered()
  const get = (ask) => open.get(ask.producer)

  async function txOpen(ask) {
    const { settings } = ask
    // its transaction timeout is its request timeout
    const timeout = Number(settings['transaction.timeout.ms'])
    const producer = new Producer({ ...base(ask), idempotent: true, transactionalId: settings['transactional.id'], timeout })
    // it asks for its producer id with its first transaction, and a case wants the one before fenced from now on
    const first = await producer.beginTransaction()
    const group = settings['group.id']
    const reading = { 'auto.offset.reset': 'earliest', 'isolation.level': 'read_committed' }
    const member = group === undefined ? null : joined({ ...ask, settings: { ...settings, ...reading } })
    return open.add(new Transactional(producer, first, member))
  }

  const commands = {
    tx_open: txOpen,
    tx_begin: (ask) => get(ask).begin(),
    tx_send: (ask) => get(ask).send(ask.messages.map((each) => message(ask.topic, each))),
    tx_poll: (ask) => get(ask).member.poll(ask.count, ask.timeout_s),
    tx_positions: (ask) => get(ask).sendPositions(),
    tx_commit: (ask) => get(ask).commit(),
    tx_abort: (ask) => get(ask).abort(),
    tx_close: (ask) => open.take(ask.producer).close(),
  }
  return { commands, close: () => Promise.allSettled(open.all().map((each) => each.close())) }
}
