// channel-router: the targets that may serve the request, in order. Decides once, before any hold or attempt.
import { type Channels, channelsFor } from '../../src/catalog/channels.ts'
import type { ChannelConfig, ChannelName, Config, TargetConfig } from '../../src/config/config.ts'
import { isSoldByTokens } from '../../src/config/sections/modalities.ts'
import { GatewayError } from '../../src/errors.ts'
import type { Awaitable } from '../../src/base/awaitable.ts'
import { bodyStep } from '../../src/core/body-step.ts'
import type { Exchange } from '../../src/core/exchange.ts'
import { ApiKey, type Attempt, Body, Model, Plan, Variant } from '../../src/core/facts.ts'
import { definePlugin, type Hooks } from '../../src/core/plugin.ts'
import type { TargetHealth } from '../../src/core/upstream.ts'
import { checkSold, chooseVariant } from '../../src/catalog/variants.ts'
import { byAffinity } from './affinity.ts'
import { balance } from './balance.ts'
import { conversationOf } from '../../src/core/conversation.ts'
import { type Tiers, tiersOf } from './tiers.ts'

export const channelRouter = definePlugin<Record<never, never>>({
  name: 'channel-router',
  readsInSteps: true,
  reads: [ApiKey, Body, Model],
  writes: [Plan, Variant],
  provides: ['routing'],
  create: (_options, { upstreams }, services) =>
    routeBy({ upstreams, health: services.upstreams.health, random: Math.random })
})

export interface Means {
  readonly upstreams: Config['upstreams']
  readonly health: Pick<TargetHealth, 'loadOf' | 'waitOf'>
  /** from 0 to below 1; for tests */
  readonly random: () => number
}

/** Of what is sold by the piece. @throws {GatewayError} invalid_request */
const choose = bodyStep('variant', (exchange) => {
  const model = exchange.get(Model)
  const { variant, ignored } = chooseVariant(model, exchange.request.body)
  checkSold(model, variant)
  if (ignored.length > 0) exchange.answerHeaders['x-gateway-ignored-fields'] = ignored.join(', ')
  exchange.set(Variant, variant)
})

const readConversation = bodyStep('conversation', conversationOf, { isRead: true })

