// The channels of a model that a key may use, and their order: one answer for the router, the model list and the
// prices.
import type { ChannelConfig, ChannelName, RoutingMode } from '../config/config.ts'
import type { ErrorCode } from '../errors.ts'
import type { ApiKey, Model, Variant } from '../core/facts.ts'
import { itemPrice, rateOf } from '../money/item-price.ts'

export type Channels =
  /** `otherwise`: the error when the first channel failed, and a second one exists that the account does not allow */
  | { readonly kind: 'open', readonly first: ChannelName, readonly fallback?: ChannelName,
    readonly otherwise?: ErrorCode }
  /** `channels`: those that would serve, but are switched off or in maintenance now */
  | { readonly kind: 'refused', readonly code: ErrorCode, readonly channels?: readonly ChannelName[] }

/** The channels of each mode, in order (src/README.md#channels); `max` is the same as `auto_cheap` for now. */
const orders: Readonly<Record<RoutingMode, readonly ChannelName[]>> = {
  premium: ['premium'],
  cheap: ['cheap'],
  auto_cheap: ['cheap', 'premium'],
  max: ['cheap', 'premium'],
  auto_premium: ['premium', 'cheap']
}

export interface Sale {
  /** of an image or video model: a channel without a price for it does not sell it */
  readonly variant?: Variant | undefined
  /** whether a channel is in maintenance; absent: maintenance is ignored, for lists of what is sold */
  readonly isUnavailable?: (sold: ChannelConfig) => boolean
}

/**
 * Pure, so that the list of models has exactly those that a request would reach. A channel in maintenance fails like
 * one that is switched off, and not like one that does not sell the model: else a key in cheap mode would pay the
 * premium price because of it.
 */
export function channelsFor (model: Model, owner: ApiKey, { variant, isUnavailable }: Sale = {}): Channels {
  const sold = variant === undefined ? model.channels : sellers(model, variant)
  const channels = choose(sold, owner, isUnavailable)
  if (channels.kind === 'open' || isUnavailable === undefined) return channels
  const inService = choose(sold, owner)
  if (inService.kind === 'refused') return channels
  const { first, fallback } = inService                       // nothing else is to blame
  return refused('maintenance', fallback === undefined ? [first] : [first, fallback])
}

function choose (sold: Model['channels'], { key, account }: ApiKey, isOut?: Sale['isUnavailable']): Channels {
  // A model without a cheap channel is premium, for keys in cheap mode too.
  const wanted = key.routing_mode === 'cheap' && sold.cheap === undefined ? orders.premium : orders[key.routing_mode]
  let first: ChannelName | undefined
  let second: ChannelName | undefined
  for (const channel of wanted) {
    if (sold[channel] === undefined || !key.channels.includes(channel)) continue
    if (first === undefined) first = channel
    else second = channel
  }
  if (first === undefined) {
    // A key whose mode asks for one channel while its list holds only the other contradicts itself; a choice here could
    // be the dearer one. In all other cases no channel that the key may use sells the model.
    const isContradiction = wanted.some((channel) => sold[channel] !== undefined) &&
      key.channels.some((channel) => sold[channel] !== undefined)
    return refused(isContradiction ? 'channel_not_allowed' : 'model_not_in_channel')
  }
  const other = second !== undefined && works(sold[second]!, isOut) ? second : undefined
  if (works(sold[first]!, isOut)) {
    if (other === undefined) return { kind: 'open', first }
    return account.allow_fallback
      ? { kind: 'open', first, fallback: other }
      : { kind: 'open', first, otherwise: 'fallback_not_allowed' }
  }
  if (other === undefined) return refused('channel_unavailable', second === undefined ? [first] : [first, second])
  return account.allow_fallback ? { kind: 'open', first: other } : refused('fallback_not_allowed')
}

function works (channel: ChannelConfig, isOut: Sale['isUnavailable']): boolean {
  return channel.enabled && isOut?.(channel) !== true
}

function sellers ({ channels }: Model, variant: Variant): Model['channels'] {
  return Object.fromEntries(
    Object.entries(channels).filter(([, sold]) => rateOf(variant, itemPrice(sold)) !== undefined)
  )
}

function refused (code: ErrorCode, channels?: readonly ChannelName[]): Channels {
  return { kind: 'refused', code, ...(channels !== undefined && { channels }) }
}
