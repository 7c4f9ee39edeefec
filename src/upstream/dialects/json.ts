// Reads of JSON whose types are unknown: schema-validate may not be in the pipeline.
import { GatewayError } from '../../errors.ts'
import { isRecord, type Json, parseInput } from '../../base/json.ts'
import { UnusableCall } from './error-reply.ts'
import { isTorn, JsonEnd } from './json-end.ts'

/**
 * The input of a call in a whole answer.
 * @param isShort whether the answer was cut short, and the call with it, maybe
 * @returns undefined: it was, and what is left is no call
 * @throws {UnusableCall} it is no JSON object, although the answer was not cut short
 */
export function callInput (text: string, isShort: boolean): Json | undefined {
  if (text.trim() === '' || text.trim() === 'null') return {}
  const input = parsedInput(text)
  if (isRecord(input)) return input
  if (isShort) return undefined
  throw new UnusableCall(input === undefined && isTorn(text) ? 'half' : 'other')
}

/** Undefined: it is no JSON. @throws {UnusableCall} it is an object, and something else behind it */
function parsedInput (text: string): unknown {
  try {
    return parseInput(text)
  } catch {
    if (text.trimStart()[0] !== '{') return undefined
  }
  const end = new JsonEnd()
  const length = end.read(text)
  if (!end.isWhole || length === text.length) return undefined
  end.checkTail(text.slice(length))
  return parsedInput(end.text)
}

/** '' for all values but strings. */
export function textIn (value: unknown): string {
  return typeof value === 'string' ? value : ''
}

/**
 * The client's request can't be expressed in the upstream's style. Another target may speak messages style, so the next
 * attempt is tried.
 * @param what the message behind the path: "is …"
 */
export function unsayable (path: string, what: string): GatewayError {
  const message =
    `${path} ${what}, which the provider of this model can't be told. Leave it out or choose another model.`
  return new GatewayError('invalid_request', { message, param: path, retryable: true })
}
