// Certificates for tests, made on the spot: an authority, and what it signs. X.509 in DER (RFC 5280), as little of it
// as TLS asks for.
import { generateKeyPairSync, randomBytes, sign, type KeyObject } from 'node:crypto'
import { isIPv4 } from 'node:net'

export interface Identity {
  readonly cert: string
  readonly key: string
}

const ECDSA_WITH_SHA256 = oid('2a8648ce3d040302')
const COMMON_NAME = oid('550403')
const BASIC_CONSTRAINTS = oid('551d13')
const ALT_NAME = oid('551d11')

export class Authority {
  readonly #name: Buffer
  readonly #privateKey: KeyObject
  /** its own certificate, in PEM */
  readonly ca: string

  constructor (name = 'Test Authority') {
    const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    this.#name = toName(name)
    this.#privateKey = privateKey
    this.ca = this.#sign(this.#name, publicKey,
      extension(BASIC_CONSTRAINTS, sequence(der(0x01, Buffer.from([0xff]))), true))
  }

  /** @param names DNS names and IPv4 addresses that it is for */
  issue (...names: readonly string[]): Identity {
    const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    const alternatives = names.map((name) =>
      isIPv4(name) ? der(0x87, Buffer.from(name.split('.').map(Number))) : der(0x82, Buffer.from(name))
    )
    return {
      cert: this.#sign(toName(names[0]!), publicKey, extension(ALT_NAME, sequence(...alternatives))),
      key: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string
    }
  }

  #sign (subject: Buffer, publicKey: KeyObject, ...extensions: readonly Buffer[]): string {
    const day = 24 * 3600 * 1000
    const algorithm = sequence(ECDSA_WITH_SHA256)
    const serial = Buffer.concat([Buffer.from([1]), randomBytes(8)])
    const signed = sequence(
      der(0xa0, der(0x02, Buffer.from([2]))), der(0x02, serial), algorithm, this.#name,
      sequence(toTime(Date.now() - day), toTime(Date.now() + day)),
      subject, publicKey.export({ type: 'spki', format: 'der' }), der(0xa3, sequence(...extensions))
    )
    const whole = sequence(signed, algorithm, der(0x03, Buffer.from([0]), sign('sha256', signed, this.#privateKey)))
    return `-----BEGIN CERTIFICATE-----\n${whole.toString('base64').replace(/.{64}/g, '$&\n')}\n-----END CERTIFICATE-----\n`
  }
}

function der (tag: number, ...content: readonly Buffer[]): Buffer {
  const inner = Buffer.concat(content)
  const { length } = inner
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 0xff]
  return Buffer.concat([Buffer.from([tag, ...size]), inner])
}

function sequence (...content: readonly Buffer[]): Buffer {
  return der(0x30, ...content)
}

function oid (hex: string): Buffer {
  return der(0x06, Buffer.from(hex, 'hex'))
}

function toName (name: string): Buffer {
  return sequence(der(0x31, sequence(COMMON_NAME, der(0x0c, Buffer.from(name)))))
}

function toTime (ms: number): Buffer {
  return der(0x17,
    Buffer.from(new Date(ms).toISOString().replace(/^..(..)-(..)-(..)T(..):(..):(..).*$/, '$1$2$3$4$5$6Z')))
}

function extension (id: Buffer, value: Buffer, isCritical = false): Buffer {
  return sequence(id, ...(isCritical ? [der(0x01, Buffer.from([0xff]))] : []), der(0x04, value))
}
