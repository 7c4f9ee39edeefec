// key-policy: the networks, origins, clients and models that a key is limited to. Refuses before the body is read where
// the head suffices. A refusal quotes what the client sent and names the setting; never the setting's value.
import { mayCall } from '../../src/accounts/allowed-models.ts'
import { compileNetworks, type Networks } from '../../src/base/ip-address.ts'
import { clientAddress } from '../../src/core/client-address.ts'
import type { KeyConfig } from '../../src/config/config.ts'
import { PartError } from '../../src/config/problem.ts'
import { suggest } from '../../src/config/check/suggest.ts'
import { GatewayError } from '../../src/errors.ts'
import type { ClientRequest, Exchange } from '../../src/core/exchange.ts'
import { ApiKey, Model } from '../../src/core/facts.ts'
import { definePlugin, type KeyHooks } from '../../src/core/plugin.ts'
import { type Client, type ClientTest, compileClients, presets, readPattern } from './clients.ts'

interface Options {
  readonly require_origin: boolean
  readonly clients: readonly Client[]
}

export const keyPolicy = definePlugin<Options>({
  name: 'key-policy',
  readsInSteps: true,
  schema: {
    type: 'object',
    additionalProperties: false,
    properties: {
      require_origin: { type: 'boolean', default: false,
        description:
          'true: a key with allowed_origins takes no request without an Origin, so that it works in browsers only.' },
      clients: {
        type: 'array',
        default: [],
        description: 'More clients for allowed_clients, or others in the place of well-known ones.',
        items: {
          type: 'object',
          additionalProperties: false,
          required: ['id'],
          description: 'A client; it is told by one of its patterns or headers.',
          properties: {
            id: { type: 'string', pattern: '^[a-z0-9][a-z0-9._-]{0,63}$', description: 'Its name in allowed_clients.' },
            match: { type: 'array', default: [], items: { type: 'string', minLength: 1, description: 'A pattern.' },
              description: 'Whole user agents in any case; "*" is any characters.' },
            headers: {
              type: 'array',
              default: [],
              description: 'Headers that only it sends.',
              items: {
                type: 'object',
                additionalProperties: false,
                required: ['name'],
                description: 'A header that is there and fits.',
                properties: {
                  name: { type: 'string', pattern: '^[A-Za-z0-9-]{1,64}$', description: 'Its name in any case.' },
                  match: { type: 'string', minLength: 1, default: '*',
                    description: 'Its whole value in any case; "*" is any characters.' }
                }
              }
            }
          }
        }
      }
    }
  },
  reads: [ApiKey, Model],
  enforces: ['allowed_models', 'allowed_clients', 'ip_whitelist', 'allowed_origins', 'streaming'],
  create ({ require_origin: isOriginRequired, clients = [] }, config, { log }) {
    const known = new Map([...presets, ...clients].map((client) => [client.id, client]))
    const trusted = compileNetworks(config.server.trusted_proxies)
    // Compiles the keys of gateway.yaml now, so that a bad one refuses the configuration. Requests have auth's copies
    // of them, without the secret.
    for (const [index, key] of config.keys.entries()) {
      compile(key, known, (entry, at) => {
        throw new PartError(`/keys/${index}/allowed_clients/${at}`,
          `there is no well-known client ${quote(entry)}, and a pattern for user agents has "*" or "/" in it`,
          suggest(entry, [...known.keys()], known.size))
      })
    }
    // In the order of src/README.md#check-order. A key's chain has no hooks for settings that it does not have.
    const perKey = (key: KeyConfig): KeyHooks => {
      const { networks, origins, isClient } = compile(key, known, (entry) => {
        log.warn({ key: key.id, client: entry }, 'allowed_clients names a client that is no longer in the clients of ' +
          'key-policy: no request is its')
      })
      const isFreeOnHead = networks === undefined && origins === undefined && isClient === undefined
      return {
        ...(!isFreeOnHead && {
          onHead ({ received }: Exchange) {
            if (networks !== undefined) checkAddress(received, trusted, networks)
            if (origins !== undefined) checkOrigin(received.headers.origin, origins, isOriginRequired)
            if (isClient !== undefined && !isClient(received.headers)) refuseClient(received.headers['user-agent'])
          }
        }),
        ...((key.allowed_models !== undefined || !key.streaming) && {
          onRequest (exchange: Exchange) { checkUse(exchange, key) }
        })
      }
    }
    return {
      perKey,
      onHead: (exchange) => perKey(exchange.get(ApiKey).key).onHead?.(exchange),
      onRequest: (exchange) => { checkUse(exchange, exchange.get(ApiKey).key) }
    }
  }
})

