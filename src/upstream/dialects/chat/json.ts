// What all parts of this dialect say about JSON of others: nothing is known of its types (schema-validate may not be in
// the pipeline).
import { GatewayError } from '../../../errors.ts'

/** '' for all that is no string. */
export function textIn (value: unknown): string {
  return typeof value === 'string' ? value : ''
}

/**
 * What the client sent has no words in chat style. Another target may speak messages style, so the next attempt is
 * tried.
 * @param what goes on after the path: "is …"
 */
export function unsayable (path: string, what: string): GatewayError {
  const message =
    `${path} ${what}, which the provider of this model can't be told. Leave it out or choose another model.`
  return new GatewayError('invalid_request', { message, param: path, retryable: true })
}
