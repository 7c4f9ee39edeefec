// The events of a message as chunks of a chat completion (src/README.md#chunk-shape).
import { CHAT_DELTA } from '../../src/protocols/chat.ts'
import { nothingReported, readUsage } from '../../src/money/usage.ts'
import type { StreamTransformer } from '../../src/core/plugin.ts'
import { SseEvent } from '../../src/core/sse.ts'
import { fieldOf, isRecord, type Json } from '../../src/base/json.ts'
import { type AnswerShape, isAnswer } from './chat.ts'
import { unwrapInput } from './custom-input.ts'
import { chatUsage, finishReason, thinkingTokens } from './ending.ts'
import type { Frame } from './reply.ts'

/** What is read of events. All of it may be missing. */
interface Data {
  readonly index?: unknown
  readonly delta?: Json
  readonly content_block?: Json
  readonly message?: { readonly usage?: unknown }
  readonly usage?: unknown
}

/** A call that is being made. */
interface Call {
  /** a piece of its input as JSON text */
  readonly say: (piece: string) => SseEvent | undefined
  /** from its start: empty, but for upstreams that send no deltas */
  readonly input: unknown
  /** what is left to say when its block ends */
  readonly end?: () => SseEvent | undefined
  hasInput: boolean
}

const DONE = new SseEvent('', '[DONE]')

