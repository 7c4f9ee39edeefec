// Features for which a vendor charges more than the price of tokens. Refused unless the model has a price for them
// (src/README.md#no-unpriced): without one they would be given away.
import { GatewayError } from '../../src/errors.ts'
import type { PriceSpan } from '../../src/money/price-schedule.ts'
import { noUses, type Uses } from '../../src/money/price.ts'
import type { Body } from '../../src/core/facts.ts'
import { clientTools } from '../../src/tokens/bound.ts'

/**
 * Fields of the body, with the values that cost nothing extra; and the name of their price in `extras`. `thread` brings
 * in what the vendor has stored, `compaction` makes it read and write tokens beside those that it reports,
 * `billing_policy` says who pays it.
 */
const FIELDS: Readonly<Record<string, readonly unknown[]>> = {
  speed: [null, 'standard'],
  service_tier: [null, 'auto', 'standard_only'],
  inference_geo: [null, 'global'],
  container: [null],
  mcp_servers: [null],
  fallbacks: [null],
  thread: [null],
  compaction: [null],
  billing_policy: [null]
}

/** A tool that runs at the vendor, for the price of its tokens. */
const TOOL_SEARCH = /^tool_search_/

/**
 * @param prices of every channel that may serve the request
 * @throws {GatewayError} invalid_request, naming the field
 */
export function refuseSurcharges (body: Body, prices: readonly PriceSpan[]): void {
  for (const name in FIELDS) {
    const value = body[name]
    if (
      value === undefined || FIELDS[name]!.includes(value) || (Array.isArray(value) && value.length === 0) ||
      isPriced(name, prices)
    ) continue
    throw refuseField(name, name)
  }
  const compacting = listOf(recordOf(body['context_management'])['edits']).findIndex(isCompaction)
  if (compacting !== -1 && !isPriced('compaction', prices)) {
    throw refuseField('compaction', `context_management.edits[${compacting}]`)
  }
  const tools = listOf(body['tools'])
  for (let i = 0; i < tools.length; i++) {
    const name = priceOf(tools[i])
    if (name !== undefined && !isPriced(name, prices)) throw refuseTool(name, `tools[${i}].type`)
  }
  // Tools may come with the conversation too. One that runs at the vendor has no price there, because the hold would
  // not cover it.
  const messages = listOf(body['messages'])
  for (let i = 0; i < messages.length; i++) {
    const blocks = listOf(recordOf(messages[i])['content'])
    for (let j = 0; j < blocks.length; j++) {
      const { type, tool } = recordOf(blocks[j])
      const name = type === 'tool_addition' ? priceOf(recordOf(tool)['definition']) : undefined
      if (name !== undefined) throw refuseTool(name, `messages[${i}].content[${j}].tool.definition.type`)
    }
  }
}

function isPriced (name: string, prices: readonly PriceSpan[]): boolean {
  return prices.every(({ price }) => price.isFree || price.extras.has(name))
}

/** The most uses of an answer, and the limits that the request gets for it. */
export interface UseBounds {
  readonly uses: Uses
  readonly limits: readonly UseLimit[]
}

/** The operator's limit for a tool that the client has set none for. */
export interface UseLimit {
  /** index of the tool */
  readonly tool: number
  readonly most: number
}

const UNUSED: UseBounds = Object.freeze({ uses: noUses, limits: [] })

/**
 * The most uses of tools that run at the provider and have a price per use: their `max_uses`, or the operator's `most`.
 * @param prices of every channel that may serve the request
 * @throws {GatewayError} invalid_request: a tool without a limit of uses, which could cost any amount
 */
export function boundUses (body: Body, prices: readonly PriceSpan[]): UseBounds {
  if (prices.every(hasNoExtras)) return UNUSED
  let uses: Record<string, number> | undefined
  const limits: UseLimit[] = []
  for (const [index, tool] of listOf(body['tools']).entries()) {
    const name = priceOf(tool)
    if (name === undefined || !prices.some(({ price }) => (price.extras.get(name) ?? 0n) > 0n)) continue
    const own = recordOf(tool)['max_uses']
    const standard = own === undefined || own === null ? leastOf(name, prices) : undefined
    const most = standard ?? own
    if (!Number.isSafeInteger(most) || (most as number) < 0) {
      throw new GatewayError('invalid_request', {
        message:
          `Each use of the tool "${name}" is charged: set its "max_uses", a whole number, so that the most that the ` +
            'answer can cost is known before it begins. What is not used is not charged.',
        param: `tools[${index}].max_uses`
      })
    }
    if (standard !== undefined) limits.push({ tool: index, most: standard })
    uses ??= {}
    uses[name] = (uses[name] ?? 0) + (most as number)
  }
  return uses === undefined ? UNUSED : { uses, limits }
}

/** The smallest limit of the channels, because one body goes to all of them. Undefined: no channel has one. */
function leastOf (name: string, prices: readonly PriceSpan[]): number | undefined {
  const all = prices.flatMap(({ price }) => price.mostUses.get(name) ?? [])
  return all.length === 0 ? undefined : Math.min(...all)
}

/** Sets the operator's limits, in place: the provider would not know them otherwise. */
export function limitUses (body: Body, limits: readonly UseLimit[]): void {
  const tools = listOf(body['tools'])
  for (const { tool, most } of limits) Object.assign(recordOf(tools[tool]), { max_uses: most })
}

function hasNoExtras ({ price }: PriceSpan): boolean {
  return price.extras.size === 0
}

/** Whether an edit of `context_management` is a compaction: the same as the field, from a certain length on. */
function isCompaction (edit: unknown): boolean {
  const { type } = recordOf(edit)
  return typeof type === 'string' && type.startsWith('compact')
}

/** The name of a tool's price: web_search_20250305 is priced as web_search. Undefined: its tokens are its only cost. */
function priceOf (tool: unknown): string | undefined {
  const { type } = recordOf(tool)
  return typeof type !== 'string' || clientTools.test(type) || TOOL_SEARCH.test(type)
    ? undefined
    : type.replace(/_\d{8}$/, '')
}

function refuseField (name: string, param: string): GatewayError {
  return new GatewayError('invalid_request', {
    message: `The field "${name}" changes the price of this model, and it is not sold here with it. Leave it out.`,
    param,
    // The vendor's SDK threads whatever its tool runner sends; by this word it knows that it can go on without.
    ...(name === 'thread' && { vendorCode: 'thread_unsupported_request' })
  })
}

function refuseTool (name: string, param: string): GatewayError {
  return new GatewayError('invalid_request', {
    message: `The tool "${name.slice(0, 60)}" runs at the provider for a price of its own, and this model is not ` +
      'sold with it. Leave it out.',
    param
  })
}

function listOf (value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : NONE
}

function recordOf (value: unknown): Body {
  return typeof value === 'object' && value !== null ? value as Body : NOTHING
}

const NONE: readonly unknown[] = []
const NOTHING: Body = Object.freeze({})
