// What a Responses request asks for beside its conversation and tools: the form of the answer, thoughts, and what can't
// be had here.
import { GatewayError } from '../../src/errors.ts'
import { isGiven, isRecord, type Json } from '../../src/base/json.ts'
import type { Format } from '../../src/translation/answer-tool.ts'
import { invalid } from '../../src/translation/reads.ts'

const EFFORTS: ReadonlySet<unknown> = new Set(['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'])
const SUMMARIES: ReadonlySet<unknown> = new Set(['auto', 'concise', 'detailed'])

export interface Reasoning {
  readonly effort: unknown
  readonly showsThoughts: boolean
}

/** @throws {GatewayError} invalid_request */
export function readReasoning (reasoning: unknown): Reasoning {
  if (!isGiven(reasoning)) return { effort: undefined, showsThoughts: false }
  if (!isRecord(reasoning)) throw invalid('reasoning', 'must be an object')
  const { effort, mode } = reasoning
  const summary = reasoning.summary ?? reasoning.generate_summary
  if (isGiven(effort) && !EFFORTS.has(effort)) {
    throw invalid('reasoning.effort', `must be one of ${[...EFFORTS].join(', ')}`)
  }
  if (isGiven(summary) && !SUMMARIES.has(summary)) {
    throw invalid('reasoning.summary', `must be one of ${[...SUMMARIES].join(', ')}`)
  }
  if (isGiven(mode) && mode !== 'standard') throw invalid('reasoning.mode', 'must be "standard": no other is sold here')
  return { effort: effort ?? undefined, showsThoughts: isGiven(summary) }
}

/**
 * @returns 'object': any JSON object; undefined: text
 * @throws {GatewayError} invalid_request
 */
export function readFormat (text: unknown): Format | 'object' | undefined {
  if (!isGiven(text)) return undefined
  if (!isRecord(text)) throw invalid('text', 'must be an object')
  const { format } = text
  if (!isGiven(format)) return undefined
  if (!isRecord(format)) throw invalid('text.format', 'must be an object')
  switch (format.type) {
    case 'text': return undefined
    case 'json_object': return 'object'
    case 'json_schema': {
      const { schema, description } = format
      if (!isRecord(schema)) throw invalid('text.format.schema', 'must be a JSON Schema object')
      return { schema, description: typeof description === 'string' ? description : undefined }
    }
    default: throw invalid('text.format.type', 'must be "text", "json_object" or "json_schema"')
  }
}

/** Fields with the values that can be had, and what is said of any other. */
const REFUSED: Readonly<Record<string, readonly [isServed: (value: unknown) => boolean, what: string]>> = {
  background: [(value) => value === false, 'must be false: answers are given at once here'],
  conversation: [() => false, 'is not supported: conversations are not kept here. Send their items as "input"'],
  prompt: [() => false, 'is not supported: templates of prompts are not kept here. Send their text as "input"'],
  top_logprobs: [(value) => value === 0, 'must be 0: log probabilities are not known here'],
  access_programs: [() => false, 'is not supported. Leave it out'],
  moderation: [(value) => isRecord(value) && value.mode !== 'block', 'is not supported. Leave it out'],
  prompt_cache_options: [
    (value) => !isRecord(value) || value.prewarm !== true,
    'is not supported with "prewarm". Leave that out'
  ]
}

const LOGPROBS = 'message.output_text.logprobs'

/**
 * @param isRecalled the response that it goes on from was found, if it names one
 * @throws {GatewayError} invalid_request, previous_response_not_found: what it asks for would change the answer
 */
export function refuseUnserved (body: Json, isRecalled: boolean): void {
  if (isGiven(body.previous_response_id) && !isRecalled) {
    throw new GatewayError('previous_response_not_found', { param: 'previous_response_id' })
  }
  for (const name in REFUSED) {
    const [isServed, what] = REFUSED[name]!
    if (isGiven(body[name]) && !isServed(body[name])) throw invalid(name, what)
  }
  const { include, metadata } = body
  if (Array.isArray(include) && include.includes(LOGPROBS)) {
    throw invalid('include', `must not hold "${LOGPROBS}": log probabilities are not known here`)
  }
  if (isGiven(metadata)) checkMetadata(metadata)
}

const MOST_PAIRS = 16
const LONGEST_NAME = 64
const LONGEST_VALUE = 512

/** They come back in the answer. */
function checkMetadata (metadata: unknown): void {
  if (!isRecord(metadata)) throw invalid('metadata', 'must be an object')
  const names = Object.keys(metadata)
  if (names.length > MOST_PAIRS) throw invalid('metadata', `must have at most ${MOST_PAIRS} names`)
  for (const name of names) {
    const value = metadata[name]
    if (name.length > LONGEST_NAME || typeof value !== 'string' || value.length > LONGEST_VALUE) {
      throw invalid('metadata',
        `must have names of at most ${LONGEST_NAME} characters, and texts of at most ${LONGEST_VALUE} as values`)
    }
  }
}