export function toChunks ({ id, created, model }: Frame, asked: AnswerShape): StreamTransformer {
  // Text is put between texts, and not an object made of it: this runs for every token.
  const head = `{"id":${JSON.stringify(id)},"object":"chat.completion.chunk","created":${created},` +
    `"model":${JSON.stringify(model)},"choices":[`
  const before = `${head}{"index":0,"delta":`
  const after = ',"finish_reason":null}]}'
  const beforeText = `${before}{"content":`
  const beforeThought = `${before}{"reasoning_content":`
  const afterText = `}${after}`

  const calls = new Map<unknown, Call>()
  let callCount = 0
  let usage = nothingReported
  let thought: number | undefined
  let stopReason: unknown
  let charged: unknown
  let hasRole = false
  /** Where a schema was asked for, words are held: they are the content only if there is no answer and no call. */
  let textIs: 'answer' | 'unclear' | 'words' = !asked.hasSchema
    ? 'answer'
    : asked.answerTool === undefined
    ? 'unclear'
    : 'words'
  let held = ''
  let hasAnswer = false

  const chunk = (delta: Json): SseEvent => new SseEvent('', before + JSON.stringify(delta) + after)
  const content = (text: string): SseEvent => new SseEvent('', beforeText + JSON.stringify(text) + afterText)

  function say (piece: unknown): SseEvent | undefined {
    if (typeof piece !== 'string' || piece === '') return undefined
    if (textIs === 'answer') return content(piece)
    held += piece
    const first = textIs === 'unclear' ? /\S/.exec(piece)?.[0] : undefined
    if (first === undefined) return undefined
    textIs = first === '{' || first === '[' ? 'answer' : 'words'
    return textIs === 'answer' ? content(held) : undefined
  }

  function think (text: unknown): SseEvent | undefined {
    return typeof text === 'string' && text !== ''
      ? new SseEvent('', beforeThought + JSON.stringify(text) + afterText)
      : undefined
  }

  function readTotals (reported: unknown): void {
    usage = readUsage(reported, usage)
    thought = thinkingTokens(reported) ?? thought
  }

  function startBlock ({ index, content_block: block }: Data): SseEvent | undefined {
    switch (block?.type) {
      case 'text': return say(block.text)
      case 'thinking': return think(block.thinking)
      case 'tool_use': return startCall(index, block)
    }
    return undefined
  }

  function startCall (index: unknown, { id: callId, name, input }: Json): SseEvent | undefined {
    if (isAnswer(name, asked)) {
      if (!hasAnswer) calls.set(index, { say: content, input, hasInput: false })       // a second answer is none
      hasAnswer = true
      return undefined
    }
    const k = callCount++
    if (asked.hasSchema) textIs = 'words'
    const isCustom = asked.customTools.has(name as string)
    calls.set(index, { ...isCustom ? customInput(k) : { say: functionArguments(k) }, input, hasInput: false })
    const empty = isCustom
      ? { type: 'custom', custom: { name, input: '' } }
      : { type: 'function', function: { name, arguments: '' } }
    return chunk({ tool_calls: [{ index: k, id: callId, ...empty }] })
  }

  function functionArguments (k: number): Call['say'] {
    const beforeArguments = `${before}{"tool_calls":[{"index":${k},"function":{"arguments":`
    return (piece) => new SseEvent('', beforeArguments + JSON.stringify(piece) + '}}]}' + after)
  }

  function customInput (k: number): Pick<Call, 'say' | 'end'> {
    const reader = unwrapInput()
    const give = (text: string): SseEvent | undefined =>
      text === '' ? undefined : chunk({ tool_calls: [{ index: k, custom: { input: text } }] })
    return { say: (piece) => give(reader.push(piece)), end: () => give(reader.end()) }
  }

  function addInput (index: unknown, piece: unknown): SseEvent | undefined {
    const call = calls.get(index)
    if (call === undefined || typeof piece !== 'string' || piece === '') return undefined
    call.hasInput = true
    return call.say(piece)
  }

  /** Arguments are JSON, also where there are none. */
  function endBlock (index: unknown): SseEvent | undefined {
    const call = calls.get(index)
    if (call === undefined) return undefined
    const whole = call.hasInput ? undefined : addInput(index, JSON.stringify(isRecord(call.input) ? call.input : {}))
    return whole ?? call.end?.()
  }

  function end (): readonly SseEvent[] {
    const last: SseEvent[] = []
    if (textIs !== 'answer' && !hasAnswer && callCount === 0 && held !== '') last.push(content(held))
    last.push(new SseEvent('', `${before}{},"finish_reason":"${finishReason(stopReason, callCount > 0)}"}]}`))
    if (asked.hasUsageChunk) {
      const counted = { ...chatUsage(usage, thought), ...(charged !== undefined && { charged_usd: charged }) }
      last.push(new SseEvent('', `${head}],"usage":${JSON.stringify(counted)}}`))
    }
    last.push(DONE)
    return last
  }

  function read (event: SseEvent): SseEvent | readonly SseEvent[] | undefined {
    const data = event.json as Data
    switch (event.event) {
      case 'content_block_delta': {
        const { delta } = data
        switch (delta?.type) {
          case 'text_delta': return say(delta.text)
          case 'thinking_delta': return think(delta.thinking)
          case 'input_json_delta': return addInput(data.index, delta.partial_json)
        }
        return undefined
      }
      case 'message_start': readTotals(data.message?.usage); return undefined
      case 'content_block_start': return startBlock(data)
      case 'content_block_stop': return endBlock(data.index)
      case 'message_delta':
        stopReason = data.delta?.stop_reason ?? stopReason
        readTotals(data.usage)
        return undefined
      case 'ping': charged = fieldOf(data, 'charged_usd') ?? charged; return undefined
      case 'message_stop': return end()
      case CHAT_DELTA: return data.delta && chunk(data.delta)
    }
    // Pings: the core sends its own, as a comment. And what is new: it has no meaning in chat style.
    return undefined
  }

  /**
   * The SDKs want the role in the first chunk; not every upstream of this style starts its message, or starts one only.
   */
  function readFirst (event: SseEvent): SseEvent | readonly SseEvent[] | undefined {
    const made = read(event)
    if (made === undefined && event.event !== 'message_start') return undefined
    hasRole = true
    const role = chunk({ role: 'assistant', content: '' })
    return made === undefined ? role : made instanceof SseEvent ? [role, made] : [role, ...made]
  }

  return { event: (event) => hasRole ? read(event) : readFirst(event) }
}
