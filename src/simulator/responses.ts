// The dialect `responses`: POST /v1/responses, JSON and events, as OpenAI speaks it.
import { SseEvent } from '../core/sse.ts'
import { checkKey } from './chat-body.ts'
import { compose, token24, type Composition } from './composition.ts'
import { VendorError, type Answer, type Dialect, type Emission, type Endpoint, type ReportedUsage } from './dialect.ts'
import type { Faults } from './faults.ts'
import { PromptCache, type InputTokens } from './prompt-cache.ts'
import { checkResponses, ResponsesRefusal, unverified, type ResponsesRequest } from './responses-body.ts'
import { codeOf, ResponsesEvents, sentenceOf, type ResponseHead } from './responses-events.ts'
import { incompleteReason, outputOf } from './responses-items.ts'
import { ResponsesMemory } from './responses-memory.ts'
import { promptIn, toModel } from './responses-model.ts'

export interface ResponsesOptions {
  /** the only key that is let in; any without it. Its organization alone can read what was encrypted for it. */
  readonly key?: string | undefined
  readonly contextTokens: number
  /** milliseconds since the epoch */
  readonly now: () => number
}

type Fields = Readonly<Record<string, unknown>>

/** A dialect remembers prompts and what was stored: make one per simulator. */
export function responsesDialect (options: ResponsesOptions): Dialect {
  const memory = new ResponsesMemory(options.key ?? 'anybody')
  const cache = new PromptCache(options.now)

  const responses: Endpoint = {
    keepsBody: true,
    prompt: promptIn,
    answer ({ headers, body: asked, faults }) {
      checkKey(headers, options.key)
      const request = checkResponses(asked, memory)
      if (faults.refuse_encrypted === true) refuseEncrypted(request, faults)
      const { body, tools } = toModel(request, memory)
      const cacheOf = `${body.model} ${String(request.fields['prompt_cache_key'])}`
      const input = cached(cache.count({ ...body, model: cacheOf }), faults)
      checkContext(input, faults)
      if (faults.content_policy === true) {
        throw new ResponsesRefusal('Invalid prompt: your prompt was flagged as potentially violating our usage policy.',
          null, 'invalid_prompt')
      }
      const composition = compose(body, faults)
      const output = outputOf(composition, tools, request.fields, memory, faults)
      const head = headOf(request.fields, Math.floor(options.now() / 1000))
      if (request.fields['store'] !== false) {
        memory.store(head.id, request.items, output.map(({ done }) => done))
      }
      const usage = usageOf(input, composition, faults)
      return request.fields['stream'] === true
        ? { kind: 'events',
          emissions: new ResponsesEvents(head, output, composition, usage, faults, request.fields).all() }
        : toJson(head, output.map(({ done }) => done), composition, usage, faults)
    }
  }

  /** @throws {VendorError} */
  function checkContext (input: InputTokens, faults: Faults): void {
    if (faults.context !== true && total(input) <= options.contextTokens) return
    throw new ResponsesRefusal(
      'Your input exceeds the context window of this model. Please adjust your input and try again.', 'input',
      'context_length_exceeded')
  }

  return {
    name: 'responses',
    endpoints: { 'POST /v1/responses': responses },
    errorBody: (error) => ({ error: { message: error.message, type: errorType(error.status),
      ...(error instanceof ResponsesRefusal
        ? { param: error.param, code: error.code }
        : { param: null, code: errorCode(error) }) } }),
    errorEvent: (type) => eventOf('error', { code: codeOf(type), message: sentenceOf(type), param: null,
      sequence_number: 0 }),
    brokenEvent: () => ({
      event: new SseEvent('response.created', '{"type":"response.created","sequence_number":0,"res')
    }),
    unknownEvent: () => eventOf('response.future', { reason: 'the vendor may add types at any time' })
  }
}

