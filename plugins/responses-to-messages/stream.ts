// Translates the events of a message into those of a response (src/README.md#response-stream). The events with text,
// which come for every token, are concatenated from text instead of printed from objects.
import { fieldOf, type Json } from '../../src/base/json.ts'
import type { ErrorReply } from '../../src/core/reply.ts'
import type { OwnEvents } from '../../src/core/own-events.ts'
import type { StreamTransformer } from '../../src/core/plugin.ts'
import { SseEvent } from '../../src/core/sse.ts'
import type { GatewayError } from '../../src/errors.ts'
import { nothingReported, readUsage } from '../../src/money/usage.ts'
import { costOf } from '../../src/translation/cost.ts'
import { thinkingTokens } from '../../src/translation/thinking.ts'
import { failureOf } from './failure.ts'
import { BuiltInItem, CompactionItem, CustomItem, FunctionItem, type Item, MessageItem, ReasoningItem, type Seal } from './items.ts'
import { incompleteReason, Output, type OutputListener } from './output.ts'
import { type Frame, responseOf, responseUsage, type State } from './response.ts'
import type { ResponseShape } from './shape.ts'

/** The fields that are read of events, all of which may be missing. */
interface Data {
  readonly index?: unknown
  readonly delta?: Json
  readonly content_block?: Json
  readonly message?: { readonly usage?: unknown }
  readonly usage?: unknown
}

/** Keeps a whole response, as JSON. @returns whether it is kept. Never rejects */
export type Keep = (response: string) => Promise<boolean>

/**
 * @param hasErrorEvent whether a failure is followed by an `error` event
 * @param keep undefined: the response is not kept
 */
export function toResponseEvents (
  frame: Frame,
  shape: ResponseShape,
  seal: Seal,
  hasErrorEvent = false,
  keep?: Keep
): StreamTransformer & OwnEvents {
  const stream = new ResponseStream(frame, shape, seal, hasErrorEvent)
  return keep === undefined ? stream : keeping(stream, keep)
}

/** Holds the last event back until it is known whether the response is kept, which that says. */
function keeping (stream: ResponseStream, keep: Keep): StreamTransformer & OwnEvents {
  return {
    ready: ({ event }) => event === 'message_stop' ? stream.keep(keep) : undefined,
    event: (event) => stream.event(event),
    mark () { stream.mark() },
    takeBack () { stream.takeBack() },
    ping: () => stream.ping(),
    fail: (error, shaped) => stream.fail(error, shaped)
  }
}

class ResponseStream implements StreamTransformer, OwnEvents, OutputListener {
  readonly #frame: Frame
  readonly #shape: ResponseShape
  readonly #hasErrorEvent: boolean
  readonly #output: Output
  #out: SseEvent[] = []
  /** of the next event; 0: nothing was said yet */
  #number = 0
  /** the number at the last mark */
  #marked = 0
  /** what stands before the next text of the item that is being made, and behind it */
  #before = ''
  #after = ''
  #hasSummary = false
  /** whole items, as JSON */
  readonly #items: string[] = []
  #usage = nothingReported
  #thought = 0
  #charged: unknown
  #stopReason: unknown
  #stopDetails: unknown
  #isOver = false
  /** of a response that is to be kept, at its end: whether it is */
  #isKept: boolean | undefined

  constructor (frame: Frame, shape: ResponseShape, seal: Seal, hasErrorEvent: boolean) {
    this.#frame = frame
    this.#shape = shape
    this.#hasErrorEvent = hasErrorEvent
    this.#output = new Output(frame.id, shape, seal, this)
  }

  mark (): void {
    this.#marked = this.#number
    this.#output.mark()
  }

  takeBack (): void {
    this.#isOver = false
    this.#number = this.#marked
    this.#output.takeBack()
  }

