// The dialect `chat`: POST /v1/chat/completions, JSON and chunks, as OpenAI speaks it, and as its imitators do
// (src/README.md#chat-upstream): each of their habits is a directive.
import { SseEvent } from '../core/sse.ts'
import { checkChat, checkKey, toModel } from './chat-body.ts'
import { compose, token24, type Composition, type Part } from './composition.ts'
import { isObject, VendorError, type Answer, type Dialect, type Emission, type Endpoint,
  type ReportedUsage } from './dialect.ts'
import type { Faults } from './faults.ts'
import { textOf, type Block, type MessagesBody } from './messages-body.ts'
import { countInput } from './prompt-cache.ts'

export interface ChatOptions {
  /** the only key that is let in; any without it */
  readonly key?: string | undefined
  readonly contextTokens: number
  /** milliseconds since the epoch */
  readonly now: () => number
}

type Fields = Readonly<Record<string, unknown>>

const FINISH: Readonly<Record<Composition['stopReason'], string>> = {
  end_turn: 'stop', stop_sequence: 'stop', max_tokens: 'length', tool_use: 'tool_calls', refusal: 'content_filter'
}

export function chatDialect (options: ChatOptions): Dialect {
  const completions: Endpoint = {
    keepsBody: true,
    prompt,
    answer ({ headers, body: asked, faults }) {
      checkKey(headers, options.key)
      const chat = checkChat(asked, faults.vendor !== undefined)
      const body = toModel(chat)
      checkContext(body, faults)
      if (faults.content_policy === true) {
        throw new VendorError(400,
          'The response was filtered due to the prompt triggering our content management policy.')
      }
      const composition = compose(body, faults)
      const head = { id: `chatcmpl-${token24()}`, created: Math.floor(options.now() / 1000), model: body.model,
        system_fingerprint: 'fp_simulated' }
      const usage = usageOf(faults.input_tokens ?? countInput(body), composition, faults)
      if (chat['stream'] !== true) return toJson(head, composition, usage, faults)
      const isAsked = isObject(chat['stream_options']) && chat['stream_options']['include_usage'] === true
      return { kind: 'events', emissions: new Chunks(head, composition, isAsked ? usage : undefined, faults).all() }
    }
  }

  const models: Endpoint = {
    keepsBody: false,
    prompt: () => '',
    answer ({ headers }) {
      checkKey(headers, options.key)
      return { kind: 'json', status: 200,
        body: { object: 'list',
          data: [{ id: 'simulated', object: 'model', created: 1_700_000_000, owned_by: 'simulator' }] } }
    }
  }

  /** @throws {VendorError} */
  function checkContext (body: MessagesBody, faults: Faults): void {
    const limit = options.contextTokens
    const input = faults.context === true ? Math.max(countInput(body), limit + 1) : countInput(body)
    if (input > limit) {
      throw new VendorError(400,
        `This model's maximum context length is ${limit} tokens. However, your messages resulted in ${input} ` +
        'tokens. Please reduce the length of the messages.')
    }
  }

  return {
    name: 'chat',
    endpoints: { 'POST /v1/chat/completions': completions, 'GET /v1/models': models },
    errorBody: ({ status, message }) => ({
      error: { message, type: errorType(status), param: null, code: errorCode(status, message) }
    }),
    errorEvent: (type) =>
      chunkOf({
        error: { message: type === 'overloaded_error' ? 'Overloaded' : 'Internal server error', type, param: null,
          code: null }
      }),
    brokenEvent: () => ({ event: new SseEvent('', '{"id":"chatcmpl-0","object":"chat.completion.chunk","cho') }),
    unknownEvent: () => chunkOf({ object: 'future.chunk', reason: 'the vendor may add types at any time' })
  }
}

function errorType (status: number): string {
  return status === 429 ? 'rate_limit_error' : status < 500 ? 'invalid_request_error' : 'server_error'
}

