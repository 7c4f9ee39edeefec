// The models that a key may call, in one shape that all official SDKs read (protocol.md G).
import { mayCall } from '../allowed-models.ts'
import { channelsFor } from '../channels.ts'
import type { ChannelConfig, ModelConfig } from '../config/config.ts'
import { nearest } from '../config/suggest.ts'
import { catalogue, GatewayError } from '../errors.ts'
import type { Exchange } from '../exchange.ts'
import { ApiKey } from '../facts.ts'
import { json, type JsonReply } from '../reply.ts'

/** `limit`, `after_id` and `before_id` work only if given: one page has all, and nobody must turn pages. */
export function listModels (exchange: Exchange): JsonReply {
  const all = callable(exchange)
  const query = new URLSearchParams(exchange.received.query)
  const { page, hasMore } = pageOf(all, readLimit(query), query.get('after_id') || undefined, query.get('before_id') || undefined)
  return json({
    object: 'list',
    data: page.map(describe),
    has_more: hasMore,
    first_id: page[0]?.id ?? null,
    last_id: page.at(-1)?.id ?? null
  })
}

/** A model that the key may not call is as unknown as one that does not exist: no leak. */
export function retrieveModel (exchange: Exchange): JsonReply {
  const { route, received, snapshot } = exchange
  const id = decode(received.path.slice(route.path.lastIndexOf('/') + 1).replace(/\/$/, ''))
  const model = id === undefined ? undefined : snapshot.modelOf(id)
  if (model === undefined || soldTo(exchange, model, id) === undefined) throw new GatewayError('not_found', { message: catalogue.model_not_found.message })
  return json(describe({ id: id!, model }))
}

/** A model by a name that clients may send: its id, or an alias. */
interface Named {
  readonly id: string
  readonly model: ModelConfig
}

/** Also what is in maintenance: it will be back, and a client that chooses among them must not forget it meanwhile. */
function callable (exchange: Exchange): readonly Named[] {
  const { snapshot, snapshot: { config: { models, aliases } } } = exchange
  const all = [...models.map((model): Named => ({ id: model.id, model })), ...aliases.map(({ id }): Named => ({ id, model: snapshot.modelOf(id)! }))]
  return all.filter(({ id, model }) => soldTo(exchange, model, id) !== undefined)
}

/**
 * What the key would be charged for first; undefined: it may not call the model.
 * Without auth in the route's pipeline there is no key, and the operator has opened the list.
 * @param asked the name under which it would
 */
export function soldTo (exchange: Exchange, model: ModelConfig, asked?: string): ChannelConfig | undefined {
  const apiKey = exchange.find(ApiKey)
  if (apiKey === undefined) return model.channels.premium ?? model.channels.cheap
  if (!mayCall(model, apiKey.key, asked)) return undefined
  const channels = channelsFor(model, apiKey)
  return channels.kind === 'open' ? model.channels[channels.first] : undefined
}

/** Every letter of each is looked at: a wrong id must stay cheap. */
const COMPARED = 100

/** The id that was meant, among those that the key may call: agents add a date, people mistype. */
export function nearestModel (exchange: Exchange, id: string): string | undefined {
  const known = callable(exchange).map((named) => named.id)
  return known.filter((other) => id.startsWith(other)).toSorted((a, b) => b.length - a.length)[0] ?? nearest(id, known.slice(0, COMPARED))
}

function describe ({ id, model: { name, provider, created, context, max_output } }: Named): Readonly<Record<string, unknown>> {
  return {
    id,
    object: 'model',
    type: 'model',
    created: Date.parse(created) / 1000,
    created_at: `${created}T00:00:00Z`,
    owned_by: provider,
    display_name: name,
    max_input_tokens: context ?? null,
    max_tokens: max_output ?? null
  }
}

/** SDKs encode the slash of an id as %2F, people don't. */
function decode (segment: string): string | undefined {
  try {
    return decodeURIComponent(segment)
  } catch {
    return undefined
  }
}

const LARGEST_PAGE = 1000

function readLimit (query: URLSearchParams): number {
  const text = query.get('limit') || undefined
  if (text === undefined) return Infinity
  const limit = /^\d{1,4}$/.test(text) ? Number(text) : 0
  if (limit < 1 || limit > LARGEST_PAGE) throw new GatewayError('invalid_request', { message: `"limit" must be a whole number from 1 to ${LARGEST_PAGE}.`, param: 'limit' })
  return limit
}

/** As the vendor pages: `has_more` looks on in the direction of the cursor. */
function pageOf (all: readonly Named[], limit: number, after: string | undefined, before: string | undefined): { page: readonly Named[], hasMore: boolean } {
  const from = after === undefined ? 0 : indexOf(all, after, 'after_id') + 1
  const to = before === undefined ? all.length : indexOf(all, before, 'before_id')
  const range = all.slice(from, to)
  const isBackward = before !== undefined && after === undefined
  return { page: limit === Infinity ? range : isBackward ? range.slice(-limit) : range.slice(0, limit), hasMore: range.length > limit }
}

function indexOf (all: readonly Named[], id: string, param: string): number {
  const index = all.findIndex((named) => named.id === id)
  if (index === -1) throw new GatewayError('invalid_request', { message: `"${param}" names no model of this list.`, param })
  return index
}
