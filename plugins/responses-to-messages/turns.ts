// Builds the turns of messages style from items that come in any order (src/README.md#responses-request): calls are
// answered in the turn behind theirs, all of them and no others, as vendors require.
import { type Block, GO_ON, NO_OUTPUT, notShown, textBlock, type Turn } from '../../src/translation/blocks.ts'
import { vendorId } from '../../src/translation/vendor-id.ts'
import type { Json } from '../../src/base/json.ts'

/** A call, with what came back from it: nothing, or one output or more. */
interface Call {
  readonly id: string
  /** the calls of its turn */
  readonly among: readonly Call[]
  readonly output: Block[]
  isAnswered: boolean
  hasFailed: boolean
}

/** Calls of one turn that share an id: their outputs come in the same order, and the first calls may have none. */
interface SameId {
  readonly calls: Call[]
  readonly outputs: { readonly blocks: readonly Block[], readonly hasFailed: boolean }[]
}

interface OpenTurn {
  readonly role: 'user' | 'assistant'
  readonly blocks: Block[]
  /** of the user: the system turn behind it, where vendors take one */
  readonly system: Block[]
  /** of the assistant: its calls; of the user: those that the turn answers */
  readonly calls: readonly Call[]
}

export class Turns {
  readonly #turns: OpenTurn[] = []
  /** the last ones of each of the client's ids: some clients count their calls anew in each turn */
  readonly #calls = new Map<string, SameId>()
  readonly #all: SameId[] = []
  /** ids for the vendor, which must be unique */
  readonly #ids = new Set<string>()
  /** of the client's ids that came again: the number of the next one, so that none is looked for from the beginning */
  readonly #again = new Map<string, number>()
  /** thoughts that nothing has followed yet: a turn may not end with them */
  #thoughts: Block[] = []
  /** of the assistant's turn that is open */
  #made: Call[] = []

  addUser (blocks: readonly Block[]): void {
    if (blocks.length > 0) append(this.#userTurn(), blocks)
  }

  addSystem (blocks: readonly Block[]): void {
    if (blocks.length === 0) return
    this.#userTurn()
    append(this.#turns.at(-1)!.system, blocks)
  }

  addAnswer (blocks: readonly Block[]): void {
    if (blocks.length > 0) append(this.#assistantTurn(), blocks)
  }

  addThoughts (blocks: readonly Block[]): void {
    append(this.#thoughts, blocks)
  }

  /** @param ids of the client, one of which its output will name */
  addCall (ids: readonly string[], name: string, input: Json): void {
    const id = this.#newId(ids[0]!)
    const turn = this.#assistantTurn()
    turn.push({ type: 'tool_use', id, name, input })
    const call: Call = { id, among: this.#made, output: [], isAnswered: false, hasFailed: false }
    this.#made.push(call)
    for (const one of ids) {
      const same = this.#calls.get(one)
      if (same?.calls[0]!.among === this.#made) same.calls.push(call)
      else {
        const first: SameId = { calls: [call], outputs: [] }
        this.#calls.set(one, first)
        this.#all.push(first)
      }
    }
  }

  /** @param id of its call; without such a call the output is told as the user's text */
  addOutput (id: string, blocks: readonly Block[], hasFailed = false): void {
    const same = this.#calls.get(id)
    if (same === undefined) {
      this.addUser([notShown(id), ...blocks])
      return
    }
    same.outputs.push({ blocks, hasFailed })
    if (same.calls[0]!.among === this.#made) this.#userTurn()
  }

  #newId (theirs: string): string {
    let id = vendorId(theirs)
    while (this.#ids.has(id)) {
      const number = this.#again.get(theirs) ?? 2
      this.#again.set(theirs, number + 1)
      id = vendorId(`${theirs}:${number}`)
    }
    this.#ids.add(id)
    return id
  }

  /** The turns; the last one is the user's, or the system's behind it. */
  end (): Turn[] {
    if (this.#turns.length === 0) return []
    if (this.#made.length > 0) this.#userTurn()
    // Not every model goes on with its own words.
    else if (this.#turns.at(-1)!.role === 'assistant') this.addUser([textBlock(GO_ON)])
    for (const same of this.#all) giveOutputs(same)
    return this.#turns.flatMap(({ role, blocks, calls, system }): Turn[] => {
      if (role === 'assistant') return [{ role, content: blocks }]
      // A system turn can't stand behind an answer.
      if (calls.length + blocks.length === 0) blocks.push(textBlock(GO_ON))
      const turn: Turn = { role, content: [...calls.map(toResult), ...blocks] }
      return system.length === 0 ? [turn] : [turn, { role: 'system', content: system }]
    })
  }

  /** The blocks of the user's turn, which is begun here, unless it is open. */
  #userTurn (): Block[] {
    this.#moveThoughts()
    this.#endThoughts()
    const last = this.#turns.at(-1)
    if (last?.role === 'user') return last.blocks
    const blocks: Block[] = []
    this.#turns.push({ role: 'user', blocks, calls: this.#made, system: [] })
    this.#made = []
    return blocks
  }

  #assistantTurn (): Block[] {
    const last = this.#turns.at(-1)
    let blocks = last?.role === 'assistant' ? last.blocks : undefined
    if (blocks === undefined) this.#turns.push({ role: 'assistant', blocks: blocks = [], calls: [], system: [] })
    append(blocks, this.#thoughts)
    this.#endThoughts()
    return blocks
  }

  /** Thoughts behind the last calls, whose vendor signs calls that it has made, stand before these. */
  #moveThoughts (): void {
    if (this.#thoughts.length === 0 || this.#made.length === 0) return
    const { blocks } = this.#turns.at(-1)!
    const calls = blocks.splice(blocks.findLastIndex(({ type }) => type !== 'tool_use') + 1)
    append(blocks, this.#thoughts)
    append(blocks, calls)
  }

  #endThoughts (): void {
    if (this.#thoughts.length > 0) this.#thoughts = []
  }
}

function giveOutputs ({ calls, outputs }: SameId): void {
  const unanswered = Math.max(0, calls.length - outputs.length)
  for (const [i, { blocks, hasFailed }] of outputs.entries()) {
    const call = calls[Math.min(unanswered + i, calls.length - 1)]!
    call.isAnswered = true
    call.hasFailed ||= hasFailed
    append(call.output, blocks)
  }
}

/** One by one: a message may have more parts than a function takes arguments. */
function append (blocks: Block[], more: readonly Block[]): void {
  for (const block of more) blocks.push(block)
}

function toResult ({ id, output, isAnswered, hasFailed }: Call): Block {
  if (!isAnswered) return { type: 'tool_result', tool_use_id: id, content: NO_OUTPUT, is_error: true }
  return { type: 'tool_result', tool_use_id: id, ...(output.length > 0 && { content: output }),
    ...(hasFailed && { is_error: true }) }
}
