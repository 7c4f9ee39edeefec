// How real vendors and proxies deviate from the API that they claim to speak. Each habit was seen in recorded traffic
// or in public bug reports. The directive `habit=NAME` selects one, `habit=NAME+NAME` several; random suites draw from
// the table.
import { SseEvent } from '../core/sse.ts'
import { isObject, type Answer, type Api, type Asked, type Emission, type ReportedUsage } from './dialect.ts'
import { UnknownDirective } from './faults.ts'

type Fields = Readonly<Record<string, unknown>>

/** What a habit changes in the answers of one API. */
interface Change {
  events? (emissions: readonly Emission[]): readonly Emission[]
  body? (body: Fields): Fields
  /** nothing of the answer's text is in it */
  readonly isEmpty?: true
  /** the tokens that the vendor charges, if they are others than those in the names of its API */
  charged? (usage: ReportedUsage): ReportedUsage
}

interface Instead {
  readonly status: number
  readonly body: unknown
}

export interface Habit {
  readonly does: string
  /** content type of the answer; null: none */
  readonly type?: string | null
  readonly headers?: Readonly<Record<string, string>>
  /** statuses of heads that come before the answer's */
  readonly interim?: readonly (100 | 102 | 103)[]
  /** bytes before the body */
  readonly beginning?: string
  /** JSON if a stream was requested, and a stream if JSON was */
  readonly isOtherFraming?: true
  /** the stream does not end after its last event */
  readonly staysOpen?: true
  /** the answer has not the words of the log, or not where a client looks for them */
  readonly isReworded?: true
  /** replaces the answer, also that of a streaming request */
  readonly instead?: Instead
  /** it is about the credential, which the gateway does not use for a while then */
  readonly isOfCredential?: true
  readonly of?: Readonly<Partial<Record<Api, Change>>>
}

const google = (code: number, status: string, message: string, details: readonly unknown[] = []): Instead =>
  ({ status: code, body: [{ error: { code, message, status, details } }] })
const openai = (status: number, message: string, type: string, code: string | null): Instead =>
  ({ status, body: { error: { message, type, param: null, code } } })

const COUNTED_IDS: Change = {
  events: (emissions) => changed(emissions, withCountedIds()), body: (body) => withCountedIds()(body)
}