export function routeBy ({ upstreams, health, random }: Means): Hooks {
  /** by channel, made on demand: a catalogue may hold thousands */
  const compiled = new WeakMap<ChannelConfig, Tiers>()
  /** by model: the attempts of channels with one target a tier, which have one order */
  const fixed = new WeakMap<Model, Partial<Record<ChannelName, readonly Attempt[]>>>()

  function tiersIn (sold: ChannelConfig): Tiers {
    let tiers = compiled.get(sold)
    if (tiers === undefined) compiled.set(sold, tiers = tiersOf(sold, upstreams))
    return tiers
  }

  const isOut = (sold: ChannelConfig): boolean => tiersIn(sold).length === 0
  const loadOf = ({ upstream, model }: TargetConfig): number => health.loadOf(upstream, model)

  /** Unhealthy targets come last: by the time that all others have failed they may have recovered. */
  function arrange (
    tier: readonly TargetConfig[], sold: ChannelConfig, exchange: Exchange, conversation: number | undefined
  ): readonly TargetConfig[] {
    if (tier.length === 1) return tier
    const order = (targets: readonly TargetConfig[]): readonly TargetConfig[] => sold.sticky
      // computed where it decides: it hashes a kilobyte or two
      ? byAffinity(targets, conversation ?? conversationOf(exchange))
      : balance(targets, loadOf, random)
    const isAside = ({ upstream: name, model }: TargetConfig): boolean => {
      const upstream = exchange.snapshot.upstreams.get(name)
      // a dry run asks for the plan regardless of the targets' health
      return exchange.dry === undefined && upstream !== undefined && health.waitOf(upstream, model) > 0
    }
    if (!tier.some(isAside)) return order(tier)
    const aside = tier.filter(isAside)
    return [...order(tier.filter((target) => !aside.includes(target))), ...aside]
  }

  function attemptsOf (
    channel: ChannelName, model: Model, exchange: Exchange, conversation: number | undefined
  ): readonly Attempt[] {
    return fixed.get(model)?.[channel] ?? orderAttempts(channel, model, exchange, conversation)
  }

  function orderAttempts (
    channel: ChannelName, model: Model, exchange: Exchange, conversation: number | undefined
  ): readonly Attempt[] {
    const sold = model.channels[channel]!
    const tiers = tiersIn(sold)
    const attempts = tiers.flatMap((tier) => arrange(tier, sold, exchange, conversation))
      .map(({ upstream, model, cost }): Attempt => Object.freeze({ upstream, model, channel, sold, cost }))
    if (tiers.every((tier) => tier.length === 1)) fixed.set(model, { ...fixed.get(model), [channel]: attempts })
    return attempts
  }

  return {
    onRequest (exchange) {
      const model = exchange.find(Model)
      if (model === undefined) return                         // no model is called
      if (model.maintenance) throw inMaintenance(exchange, model)
      const chosen = isSoldByTokens(model.kind) ? undefined : choose(exchange)
      if (exchange.large === undefined) plan(exchange, model)
      else return planLarge(chosen, exchange, model)
    }
  }

  async function planLarge (chosen: Awaitable<void>, exchange: Exchange, model: Model): Promise<void> {
    await chosen
    plan(exchange, model, await readConversation(exchange))
  }

  /** @param conversation undefined: not computed yet */
  function plan (exchange: Exchange, model: Model, conversation?: number): void {
    const owner = exchange.get(ApiKey)
    const channels = channelsFor(model, owner, { variant: exchange.find(Variant), isUnavailable: isOut })
    if (channels.kind === 'refused') {
      // An endpoint of the gateway's own needs no upstream: tokens are estimated.
      if (channels.code === 'maintenance' && exchange.route.endpoint.kind === 'local') return
      const [refused] = channels.channels ?? []
      if (refused !== undefined) exchange.set(Plan, { attempts: [], refused })
      throw refusalOf(channels, owner, model)
    }
    const { first, fallback } = channels
    const tried = attemptsOf(first, model, exchange, conversation)
    const attempts = fallback === undefined
      ? [...tried]                                            // the request's own, as its plan is
      : [...tried, ...attemptsOf(fallback, model, exchange, conversation)]
    const isWanted = fallback === undefined && isCheapOnly(owner, model, first)
    const otherwise = channels.otherwise ?? (isWanted ? 'model_unavailable' : undefined)
    exchange.set(Plan, otherwise === undefined ? { attempts } : { attempts, otherwise })
  }
}

function inMaintenance ({ alias }: Exchange, { id }: Model): GatewayError {
  return new GatewayError('maintenance', {
    message: `The model ${JSON.stringify(alias ?? id)} is under maintenance. Try again in {wait}, ` +
      'or choose another model.'
  })
}

/** The error where channels are unavailable: other models may be served by them. */
function refusalOf (
  { code, channels = [] }: Channels & { readonly kind: 'refused' }, owner: ApiKey, model: Model
): GatewayError {
  if (channels.length === 1 && isCheapOnly(owner, model, channels[0]!)) return new GatewayError('model_unavailable')
  if (channels.length === 0) return new GatewayError(code)
  const which = channels.length === 1
    ? `The ${channels[0]!} channel of this model is`
    : `The ${channels.join(' and ')} channels of this model are`
  return new GatewayError(code, {
    message: `${which} ${code === 'maintenance' ? 'under maintenance' : 'switched off'}, and no other may serve ` +
      'this request. Try again in {wait}.'
  })
}

/**
 * Whether the cheap channel of images is unavailable, and the key wants no other.
 * @param wanted the only channel of its mode
 */
function isCheapOnly ({ key }: ApiKey, { kind }: Model, wanted: ChannelName): boolean {
  return kind === 'image' && key.routing_mode === 'cheap' && wanted === 'cheap'
}
