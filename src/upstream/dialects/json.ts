// Reads of JSON whose types are unknown: schema-validate may not be in the pipeline.
import { GatewayError } from '../../errors.ts'
import { isRecord, type Json } from '../../base/json.ts'

/**
 * The input of a call in a whole answer.
 * @param isShort whether the answer was cut short, and the call with it, maybe
 * @throws {Error} it is no JSON object, although the answer was not cut short
 */
export function callInput (text: string, isShort: boolean): Json {
  if (text.trim() === '' || text.trim() === 'null') return {}
  try {
    const input: unknown = JSON.parse(text)
    if (isRecord(input)) return input
  } catch (cause) {
    // An input cut by max_tokens is empty with vendors of messages style too.
    if (isShort) return {}
    throw new Error('the arguments of a call are no JSON', { cause })
  }
  throw new Error('the arguments of a call are no object')
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
