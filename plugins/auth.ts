// auth: who is asking. Turns the key in the head into the fact api-key, or refuses with 401 before anything else is read.
import { hash, timingSafeEqual } from 'node:crypto'
import type { Config } from '../src/config/config.ts'
import { GatewayError } from '../src/errors.ts'
import type { ClientRequest } from '../src/exchange.ts'
import { ApiKey } from '../src/facts.ts'
import { definePlugin } from '../src/plugin.ts'

interface Options {
  readonly prefix: string
}

const RANDOM_PART = /^[A-Za-z0-9]{32}$/
/** protocol.md K 5.4: these addresses say `unauthorized`, with the same type. */
const MEDIA_PATH = /^\/v1\/(?:images|videos)(?:\/|$)/

export const auth = definePlugin<Options>({
  name: 'auth',
  schema: {
    type: 'object',
    additionalProperties: false,
    properties: {
      prefix: { type: 'string', pattern: '^[A-Za-z0-9_-]{1,32}$', default: 'sk-gw-', description: 'What every key of this gateway begins with; 32 letters or digits follow.' }
    }
  },
  writes: [ApiKey],
  create ({ prefix }, config) {
    const index = new KeyIndex(prefix, config)
    return {
      onHead (exchange) {
        const secret = readSecret(exchange.received.headers, prefix)
        const found = secret === undefined ? undefined : index.find(secret)
        if (found === undefined) throw new GatewayError(MEDIA_PATH.test(exchange.received.path) ? 'unauthorized' : 'authentication_error')
        exchange.set(ApiKey, found)
      }
    }
  }
})

interface Entry {
  readonly digest: Buffer
  readonly apiKey: ApiKey
}

/** Keys by the SHA-256 of their secret; holds no secret. Compiled once per snapshot. */
class KeyIndex {
  /** By the first 48 bits of the digest: what a lookup's timing could tell is of no use to who can't invert SHA-256. */
  readonly #entries = new Map<number, Entry[]>()

  /** @throws {Error} a key that could never be used, or that two would share */
  constructor (prefix: string, config: Config) {
    const accounts = new Map(config.accounts.map((account) => [account.id, account]))
    for (const key of config.keys) {
      const account = accounts.get(key.account)
      if (account === undefined) throw new Error(`the key ${key.id} belongs to the account ${key.account}, which does not exist`)
      if (!isSecret(key.secret, prefix)) throw new Error(`the secret of the key ${key.id} is not "${prefix}" and 32 letters or digits`)
      const digest = digestOf(key.secret)
      const same = this.#find(digest)
      if (same !== undefined) throw new Error(`the keys ${same.key.id} and ${key.id} have the same secret`)
      const bucket = bucketOf(digest)
      const entries = this.#entries.get(bucket) ?? []
      // The fact travels to every plugin, a user's own too: it must not carry the secret.
      entries.push({ digest, apiKey: Object.freeze({ key: Object.freeze({ ...key, secret: '***' }), account }) })
      this.#entries.set(bucket, entries)
    }
  }

  find (secret: string): ApiKey | undefined {
    return this.#find(digestOf(secret))
  }

  #find (digest: Buffer): ApiKey | undefined {
    return this.#entries.get(bucketOf(digest))?.find((entry) => timingSafeEqual(entry.digest, digest))?.apiKey
  }
}

/**
 * `x-api-key` if it has our format, else the bearer token (spec 5.3, protocol.md K 5.3): tools send dummy values.
 * A header that came twice names no key: which of them a proxy before us has looked at is unknown.
 */
function readSecret (headers: ClientRequest['headers'], prefix: string): string | undefined {
  const own = single(headers['x-api-key'])?.trim()
  if (own !== undefined && isSecret(own, prefix)) return own
  const token = /^bearer[ \t]+(\S+)$/i.exec(single(headers.authorization)?.trim() ?? '')?.[1]
  return token !== undefined && isSecret(token, prefix) ? token : undefined
}

function single (value: string | readonly string[] | undefined): string | undefined {
  return value === undefined || typeof value === 'string' ? value : value.length === 1 ? value[0] : undefined
}

/** The length first: a header may have 64 KiB. */
function isSecret (value: string, prefix: string): boolean {
  return value.length === prefix.length + 32 && value.startsWith(prefix) && RANDOM_PART.test(value.slice(prefix.length))
}

function digestOf (secret: string): Buffer {
  return hash('sha256', secret, 'buffer')
}

function bucketOf (digest: Buffer): number {
  return digest.readUIntLE(0, 6)
}
