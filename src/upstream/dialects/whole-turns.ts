// A conversation as vendors take it: each call of the model has one result, all of them first in the turn behind it,
// and no text is blank. Clients lose results, answer twice, and keep empty texts; vendors refuse that, now and in each
// later turn. Every dialect reads what is made here, so all vendors understand a conversation in the same way
// (src/README.md#whole-turns).
import { isRecord, type Json } from '../../base/json.ts'
import { isBlank, NO_OUTPUT, notShown } from '../../translation/blocks.ts'
import { textIn } from './json.ts'

/** The same value where nothing is to be mended, or nothing is said: that is for the vendor to refuse. */
export function wholeTurns (messages: unknown): unknown {
  if (!Array.isArray(messages) || isWhole(messages)) return messages
  const turns = new Turns()
  for (const message of messages as readonly unknown[]) turns.add(message)
  const whole = turns.end()
  return whole.length === 0 ? messages : whole
}

/** Neighbours of one role are one turn for vendors, and system turns stand beside the others. */
function isWhole (messages: readonly unknown[]): boolean {
  const pairs = new Pairs()
  for (let i = 0; i < messages.length; i++) {
    const turn = messages[i]
    if (isRecord(turn) && (isEmpty(turn.content) || !pairs.read(turn))) return false
  }
  return pairs.isEven
}

/** Whether results answer the calls before them. */
class Pairs {
  /** calls without a result: how many, by their ids; undefined: there were none */
  #open: Map<unknown, number> | undefined
  #isAnswer = false
  /** whether the user's turn has something that is no result */
  #hasWords = false

  get isEven (): boolean {
    return this.#open === undefined || this.#open.size === 0
  }

  /** @returns false: a result is not in its place, or a call has none */
  read ({ role, content }: Json): boolean {
    if (role === 'system') return true
    const isAnswer = role === 'assistant'
    if (isAnswer && !this.#isAnswer) {
      if (!this.isEven) return false
      this.#hasWords = false
    }
    this.#isAnswer = isAnswer
    if (!Array.isArray(content)) this.#hasWords = true
    else for (let i = 0; i < content.length; i++) if (!this.#block(content[i])) return false
    return true
  }

  #block (block: unknown): boolean {
    if (this.#isAnswer) {
      if (isCall(block)) addOne(this.#open ??= new Map(), block.id)
    } else if (!isResult(block)) this.#hasWords = true
    else return !this.#hasWords && this.#open !== undefined && takeOne(this.#open, block.tool_use_id)
    return true
  }
}

/** Whether there is no content, or a blank text in it. */
function isEmpty (content: unknown): boolean {
  if (typeof content === 'string') return isBlank(content)
  if (!Array.isArray(content)) return false
  for (let i = 0; i < content.length; i++) if (isBlankBlock(content[i])) return true
  return content.length === 0
}

function isBlankBlock (block: unknown): boolean {
  if (!isRecord(block)) return false
  if (block.type === 'text') return typeof block.text === 'string' && isBlank(block.text)
  return block.type === 'tool_result' && Array.isArray(block.content) && block.content.some(isBlankBlock)
}

function isCall (block: unknown): block is Json {
  return isRecord(block) && block.type === 'tool_use'
}

function isResult (block: unknown): block is Json {
  return isRecord(block) && block.type === 'tool_result'
}

function addOne (open: Map<unknown, number>, id: unknown): void {
  open.set(id, (open.get(id) ?? 0) + 1)
}

function takeOne (open: Map<unknown, number>, id: unknown): boolean {
  const count = open.get(id)
  if (count === undefined) return false
  if (count === 1) open.delete(id)
  else open.set(id, count - 1)
  return true
}

/** Mends one round after the other: answers of the model, and what stands behind them. */
class Turns {
  readonly #all: unknown[] = []
  #answers: Json[] = []
  /** turns of the user and the system */
  #behind: Json[] = []

  add (turn: unknown): void {
    if (!isRecord(turn)) return
    const { role, content } = turn
    const whole = withoutBlanks(content)
    if (whole === undefined) return
    if (role === 'assistant' && this.#behind.length > 0) this.#endRound()
    const kept = whole === content ? turn : { ...turn, content: whole }
    if (role === 'assistant') this.#answers.push(kept)
    else this.#behind.push(kept)
  }

  end (): readonly unknown[] {
    this.#endRound()
    return this.#all
  }

  #endRound (): void {
    const answers = this.#answers
    const behind = this.#behind
    this.#answers = []
    this.#behind = []
    for (const turn of answers) this.#all.push(turn)
    if (isWhole([...answers, ...behind])) for (const turn of behind) this.#all.push(turn)
    else this.#addResults(answers.flatMap(blocksOf).filter(isCall), behind)
  }

  /** One turn with the results and all that the user says, then what the system says. */
  #addResults (calls: readonly Json[], behind: readonly Json[]): void {
    const open = new Map<unknown, number>()
    for (const { id } of calls) addOne(open, id)
    const results: Json[] = []
    const said: unknown[] = []
    for (const turn of behind) {
      if (turn.role === 'system') continue
      for (const block of blocksOf(turn)) {
        if (!isResult(block)) said.push(block)
        else if (takeOne(open, block.tool_use_id)) results.push(block)
        else for (const one of shownResult(block)) said.push(one)
      }
    }
    const content = [...results, ...missingResults(calls, open), ...said]
    if (content.length > 0) this.#all.push({ ...behind.find(({ role }) => role === 'user'), role: 'user', content })
    for (const turn of behind) if (turn.role === 'system') this.#all.push(turn)
  }
}

/** Of calls with one id the last ones have no result. @param open how many of each id */
function missingResults (calls: readonly Json[], open: Map<unknown, number>): readonly Json[] {
  const missing: Json[] = []
  for (const { id } of calls.toReversed()) {
    if (takeOne(open, id)) missing.push({ type: 'tool_result', tool_use_id: id, content: NO_OUTPUT, is_error: true })
  }
  return missing.toReversed()
}

/** A result that belongs to no call, as the user's words. */
function shownResult ({ tool_use_id: id, content }: Json): readonly unknown[] {
  return [notShown(textIn(id)), ...blocksOf({ content })]
}

/** Undefined: nothing is left. */
function withoutBlanks (content: unknown): unknown {
  if (typeof content === 'string') return isBlank(content) ? undefined : content
  if (!Array.isArray(content)) return content
  if (!content.some(isBlankBlock)) return content.length === 0 ? undefined : content
  const kept = content.flatMap((block: unknown) => {
    if (!isBlankBlock(block)) return [block]
    return isResult(block) ? [{ ...block, content: withoutBlanks(block.content) }] : []
  })
  return kept.length === 0 ? undefined : kept
}

function blocksOf ({ content }: Json): readonly unknown[] {
  return typeof content === 'string' ? textBlocks(content) : Array.isArray(content) ? content : []
}

function textBlocks (text: string): readonly Json[] {
  return isBlank(text) ? [] : [{ type: 'text', text }]
}
