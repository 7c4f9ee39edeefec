// channel-router: which targets serve the request, and in which order. Decides once, before anything is held or sent.
import { type Channels, channelsFor } from '../src/channels.ts'
import type { ChannelConfig, ChannelName, TargetConfig } from '../src/config/config.ts'
import { GatewayError } from '../src/errors.ts'
import type { Exchange } from '../src/exchange.ts'
import { ApiKey, type Attempt, Model, Plan, Variant } from '../src/facts.ts'
import { definePlugin, type Hooks } from '../src/plugin.ts'
import { checkSold, chooseVariant } from '../src/variants.ts'

export const channelRouter = definePlugin<Record<never, never>>({
  name: 'channel-router',
  reads: [ApiKey, Model],
  writes: [Plan, Variant],
  create: () => routeBy(Math.random)
})

/** @param random from 0 to below 1; tests bring their own */
export function routeBy (random: () => number): Hooks {
  return {
    onRequest (exchange) {
      const model = exchange.find(Model)
      if (model === undefined) return                         // nothing to be sold
      const owner = exchange.get(ApiKey)
      const variant = model.kind === 'text' ? undefined : variantOf(exchange, model)
      const channels = channelsFor(model, owner, variant)
      if (channels.kind === 'refused') throw new GatewayError(channels.code)
      const attempts = attemptsOf(channels.first, model.channels[channels.first]!, random)
      if (channels.fallback !== undefined) attempts.push(...attemptsOf(channels.fallback, model.channels[channels.fallback]!, random))
      const otherwise = channels.otherwise ?? (isCheapOnly(owner, model, channels) ? 'model_unavailable' : undefined)
      exchange.set(Plan, otherwise === undefined ? { attempts } : { attempts, otherwise })
    }
  }
}

/** @throws {GatewayError} invalid_request */
function variantOf (exchange: Exchange, model: Model): Variant {
  const { variant, body } = chooseVariant(model, exchange.request.body)
  checkSold(model, variant)
  exchange.set(Variant, variant)
  exchange.request = { body, stream: exchange.request.stream }
  return variant
}

/** spec 4.6: the cheap channel of images can't generate now, and the key wants no other. */
function isCheapOnly ({ key }: ApiKey, { kind }: Model, channels: Channels): boolean {
  return kind === 'image' && key.routing_mode === 'cheap' && channels.kind === 'open' && channels.first === 'cheap' && channels.fallback === undefined
}

function attemptsOf (channel: ChannelName, sold: ChannelConfig, random: () => number): Attempt[] {
  return shuffle(sold.targets, random).map(({ upstream, model }) => ({ upstream, model, channel, sold }))
}

/** Each place is drawn among those that are left, by weight: when the first fails, its load spreads as the weights say. */
function shuffle (targets: readonly TargetConfig[], random: () => number): readonly TargetConfig[] {
  if (targets.length === 1) return targets
  const left = [...targets]
  const order: TargetConfig[] = []
  while (left.length > 0) {
    let point = random() * left.reduce((sum, { weight }) => sum + weight, 0)
    // Not found: all that is left weighs nothing, and is tried in the order of the file.
    const drawn = left.findIndex(({ weight }) => (point -= weight) < 0)
    order.push(...left.splice(Math.max(0, drawn), 1))
  }
  return order
}
