// The dialect `messages`: POST /v1/messages and its token counter, JSON and events, as the vendor speaks them.
import { SseEvent } from '../core/sse.ts'
import { checkSignatures, compose, token24, type Composition, type Part } from './composition.ts'
import { isObject, VendorError, type Answer, type Dialect, type Emission, type Endpoint,
  type ReportedUsage } from './dialect.ts'
import type { Faults } from './faults.ts'
import { checkBody, checkHeaders, lastTurn, textOf, type MessagesBody } from './messages-body.ts'
import { checkThoughts } from './thoughts.ts'
import { countInput, PromptCache, type InputTokens } from './prompt-cache.ts'

export interface MessagesOptions {
  /** the only key that is let in; any without it */
  readonly key?: string | undefined
  /** the only values of anthropic-beta that are let in; any without it */
  readonly betas?: readonly string[] | undefined
  readonly contextTokens: number
  readonly now: () => number
}

/** A dialect remembers prompts: make one per simulator. */
export function messagesDialect (options: MessagesOptions): Dialect {
  const cache = new PromptCache(options.now)

  const messages: Endpoint = {
    keepsBody: true,
    prompt,
    answer (asked) {
      checkHeaders(asked.headers, options.key, options.betas)
      const body = checkBody(asked.body, String(asked.headers['anthropic-version']), 'messages')
      checkSignatures(body)
      checkThoughts(body)
      checkContext(body, asked.faults)
      if (asked.faults.content_policy === true) throw new VendorError(400, 'Output blocked by content filtering policy')
      const composition = compose(body, asked.faults)
      const usage = usageOf(countedInput(body, asked.faults), composition, asked.faults)
      const id = `msg_${token24()}`
      return body.stream === true
        ? { kind: 'events', emissions: toEvents(id, body.model, composition, usage) }
        : toJson(id, body.model, composition, usage)
    }
  }

  const countTokens: Endpoint = {
    keepsBody: true,
    prompt,
    answer (asked) {
      checkHeaders(asked.headers, options.key, options.betas)
      const body = checkBody(asked.body, String(asked.headers['anthropic-version']), 'count_tokens')
      checkThoughts(body)
      return { kind: 'json', status: 200, body: { input_tokens: countInput(body) } }
    }
  }

  function countedInput (body: MessagesBody, { input_tokens: uncached }: Faults): InputTokens {
    return uncached === undefined ? cache.count(body) : { uncached, read: 0, written5m: 0, written1h: 0 }
  }

  /** @throws {VendorError} */
  function checkContext (body: MessagesBody, faults: Faults): void {
    const limit = options.contextTokens
    const input = faults.context === true ? Math.max(countInput(body), limit - body.max_tokens + 1) : countInput(body)
    if (input + body.max_tokens <= limit) return
    // Claude Code reads the numbers in this sentence, and asks again with fewer max_tokens.
    throw new VendorError(400,
      `input length and \`max_tokens\` exceed context limit: ${input} + ${body.max_tokens} > ${limit}, decrease ` +
      `input length or \`max_tokens\` and try again`)
  }

  return {
    name: 'messages',
    endpoints: { 'POST /v1/messages': messages, 'POST /v1/messages/count_tokens': countTokens },
    errorBody: (error, requestId) => ({
      type: 'error',
      error: { type: errorType(error.status), message: error.message },
      request_id: requestId
    }),
    errorEvent: (type, requestId) => ({
      event: SseEvent.of('error', { type: 'error',
        error: { type, message: type === 'overloaded_error' ? 'Overloaded' : 'Internal server error' },
        request_id: requestId })
    }),
    brokenEvent: () => ({
      event: new SseEvent('content_block_start', '{"type":"content_block_start","index":0,"content_bl')
    }),
    unknownEvent: () => ({
      event: SseEvent.of('future_event', { type: 'future_event', reason: 'the vendor may add types at any time' })
    })
  }
}

