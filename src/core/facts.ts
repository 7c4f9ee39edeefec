// Facts: typed values that plugins share about one exchange. A fact has one writer and many readers; its type and its
// key share a name.
import type { AccountConfig, ChannelConfig, ChannelName, KeyConfig, ModelConfig,
  TargetConfig } from '../config/config.ts'
import type { ErrorCode } from '../errors.ts'
import type { Variant as VariantOf } from '../money/item-price.ts'
import type { Nanos } from '../money/nanos.ts'
import type { Usage, UsageSource } from '../money/usage.ts'

export interface Fact<T> {
  readonly name: string
  /** index of the value in the exchange's slots; each fact has its own */
  readonly slot: number
  /** true: of a large body its thread alone has it, with the body (body-step.ts) */
  readonly isOfBody: boolean
  /** Never present: carries the value's type, so that `get(fact)` is typed. */
  readonly _type?: T
}

/** by slot */
const facts: Fact<unknown>[] = []
const named = new Map<string, Fact<unknown>>()

/** Declares a fact. The name is what error messages and `reads`/`writes` checks print. */
export function fact<T> (name: string, { isOfBody = false }: { readonly isOfBody?: boolean } = {}): Fact<T> {
  const made = Object.freeze({ name, slot: facts.length, isOfBody })
  facts.push(made)
  if (!named.has(name)) named.set(name, made)                 // those of a user's plugins come later
  return made
}

/** Those of users' plugins included: an exchange has a slot for each. */
export function allFacts (): readonly Fact<unknown>[] {
  return facts
}

/** A shipped fact; another thread has another slot for it. @throws {Error} nobody has declared it */
export function factNamed (name: string): Fact<unknown> {
  const found = named.get(name)
  if (found === undefined) throw new Error(`there is no fact "${name}"`)
  return found
}

/** The request's API key, and its account. Written by auth. */
export interface ApiKey {
  readonly key: KeyConfig
  readonly account: AccountConfig
}
export const ApiKey = fact<ApiKey>('api-key')

/**
 * The parsed JSON body as the client sent it, except for changes in place, because it is never copied: a null is left
 * out, an alias becomes its model, parameters get the model's defaults. Base64 of 64 KiB and more is a placeholder at
 * the end of its string (large-strings.ts). Written by the core, after onHead.
 */
export type Body = Readonly<Record<string, unknown>>
export const Body = fact<Body>('body')

/** The model that the body names. Written by the core, after Body. */
export type Model = ModelConfig
export const Model = fact<Model>('model')

/**
 * The parameters of a request for an image or a video, with the model's defaults. Written by channel-router, for such
 * models only.
 */
export type Variant = VariantOf
export const Variant = fact<Variant>('variant')

/** One try at one target. */
export interface Attempt {
  /** name in `upstreams:` */
  readonly upstream: string
  /** the model's id at that upstream */
  readonly model: string
  readonly channel: ChannelName
  readonly sold: ChannelConfig
  /** what the target costs the operator; absent: it is not said */
  readonly cost?: TargetConfig['cost']
  /** the target was asked before, and does not take back thoughts that came from it: they are left out */
  readonly withoutThoughts?: true
}

/** The attempts in their order. Written by channel-router; walked by the core. */
export interface Plan {
  readonly attempts: readonly Attempt[]
  /** without attempts: the channel that would have served, and is switched off or in maintenance */
  readonly refused?: ChannelName
  /** the client's error when all of them failed and a channel that the key may not use might have answered */
  readonly otherwise?: ErrorCode
}
export const Plan = fact<Plan>('plan')

/** Most that one exchange can cost. Written by billing-meter before any hold, so that a refusal has it too. */
export interface WorstCase {
  /** the hold before an upstream is called; for a stream, the cost of its beginning */
  readonly first: Nanos
  /** the most with all later extensions of the hold */
  readonly most: Nanos
  /** tokens */
  readonly input: number
  readonly output: number
  /**
   * milliseconds since the epoch: the exchange pays the prices in force at that time, whatever takes effect while it
   * runs
   */
  readonly at: number
}
export const WorstCase = fact<WorstCase>('worst-case')

/**
 * A task that an upstream has accepted; billing-meter moves this request's hold to it. Written by the core, after the
 * answer.
 */
export interface Accepted {
  readonly id: string
  /** milliseconds since the epoch */
  readonly created: number
  /** JSON, as `Task.text` */
  readonly text: string
}
export const Accepted = fact<Accepted>('accepted')

/** The charge of the exchange; present once it is settled. Written by billing-meter. */
export interface Charge {
  readonly nanos: Nanos
  /** what the same usage costs at the target; absent: the target does not say */
  readonly cost?: Nanos
  readonly usage: Usage
  readonly source: UsageSource
}
export const Charge = fact<Charge>('charge')

/** Estimated cost at its provider of a request whose client left before the answer began: nobody is charged for it. */
export const AbandonedCost = fact<Nanos>('abandoned-cost')
