// The public prices of images and videos: tables beside the list of text models, which keeps its shape
// (src/README.md#model-list).
import { hash } from 'node:crypto'
import type { ChannelConfig, ChannelName, ModelConfig } from '../config/config.ts'
import { isSoldByTokens, modalities } from '../config/sections/modalities.ts'
import type { Snapshot } from '../core/snapshot.ts'
import { GatewayError } from '../errors.ts'
import type { Exchange } from '../core/exchange.ts'
import { itemPriceOf } from '../money/item-price.ts'
import { json, type JsonReply } from '../core/reply.ts'
import { isKnown, readChannel } from './prices.ts'

/** From the catalogue only, without keys or accounts: the caller is anonymous. */
export function publicMediaInfo ({ snapshot, received }: Exchange): JsonReply {
  const list = publicList(snapshot, readChannel(received.query))
  if (list === 'off') throw new GatewayError('channel_unavailable') // src/README.md#channel-off
  return json(list.body, {
    'access-control-allow-origin': '*',
    'cache-control': 'public, max-age=60',
    etag: list.etag
  }, isKnown(received.headers['if-none-match'], list.etag) ? 304 : 200)
}

/** `off`: the channel has such models, and is switched off for all of them. */
type PublicList = { readonly body: unknown, readonly etag: string } | 'off'

/** Made and hashed once, because anonymous callers may ask at any rate. */
const lists = new WeakMap<Snapshot, Map<ChannelName, PublicList>>()

function publicList (snapshot: Snapshot, channel: ChannelName): PublicList {
  let made = lists.get(snapshot)
  if (made === undefined) lists.set(snapshot, made = new Map())
  let list = made.get(channel)
  if (list === undefined) made.set(channel, list = makeList(snapshot, channel))
  return list
}

function makeList ({ config }: Snapshot, channel: ChannelName): PublicList {
  const sold = config.models.flatMap((model) => {
    const own = isSoldByTokens(model.kind) ? undefined : model.channels[channel]
    return own === undefined ? [] : [{ model, own }]
  })
  const open = sold.filter(({ own }) => own.enabled)
  if (sold.length > 0 && open.length === 0) return 'off'
  const body = { data: open.map(({ model, own }) => describe(model, own)) }
  return { body, etag: `"${hash('sha256', JSON.stringify(body)).slice(0, 32)}"` }
}

/**
 * Price rows in their order: the first that matches a request is its price, and a request without a match is not sold
 * in this channel.
 */
function describe (
  { id, name, kind, accepts, parameters = {} }: ModelConfig,
  sold: ChannelConfig
): Readonly<Record<string, unknown>> {
  const price = itemPriceOf(sold)
  const unit = modalities[kind].item!.publicUnit
  return {
    id,
    display_name: name,
    kind,
    accepts_images: accepts.includes('image'),
    parameters: Object.fromEntries(Object.entries(parameters)
      .map(([parameter, { values, default: standard }]) => [parameter, { values, default: standard ?? null }])),
    prices: price === 'free'
      ? [{ when: {}, [unit]: 0 }]
      : price.map(({ when = {}, usd, usd_per_second: perSecond }) => ({ when, [unit]: Number(usd ?? perSecond) }))
  }
}
