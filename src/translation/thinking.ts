// Translates a client's effort into thinking, and decides when that must be off.
import type { Model } from '../core/facts.ts'
import { isGiven, isRecord, type Json } from '../base/json.ts'
import { isSealed } from '../base/seals.ts'
import type { Turn } from './blocks.ts'
import { invalid } from './reads.ts'

/** Share of max_tokens for thinking, by effort (OpenRouter's ratios). */
const RATIOS = new Map<unknown, number>([['minimal', 0.1], ['low', 0.2], ['medium', 0.5], ['high', 0.8], ['xhigh',
  0.95], ['max', 0.95]])
/** The other way round: the effort whose share of `most` tokens is nearest to a budget. */
export function effortFor (budget: number, most: number): string {
  const distance = ([, ratio]: readonly [unknown, number]): number => Math.abs(ratio - budget / most)
  return [...RATIOS].reduce((best, one) => distance(one) < distance(best) ? one : best)[0] as string
}

/** Efforts, each more than the one before it. */
const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const
export type Effort = (typeof EFFORTS)[number]

export function isEffort (value: unknown): value is Effort {
  return EFFORTS.includes(value as Effort)
}

/** The effort that a vendor knows. Some reasoning never becomes none, as long as it knows another effort. */
export function nearestEffort (asked: Effort, known: readonly Effort[]): Effort {
  const some = known.filter((effort) => effort !== 'none')
  const choice = asked === 'none' || some.length === 0 ? known : some
  const distance = (effort: Effort): number => Math.abs(EFFORTS.indexOf(effort) - EFFORTS.indexOf(asked))
  return choice.reduce((best, effort) => distance(effort) < distance(best) ? effort : best)
}

/**
 * Most sealed thoughts that are opened of one request, the last ones: each takes up to 20 µs (measured), and a body has
 * room for a hundred thousand.
 */
export const MOST_OPENED = 2000

/** The vendor's smallest budget. */
const LEAST_BUDGET = 1024

const OFF: Json = Object.freeze({ type: 'disabled' })

export function isThinking (thinking: Json | undefined): boolean {
  return thinking !== undefined && thinking.type !== 'disabled'
}

/** Whether thinking is off. Adaptive models differ in their default; the others think when they are told to. */
export function isOff (thinking: Json | undefined, model: Model): boolean {
  return thinking === undefined ? model.thinking !== 'adaptive' : thinking.type === 'disabled'
}

/** Limits of the output: the client's, for both; or the usual one, and the model's maximum. */
export interface Output {
  readonly usual: number
  readonly most: number
}

/** The value of `output_config.effort`. */
export function readEffort (effort: unknown, model: Model): unknown {
  if (model.thinking !== 'adaptive' || !RATIOS.has(effort)) return undefined
  return effort === 'minimal' ? 'low' : effort
}

/** What a client may say about thoughts. */
export interface AskedThinking {
  /** the vendor's own field, which wins */
  readonly thinking?: unknown
  readonly effort: unknown
}

/**
 * @param isForced whether a tool must be called
 */
export function readThinking (
  { thinking, effort }: AskedThinking,
  model: Model,
  output: Output,
  turns: readonly Turn[],
  isForced: boolean
): Json | undefined {
  const asked = isRecord(thinking) && !isSwitch(thinking)
    ? ownThinking(thinking)
    : byEffort(isRecord(thinking) && (!isGiven(effort) || effort === 'none') ? SWITCHED_ON : effort, model, output)
  if (asked === undefined || !isThinking(asked)) return asked
  return isForced || (asked.type === 'enabled' && lacksThoughts(turns)) ? OFF : asked
}

/** A budget in tokens: models that take none get the nearest effort. */
export function thinkingWithin (budget: number, model: Model, { usual, most }: Output): AskedThinking {
  if (model.thinking !== 'budget') return { effort: effortFor(budget, usual) }
  if (most <= LEAST_BUDGET) return { effort: 'none' }
  const fitting = Math.min(Math.max(LEAST_BUDGET, Math.floor(budget)), most - 1)
  return { effort: undefined, thinking: { type: 'enabled', budget_tokens: fitting } }
}

