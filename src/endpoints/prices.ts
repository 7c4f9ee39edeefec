// Prices of text models: for the holder of a key, and for anonymous callers (src/README.md#model-list). Never calls an
// upstream.
import { hash } from 'node:crypto'
import type { ChannelName, ModelConfig } from '../config/config.ts'
import { isSoldByTokens } from '../config/sections/modalities.ts'
import type { Usd } from '../money/nanos.ts'
import type { Snapshot } from '../core/snapshot.ts'
import { GatewayError } from '../errors.ts'
import type { Exchange } from '../core/exchange.ts'
import { priceAt, type PriceSpan } from '../money/price-schedule.ts'
import { json, type JsonReply } from '../core/reply.ts'
import { soldTo } from '../catalog/offers.ts'

/** Current prices, in the channel that the key would be charged for first. */
export function modelsInfo (exchange: Exchange): JsonReply {
  const now = exchange.snapshot.services.now()
  return json({
    data: textModels(exchange.snapshot).flatMap((model) => {
      const sold = soldTo(exchange, model)
      // No answer is longer than the context, as the request's hold assumes too.
      const most = model.max_output ?? model.context
      if (sold === undefined || most === undefined) return []
      const { input, output } = pricesOf(priceAt(sold, now))
      return [{ id: model.id, name: model.name, provider: model.provider, max_tokens: most, input_price: input,
        output_price: output }]
    })
  })
}

/** From the catalogue only, without keys or accounts: the caller is anonymous. */
export function publicModelsInfo ({ snapshot, received }: Exchange): JsonReply {
  const now = snapshot.services.now()
  const list = publicList(snapshot, readChannel(received.query), now)
  if (list === 'off') throw new GatewayError('channel_unavailable') // src/README.md#channel-off
  return json(list.body, {
    'access-control-allow-origin': '*', // src/README.md#public-prices
    'cache-control': `public, max-age=${Math.min(60, Math.floor((list.until - now) / 1000))}`,
    etag: list.etag
  }, isKnown(received.headers['if-none-match'], list.etag) ? 304 : 200) // node leaves out the body of a 304
}

/**
 * @throws {GatewayError} an unknown channel. The empty name is unknown too: a caller that asked for one channel's
 * prices must not read another's.
 */
export function readChannel (query: string): ChannelName {
  const asked = new URLSearchParams(query).getAll('channel')
  if (asked.length === 0) return 'premium'
  const [channel] = asked
  if (asked.length === 1 && (channel === 'premium' || channel === 'cheap')) return channel
  throw new GatewayError('channel_unknown', { param: 'channel' })
}

/** `off`: the channel has models, and is switched off for all of them. */
type PublicList =
  | { readonly body: unknown, readonly etag: string, readonly from: number, readonly until: number }
  | 'off'

/**
 * Made and hashed once for the time in which no price changes, because anonymous callers may ask at any rate, and a
 * catalogue may be long.
 */
const lists = new WeakMap<Snapshot, Map<ChannelName, PublicList>>()

function publicList (snapshot: Snapshot, channel: ChannelName, now: number): PublicList {
  let made = lists.get(snapshot)
  if (made === undefined) lists.set(snapshot, made = new Map())
  let list = made.get(channel)
  // A clock that was set back makes the list as stale as one that went on.
  if (list === undefined || (list !== 'off' && (now < list.from || now >= list.until))) {
    made.set(channel, list = makePublicList(snapshot, channel, now))
  }
  return list
}

function makePublicList (snapshot: Snapshot, channel: ChannelName, now: number): PublicList {
  const sold = textModels(snapshot).flatMap((model) => {
    const own = model.channels[channel]
    return own === undefined ? [] : [{ model, own, price: priceAt(own, now) }]
  })
  const open = sold.filter(({ own }) => own.enabled)
  if (sold.length > 0 && open.length === 0) return 'off'
  // A model without a context is left out: the field may be neither absent nor null, and a guess is no capacity.
  const body = {
    data: open.flatMap(({ model, price }) => model.context === undefined ? [] : [describe(model, model.context, price)])
  }
  return {
    body,
    etag: `"${hash('sha256', JSON.stringify(body)).slice(0, 32)}"`,
    from: open.reduce((latest, { price }) => Math.max(latest, price.from), -Infinity),
    until: open.reduce((first, { price }) => Math.min(first, price.until), Infinity)
  }
}

function describe ({ id, name }: ModelConfig, context: number, price: PriceSpan): Readonly<Record<string, unknown>> {
  const { input, output, cache_read, cache_write } = pricesOf(price)
  return {
    id,
    display_name: name,
    supports_streaming: true,
    max_input_tokens: context,
    input_price_per_1m: input,
    output_price_per_1m: output,
    cache_read_price_per_1m: cache_read,
    cache_write_price_per_1m: cache_write
  }
}

interface Prices {
  readonly input: number
  readonly output: number
  readonly cache_read: number | null
  readonly cache_write: number | null
}

const free: Prices = { input: 0, output: 0, cache_read: 0, cache_write: 0 }

/** The price of a cache write where the model has two: that for 5 minutes, the life of a write that names none. */
function pricesOf ({ written }: PriceSpan): Prices {
  if (written === 'free') return free
  const { input, output, cache_read: read, cache_write_5m: write = written.cache_write } = written
  return { input: toNumber(input), output: toNumber(output), cache_read: read === undefined ? null : toNumber(read),
    cache_write: write === undefined ? null : toNumber(write) }
}

/**
 * JSON prints the shortest decimal of this double: up to 15 digits that is the configured text, without zeros at its
 * ends.
 */
function toNumber (usd: Usd): number {
  return Number(usd)
}

/** The models whose prices are per token (src/README.md#model-list). */
function textModels ({ config }: Snapshot): readonly ModelConfig[] {
  return config.models.filter(({ kind }) => isSoldByTokens(kind))
}

/** RFC 9110 13.1.2: a list, compared weakly. */
export function isKnown (header: string | readonly string[] | undefined, etag: string): boolean {
  if (header === undefined) return false
  return String(header).split(',').some((one) => {
    const tag = one.trim()
    return tag === '*' || tag.replace(/^W\//, '') === etag
  })
}
