// auth: authentication. Turns the key in the head into the fact api-key, or refuses before anything else is read: with
// 401, or with 402 where the account is suspended or closed.
import { timingSafeEqual } from 'node:crypto'
import type { AccountConfig, Config } from '../src/config/config.ts'
import type { KeyDirectory } from '../src/core/services.ts'
import { hexDigestOf } from '../src/accounts/digests.ts'
import { GatewayError } from '../src/errors.ts'
import type { ClientRequest } from '../src/core/exchange.ts'
import { ApiKey } from '../src/core/facts.ts'
import type { Ledger } from '../src/core/ledger.ts'
import { definePlugin } from '../src/core/plugin.ts'

interface Options {
  readonly prefix: string
}

const CLOSED = 'The account is closed. Its owner can ask the operator to open it again.'
const RANDOM_PART = /^[A-Za-z0-9]{32}$/
/** These addresses answer `unauthorized`, with the same type. */
const MEDIA_PATH = /^\/v1\/(?:images|videos)(?:\/|$)/

export const auth = definePlugin<Options>({
  name: 'auth',
  readsInSteps: true,
  schema: {
    type: 'object',
    additionalProperties: false,
    properties: {
      prefix: { type: 'string', pattern: '^[A-Za-z0-9_-]{1,32}$', default: 'sk-gw-',
        description: 'What every key of this gateway begins with; 32 letters or digits follow.' }
    }
  },
  writes: [ApiKey],
  provides: ['identity'],
  create ({ prefix }, config, { directory }) {
    const accounts = new Map(config.accounts.map((account) => [account.id, account]))
    const index = indexOf(prefix, config, accounts)
    /** of the secrets in heads that were seen: hashing one takes 0.5 µs (measured) */
    const digests = new WeakMap<object, string>()
    return {
      onHead (exchange) {
        const { dry, ledger, received: { headers, path, head } } = exchange
        // The caller of a dry run is authenticated by other means, and names the owner of the request.
        const digest = dry === undefined ? digestIn(headers, head) : undefined
        const found = digest === undefined ? dry?.owner : find(digest, ledger)
        if (found === undefined || found.key.frozen) {
          const message = digest === undefined
            ? dry === undefined ? whyNone(headers, prefix) : undefined
            : found === undefined
            ? whyOff(digest, config)
            : undefined
          throw new GatewayError(MEDIA_PATH.test(path) ? 'unauthorized' : 'authentication_error',
            message === undefined ? {} : { message })
        }
        exchange.set(ApiKey, found)
        // Before any other check of the key (src/README.md#check-order), and after the fact: the log names the key.
        if (found.account.closed === true) throw new GatewayError('account_frozen', { message: CLOSED })
        if (found.account.suspended) throw new GatewayError('account_frozen')
      }
    }

    function digestIn (headers: ClientRequest['headers'], head: object | undefined): string | undefined {
      const known = head && digests.get(head)
      if (known !== undefined) return known
      const secret = readSecret(headers, prefix)
      if (secret === undefined) return undefined
      const digest = hexDigestOf(secret)
      if (head !== undefined) digests.set(head, digest)
      return digest
    }

    /**
     * Finds a key: those of gateway.yaml first, whatever the store holds, so that a managed key can't take their place.
     * @throws {GatewayError} auth_unavailable: the store is away, and the key may have been made there or frozen
     * meanwhile (src/README.md#away-is-503)
     */
    function find (digest: string, { health }: Ledger): ApiKey | undefined {
      const declared = index.get(digest)
      if (declared !== undefined) return declared
      const found = findManaged(digest, directory, accounts)
      if (health?.isUp === false && (found === undefined || health.refusesKeys)) {
        throw new GatewayError('auth_unavailable')
      }
      return found
    }
  }
})