export const habits = {
  no_label: { does: 'no content type (ChatGPT\'s backend)', type: null },
  label_json: { does: 'the content type is application/json', type: 'application/json' },
  label_text: { does: 'the content type is text/plain', type: 'text/plain; charset=utf-8' },
  label_events: { does: 'the content type is text/event-stream', type: 'text/event-stream' },
  label_octets: { does: 'the content type is application/octet-stream', type: 'application/octet-stream' },
  other_framing: { does: 'JSON if a stream was requested, and the reverse', isOtherFraming: true },
  byte_order_mark: { does: 'a byte order mark before the body', beginning: '\uFEFF' },
  blank_lines: { does: 'blank lines before the body (DeepSeek under load)', beginning: '\r\n\n \n' },
  continue: { does: '100 Continue, which nobody requested', interim: [100] },
  early_hints: { does: '103 Early Hints, 102 Processing and 100 Continue before the head', interim: [103, 102, 100] },
  stays_open: { does: 'the connection stays open after the last event', staysOpen: true },
  keep_alive: { does: 'a keep-alive of an hour', headers: { 'keep-alive': 'timeout=3600' } },
  account_headers: { does: 'headers that name the operator\'s account', headers: {
    'openai-organization': 'org-operator', 'openai-project': 'proj-operator', 'anthropic-organization-id': '0b1c',
    'set-cookie': '__cf_bm=1; path=/' } },

  error_in_200: { does: 'an error object with status 200',
    instead: { status: 200, body: { error: { message: 'The server broke.', type: 'server_error', code: 500 } } } },
  error_other_shape: { does: 'an error of another shape with status 200 (vLLM)',
    instead: { status: 200, body: { object: 'error', message: 'out of memory', type: 'ServerError', code: 500 } } },
  error_array: { does: '400 in an array (Google)',
    instead: google(400, 'INVALID_ARGUMENT', 'Request contains an invalid argument.') },
  error_array_delay: { does: '429 in an array, with its delay in the body (Google)', isOfCredential: true,
    instead: google(429, 'RESOURCE_EXHAUSTED', 'Resource has been exhausted (e.g. check quota).',
      [{ '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '37s' }]) },
  bad_key_400: { does: '400 for the operator\'s key (Google)', isOfCredential: true,
    instead: google(400, 'INVALID_ARGUMENT', 'API key not valid. Please pass a valid API key.',
      [{ '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'API_KEY_INVALID' }]) },
  no_money_400: { does: '400 for an operator without credit (Anthropic)', isOfCredential: true,
    instead: { status: 400, body: { type: 'error', error: { type: 'invalid_request_error',
      message: 'Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade ' +
        'or purchase credits.' } } } },
  no_quota_429: { does: '429 insufficient_quota (OpenAI)', isOfCredential: true,
    instead: openai(429, 'You exceeded your current quota, please check your plan and billing details.',
      'insufficient_quota', 'insufficient_quota') },
  context_words: { does: '400 for a context that is too long, in xAI\'s words', instead: openai(400, 'This model\'s ' +
    'maximum prompt length is 131072 but the request contains 140000 tokens.', 'invalid_request_error', null) },
  prompt_too_long: { does: '400 for a context that is too long (Anthropic)', instead: { status: 400, body: { type: 'error',
    error: { type: 'invalid_request_error', message: 'prompt is too long: 208310 tokens > 200000 maximum' } } } },
  model_unknown_400: { does: '400 for a model that the vendor does not have (OpenRouter)',
    instead: { status: 400, body: { error: { message: 'vendor-model is not a valid model ID', code: 400 } } } },
  tool_use_failed: { does: '400 tool_use_failed: the model wrote a broken call (Groq)', instead: openai(400,
    'Failed to call a function. Please adjust your prompt.', 'invalid_request_error', 'tool_use_failed') },

  usage_zero_with_finish: { does: 'chat: usage of zeros with the finish reason, then the real one', of: {
    chat: { events: withUsageBeside({ prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 }) } } },
  usage_early_with_finish: { does: 'chat: with the finish reason a usage of one token of output, then the real one',
    of: { chat: { events: withUsageBeside({ completion_tokens: 1 }) } } },
  usage_no_completion: { does: 'chat: usage without completion_tokens (protobuf leaves zeros out)', of: {
    chat: usageAs(({ completion_tokens: _, ...usage }) => usage) } },
  usage_cache_names: { does: 'chat: cached tokens at the top of the usage (DashScope, proxies)', of: {
    chat: usageAs(({ prompt_tokens_details: details, ...usage }) =>
      ({ ...usage, cache_read_input_tokens: isObject(details) ? details['cached_tokens'] : 0 })) } },
  usage_hidden_thoughts: { does: 'chat: thoughts are counted in the total alone (Google)', of: { chat: {
    ...usageAs((usage) => ({ ...usage, total_tokens: Number(usage['total_tokens']) + 7 })),
    charged: (usage) => ({ ...usage, completion_tokens: Number(usage['completion_tokens']) + 7 })
  } } },
  usage_thoughts_beside: { does: 'chat: more thoughts than completion (Vercel, xAI)', of: { chat: {
    ...usageAs((usage) => ({ ...usage,
      completion_tokens_details: { reasoning_tokens: Number(usage['completion_tokens']) + 5 } })),
    charged: (usage) => ({ ...usage, completion_tokens: 2 * Number(usage['completion_tokens']) + 5 })
  } } },
  usage_cached_beside: { does: 'chat: more cached tokens than prompt (Grok on Azure)', of: { chat: {
    ...usageAs((usage) => ({ ...usage, prompt_tokens_details: { cached_tokens: Number(usage['prompt_tokens']) + 9 } })),
    charged: (usage) => ({ ...usage, prompt_tokens: 2 * Number(usage['prompt_tokens']) + 9 })
  } } },
  usage_read_and_written: { does: 'chat: the same tokens as read and as written (OpenRouter)', of: { chat: {
    ...usageAs((usage) => ({ ...usage, prompt_tokens_details: { cached_tokens: Number(usage['prompt_tokens']),
      cache_write_tokens: Number(usage['prompt_tokens']) } })),
    charged: (usage) => ({ ...usage, prompt_tokens: 2 * Number(usage['prompt_tokens']) })
  } } },
  usage_input_zero: { does: 'messages: the last usage repeats the input as 0', of: { messages: { events: (emissions) =>
    changed(emissions, (data) => data['type'] !== 'message_delta' || !isObject(data['usage']) ? data : { ...data,
      usage: { input_tokens: 0, cache_creation_input_tokens: 0, cache_read_input_tokens: 0,
        output_tokens: data['usage']['output_tokens'] } }) } } },

  choices_apart: { does: 'chat: text in one choice, calls in another (Copilot)', of: { chat: {
    events: (emissions) => changed(emissions, (data) => choiceAs(data, (choice) =>
      isObject(choice['delta']) && 'tool_calls' in choice['delta'] ? { ...choice, index: 1 } : choice)),
    body: (body) => splitChoices(body)
  } } },
  arguments_twice: { does: 'chat and messages: the arguments of a call once more, whole (vLLM)', of: {
    chat: { events: repeatedArguments }, messages: { events: repeatedInput } } },
  ids_repeat: { does: 'the ids of calls count from call_0 in each answer (local servers)', of: {
    chat: COUNTED_IDS, messages: COUNTED_IDS, responses: COUNTED_IDS } },
  pings: { does: 'messages: a ping behind each event', of: {
    messages: { events: (emissions) => emissions.flatMap((emission) => [emission, dataOf({ type: 'ping' }, 'ping')]) }
  } },
  function_call_empty: { does: 'chat: an empty function_call beside the text (Snowflake)', of: { chat: {
    events: (emissions) => changed(emissions, (data) => choiceAs(data, (choice) => isObject(choice['delta'])
      ? { ...choice, delta: { ...choice['delta'], function_call: { name: '', arguments: '' } } }
      : choice)),
    body: (body) => choiceAs(body, (choice) => ({ ...choice,
      message: { ...choice['message'] as Fields, function_call: { name: '', arguments: '' } } }))
  } } },
  no_message: { does: 'chat: a choice without message or delta content, which ends at "length" (Google)', of: { chat: {
    events: (emissions) => changed(emissions.filter(({ text }) => text === undefined), (data) =>
      choiceAs(data, ({ finish_reason: finish }) => ({ index: 0, finish_reason: finish === null ? null : 'length' }))),
    body: (body) => choiceAs(body, () => ({ index: 0, finish_reason: 'length' })),
    isEmpty: true
  } } },
  error_before_done: { does: 'chat: an error of an unknown shape in the middle of the text, then [DONE]', of: { chat: {
    events: (emissions) => [...emissions.slice(0, emissions.length >> 1), dataOf({ object: 'error',
      message: 'out of memory', code: 500 }), { event: new SseEvent('', '[DONE]') }] } } },
  ends_without_reason: { does: 'chat: [DONE] without finish reason and usage; messages: no message_delta', of: {
    chat: { events: (emissions) => emissions.filter(({ event }) => !/"finish_reason":"|"usage":\{/.test(event.data)) },
    messages: { events: (emissions) => emissions.filter(({ event }) => event.event !== 'message_delta') } } },
  two_messages: { does: 'messages: half of a message, then another one', of: { messages: { events: (emissions) =>
    [...emissions.slice(0, Math.max(4, emissions.length >> 1)), ...changed(emissions, (data) =>
      isObject(data['message']) ? { ...data, message: { ...data['message'], id: 'msg_another' } } : data)] } } },
  half_characters: { does: 'chat and messages: the two halves of a character in two deltas', of: {
    chat: { events: (emissions) => withHalves(emissions, (text, data) => choiceAs(data, (choice) =>
      ({ ...choice, delta: { content: text } }))) },
    messages: { events: (emissions) => withHalves(emissions, (text, data) =>
      ({ ...data, delta: { type: 'text_delta', text } })) } } },

  refusal_field: { does: 'chat: the text is a refusal', isReworded: true, of: { chat: {
    events: (emissions) => changed(emissions, (data) => choiceAs(data, (choice) => ({ ...choice,
      delta: asRefusal(choice['delta']) }))),
    body: (body) => choiceAs(body, (choice) => ({ ...choice, message: asRefusal(choice['message']) }))
  } } },
  content_object: { does: 'chat: the content is an object (Cloudflare)', isReworded: true, of: { chat: {
    body: (body) => choiceAs(body, (choice) => ({ ...choice,
      message: { ...choice['message'] as Fields, content: { answer: 'an object' } } }))
  } } },
  top_fields: { does: 'chat: citations and other fields beside the choices (Perplexity, Azure)', of: { chat: {
    events: (emissions) => changed(emissions, (data) => ({ ...data, ...TOP_FIELDS })),
    body: (body) => ({ ...body, ...TOP_FIELDS })
  } } },
  call_cut_short: { does: 'chat: a call without its last piece, under the finish reason tool_calls (vLLM)',
    isReworded: true, of: { chat: { events: withoutLastPiece } } },
  done_text_differs: { does: 'responses: the text of .done is not that of its pieces', of: { responses: {
    events: (emissions) => changed(emissions, (data) => data['type'] === 'response.output_text.done'
      ? { ...data, text: 'Something else.' }
      : data) } } },
  undeclared_call: { does: 'responses: a custom call that the vendor ran itself (xAI)', of: { responses: {
    events: (emissions) => emissions.flatMap((emission) => emission.event.event === 'response.completed'
      ? [dataOf({ type: 'response.output_item.done', output_index: 90, item: VENDORS_CALL },
        'response.output_item.done'), emission] : [emission]),
    body: (body) => ({ ...body, output: [VENDORS_CALL, ...body['output'] as readonly unknown[]] })
  } } },
  content_index: { does: 'responses: deltas count content_index from 1, items from 0 (Bedrock)', of: { responses: {
    events: (emissions) => changed(emissions, (data) => 'content_index' in data && 'delta' in data
      ? { ...data, content_index: Number(data['content_index']) + 1 }
      : data) } } },

  video_shorter: { does: 'videos: a second less than ordered', of: { videos: { body: (body) => 'seconds' in body
    ? { ...body, seconds: String(Math.max(1, Number(body['seconds']) - 1)) }
    : body } } },
  video_in_data: { does: 'videos: the task is in "data"', of: { videos: {
    body: (body) => ({ code: 0, data: body }) } } },
  video_words: { does: 'videos: other words for the states', of: { videos: { body: (body) => ({ ...body,
    status: VIDEO_WORDS[String(body['status'])] ?? body['status'] }) } } }
} as const satisfies Record<string, Habit>

export type HabitName = keyof typeof habits

const TOP_FIELDS = { provider: 'Acme', citations: ['https://example.com'],
  prompt_filter_results: [{ prompt_index: 0 }] }
const VENDORS_CALL = { type: 'custom_tool_call', id: 'ctc_1', call_id: 'xs_call_1', name: 'x_keyword_search',
  input: '{"query":"ferry"}', status: 'completed' }
const VIDEO_WORDS: Readonly<Record<string, string>> = { queued: 'Submitted', in_progress: 'IN_PROGRESS',
  completed: 'SUCCESS', failed: 'FAILURE' }

/**
 * @param names one name, or several with `+` between them: one after the other
 * @throws {UnknownDirective} there is no such habit
 */
export function habitNamed (names: string): Habit {
  return names.split('+').map(oneNamed).reduce(both)
}

function oneNamed (name: string): Habit {
  if (Object.hasOwn(habits, name)) return habits[name as HabitName]
  throw new UnknownDirective(
    `the simulator does not know the habit "${name}"; it knows ${Object.keys(habits).join(', ')}`)
}

function both (first: Habit, second: Habit): Habit {
  const of: Partial<Record<Api, Change>> = { ...first.of }
  for (const [api, change] of Object.entries(second.of ?? {}) as [Api, Change][]) of[api] = after(of[api] ?? {}, change)
  return { ...first, ...second, of }
}

function after (first: Change, second: Change): Change {
  const chain = <T>(one: ((value: T) => T) | undefined, other: ((value: T) => T) | undefined) => (value: T): T => {
    const changed = one?.(value) ?? value
    return other?.(changed) ?? changed
  }
  return { ...first, ...second, events: chain(first.events, second.events), body: chain(first.body, second.body),
    charged: chain(first.charged, second.charged) }
}

/** For `simulate --help`. */
export function habitTable (): string {
  const width = Math.max(...Object.keys(habits).map(({ length }) => length))
  return Object.entries<Habit>(habits).map(([name, { does }]) => `  ${name.padEnd(width)}  ${does}`).join('\n')
}

/** The request as a vendor reads it that ignores whether a stream was requested. */
export function readAs ({ isOtherFraming }: Habit, asked: Asked): Asked {
  if (isOtherFraming !== true || !isObject(asked.body)) return asked
  const { stream, stream_options: options, ...body } = asked.body
  return { ...asked, body: stream === true ? body : { ...body, stream: true,
    ...('messages' in body && !('anthropic-version' in asked.headers) &&
      { stream_options: { include_usage: true } }) } }
}

export function applyHabit (habit: Habit, made: Answer, api: Api): Answer {
  if (habit.instead !== undefined && made.kind !== 'file') return { kind: 'json', ...habit.instead }
  const change: Change | undefined = habit.of?.[api]
  if (change === undefined) return made
  if (made.kind === 'events') {
    const emissions = change.events?.(made.emissions) ?? made.emissions
    return { ...made, emissions: emissions.map((emission) => ({ ...emission, ...chargedBy(change, emission.usage) })) }
  }
  if (made.kind !== 'json' || !isObject(made.body)) return made
  return { ...made, body: change.body?.(made.body) ?? made.body, ...(change.isEmpty === true && { text: '' }),
    ...chargedBy(change, made.usage) }
}

function chargedBy ({ charged }: Change, usage: ReportedUsage | undefined): { readonly usage?: ReportedUsage } {
  return usage === undefined ? {} : { usage: charged?.(usage) ?? usage }
}

function dataOf (data: Fields, name = ''): Emission {
  return { event: SseEvent.of(name, data) }
}

/** The same emissions with other data. */
function changed (emissions: readonly Emission[], change: (data: Fields) => Fields): readonly Emission[] {
  return emissions.map((emission) => {
    const { event } = emission
    return event.data.startsWith('{')
      ? { ...emission, event: SseEvent.of(event.event, change(event.json as Fields)) }
      : emission
  })
}

/** Of a completion or a chunk. */
function choiceAs (data: Fields, change: (choice: Fields) => Fields): Fields {
  const { choices } = data
  return Array.isArray(choices) ? { ...data, choices: choices.map((choice) => change(choice as Fields)) } : data
}

/** Ids of calls in one answer, whole or in events. */
function withCountedIds (): (data: Fields) => Fields {
  const counted = new Map<unknown, string>()
  const idOf = (id: unknown): string => {
    if (!counted.has(id)) counted.set(id, `call_${counted.size}`)
    return counted.get(id)!
  }
  const rename = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(rename)
    if (!isObject(value)) return value
    const fields = Object.fromEntries(Object.entries(value).map(([name, field]) => [name, rename(field)]))
    if (typeof value['call_id'] === 'string') return { ...fields, call_id: idOf(value['call_id']) }
    const isCall = value['type'] === 'tool_use' || 'function' in value
    return isCall && typeof value['id'] === 'string' ? { ...fields, id: idOf(value['id']) } : fields
  }
  return (data) => rename(data) as Fields
}

function usageAs (change: (usage: Fields) => Fields): Change {
  const body = (data: Fields): Fields => isObject(data['usage']) ? { ...data, usage: change(data['usage']) } : data
  return { body, events: (emissions) => changed(emissions, body) }
}

/** Of a message or a delta. */
function asRefusal (said: unknown): unknown {
  if (!isObject(said) || typeof said['content'] !== 'string' || said['content'] === '') return said
  return { ...said, content: null, refusal: said['content'] }
}

function withoutLastPiece (emissions: readonly Emission[]): readonly Emission[] {
  const last = emissions.findLastIndex(({ event }) => event.data.includes('"tool_calls":[{"index"'))
  return last === -1 ? emissions : emissions.toSpliced(last, 1)
}

function withUsageBeside (early: Fields): NonNullable<Change['events']> {
  return (emissions) => {
    const usage = emissions.findLast((emission) => emission.usage !== undefined)?.usage
    return usage === undefined ? emissions : changed(emissions, (data) => {
      const [choice] = Array.isArray(data['choices']) ? data['choices'] as readonly Fields[] : []
      return typeof choice?.['finish_reason'] === 'string' ? { ...data, usage: { ...usage, ...early } } : data
    })
  }
}

function splitChoices (body: Fields): Fields {
  const [choice] = body['choices'] as readonly Fields[]
  const { tool_calls: calls, ...message } = choice?.['message'] as Fields
  if (calls === undefined) return body
  return { ...body, choices: [{ ...choice, message }, { ...choice, index: 1,
    message: { role: 'assistant', content: null, tool_calls: calls } }] }
}

/** In the chunk of the finish reason, as vLLM does. */
function repeatedArguments (emissions: readonly Emission[]): readonly Emission[] {
  const written = new Map<unknown, string>()
  return changed(emissions, (data) => choiceAs(data, (choice) => {
    const calls = (choice['delta'] as { tool_calls?: readonly Fields[] } | undefined)?.tool_calls ?? []
    for (const call of calls) {
      const text = String((call['function'] as Fields)['arguments'] ?? '')
      written.set(call['index'], (written.get(call['index']) ?? '') + text)
    }
    return typeof choice['finish_reason'] !== 'string' || written.size === 0 ? choice : { ...choice,
      delta: { tool_calls: Array.from(written, ([index, text]) => ({ index, function: { arguments: text } })) } }
  }))
}

function repeatedInput (emissions: readonly Emission[]): readonly Emission[] {
  const written = new Map<unknown, string>()
  return emissions.flatMap((emission) => {
    const { index, delta } = emission.event.json as { index?: unknown, delta?: Fields }
    if (delta?.['type'] === 'input_json_delta') {
      written.set(index, (written.get(index) ?? '') + String(delta['partial_json']))
    }
    const text = written.get(index)
    return emission.event.event === 'content_block_stop' && text !== undefined
      ? [dataOf({ type: 'content_block_delta', index, delta: { type: 'input_json_delta', partial_json: text } },
        'content_block_delta'), emission]
      : [emission]
  })
}

/** Behind the first text. */
function withHalves (
  emissions: readonly Emission[], say: (text: string, data: Fields) => Fields
): readonly Emission[] {
  const at = emissions.findIndex(({ event, text }) => text !== undefined && !/input_json|tool_calls|reason|think/
    .test(event.data))
  const first = emissions[at]
  if (first === undefined) return emissions
  const halves = ['\uD83D', '\uDEA2'].map((text) => ({ text,
    event: SseEvent.of(first.event.event, say(text, first.event.json as Fields)) }))
  return emissions.toSpliced(at + 1, 0, ...halves)
}
