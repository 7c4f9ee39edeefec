// Translates the events of a message into chunks of a chat completion (src/README.md#chunk-shape).
import { CHAT_DELTA } from '../../src/protocols/chat.ts'
import { nothingReported, readUsage } from '../../src/money/usage.ts'
import type { StreamTransformer } from '../../src/core/plugin.ts'
import { SseEvent } from '../../src/core/sse.ts'
import { fieldOf, isRecord, type Json } from '../../src/base/json.ts'
import { costOf } from '../../src/translation/cost.ts'
import { unwrapInput } from '../../src/translation/custom-input.ts'
import { thinkingTokens } from '../../src/translation/thinking.ts'
import { type AnswerShape, isAnswer } from './chat.ts'
import { ChunkWriter } from './chunk.ts'
import { chatUsage, finishReason } from './ending.ts'
import type { Frame } from './reply.ts'

/** The fields that are read of events, all of which may be missing. */
interface Data {
  readonly index?: unknown
  readonly delta?: Json
  readonly top?: Json
  readonly content_block?: Json
  readonly message?: { readonly usage?: unknown }
  readonly usage?: unknown
}

/** A call in progress. */
interface Call {
  /** writes a piece of its input, which is JSON text */
  readonly say: (piece: string) => SseEvent | undefined
  /** from its start: empty, except with upstreams that send no deltas */
  readonly input: unknown
  /** writes the rest when its block ends */
  readonly end?: () => SseEvent | undefined
  hasInput: boolean
  /** among the calls; undefined: it is the answer */
  readonly number?: number
}

const DONE = new SseEvent('', '[DONE]')

type Out = SseEvent | readonly SseEvent[] | undefined

export function toChunks (frame: Frame, asked: AnswerShape): StreamTransformer {
  return new ChunkStream(frame, asked)
}

class ChunkStream implements StreamTransformer {
  readonly #chunk: ChunkWriter
  readonly #asked: AnswerShape
  /** by the index of their blocks */
  readonly #calls = new Map<unknown, Call>()
  #callCount = 0
  #usage = nothingReported
  #thought: number | undefined
  #stopReason: unknown
  #charged: unknown
  #hasRole = false
  /** With a schema, text is held: it is the content only if there is neither an answer nor a call. */
  #textIs: 'answer' | 'unclear' | 'words'
  #held = ''
  #hasAnswer = false

  constructor (frame: Frame, asked: AnswerShape) {
    this.#chunk = new ChunkWriter(frame)
    this.#asked = asked
    this.#textIs = !asked.hasSchema ? 'answer' : asked.answerTool === undefined ? 'unclear' : 'words'
  }

  event (event: SseEvent): Out {
    return this.#hasRole ? this.#read(event) : this.#readFirst(event)
  }