function errorCode (status: number, message: string): string | null {
  if (message.startsWith('This model\'s maximum context length')) return 'context_length_exceeded'
  if (message.includes('content management policy')) return 'content_filter'
  return status === 401 ? 'invalid_api_key' : status === 429 ? 'rate_limit_exceeded' : null
}

/** Called before the body is checked, so it accepts any value. */
function prompt (body: unknown): string {
  const messages = isObject(body) && Array.isArray(body['messages']) ? body['messages'] : []
  const turn = messages.slice(
    messages.findLastIndex((message) => isObject(message) && message['role'] === 'assistant') + 1
  )
  const content = (turn.findLast((message) => isObject(message) && message['role'] === 'user') as Fields | undefined)
    ?.['content']
  return typeof content === 'string'
    ? content
    : Array.isArray(content)
    ? textOf(content.filter(isObject) as unknown as Block[])
    : ''
}

/** Prompt with cached tokens, completion with thoughts, and the sum. */
function usageOf (
  input: number,
  { outputTokens, thinkingTokens }: Composition,
  faults: Faults
): ReportedUsage | undefined {
  if (faults.usage_missing === true) return undefined
  const count = (tokens: number): number => faults.usage_zero === true ? 0 : tokens
  return {
    prompt_tokens: count(input),
    completion_tokens: count(outputTokens),
    total_tokens: count(input + outputTokens),
    prompt_tokens_details: { cached_tokens: count(Math.min(input, faults.cached ?? 0)) },
    ...(thinkingTokens > 0 && { completion_tokens_details: { reasoning_tokens: count(thinkingTokens) } })
  }
}

function toJson (head: object, composition: Composition, usage: ReportedUsage | undefined, faults: Faults): Answer {
  const said = (kind: Part['kind']): string =>
    composition.parts.filter((part) => part.kind === kind).map(({ tokens }) => tokens.join('')).join('')
  const calls = composition.parts.filter((part) => part.kind === 'tool_use')
  const thought = said('thinking')
  const text = said('text')
  return {
    kind: 'json',
    status: 200,
    body: {
      ...head,
      object: 'chat.completion',
      choices: [{
        index: 0,
        message: {
          role: 'assistant',
          content: text === '' && calls.length > 0 ? null : text,
          ...(thought !== '' && { [faults.reasoning_name ?? 'reasoning_content']: thought }),
          ...(calls.length > 0 &&
            {
              tool_calls: calls.map((call) => ({
                ...(faults.tool_no_id !== true && { id: callId(call.id) }),
                type: 'function',
                function: { name: call.name, arguments: call.tokens.join('') }
              }))
            })
        },
        ...ending(composition, faults)
      }],
      ...(usage !== undefined && { usage })
    },
    text: composition.parts.map(({ tokens }) => tokens.join('')).join(''),
    tokens: composition.outputTokens,
    ...(usage !== undefined && { usage })
  }
}

/** vLLM reports which sequence ended it. */
function ending ({ stopReason, stopSequence }: Composition, faults: Faults): object {
  return { finish_reason: faults.finish_null === true ? null : FINISH[stopReason],
    ...(stopSequence !== null && { stop_reason: stopSequence }) }
}

function callId (id: string): string {
  return id.replace('toolu_', 'call_')
}

function chunkOf (data: unknown, worth: Omit<Emission, 'event'> = {}): Emission {
  return { event: SseEvent.of('', data), ...worth }
}

class Chunks {
  readonly #head: object
  readonly #composition: Composition
  readonly #usage: ReportedUsage | undefined
  readonly #faults: Faults
  #produced = 0

  /** @param usage undefined: there is none, or it was not asked for */
  constructor (head: object, composition: Composition, usage: ReportedUsage | undefined, faults: Faults) {
    this.#head = { ...head, object: 'chat.completion.chunk' }
    this.#composition = composition
    this.#usage = usage
    this.#faults = faults
  }

