// A reader of a response's stream that takes nothing for granted: it throws at the first event that a client in the
// field would stumble over, and gives what the events said.
import { isDeepStrictEqual } from 'node:util'
import type { SseEvent } from '../../src/core/sse.ts'

type Json = Readonly<Record<string, unknown>>

export interface ReadResponse {
  /** the response of the terminal event */
  readonly response: Json
  /** the items of `output_item.done` */
  readonly items: readonly Json[]
  /** the types of all events, without pings */
  readonly types: readonly string[]
}

/** Fields beside `type` and `sequence_number`, by type. */
const FIELDS: Readonly<Record<string, readonly string[]>> = {
  'response.created': ['response'],
  'response.in_progress': ['response'],
  'response.completed': ['response'],
  'response.incomplete': ['response'],
  'response.failed': ['response'],
  'response.output_item.added': ['output_index', 'item'],
  'response.output_item.done': ['output_index', 'item'],
  'response.content_part.added': ['item_id', 'output_index', 'content_index', 'part'],
  'response.content_part.done': ['item_id', 'output_index', 'content_index', 'part'],
  'response.output_text.delta': ['item_id', 'output_index', 'content_index', 'delta', 'logprobs'],
  'response.output_text.done': ['item_id', 'output_index', 'content_index', 'text', 'logprobs'],
  'response.function_call_arguments.delta': ['item_id', 'output_index', 'delta'],
  'response.function_call_arguments.done': ['item_id', 'output_index', 'name', 'arguments'],
  'response.custom_tool_call_input.delta': ['item_id', 'output_index', 'delta'],
  'response.custom_tool_call_input.done': ['item_id', 'output_index', 'input'],
  'response.reasoning_summary_part.added': ['item_id', 'output_index', 'summary_index', 'part'],
  'response.reasoning_summary_part.done': ['item_id', 'output_index', 'summary_index', 'part'],
  'response.reasoning_summary_text.delta': ['item_id', 'output_index', 'summary_index', 'delta'],
  'response.reasoning_summary_text.done': ['item_id', 'output_index', 'summary_index', 'text'],
  keepalive: [],
  error: ['code', 'message', 'param']
}

/** What clients read of a response, and the validators of the Open Responses suite want. */
const RESPONSE_FIELDS = ['id', 'object', 'created_at', 'completed_at', 'status', 'error', 'incomplete_details',
  'model', 'output', 'usage', 'instructions', 'tools']

/** An item in the making. */
interface OpenItem {
  readonly item: Json
  readonly index: number
  text: string
  /** how far its events are */
  stage: 'added' | 'part' | 'said' | 'part done'
}

class Reader {
  readonly items: Json[] = []
  readonly #ids = new Set<unknown>()
  #created: Json | undefined
  #open: OpenItem | undefined
  #count = 0
  terminal: Json | undefined
  hasError = false