/** As if another organization had sent it. @throws {VendorError} */
function refuseEncrypted ({ items }: ResponsesRequest, { code_null: isNull }: Faults): void {
  const sealed = items.map((item) => item['encrypted_content']).find((content) => typeof content === 'string')
  if (sealed === undefined) return
  try {
    unverified(sealed)
  } catch (refusal) {
    throw isNull === true ? new VendorError(400, (refusal as VendorError).message) : refusal
  }
}

function eventOf (type: string, fields: Fields): Emission {
  return { event: SseEvent.of(type, { type, ...fields }) }
}

function errorType (status: number): string {
  return status === 429 ? 'rate_limit_error' : status < 500 ? 'invalid_request_error' : 'server_error'
}

function errorCode ({ status }: VendorError): string | null {
  return status === 401 ? 'invalid_api_key' : status === 429 ? 'rate_limit_exceeded' : null
}

function total ({ uncached, read, written5m, written1h }: InputTokens): number {
  return uncached + read + written5m + written1h
}

/** The part that a directive says was read from the cache, in the place of what was. */
function cached (counted: InputTokens, faults: Faults): InputTokens {
  const input = faults.input_tokens === undefined ? counted
    : { uncached: faults.input_tokens, read: 0, written5m: 0, written1h: 0 }
  if (faults.cached === undefined) return input
  const read = Math.min(total(input), faults.cached)
  return { uncached: total(input) - read, read, written5m: 0, written1h: 0 }
}

function usageOf (
  input: InputTokens,
  { outputTokens, thinkingTokens }: Composition,
  faults: Faults
): ReportedUsage | undefined {
  if (faults.usage_missing === true) return undefined
  const count = (tokens: number): number => faults.usage_zero === true ? 0 : tokens
  return {
    input_tokens: count(total(input)),
    input_tokens_details: { cached_tokens: count(input.read), cache_write_tokens: count(input.written5m) },
    output_tokens: count(outputTokens),
    output_tokens_details: { reasoning_tokens: count(thinkingTokens) },
    total_tokens: count(total(input) + outputTokens)
  }
}

function headOf (fields: Fields, created: number): ResponseHead {
  const { reasoning, text, tools } = fields
  return {
    id: `resp_${token24()}`, object: 'response', created_at: created, model: fields['model'], background: false,
    instructions: fields['instructions'] ?? null, max_output_tokens: fields['max_output_tokens'] ?? null,
    metadata: fields['metadata'] ?? {}, parallel_tool_calls: fields['parallel_tool_calls'] ?? true,
    previous_response_id: fields['previous_response_id'] ?? null, prompt_cache_key: fields['prompt_cache_key'] ?? null,
    reasoning: reasoning ?? { effort: null, summary: null }, safety_identifier: fields['safety_identifier'] ?? null,
    service_tier: 'default', store: fields['store'] ?? true, temperature: fields['temperature'] ?? 1,
    text: text ?? { format: { type: 'text' }, verbosity: 'medium' }, tool_choice: fields['tool_choice'] ?? 'auto',
    tools: tools ?? [], top_logprobs: 0, top_p: fields['top_p'] ?? 1, truncation: 'disabled', user: null
  }
}

function toJson (
  head: ResponseHead,
  output: readonly Fields[],
  composition: Composition,
  usage: ReportedUsage | undefined,
  faults: Faults
): Answer {
  const reason = incompleteReason(composition, faults)
  const failed = faults.failed_after === undefined ? undefined : faults.error_type ?? 'server_error'
  return {
    kind: 'json',
    status: 200,
    body: {
      ...head,
      status: failed !== undefined ? 'failed' : reason === undefined ? 'completed' : 'incomplete',
      error: failed === undefined ? null : { code: codeOf(failed), message: sentenceOf(failed) },
      incomplete_details: reason === undefined ? null : { reason },
      output: failed === undefined ? output : [],
      usage: usage ?? null
    },
    text: composition.parts.map(({ tokens }) => tokens.join('')).join(''),
    tokens: composition.outputTokens,
    ...(usage !== undefined && { usage })
  }
}