  all (): Emission[] {
    const { parts } = this.#composition
    const calls = parts.filter((part) => part.kind === 'tool_use')
    const chunks = [
      this.#chunk({ role: 'assistant', content: '' }, undefined, undefined, this.#early()),
      ...parts.flatMap((part) =>
        part.kind === 'tool_use'
          ? []
          : part.tokens.map((text) =>
            this.#chunk({
              [part.kind === 'text' ? 'content' : this.#faults.reasoning_name ?? 'reasoning_content']: text
            }, text)
          )
      ),
      ...this.#calls(calls),
      ...this.#end(),
      { event: new SseEvent('', '[DONE]') }
    ]
    return chunks.flatMap((chunk) => [...this.#between(), chunk])
  }

  #early (): ReportedUsage | undefined {
    if (this.#faults.usage_late !== true || this.#usage === undefined) return undefined
    return { ...this.#usage, prompt_tokens: Math.floor(Number(this.#usage['prompt_tokens']) / 2), completion_tokens: 0 }
  }

  #chunk (delta: object, text?: string, end: object = { finish_reason: null }, usage?: ReportedUsage): Emission {
    if (text !== undefined) this.#produced++
    const { usage_null: isNull, usage_each: isEach } = this.#faults
    const soFar = isEach === true && this.#usage !== undefined
      ? { ...this.#usage, completion_tokens: this.#produced }
      : undefined
    const reported = usage ?? soFar
    return chunkOf(
      { ...this.#head, choices: [{ index: 0, delta, ...end }],
        ...(reported !== undefined ? { usage: reported } : isNull === true && { usage: null }) },
      { ...(text !== undefined && { text }), ...(reported !== undefined && { usage: reported }) }
    )
  }

  #calls (calls: readonly (Part & { readonly kind: 'tool_use' })[]): Emission[] {
    const { tool_whole: isWhole, tool_turns: inTurns } = this.#faults
    const streams = calls.map((call, at) => {
      const first = { name: call.name, id: callId(call.id), type: 'function' }
      if (isWhole === true) return [this.#piece(at, call.tokens.join(''), first)]
      return [this.#piece(at, '', first), ...call.tokens.map((text) => this.#piece(at, text))]
    })
    if (inTurns !== true) return streams.flat()
    const longest = Math.max(0, ...streams.map(({ length }) => length))
    return Array.from({ length: longest }, (_, at) => streams.flatMap((stream) => stream[at] ?? [])).flat()
  }

  #piece (
    at: number,
    text: string,
    first?: { readonly name: string, readonly id: string, readonly type: string }
  ): Emission {
    const { tool_no_index: noIndex, tool_no_id: noId, tool_same_index: sameIndex } = this.#faults
    const { name, id, type } = first ?? {}
    const call = {
      ...(noIndex !== true && { index: sameIndex === true ? 0 : at }),
      ...(first !== undefined && { ...(noId !== true && { id }), type }),
      function: { ...(first !== undefined && { name }), arguments: text }
    }
    return this.#chunk({ tool_calls: [call] }, text)
  }

  #end (): Emission[] {
    const end = ending(this.#composition, this.#faults)
    const { finish_twice: isTwice, usage_with_finish: isTogether, usage_each: isEach } = this.#faults
    const usage = this.#usage
    if (isTwice === true) {
      return [this.#chunk({}, undefined, end), this.#chunk({ role: 'assistant', content: '' }, undefined, end, usage)]
    }
    if (isTogether === true || isEach === true || usage === undefined) {
      return [
        this.#chunk({}, undefined, end, usage)
      ]
    }
    return [this.#chunk({}, undefined, end), chunkOf({ ...this.#head, choices: [], usage }, { usage })]
  }

  /** Records that some vendors send between their chunks. */
  #between (): Emission[] {
    return [
      ...(this.#faults.empty_frames === true ? [{ event: new SseEvent('', '') }, chunkOf({})] : []),
      ...(this.#faults.noise === true
        ? [{ event: new SseEvent('', ': PROCESSING') }, { event: new SseEvent('', 'keepalive') }]
        : [])
    ]
  }
}
