// The pipe of a driver: one question per line in, one answer per line out, strictly in order.
// compat_tests/line_driver.py is the asking side. Nothing else may reach stdout.

import { createInterface } from 'node:readline'

const CLOSE_MS = 1500

/** Answer questions until stdin ends. `commands`: name -> async (question) => answer; `codeOf`: Kafka's error number. */
export async function serve(commands, codeOf, close) {
  console.log = console.error
  console.info = console.error
  process.on('unhandledRejection', (error) => console.error('unhandled', error)) // a client's background task
  for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    process.stdout.write(JSON.stringify(await answer(commands, codeOf, JSON.parse(line))) + '\n')
  }
  await Promise.race([close().catch(() => {}), sleep(CLOSE_MS)])
  process.exit(0)
}

async function answer(commands, codeOf, question) {
  try {
    const command = commands[question.do]
    if (command === undefined) throw new Error(`unknown command ${question.do}`)
    return { ok: (await command(question)) ?? null }
  } catch (error) {
    console.error(error)
    const code = codeOf(error)
    return { error: { code: code ?? -1, class: error?.name ?? 'Error', text: String(error?.message ?? error) } }
  }
}

export const bytes = (text) => (text === null || text === undefined ? null : Buffer.from(text, 'base64'))
export const text = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'))
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

/** A client option from a setting with the Java client's name, only where the case gave one. */
export function option(settings, name, translate = Number) {
  return settings[name] === undefined ? undefined : translate(settings[name])
}

/** Things that stay open between questions: opened once, asked for by number. */
export class Numbered {
  #found = new Map()
  #last = 0

  add(thing) {
    this.#found.set(++this.#last, thing)
    return this.#last
  }

  get(number) {
    return this.#found.get(number)
  }

  take(number) {
    const thing = this.#found.get(number)
    this.#found.delete(number)
    return thing
  }

  all() {
    return [...this.#found.values()]
  }
}

/** Answers a question with rounds of messages; `send` resolves to a message's offset. What became of each. */
export async function eachRound(ask, send, codeOf, nameOf) {
  const told = []
  for (const messages of ask.rounds) {
    const found = await Promise.allSettled(messages.map(send))
    told.push(
      found.map(({ value, reason }) =>
        reason === undefined
          ? { offset: value }
          : { code: codeOf(reason) ?? -1, name: nameOf(reason), text: String(reason.message) },
      ),
    )
  }
  return told
}

/** Neither client has a batch size of its own: a send is a batch. This cuts a list where a batch would be full. */
export function batches(messages, batchBytes) {
  if (batchBytes === undefined) return [messages]
  const found = []
  let size = Infinity
  for (const message of messages) {
    const own = (message.key?.length ?? 0) + (message.value?.length ?? 0)
    if (size + own > batchBytes) {
      found.push([])
      size = 0
    }
    found.at(-1).push(message)
    size += own
  }
  return found
}

/** The offset of each message, from the base offset of each partition's batch. */
export function offsetsOf(messages, baseOf) {
  const seen = new Map()
  return messages.map(({ partition }) => {
    const place = seen.get(partition) ?? 0
    seen.set(partition, place + 1)
    return baseOf(partition) + place
  })
}
