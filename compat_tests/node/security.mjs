// How a client reaches the broker, from the settings of a question (librdkafka's names, files in PEM).

import { readFileSync } from 'node:fs'

const CONNECTION = /^(bootstrap|security|ssl|sasl)\./

/** Where the broker is and how it is reached: what serves one question serves every other with the same. */
export function connectionKey(settings) {
  return JSON.stringify(Object.entries(settings).filter(([name]) => CONNECTION.test(name)).sort())
}

/** TLS as Node has it; undefined on a listener without. */
export function tls(settings) {
  if (!settings['security.protocol']?.endsWith('ssl')) return undefined
  const file = (name) => settings[name] && readFileSync(settings[name], 'utf8')
  return { ca: [file('ssl.ca.location')], cert: file('ssl.certificate.location'), key: file('ssl.key.location') }
}

/** Mechanism, username, password and token; undefined where nobody logs in. */
export function login(settings) {
  const mechanism = settings['sasl.mechanism']
  if (mechanism === undefined) return undefined
  const path = settings['sasl.oauthbearer.token.file']
  const token = path && readFileSync(path, 'utf8')
  return { mechanism, username: settings['sasl.username'], password: settings['sasl.password'], token }
}