  event (event: SseEvent): SseEvent | readonly SseEvent[] | undefined {
    if (this.#isOver) return undefined
    const out: SseEvent[] = this.#out = []
    this.#read(event)
    return out.length === 1 ? out[0] : out
  }

  /** To be called before the last event. Undefined: it is no whole answer. */
  keep (keep: Keep): Promise<void> | undefined {
    this.#isKept = false
    if (this.#isOver || typeof this.#stopReason !== 'string' || !this.#output.isWhole) return undefined
    return keep(this.#last({ ...this.#shape.echo, store: true }).response).then((isKept) => { this.#isKept = isKept })
  }

  ping (): readonly SseEvent[] | undefined {
    if (this.#isOver) return undefined                        // the last event may not have left yet
    this.#out = []
    if (this.#number === 0) this.#begin()
    else this.#out.push(new SseEvent('keepalive', `{"type":"keepalive","sequence_number":${this.#number++}}`))
    return this.#out
  }

  fail (error: GatewayError, shaped: ErrorReply): readonly SseEvent[] {
    this.#isOver = true
    this.#out = []
    if (this.#number === 0) this.#begin()
    const failure = failureOf(error, shaped)
    const output = this.#output.remains.map((item) => JSON.stringify(item))
    const echo = this.#shape.echo.store === true ? { ...this.#shape.echo, store: false } : this.#shape.echo
    this.#tell('failed', withOutput(responseOf(this.#frame, echo, { status: 'failed', error: failure }), output))
    if (this.#hasErrorEvent) {
      const { code, message, param = null } = failure
      this.#make('error', `"code":${JSON.stringify(code)},"message":${JSON.stringify(message)},` +
        `"param":${JSON.stringify(param)}`)
    }
    return this.#out
  }

  #read (event: SseEvent): void {
    const name = event.event
    if (name === 'ping') { this.#charged = fieldOf(event.json, 'charged_usd') ?? this.#charged; return }
    if (this.#number === 0) this.#begin()
    const data = event.json as Data
    switch (name) {
      case 'content_block_delta': if (data.delta) this.#output.add(data.index, data.delta); return
      case 'message_start': this.#readTotals(data.message?.usage); return
      case 'content_block_start': if (data.content_block) this.#output.start(data.index, data.content_block); return
      case 'content_block_stop': this.#output.stop(data.index); return
      case 'message_delta': this.#readEnd(data); return
      case 'message_stop': this.#finish()
    }
  }

  #readTotals (reported: unknown): void {
    this.#usage = readUsage(reported, this.#usage)
    this.#thought = thinkingTokens(reported) ?? this.#thought
  }

  /** The items end here, and not with the last event, which waits for the store. */
  #readEnd ({ delta, usage }: Data): void {
    this.#readTotals(usage)
    this.#stopReason = delta?.stop_reason ?? this.#stopReason
    this.#stopDetails = delta?.stop_details ?? this.#stopDetails
    if (typeof this.#stopReason === 'string') this.#output.end(this.#stopReason, this.#stopDetails)
  }

  #finish (): void {
    this.#output.end(this.#stopReason, this.#stopDetails)
    this.#isOver = true
    const { echo } = this.#shape
    const { status, response } = this.#last(this.#isKept === undefined ? echo : { ...echo, store: this.#isKept })
    this.#tell(status, response)
  }

  #last (echo: Json): { readonly status: 'completed' | 'incomplete', readonly response: string } {
    const usage = { ...responseUsage(this.#usage, this.#thought), ...costOf(this.#charged),
      ...(this.#charged !== undefined && { charged_usd: this.#charged }) }
    const reason = incompleteReason(this.#stopReason)
    const state: State & { readonly status: 'completed' | 'incomplete' } = reason === undefined
      ? { status: 'completed', usage }
      : { status: 'incomplete', reason, usage }
    return { status: state.status, response: withOutput(responseOf(this.#frame, echo, state), this.#items) }
  }

  /** Instructions and tools, which may be long, are repeated at the end only. */
  #begin (): void {
    const echo = { ...this.#shape.echo, instructions: null, tools: [] }
    const response = withOutput(responseOf(this.#frame, echo, { status: 'in_progress' }), [])
    this.#tell('created', response)
    this.#tell('in_progress', response)
  }

  begun (item: Item): void {
    if (item instanceof BuiltInItem || item instanceof CompactionItem) return        // begins and ends at once
    const { id, index } = item.place!
    const place = `"item_id":"${id}","output_index":${index}`
    if (item instanceof MessageItem) {
      this.#before = `${place},"content_index":0,`
      this.#after = ',"logprobs":[]'
      this.#make('response.output_item.added', `"output_index":${index},"item":${JSON.stringify(item.begun())}`)
      this.#make('response.content_part.added', `${this.#before}"part":${textPart('""')}`)
      return
    }
    this.#after = ''
    this.#hasSummary = false
    this.#before = item instanceof ReasoningItem ? `${place},"summary_index":0,` : `${place},`
    this.#make('response.output_item.added', `"output_index":${index},"item":${JSON.stringify(
      item instanceof ReasoningItem ? item.begun() : item.json('in_progress'))}`)
  }

  said (item: Item, text: string): void {
    if (item instanceof ReasoningItem && !this.#hasSummary) {
      this.#hasSummary = true
      this.#make('response.reasoning_summary_part.added', `${this.#before}"part":${summaryPart('""')}`)
    }
    this.#make(deltaOf(item), `${this.#before}"delta":${JSON.stringify(text)}${this.#after}`)
  }

  ended (item: Item, whole: Json): void {
    const json = JSON.stringify(whole)
    const { index } = item.place!
    if (item instanceof MessageItem) this.#endText(JSON.stringify(item.text))
    else if (item instanceof ReasoningItem) this.#endSummary(JSON.stringify(item.summary))
    else if (item instanceof FunctionItem) {
      this.#make('response.function_call_arguments.done',
        `${this.#before}"name":${JSON.stringify(item.name)},"arguments":${JSON.stringify(whole.arguments)}`)
    } else if (item instanceof CustomItem) {
      this.#make('response.custom_tool_call_input.done', `${this.#before}"input":${JSON.stringify(whole.input)}`)
    } else {
      this.#make('response.output_item.added',
        `"output_index":${index},"item":${item instanceof CompactionItem ? json
          : JSON.stringify(item.json('in_progress'))}`)
    }
    this.#make('response.output_item.done', `"output_index":${index},"item":${json}`)
    this.#items.push(json)
  }

  #endText (text: string): void {
    this.#make('response.output_text.done', `${this.#before}"text":${text},"logprobs":[]`)
    this.#make('response.content_part.done', `${this.#before}"part":${textPart(text)}`)
  }

  #endSummary (text: string): void {
    if (!this.#hasSummary) return
    this.#make('response.reasoning_summary_text.done', `${this.#before}"text":${text}`)
    this.#make('response.reasoning_summary_part.done', `${this.#before}"part":${summaryPart(text)}`)
  }

  #tell (state: State['status'] | 'created', response: string): void {
    this.#make(`response.${state}`, `"response":${response}`)
  }

  /** @param fields the fields of the event, as JSON without its braces */
  #make (type: string, fields: string): void {
    this.#out.push(new SseEvent(type, `{"type":"${type}","sequence_number":${this.#number++},${fields}}`))
  }
}

function deltaOf (item: Item): string {
  if (item instanceof MessageItem) return 'response.output_text.delta'
  if (item instanceof ReasoningItem) return 'response.reasoning_summary_text.delta'
  if (item instanceof FunctionItem) return 'response.function_call_arguments.delta'
  return 'response.custom_tool_call_input.delta'
}

function textPart (text: string): string {
  return `{"type":"output_text","text":${text},"annotations":[],"logprobs":[]}`
}

function summaryPart (text: string): string {
  return `{"type":"summary_text","text":${text}}`
}

/** @param items of the output, as JSON */
function withOutput (response: Json, items: readonly string[]): string {
  return `${JSON.stringify(response).slice(0, -1)},"output":[${items.join(',')}]}`
}