  read (event: SseEvent, number: number): void {
    const json = event.json as Json
    const { type, sequence_number: sequence, ...fields } = json
    check(!event.data.includes('\n'), 'one line of data')
    check(event.event === type, `the event ${event.event} says ${String(type)}`)
    check(sequence === number, `the event ${number} says ${String(sequence)}`)
    const known = FIELDS[event.event]
    check(known !== undefined, `unknown event ${event.event}`)
    same(Object.keys(fields).sort(), known.toSorted(), `fields of ${event.event}`)
    check(!this.hasError, 'nothing comes behind an error')
    if (type === 'error') {
      check((this.terminal as Json | undefined)?.status === 'failed', 'an error comes behind a failure only')
      this.hasError = true
      return
    }
    check(this.terminal === undefined, `${event.event} behind the terminal event`)
    if (type === 'keepalive') { check(this.#created !== undefined, 'a keepalive before created'); return }
    if ('response' in fields) this.#readResponse(event.event.slice('response.'.length), fields.response as Json, number)
    else this.#readItem(event.event, fields)
  }

  #readResponse (name: string, response: Json, number: number): void {
    for (const field of RESPONSE_FIELDS) check(field in response, `a response without ${field}`)
    if (name === 'created') {
      check(number === 0, 'created is not the first event')
      this.#created = response
    }
    check(this.#created !== undefined, `${name} before created`)
    same([response.id, response.created_at, response.model],
      [this.#created.id, this.#created.created_at, this.#created.model], 'the response is another one')
    if (name === 'created' || name === 'in_progress') {
      check(number === (name === 'created' ? 0 : 1), `${name} is event ${number}`)
      same([response.status, response.output, response.usage, response.tools, response.instructions],
        ['in_progress', [], null, [], null], 'a response that begins')
      return
    }
    this.terminal = response
    check(response.status === name, `response.${name} has the status ${String(response.status)}`)
    this.#checkEnd(name, response)
  }

  #checkEnd (name: string, response: Json): void {
    const open = this.#open
    const { output, error, incomplete_details: details, usage, completed_at: at } = response
    check((error !== null) === (name === 'failed'), 'an error exactly where it failed')
    check((details !== null) === (name === 'incomplete'), 'a reason exactly where it is incomplete')
    check((typeof at === 'number') === (name === 'completed'), 'the time of its end exactly where it is complete')
    if (name === 'failed') {
      const half = open?.item.type === 'message'
        ? [{ ...open.item, status: 'incomplete', content: [textPart(open.text)] }] : []
      same(output, [...this.items, ...half], 'the output of a failure')
      check(usage === null, 'a failure has no usage')
      return
    }
    check(open === undefined || (name === 'incomplete' && isCall(open.item)), `an item is open at ${name}`)
    same(output, this.items, 'the output is that of the items that were done')
    const lasts = this.items.slice(0, -1)
    check(lasts.every(isComplete), 'an item before the last one is incomplete')
    const last = this.items.at(-1)
    if (name === 'completed') check(last !== undefined && isComplete(last), 'a complete answer ends with a whole item')
    checkUsage(usage as Json)
  }

  #readItem (name: string, fields: Json): void {
    if (name === 'response.output_item.added') { this.#add(fields); return }
    const open = this.#open
    check(open !== undefined, `${name} outside of an item`)
    check(fields.output_index === open.index, `${name} has the output_index of another item`)
    if ('item_id' in fields) check(fields.item_id === open.item.id, `${name} has the id of another item`)
    for (const index of ['content_index', 'summary_index']) if (index in fields) same(fields[index], 0, index)
    if (name === 'response.output_item.done') { this.#end(open, fields.item as Json); return }
    const kind = KINDS[open.item.type as string]
    check(kind !== undefined, `${name} within ${String(open.item.type)}`)
    switch (name) {
      case kind.partAdded:
        this.#step(open, name, 'added', 'part')
        same(fields.part, kind.part!(''), name)
        return
      case kind.delta:
        check(open.stage === (kind.partAdded === undefined ? 'added' : 'part'), `${name} in the wrong place`)
        check(typeof fields.delta === 'string' && fields.delta !== '', 'a delta without text')
        open.text += fields.delta as string
        return
      case kind.done:
        this.#step(open, name, kind.partAdded === undefined ? 'added' : 'part', 'said')
        same(fields[kind.field], open.text, name)
        return
      case kind.partDone:
        this.#step(open, name, 'said', 'part done')
        same(fields.part, kind.part!(open.text), name)
        return
    }
    throw new Error(`${name} within ${String(open.item.type)}`)
  }

  #step (open: OpenItem, name: string, from: OpenItem['stage'], to: OpenItem['stage']): void {
    check(open.stage === from, `${name} comes when ${open.stage}`)
    open.stage = to
  }

  #add ({ output_index: index, item: said }: Json): void {
    const item = said as Json
    // A call that the end of the answer has cut off is left as it is.
    check(this.#open === undefined || isCall(this.#open.item), 'an item begins within another')
    check(index === this.#count++, `output_index ${String(index)} of item ${this.#count - 1}`)
    check(typeof item.id === 'string' && item.id !== '' && !this.#ids.has(item.id), `the id ${String(item.id)}`)
    this.#ids.add(item.id)
    check(item.status === (item.type === 'compaction' ? undefined : 'in_progress'), 'an item begins in progress')
    if (item.type === 'message') same([item.role, item.content], ['assistant', []], 'a message as it begins')
    if (item.type === 'reasoning') same(item.summary, [], 'a thought as it begins')
    if (item.type === 'function_call') same(item.arguments, '', 'a call as it begins')
    if (item.type === 'custom_tool_call') same(item.input, '', 'a call as it begins')
    this.#open = { item, index: index as number, text: '', stage: 'added' }
  }

  #end (open: OpenItem, item: Json): void {
    same([item.id, item.type, item.call_id, item.name, item.namespace],
      [open.item.id, open.item.type, open.item.call_id, open.item.name, open.item.namespace], 'an item is another one')
    check(isComplete(item) || (item.status === 'incomplete' && !isCall(item)), 'the status of a whole item')
    switch (item.type) {
      case 'message':
        check(open.stage === 'part done', 'a message ends before its part')
        same(item.content, [textPart(open.text)], 'the content of a message')
        break
      case 'reasoning':
        check(open.stage === 'added' || open.stage === 'part done', 'a thought ends before its part')
        same(item.summary, open.stage === 'added' ? [] : [summaryPart(open.text)], 'the summary of a thought')
        check(typeof (item.encrypted_content ?? '') === 'string', 'what is sealed is a text')
        check(item.encrypted_content !== null || item.status === 'incomplete', 'a whole thought can be sent back')
        break
      case 'function_call':
        check(open.stage === 'said' && open.text !== '', 'a call ends without arguments')
        same(item.arguments, open.text, 'the arguments of a call')
        break
      case 'custom_tool_call':
        check(open.stage === 'said', 'a call ends without its input')
        same(item.input, open.text, 'the input of a call')
        break
      case 'compaction': same(item, open.item, 'a summary that begins and ends at once'); break
      default:
        same({ ...item, status: 'in_progress' }, open.item, 'a call that begins and ends at once')
    }
    this.#open = undefined
    this.items.push(item)
  }
}

interface Kind {
  readonly partAdded?: string
  readonly delta: string
  readonly done: string
  /** of the done event: the whole text */
  readonly field: string
  readonly partDone?: string
  readonly part?: (text: string) => Json
}

const KINDS: Readonly<Record<string, Kind>> = {
  message: { partAdded: 'response.content_part.added', delta: 'response.output_text.delta',
    done: 'response.output_text.done', field: 'text', partDone: 'response.content_part.done', part: textPart },
  reasoning: { partAdded: 'response.reasoning_summary_part.added', delta: 'response.reasoning_summary_text.delta',
    done: 'response.reasoning_summary_text.done', field: 'text', partDone: 'response.reasoning_summary_part.done',
    part: summaryPart },
  function_call: { delta: 'response.function_call_arguments.delta', done: 'response.function_call_arguments.done',
    field: 'arguments' },
  custom_tool_call: { delta: 'response.custom_tool_call_input.delta', done: 'response.custom_tool_call_input.done',
    field: 'input' }
}

function textPart (text: string): Json {
  return { type: 'output_text', text, annotations: [], logprobs: [] }
}

function summaryPart (text: string): Json {
  return { type: 'summary_text', text }
}

function isCall ({ type }: Json): boolean {
  return type !== 'message' && type !== 'reasoning' && type !== 'compaction'
}

/** A summary has no status: it is there or it is not. */
function isComplete ({ type, status }: Json): boolean {
  return status === (type === 'compaction' ? undefined : 'completed')
}

/** Codex needs each number. */
function checkUsage (usage: Json): void {
  const { input_tokens: input, output_tokens: output, total_tokens: total } = usage
  const { cached_tokens: read, cache_write_tokens: written } = usage.input_tokens_details as Json
  const { reasoning_tokens: thought } = usage.output_tokens_details as Json
  const numbers = [input, output, total, read, written, thought] as number[]
  check(numbers.every((one) => Number.isInteger(one) && one >= 0), `usage ${JSON.stringify(usage)}`)
  check(total === (input as number) + (output as number), 'the total is not the sum')
  check(numbers[3]! + numbers[4]! <= numbers[0]!, 'the input holds what was cached')
}

function check (isSo: boolean, what: string): asserts isSo {
  if (!isSo) throw new Error(what)
}

function same (found: unknown, wanted: unknown, what: string): void {
  check(isDeepStrictEqual(found, wanted), `${what}: ${JSON.stringify(found)}, not ${JSON.stringify(wanted)}`)
}

/** @throws {Error} what is wrong with the stream */
export function readResponse (events: readonly SseEvent[]): ReadResponse {
  const reader = new Reader()
  events.forEach((event, i) => { reader.read(event, i) })
  check(reader.terminal !== undefined, 'the stream has no terminal event')
  return { response: reader.terminal, items: reader.items,
    types: events.map(({ event }) => event).filter((name) => name !== 'keepalive') }
}
