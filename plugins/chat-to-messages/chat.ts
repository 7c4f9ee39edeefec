// Reads of chat bodies, whose types are unknown: schema-validate may not be in the pipeline.
import { GatewayError } from '../../src/errors.ts'
import { isGiven, isRecord, type Json } from '../../src/base/json.ts'

/**
 * @param path of the field, such as "messages[0].role"
 * @param what the message behind the path: "must be …"
 */
export function invalid (path: string, what: string): GatewayError {
  return new GatewayError('invalid_request', { message: `${path} ${what}.`, param: path })
}

/** @throws {GatewayError} invalid_request: it is no string, or empty */
export function nameAt (value: unknown, path: string): string {
  if (typeof value !== 'string' || value === '') throw invalid(path, 'must be a string that is not empty')
  return value
}

/** @throws {GatewayError} invalid_request: it is no string */
export function textAt (value: unknown, path: string): string {
  if (typeof value !== 'string') throw invalid(path, 'must be a string')
  return value
}

/**
 * A vendor's extension of parts and tools, by its known fields only, so that nothing else is sent inside (see
 * request.ts).
 */
export function cacheControl (value: unknown): Json {
  if (!isRecord(value)) return NOTHING
  return { cache_control: isGiven(value.ttl) ? { type: value.type, ttl: value.ttl } : { type: value.type } }
}

const NOTHING: Json = Object.freeze({})

/** The requested shape of the answer, which messages style does not carry. */
export interface AnswerShape {
  readonly hasUsageChunk: boolean
  /** true: the SDKs parse any content, and throw: it must be the answer, or nothing */
  readonly hasSchema: boolean
  /** names of tools whose input is text, not JSON */
  readonly customTools: ReadonlySet<string>
  /** a tool of the gateway's own whose input is the answer: the model has no structured outputs */
  readonly answerTool: string | undefined
}

/** Whether the call of this tool is the answer. */
export function isAnswer (name: unknown, { answerTool }: AnswerShape): boolean {
  return answerTool !== undefined && name === answerTool
}
