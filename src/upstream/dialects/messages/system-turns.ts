// Folds the system turns among the messages, which only the newest models take, into what all models take
// (src/README.md#system-turns).
import { isRecord, type Json } from '../../../base/json.ts'
import { toolsInForce } from '../tool-changes.ts'

/**
 * @returns the changed fields of the body; none where there is no system turn
 */
export function withoutSystemTurns (body: Json): Json {
  const turns: unknown = body.messages
  if (!Array.isArray(turns) || !turns.some(isSystem)) return NOTHING
  const fold = new Fold(turns.findLastIndex((turn) => isRecord(turn) && turn.role === 'user'))
  for (let i = 0; i < turns.length; i++) fold.add(turns[i], i)
  const { messages, system, effort } = fold.end()
  const tools = toolsInForce(body)
  return {
    messages,
    ...(system.length > 0 && { system: [...blocksOf(body.system), ...system] }),
    ...(tools !== body.tools && { tools: Array.isArray(tools) && tools.length > 0 ? tools : undefined }),
    ...(effort !== undefined &&
      { output_config: { ...(isRecord(body.output_config) ? body.output_config : {}), effort } })
  }
}

/** Whether nobody asks anything: then what the system says last is the question, also where system turns are taken. */
export function isSystemOnly (turns: unknown): boolean {
  return Array.isArray(turns) && turns.length > 0 && turns.every(isSystem)
}

const NOTHING: Json = Object.freeze({})

function isSystem (turn: unknown): turn is Json {
  return isRecord(turn) && turn.role === 'system'
}

class Fold {
  readonly #lastQuestion: number
  readonly #turns: unknown[] = []
  /** before the first turn */
  readonly #system: Json[] = []
  /** the content of the last turn, where that is a copy with lines behind it */
  #copied: Json[] | undefined
  /** behind an answer: they belong to the question that follows it */
  #waiting: Json[] = []
  #effort: unknown

  /** @param lastQuestion index of the last turn of the user */
  constructor (lastQuestion: number) {
    this.#lastQuestion = lastQuestion
  }

  add (turn: unknown, index: number): void {
    if (!isSystem(turn)) {
      this.#addTurn(turn)
      return
    }
    if (isRecord(turn.output_config)) this.#effort = turn.output_config.effort ?? this.#effort
    if (turn.clear_at === 'next_user_message' && index < this.#lastQuestion) return
    const lines = blocksOf(turn.content).filter(({ type, text }) =>
      type === 'text' && typeof text === 'string' && text.trim() !== ''
    )
    for (const line of lines) this.#addLine(line)
  }

  #addLine (line: Json): void {
    const before = this.#turns.at(-1)
    if (before === undefined) this.#system.push(line)
    else if (isRecord(before) && before.role === 'user') {
      if (this.#copied === undefined) {
        this.#copied = [...blocksOf(before.content)]
        this.#turns[this.#turns.length - 1] = { ...before, content: this.#copied }
      }
      this.#copied.push(marked(line))
    } else this.#waiting.push(marked(line))
  }

  #addTurn (turn: unknown): void {
    this.#copied = undefined
    if (this.#waiting.length === 0) this.#turns.push(turn)
    else if (isRecord(turn) && turn.role === 'user') {
      const blocks = blocksOf(turn.content)
      // Vendors want the results of calls first.
      const results = blocks.filter(({ type }) => type === 'tool_result')
      const others = blocks.filter(({ type }) => type !== 'tool_result')
      this.#turns.push({ ...turn, content: [...results, ...this.#waiting, ...others] })
    } else this.#turns.push({ role: 'user', content: this.#waiting }, turn)
    this.#waiting = []
  }

  end (): { readonly messages: readonly unknown[], readonly system: readonly Json[], readonly effort: unknown } {
    if (this.#waiting.length > 0) this.#turns.push({ role: 'user', content: this.#waiting })
    // No turn is a user's: a conversation must begin with a question.
    if (this.#turns.length === 0) return { messages: [{ role: 'user', content: this.#system }], system: [],
      effort: this.#effort }
    return { messages: this.#turns, system: this.#system, effort: this.#effort }
  }
}

function blocksOf (content: unknown): readonly Json[] {
  return typeof content === 'string' ? (content === '' ? [] : [{ type: 'text', text: content }])
    : Array.isArray(content) ? content.filter(isRecord) : []
}

/** As Claude Code itself writes its instructions for models that take no system turns. */
function marked (block: Json): Json {
  return { ...block, text: `<system-reminder>\n${String(block.text)}\n</system-reminder>` }
}