/** A key of the directory; its account may be one of gateway.yaml. */
function findManaged (
  digest: string,
  directory: KeyDirectory,
  declared: ReadonlyMap<string, AccountConfig>
): ApiKey | undefined {
  const key = directory.findKey(Buffer.from(digest, 'hex'))
  if (key === undefined) return undefined
  const account = declared.get(key.account) ?? directory.account(key.account)
  // The key of an account that was removed from gateway.yaml is not valid any more.
  return account && { key, account }
}

/**
 * The keys of gateway.yaml, by the SHA-256 of their secrets; holds no secret. What a lookup's timing reveals of a
 * digest is of no use without inverting SHA-256. Compiled once per snapshot.
 * @throws {Error} a key that could never be used, or that two would share
 */
function indexOf (
  prefix: string, { keys }: Config, accounts: ReadonlyMap<string, AccountConfig>
): ReadonlyMap<string, ApiKey> {
  const index = new Map<string, ApiKey>()
  for (const key of keys) {
    const account = accounts.get(key.account)
    if (account === undefined) {
      throw new Error(`the key ${key.id} belongs to the account ${key.account}, which does not exist`)
    }
    if (!isSecret(key.secret, prefix)) {
      throw new Error(`the secret of the key ${key.id} is not "${prefix}" and 32 letters or digits`)
    }
    const digest = hexDigestOf(key.secret)
    const same = index.get(digest)
    if (same !== undefined) throw new Error(`the keys ${same.key.id} and ${key.id} have the same secret`)
    // Every plugin reads the fact, a user's own too: it must not carry the secret.
    index.set(digest, Object.freeze({ key: Object.freeze({ ...key, secret: '***' }), account }))
  }
  return index
}

/**
 * The secret of a request: `x-api-key` if it has the gateway's format, else the bearer token
 * (src/README.md#key-header), because tools send dummy values. A header that occurs twice gives no key: a proxy in
 * front may have looked at the other one.
 */
function readSecret (headers: ClientRequest['headers'], prefix: string): string | undefined {
  const own = single(headers['x-api-key'])?.trim()
  if (own !== undefined && isSecret(own, prefix)) return own
  const token = /^bearer[ \t]+(\S+)$/i.exec(single(headers.authorization)?.trim() ?? '')?.[1]
  if (token !== undefined && isSecret(token, prefix)) return token
  // A web page can set no other header of a WebSocket: OpenAI's SDK sends the key among the protocols.
  const protocols = headers['sec-websocket-protocol']
  const named = typeof protocols === 'string'
    ? /(?:^|,)\s*openai-insecure-api-key\.([\w-]+)/.exec(protocols)?.[1]
    : undefined
  return named !== undefined && isSecret(named, prefix) ? named : undefined
}

/** Why there is no valid key, from what the client has sent alone. */
function whyNone ({ 'x-api-key': own, authorization }: ClientRequest['headers'], prefix: string): string {
  const how = 'Send it as "x-api-key: KEY" or "Authorization: Bearer KEY".'
  if (own === undefined && authorization === undefined) return `No API key was sent. ${how}`
  if (
    Array.isArray(own) || Array.isArray(authorization)
  ) return 'More than one API key was sent in the same header. Send one.'
  return `What was sent is not an API key of this gateway: those are "${prefix}" and 32 letters or digits. ${how}`
}

/** Why a disabled demo key is refused; only its holder is told. */
function whyOff (digest: string, { demo_off: demo }: Config): string | undefined {
  if (demo === undefined || !timingSafeEqual(Buffer.from(digest, 'hex'), Buffer.from(demo.sha256, 'hex'))) {
    return undefined
  }
  return `This is the demo key, which is off because ${demo.why}. Use a key of your own.`
}

function single (value: string | readonly string[] | undefined): string | undefined {
  return value === undefined || typeof value === 'string' ? value : value.length === 1 ? value[0] : undefined
}

/** The length first: a header may have 64 KiB. */
function isSecret (value: string, prefix: string): boolean {
  return value.length === prefix.length + 32 && value.startsWith(prefix) && RANDOM_PART.test(value.slice(prefix.length))
}