/** Checks the model, and whether the answer may be a stream. */
function checkUse (exchange: Exchange, key: KeyConfig): void {
  const model = exchange.find(Model)
  // A route without a body names none, and can't be streamed.
  if (model === undefined) return
  if (!mayCall(model, key, exchange.alias)) {
    throw new GatewayError('model_not_allowed', {
      message: `This key may not use the model ${quote(exchange.asked ?? model.id)}. Add it to the key's ` +
        'allowed_models, or use another key. GET /v1/models lists the models of this key.',
      param: 'model'
    })
  }
  // JSON in the place of a stream breaks every SDK.
  if (!key.streaming && exchange.request.stream) {
    throw new GatewayError('invalid_request', {
      message:
        'This key takes no streams: its setting "streaming" is false. Send "stream": false, or use another key.',
      param: 'stream'
    })
  }
}

/** The restrictions of one key; undefined: none of that kind. */
interface Policy {
  readonly networks: Networks | undefined
  readonly origins: ReadonlySet<string> | undefined
  readonly isClient: ClientTest | undefined
}

/** @param onUnknown told of an entry that names no client, and its index; what it names fits no request */
function compile (
  key: KeyConfig, known: ReadonlyMap<string, Client>, onUnknown: (entry: string, at: number) => void
): Policy {
  return {
    networks: key.ip_whitelist && compileNetworks(key.ip_whitelist),
    origins: key.allowed_origins && new Set(key.allowed_origins.map(canonical)),
    isClient: key.allowed_clients && compileClients(key.allowed_clients.flatMap((entry, at) => {
      const client = known.get(entry.toLowerCase()) ?? readPattern(entry)
      if (client === undefined) onUnknown(entry, at)
      return client ?? []
    }))
  }
}

function checkAddress (received: ClientRequest, trusted: Networks, networks: Networks): void {
  const address = clientAddress(received, trusted)
  if (address === undefined) {
    throw new GatewayError('ip_not_allowed', {
      message:
        'This key may only be used from certain addresses, and X-Forwarded-For holds something that is no address. ' +
          'Have the proxies in front of the gateway append the address that they see.'
    })
  }
  if (networks(address)) return
  // Without this hint an operator might add the load balancer's address to the list, which would admit every client.
  const isIgnored = received.headers['x-forwarded-for'] !== undefined && !trusted(address) &&
    received.address.endsWith(address)
  throw new GatewayError('ip_not_allowed', {
    message: isIgnored
      ? `This key may not be used from ${address}. X-Forwarded-For was not looked at, because this address is not ` +
        `in server.trusted_proxies: if it is a proxy of the operator's, it belongs there.`
      : `This key may not be used from ${address}. Add the address to its ip_whitelist, or use another key.`
  })
}

/** Compares the whole header: two origins in one, which no browser sends, match none. */
function checkOrigin (
  header: ClientRequest['headers'][string],
  origins: ReadonlySet<string>,
  isRequired: boolean
): void {
  if (header === undefined) {
    if (!isRequired) return // not a browser (src/README.md#browser-origin)
    throw new GatewayError('origin_not_allowed', {
      message: 'This key may only be used by web pages, and the request has no Origin header. Use another key.'
    })
  }
  const origin = typeof header === 'string' ? header : header.join(', ')
  if (!origins.has(canonical(origin))) {
    throw new GatewayError('origin_not_allowed', {
      message: `This key may not be used from the origin ${quote(origin)}. Add it to the key's allowed_origins, ` +
        'or use another key.'
    })
  }
}

/** Scheme and host in lower case, and the default port as no port. */
function canonical (origin: string): string {
  return origin.toLowerCase().replace(/^(https:.*):443$|^(http:.*):80$/, '$1$2')
}

function refuseClient (agent: ClientRequest['headers'][string]): never {
  const who = typeof agent === 'string' ? `the client ${quote(agent)}` : 'a client that has no User-Agent header'
  throw new GatewayError('client_not_allowed', {
    message: `This key may not be used with ${who}. Add the client to the key's allowed_clients, or use another key.`
  })
}

/** A header may have 64 KiB; its beginning is enough to know it again. */
function quote (said: string): string {
  return JSON.stringify(said.length > 100 ? said.slice(0, 100) + '…' : said)
}