  /**
   * Sends the role in the first chunk, as the SDKs want it: not every upstream of this style starts its message, and
   * some start it more than once.
   */
  #readFirst (event: SseEvent): Out {
    const made = this.#read(event)
    if (made === undefined && event.event !== 'message_start') return undefined
    this.#hasRole = true
    const role = this.#chunk.delta({ role: 'assistant', content: '' })
    return made === undefined ? role : made instanceof SseEvent ? [role, made] : [role, ...made]
  }

  #read (event: SseEvent): Out {
    const data = event.json as Data
    switch (event.event) {
      case 'content_block_delta': {
        const { delta } = data
        switch (delta?.type) {
          case 'text_delta': return this.#say(delta.text)
          case 'thinking_delta': return this.#think(delta.thinking)
          case 'input_json_delta': return this.#addInput(data.index, delta.partial_json)
        }
        return undefined
      }
      case 'message_start': this.#readTotals(data.message?.usage); return undefined
      case 'content_block_start': return this.#startBlock(data)
      case 'content_block_stop': return this.#endBlock(data.index)
      case 'message_delta':
        this.#stopReason = data.delta?.stop_reason ?? this.#stopReason
        this.#readTotals(data.usage)
        return undefined
      case 'ping': this.#charged = fieldOf(data, 'charged_usd') ?? this.#charged; return undefined
      case 'message_stop': return this.#finish()
      case CHAT_DELTA: {
        const call = data.index === undefined ? undefined : this.#calls.get(data.index)?.number
        return this.#chunk.delta(call === undefined ? data.delta ?? {}
          : { tool_calls: [{ index: call, ...data.delta }] }, data.top)
      }
    }
    // Pings, because the core sends its own as a comment; and unknown events, which have no meaning in chat style.
    return undefined
  }

  #say (piece: unknown): SseEvent | undefined {
    if (typeof piece !== 'string' || piece === '') return undefined
    if (this.#textIs === 'answer') return this.#chunk.text(piece)
    this.#held += piece
    const first = this.#textIs === 'unclear' ? /\S/.exec(piece)?.[0] : undefined
    if (first === undefined) return undefined
    this.#textIs = first === '{' || first === '[' ? 'answer' : 'words'
    return this.#textIs === 'answer' ? this.#chunk.text(this.#held) : undefined
  }

  #think (text: unknown): SseEvent | undefined {
    return typeof text === 'string' && text !== '' ? this.#chunk.thought(text) : undefined
  }

  #readTotals (reported: unknown): void {
    this.#usage = readUsage(reported, this.#usage)
    this.#thought = thinkingTokens(reported) ?? this.#thought
  }

  #startBlock ({ index, content_block: block }: Data): SseEvent | undefined {
    switch (block?.type) {
      case 'text': return this.#say(block.text)
      case 'thinking': return this.#think(block.thinking)
      case 'tool_use': return this.#startCall(index, block)
    }
    return undefined
  }

  #startCall (index: unknown, block: Json): SseEvent | undefined {
    const { id, name, input, extra_content: extra } = block
    if (isAnswer(name, this.#asked)) { this.#startAnswer(index, input); return undefined }
    const k = this.#callCount++
    if (this.#asked.hasSchema) this.#textIs = 'words'
    const isCustom = this.#asked.customTools.has(name as string)
    this.#calls.set(index, { number: k, ...isCustom ? this.#customInput(k) : { say: this.#chunk.argumentsOf(k) }, input,
      hasInput: false })
    const empty = isCustom
      ? { type: 'custom', custom: { name, input: '' } }
      : { type: 'function', function: { name, arguments: '' } }
    const own = extra === undefined ? undefined : { extra_content: extra }
    return this.#chunk.delta({ tool_calls: [{ index: k, id, ...empty, ...own }] })
  }

  /** Begins the call whose input is the content. */
  #startAnswer (index: unknown, input: unknown): void {
    if (this.#hasAnswer) return                               // a second one is dropped
    this.#hasAnswer = true
    this.#calls.set(index, { say: (piece) => this.#chunk.text(piece), input, hasInput: false })
  }

  #customInput (k: number): Pick<Call, 'say' | 'end'> {
    const reader = unwrapInput()
    const give = (text: string): SseEvent | undefined =>
      text === '' ? undefined : this.#chunk.delta({ tool_calls: [{ index: k, custom: { input: text } }] })
    return { say: (piece) => give(reader.push(piece)), end: () => give(reader.end()) }
  }

  #addInput (index: unknown, piece: unknown): SseEvent | undefined {
    const call = this.#calls.get(index)
    if (call === undefined || typeof piece !== 'string' || piece === '') return undefined
    call.hasInput = true
    return call.say(piece)
  }

  /** Arguments are JSON, even without any. */
  #endBlock (index: unknown): SseEvent | undefined {
    const call = this.#calls.get(index)
    if (call === undefined) return undefined
    const whole = call.hasInput
      ? undefined
      : this.#addInput(index, JSON.stringify(isRecord(call.input) ? call.input : {}))
    return whole ?? call.end?.()
  }

  #finish (): readonly SseEvent[] {
    const last: SseEvent[] = []
    const hasCalls = this.#callCount > 0
    if (this.#textIs !== 'answer' && !this.#hasAnswer && !hasCalls && this.#held !== '') {
      last.push(this.#chunk.text(this.#held))
    }
    last.push(this.#chunk.finish(finishReason(this.#stopReason, hasCalls)))
    if (this.#asked.hasUsageChunk) {
      last.push(this.#chunk.usage({ ...chatUsage(this.#usage, this.#thought),
        ...costOf(this.#charged), ...(this.#charged !== undefined && { charged_usd: this.#charged }) }))
    }
    last.push(DONE)
    return last
  }
}
