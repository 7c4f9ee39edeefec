// What plugins tell each other about one exchange. A fact has one writer and many readers; its type and its key share a
// name.
import type { AccountConfig, ChannelConfig, ChannelName, KeyConfig, ModelConfig } from '../config/config.ts'
import type { ErrorCode } from '../errors.ts'
import type { Variant as VariantOf } from '../money/item-price.ts'
import type { Nanos } from '../money/nanos.ts'
import type { Usage, UsageSource } from '../money/usage.ts'

export interface Fact<T> {
  readonly name: string
  /** where an exchange keeps the value: each fact has its own */
  readonly slot: number
  /** Never present: carries the type of the value, so that `get(fact)` knows what it returns. */
  readonly _type?: T
}

let slots = 0

/** Declares a fact. The name is what error messages and `reads`/`writes` checks print. */
export function fact<T> (name: string): Fact<T> {
  return Object.freeze({ name, slot: slots++ })
}

/** The key that a request came with, and its account. Written by auth. */
export interface ApiKey {
  readonly key: KeyConfig
  readonly account: AccountConfig
}
export const ApiKey = fact<ApiKey>('api-key')

/**
 * The parsed JSON body as the client sent it, but for what is put right in place: it is never copied (a null left out,
 * the model behind an alias, the defaults of a model's parameters). Base64 of 64 KiB and more is a placeholder at the
 * end of its string (large-strings.ts). Written by the core, after onHead.
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
}

/** What to try, in order. Written by channel-router; walked by the core. */
export interface Plan {
  readonly attempts: readonly Attempt[]
  /** what the client hears when all of them failed and another channel might have answered, but may not be asked */
  readonly otherwise?: ErrorCode
}
export const Plan = fact<Plan>('plan')

/**
 * What one exchange can cost at most. Written by billing-meter before it holds anything, so that a refusal has it too.
 */
export interface WorstCase {
  /** what is held before an upstream is called: of a stream only what its beginning costs */
  readonly first: Nanos
  /** with all that it may still ask for */
  readonly most: Nanos
  /** tokens */
  readonly input: number
  readonly output: number
  /** milliseconds since the epoch: it pays the prices that held then, whatever begins while it runs */
  readonly at: number
}
export const WorstCase = fact<WorstCase>('worst-case')

/**
 * A task that an upstream has accepted: whoever moves money gives it the hold of this request. Written by the core,
 * after the answer.
 */
export interface Accepted {
  readonly id: string
  /** milliseconds since the epoch */
  readonly created: number
  /** JSON, as `Task.text` */
  readonly text: string
}
export const Accepted = fact<Accepted>('accepted')

/** What the exchange was charged; there only once it is settled. Written by billing-meter. */
export interface Charge {
  readonly nanos: Nanos
  readonly usage: Usage
  readonly source: UsageSource
}
export const Charge = fact<Charge>('charge')
