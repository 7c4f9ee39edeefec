// The models that a key may call, in one shape that all official SDKs read (src/README.md#model-list).
import type { Json } from '../base/json.ts'
import { callable, type CatalogEntry, soldTo } from '../catalog/offers.ts'
import type { ChannelConfig, ModelConfig } from '../config/config.ts'
import { isSoldByTokens } from '../config/sections/modalities.ts'
import { formatPerToken } from '../money/nanos.ts'
import { priceAt } from '../money/price-schedule.ts'
import { catalogue, GatewayError } from '../errors.ts'
import type { Exchange } from '../core/exchange.ts'
import { json, type JsonReply } from '../core/reply.ts'

/** Pages only when `limit`, `after_id` or `before_id` is given: by default one page has all. */
export function listModels (exchange: Exchange): JsonReply {
  const all = callable(exchange)
  const now = exchange.snapshot.services.now()
  const query = new URLSearchParams(exchange.received.query)
  const { page, hasMore } = pageOf(all, readLimit(query), query.get('after_id') || undefined,
    query.get('before_id') || undefined)
  return json({
    object: 'list',
    data: page.map((entry) => describe(entry, now)),
    has_more: hasMore,
    first_id: page[0]?.id ?? null,
    last_id: page.at(-1)?.id ?? null,
    // Codex wants entries of its own kind. Without any it goes on with what it knows; without a list it fails.
    models: []
  })
}

/** A model that the key may not call looks like one that does not exist: no leak. */
export function retrieveModel (exchange: Exchange): JsonReply {
  const { route, received, snapshot } = exchange
  const id = decode(received.path.slice(route.path.lastIndexOf('/') + 1).replace(/\/$/, ''))
  const model = id === undefined ? undefined : snapshot.modelOf(id)
  const sold = model && soldTo(exchange, model, id)
  if (sold === undefined) {
    throw new GatewayError('not_found', { message: catalogue.model_not_found.message })
  }
  return json(describe({ id: id!, model: model!, sold }, snapshot.services.now()))
}

/** @param now milliseconds since the epoch */
function describe ({ id, model, sold }: CatalogEntry, now: number): Json {
  const { name, provider, created, context, max_output } = model
  return {
    id,
    object: 'model',
    type: 'model',
    created: Date.parse(created) / 1000,
    created_at: `${created}T00:00:00Z`,
    owned_by: provider,
    display_name: name,
    max_input_tokens: context ?? null,
    max_tokens: max_output ?? null,
    ...purposeOf(model, sold, now)
  }
}

/** What a model is for, in the fields of OpenRouter, by which clients sort models into their menus. */
function purposeOf (model: ModelConfig, sold: ChannelConfig, now: number): Json {
  const { kind, accepts, context, parameters = {} } = model
  const isText = isSoldByTokens(kind)
  return {
    architecture: { modality: `${accepts.join('+')}->${kind}`, input_modalities: accepts, output_modalities: [kind] },
    context_length: context ?? null,
    pricing: isText ? pricingOf(sold, now) : null,
    supported_parameters: isText ? textParameters(model) : Object.keys(parameters)
  }
}

/** US dollars per token, as decimals. */
function pricingOf (sold: ChannelConfig, now: number): Json {
  const { price: { input, output, cache_read: read, cache_write_5m: write } } = priceAt(sold, now)
  return { prompt: formatPerToken(input), completion: formatPerToken(output), input_cache_read: formatPerToken(read),
    input_cache_write: formatPerToken(write) }
}

function textParameters ({ sampling, thinking }: ModelConfig): readonly string[] {
  return ['max_tokens', 'stop', 'tools', 'tool_choice', 'parallel_tool_calls', 'response_format', 'structured_outputs',
    ...sampling ? ['temperature', 'top_p', 'top_k'] : [], ...thinking === 'none' ? [] : ['reasoning', 'reasoning_effort']]
}

/** SDKs encode the slash of an id as %2F; people type it. */
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
  if (limit < 1 || limit > LARGEST_PAGE) {
    throw new GatewayError('invalid_request', { message: `"limit" must be a whole number from 1 to ${LARGEST_PAGE}.`,
      param: 'limit' })
  }
  return limit
}

/** Pages as the vendor does: `has_more` looks in the direction of the cursor. */
function pageOf (
  all: readonly CatalogEntry[],
  limit: number,
  after: string | undefined,
  before: string | undefined
): { page: readonly CatalogEntry[], hasMore: boolean } {
  const from = after === undefined ? 0 : indexOf(all, after, 'after_id') + 1
  const to = before === undefined ? all.length : indexOf(all, before, 'before_id')
  const range = all.slice(from, to)
  const isBackward = before !== undefined && after === undefined
  return { page: limit === Infinity ? range : isBackward ? range.slice(-limit) : range.slice(0, limit),
    hasMore: range.length > limit }
}

function indexOf (all: readonly CatalogEntry[], id: string, param: string): number {
  const index = all.findIndex((named) => named.id === id)
  if (index === -1) {
    throw new GatewayError('invalid_request', { message: `"${param}" names no model of this list.`, param })
  }
  return index
}
