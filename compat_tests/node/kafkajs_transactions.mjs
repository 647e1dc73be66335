// kafkajs' transactions: a transactional producer, and with a source a member of that source's group.

import kafkajs from 'kafkajs'
import { Numbered, offsetsOf, option } from './line.mjs'

const { Partitioners } = kafkajs

class Transactional {
  #positions = new Map()
  #transaction = null
  #fresh = true

  constructor(producer, first, member, group) {
    this.producer = producer
    this.#transaction = first
    this.member = member
    this.group = group
  }

  async begin() {
    if (!this.#fresh) this.#transaction = await this.producer.transaction()
    this.#fresh = false
  }

  async send(topic, messages) {
    const told = await this.#transaction.send({ topic, acks: -1, messages })
    const bases = new Map(told.map((each) => [each.partition, Number(each.baseOffset ?? -1)]))
    return offsetsOf(messages, (partition) => bases.get(partition))
  }

  async poll(count, timeoutS) {
    const found = await this.member.poll(count, timeoutS)
    for (const { partition, offset } of found) this.#positions.set(partition, offset + 1)
    return found
  }

  sendPositions(topic) {
    const partitions = [...this.#positions].map(([partition, offset]) => ({ partition, offset: String(offset) }))
    return this.#transaction.sendOffsets({ consumerGroupId: this.group, topics: [{ topic, partitions }] })
  }

  commit() {
    return this.#transaction.commit()
  }

  abort() {
    return this.#transaction.abort()
  }

  async close() {
    await this.member?.leave()
    await this.producer.disconnect()
  }
}

/** The commands, made of the driver's own: its client, its group members, its records. */
export function transactions({ client, joined, message }) {
  const open = new Numbered()
  const get = (ask) => open.get(ask.producer)

  async function txOpen(ask) {
    const { settings } = ask
    const producer = client(ask).producer({
      idempotent: true,
      maxInFlightRequests: 1,
      createPartitioner: Partitioners.DefaultPartitioner,
      transactionalId: settings['transactional.id'],
      transactionTimeout: option(settings, 'transaction.timeout.ms'),
    })
    await producer.connect()
    // it asks for its producer id with its first transaction, and a case wants the one before fenced from now on
    const first = await producer.transaction()
    const group = settings['group.id']
    const reading = { 'group.id': group, 'auto.offset.reset': 'earliest', 'isolation.level': 'read_committed' }
    const member = group === undefined ? null : joined({ ...ask, settings: { ...settings, ...reading } })
    const made = new Transactional(producer, first, member, group)
    made.topic = ask.topics[0]
    return open.add(made)
  }

  const commands = {
    tx_open: txOpen,
    tx_begin: (ask) => get(ask).begin(),
    tx_send: (ask) => get(ask).send(ask.topic, ask.messages.map(message)),
    tx_poll: (ask) => get(ask).poll(ask.count, ask.timeout_s),
    tx_positions: (ask) => get(ask).sendPositions(get(ask).topic),
    tx_commit: (ask) => get(ask).commit(),
    tx_abort: (ask) => get(ask).abort(),
    tx_close: (ask) => open.take(ask.producer).close(),
  }
  return { commands, close: () => Promise.allSettled(open.all().map((each) => each.close())) }
}