/** What DeepSeek and Z.ai have for `enabled`, which has a budget in messages style. */
function isSwitch ({ type, budget_tokens: budget }: Json): boolean {
  return type === 'enabled' && !isGiven(budget)
}

/** The effort of a client that says nothing but that it wants thoughts. */
export const SWITCHED_ON = 'medium'

function ownThinking ({ type, budget_tokens, display }: Json): Json {
  return { type, ...(isGiven(budget_tokens) && { budget_tokens }), ...(isGiven(display) && { display }) }
}

function byEffort (effort: unknown, model: Model, { usual, most }: Output): Json | undefined {
  if (model.thinking === 'none') return undefined
  if (effort === 'none') return OFF
  const ratio = RATIOS.get(effort)
  if (ratio === undefined) return undefined
  if (model.thinking === 'adaptive') return { type: 'adaptive' }
  if (most <= LEAST_BUDGET) return OFF
  return { type: 'enabled', budget_tokens: Math.max(LEAST_BUDGET, Math.floor(usual * ratio)) }
}

/**
 * The max_tokens of a client that sets none: the usual, on top of a budget that does not fit in there. The vendor
 * demands more than the budget.
 * @throws {GatewayError} invalid_request: the model can't produce so much
 */
export function makeRoom (thinking: Json | undefined, { usual, most }: Output): number {
  const budget = thinking?.type === 'enabled' ? thinking.budget_tokens : undefined
  if (typeof budget !== 'number' || budget < usual) return usual
  const raised = Math.min(budget + usual, most)
  if (raised > budget) return raised
  throw invalid('thinking.budget_tokens',
    `must be less than ${most}, the most output tokens of this model: they hold the answer too`)
}

/**
 * Whether the assistant's turn that the tools' results answer begins without a thought: with a budget the vendor
 * refuses that ("a final `assistant` message must start with a thinking block … To avoid this requirement, disable
 * `thinking`"), and a chat client has no signed thought to echo.
 */
function lacksThoughts (turns: readonly Turn[]): boolean {
  const [answer, results] = turns.filter(({ role }) => role !== 'system').slice(-2)
  if (
    results?.role !== 'user' || typeof results.content === 'string' || results.content[0]?.type !== 'tool_result'
  ) return false
  const first = typeof answer!.content === 'string' ? undefined : answer!.content[0]?.type
  return first !== 'thinking' && first !== 'redacted_thinking'
}

/**
 * Removes sealed thoughts from the last answer of a translated conversation, for an upstream that refuses them while
 * thinking is off. Vendors of chat style want theirs back: they sign calls.
 */
export function withoutSealedThoughts (messages: unknown, { thinking }: Json, model: Model): unknown {
  if (!Array.isArray(messages) || !isOff(isRecord(thinking) ? thinking : undefined, model)) return messages
  return withoutThoughts(messages as readonly Turn[], isThought)
}

/** Removes all others from that turn, which the vendor refuses while thinking is off. */
export function withoutLastThoughts (turns: readonly Turn[]): readonly Turn[] {
  return withoutThoughts(turns, (block) => isThought(block) && !isSealed(String(block.signature ?? block.data)))
}

function isThought ({ type }: Json): boolean {
  return type === 'thinking' || type === 'redacted_thinking'
}

function withoutThoughts (turns: readonly Turn[], isGone: (block: Json) => boolean): readonly Turn[] {
  let at = turns.length - 1
  while (at >= 0 && turns[at]!.role !== 'assistant') at--
  const turn = at === -1 ? undefined : turns[at]              // turns[-1] is a slow look-up by name
  if (turn === undefined || typeof turn.content === 'string') return turns
  const content = turn.content.filter((block) => !isGone(block))
  return content.length === 0 || content.length === turn.content.length ? turns : turns.with(at, { ...turn, content })
}

/** The tokens of an answer that were thoughts; undefined: not reported. */
export function thinkingTokens (usage: unknown): number | undefined {
  const details = isRecord(usage) ? usage.output_tokens_details : undefined
  return isRecord(details) && typeof details.thinking_tokens === 'number' ? details.thinking_tokens : undefined
}