/** The vendor's error types. */
export function errorType (status: number): string {
  const types: Readonly<Record<number, string>> = {
    401: 'authentication_error',
    402: 'billing_error',
    403: 'permission_error',
    404: 'not_found_error',
    409: 'conflict_error',
    413: 'request_too_large',
    429: 'rate_limit_error',
    504: 'timeout_error',
    503: 'overloaded_error',
    529: 'overloaded_error'
  }
  return types[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error')
}

/** Runs before the body is checked, so it takes anything. */
function prompt (body: unknown): string {
  if (!isObject(body) || !Array.isArray(body['messages'])) return ''
  const turns = body['messages'].filter((message) =>
    isObject(message) &&
    (typeof message['content'] === 'string' ||
      (Array.isArray(message['content']) && message['content'].every(isObject)))
  )
  return textOf(lastTurn({ ...body, messages: turns } as unknown as MessagesBody))
}

interface Usage {
  /** in message_start */
  readonly first: ReportedUsage | undefined
  /** in message_delta, cumulative */
  readonly last: ReportedUsage | undefined
}

function usageOf (input: InputTokens, { outputTokens, thinkingTokens }: Composition, faults: Faults): Usage {
  if (faults.usage_missing === true) return { first: undefined, last: undefined }
  const count = (tokens: number): number => faults.usage_zero === true ? 0 : tokens
  const counters = {
    input_tokens: count(input.uncached),
    cache_creation_input_tokens: count(input.written5m + input.written1h),
    cache_read_input_tokens: count(input.read),
    cache_creation: { ephemeral_5m_input_tokens: count(input.written5m),
      ephemeral_1h_input_tokens: count(input.written1h) }
  }
  const details = thinkingTokens > 0 ? { output_tokens_details: { thinking_tokens: count(thinkingTokens) } } : {}
  return {
    // The vendor counts the first token of the answer before it sends it.
    first: {
      ...counters,
      ...(faults.usage_late === true ? { input_tokens: Math.floor(counters.input_tokens / 2) } : {}),
      output_tokens: count(Math.min(1, outputTokens)),
      service_tier: 'standard'
    },
    last: { ...counters, output_tokens: count(outputTokens), ...details }
  }
}

function toJson (id: string, model: string, composition: Composition, usage: Usage): Answer {
  const reported = usage.last === undefined ? undefined : { ...usage.last, service_tier: 'standard' }
  return {
    kind: 'json',
    status: 200,
    body: {
      ...envelope(id, model),
      content: composition.parts.map(contentOf),
      stop_reason: composition.stopReason,
      stop_sequence: composition.stopSequence,
      ...stopDetails(composition),
      ...(reported === undefined ? {} : { usage: reported })
    },
    text: composition.parts.map(deliveredBy).join(''),
    tokens: composition.outputTokens,
    ...(reported === undefined ? {} : { usage: reported })
  }
}

function contentOf (part: Part): unknown {
  const whole = part.tokens.join('')
  if (part.kind === 'text') return { type: 'text', text: whole }
  if (part.kind === 'thinking') {
    return { type: 'thinking', thinking: part.isShown ? whole : '', signature: part.signature }
  }
  return { type: 'tool_use', id: part.id, name: part.name, input: inputOf(whole) }
}

/** max_tokens may end a call in the middle of its input. */
function inputOf (json: string): unknown {
  try {
    return JSON.parse(json)
  } catch {
    return {}
  }
}

function deliveredBy (part: Part): string {
  return part.kind === 'thinking' && !part.isShown ? '' : part.tokens.join('')
}

function envelope (id: string, model: string): object {
  return { id, type: 'message', role: 'assistant', model }
}

function stopDetails ({ stopReason }: Composition): object {
  return stopReason === 'refusal' ? { stop_details: { type: 'refusal', category: null, explanation: null } } : {}
}

function toEvents (id: string, model: string, composition: Composition, usage: Usage): readonly Emission[] {
  const start = { ...envelope(id, model), content: [], stop_reason: null, stop_sequence: null,
    ...(usage.first === undefined ? {} : { usage: usage.first }) }
  return [
    emission('message_start', { message: start }, { usage: usage.first }),
    emission('ping', {}),
    ...composition.parts.flatMap(blockEvents),
    emission('message_delta', {
      delta: { stop_reason: composition.stopReason, stop_sequence: composition.stopSequence,
        ...stopDetails(composition) },
      ...(usage.last === undefined ? {} : { usage: usage.last })
    }, { usage: usage.last }),
    emission('message_stop', {})
  ]
}

function blockEvents (part: Part, index: number): Emission[] {
  return [
    emission('content_block_start', { index, content_block: emptyBlock(part) }),
    ...deltasOf(part).map(({ delta, text }) => emission('content_block_delta', { index, delta }, { text })),
    emission('content_block_stop', { index })
  ]
}

function emptyBlock (part: Part): object {
  if (part.kind === 'text') return { type: 'text', text: '' }
  if (part.kind === 'thinking') return { type: 'thinking', thinking: '', signature: '' }
  return { type: 'tool_use', id: part.id, name: part.name, input: {} }
}

function deltasOf (part: Part): readonly { readonly delta: object, readonly text?: string }[] {
  if (part.kind === 'text') return part.tokens.map((text) => ({ delta: { type: 'text_delta', text }, text }))
  if (part.kind === 'thinking') {
    const thoughts = part.isShown
      ? part.tokens.map((text) => ({ delta: { type: 'thinking_delta', thinking: text }, text }))
      : []
    return [...thoughts, { delta: { type: 'signature_delta', signature: part.signature } }]
  }
  // The vendor begins the input of a call with an empty piece.
  return ['', ...part.tokens].map((text) => ({ delta: { type: 'input_json_delta', partial_json: text }, text }))
}

function emission (
  type: string,
  fields: object,
  worth: { readonly text?: string | undefined, readonly usage?: ReportedUsage | undefined } = {}
): Emission {
  return {
    event: SseEvent.of(type, { type, ...fields }),
    ...(worth.text === undefined ? {} : { text: worth.text }),
    ...(worth.usage === undefined ? {} : { usage: worth.usage })
  }
}
