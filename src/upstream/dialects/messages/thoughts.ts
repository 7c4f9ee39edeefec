// The thoughts in a conversation, as the upstream of an attempt may have them (src/README.md#signatures).
import { isRecord, type Json } from '../../../base/json.ts'
import { isSealed } from '../../../base/seals.ts'
import type { Exchange } from '../../../core/exchange.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { MOST_OPENED } from '../../../translation/thinking.ts'
import { textIn } from '../json.ts'
import { openThought, sealThought } from '../thoughts.ts'

/** The field of a thought that is the vendor's, by the type of its block. */
const VENDORS: ReadonlyMap<unknown, string> = new Map([['thinking', 'signature'], ['redacted_thinking', 'data']])

/** @returns the same object, unless there is something to seal */
export function sealBlock (block: Json, exchange: Exchange, upstream: Upstream): Json {
  const field = VENDORS.get(block.type)
  const original = field === undefined ? undefined : block[field]
  if (typeof original !== 'string' || original === '') return block
  return { ...block, [field!]: sealThought(exchange, upstream, original) }
}

/**
 * Opens thoughts of this upstream's family, and leaves out those of all others, and unsigned ones, which come from
 * vendors of chat style: this vendor refuses both, now and on every later turn. What is not sealed is not ours to
 * judge. Where an open tool loop begins without a thought then, thinking with a budget is switched off: the vendor
 * insists on one there.
 * @param messages of the body, or what they became
 * @returns the changed fields of the body, undefined instead of a removed one; undefined: none changes
 */
export function ownThoughts (
  messages: unknown, body: Json, exchange: Exchange, upstream: Upstream
): Json | undefined {
  if (!Array.isArray(messages)) return undefined
  const { thinking } = body
  const count = thoughtsIn(messages)
  const turns: readonly unknown[] = count === 0 ? messages : new Reader(exchange, upstream, count).read(messages)
  const begin = isRecord(thinking) && thinking.type === 'enabled' ? beginOfLoop(turns) : turns.length
  if (begin === turns.length || isThought(blocksOf(turns[begin])[0])) {
    return turns === messages ? undefined : { messages: turns }
  }
  return {
    // While it is off, the vendor refuses thoughts in there.
    messages: turns.flatMap((turn, i) => i < begin ? [turn] : withBlocks(turn, (blocks) => blocks.filter(isNoThought))),
    thinking: { type: 'disabled' },
    ...withoutClearing(body)
  }
}

const NO_BLOCKS: readonly unknown[] = []

/** The number of thoughts that must be read. */
function thoughtsIn (turns: readonly unknown[]): number {
  let count = 0
  for (const turn of turns) {
    for (const block of blocksOf(turn)) if (isRecord(block) && vendorsIn(block) !== undefined) count++
  }
  return count
}

/** What must be read of a block: a sealed text, or '' of an unsigned thought. Undefined: it goes on as it is. */
function vendorsIn (block: Json): string | undefined {
  const field = VENDORS.get(block.type)
  if (field === undefined) return undefined
  const text = textIn(block[field])
  return isSealed(text) || (text === '' && block.type === 'thinking') ? text : undefined
}

class Reader {
  readonly #exchange: Exchange
  readonly #upstream: Upstream
  /** thoughts before those that are opened */
  #skipped: number

  /** @param count of thoughts that must be read */
  constructor (exchange: Exchange, upstream: Upstream, count: number) {
    this.#exchange = exchange
    this.#upstream = upstream
    this.#skipped = Math.max(0, count - MOST_OPENED)
  }

  read (turns: readonly unknown[]): readonly unknown[] {
    return turns.flatMap((turn) => withBlocks(turn, (blocks) => this.#blocks(blocks)))
  }

  #blocks (blocks: readonly unknown[]): readonly unknown[] {
    const kept = blocks.flatMap((block) => {
      const own = isRecord(block) ? this.#block(block) : block
      return own === undefined ? [] : [own]
    })
    // The vendor wants one in front, if there are any.
    return kept.length < blocks.length && isNoThought(kept[0]) ? kept.filter(isNoThought) : kept
  }

  /** Undefined: it is left out. */
  #block (block: Json): Json | undefined {
    const text = vendorsIn(block)
    if (text === undefined) return block
    if (text === '' || this.#skipped-- > 0) return undefined
    const original = openThought(this.#exchange, this.#upstream, text)
    return original === undefined ? undefined : { ...block, [VENDORS.get(block.type)!]: original }
  }
}

/**
 * The turns from which on a tool loop is open, until its last results: the model's, and the results between them.
 * @returns the index of the first; the number of turns where none is open
 */
function beginOfLoop (turns: readonly unknown[]): number {
  let begin = turns.length
  for (let i = begin; i > 0;) {
    let hasResults = false
    while (i > 0 && !isAnswer(turns[i - 1])) hasResults = isWithResults(turns[--i]) || hasResults
    if (!hasResults) break
    while (i > 0 && isAnswer(turns[i - 1])) begin = --i
  }
  return begin
}

/** Edits that clear old thoughts are refused without thinking. */
function withoutClearing ({ context_management: management }: Json): Json {
  if (!isRecord(management) || !Array.isArray(management.edits)) return {}
  const { edits, ...others } = management
  const kept = edits.filter((edit) =>
    !isRecord(edit) || typeof edit.type !== 'string' || !edit.type.startsWith('clear_thinking_')
  )
  if (kept.length === edits.length) return {}
  const isEmpty = kept.length === 0 && Object.keys(others).length === 0
  return { context_management: isEmpty ? undefined : { ...others, edits: kept } }
}

/** The turn with other blocks: none at all where none are left, since the vendor takes no empty turn. */
function withBlocks (turn: unknown, change: (blocks: readonly unknown[]) => readonly unknown[]): readonly unknown[] {
  const blocks = blocksOf(turn)
  const changed = change(blocks)
  if (changed.length === blocks.length && changed.every((block, i) => block === blocks[i])) return [turn]
  return changed.length === 0 ? [] : [{ ...turn as Json, content: changed }]
}

function isAnswer (turn: unknown): boolean {
  return isRecord(turn) && turn.role === 'assistant'
}

/** The content blocks of a turn of the model's. */
function blocksOf (turn: unknown): readonly unknown[] {
  return isRecord(turn) && turn.role === 'assistant' && Array.isArray(turn.content) ? turn.content : NO_BLOCKS
}

function isWithResults (turn: unknown): boolean {
  return isRecord(turn) && Array.isArray(turn.content) &&
    turn.content.some((block) => isRecord(block) && block.type === 'tool_result')
}

function isThought (block: unknown): boolean {
  return isRecord(block) && VENDORS.has(block.type)
}

function isNoThought (block: unknown): boolean {
  return !isThought(block)
}
