// Reads of JSON whose types are unknown: schema-validate may not be in the pipeline.
import { GatewayError } from '../../../errors.ts'

/** '' for all values but strings. */
export function textIn (value: unknown): string {
  return typeof value === 'string' ? value : ''
}

/**
 * The client's request can't be expressed in chat style. Another target may speak messages style, so the next attempt
 * is tried.
 * @param what the message behind the path: "is …"
 */
export function unsayable (path: string, what: string): GatewayError {
  const message =
    `${path} ${what}, which the provider of this model can't be told. Leave it out or choose another model.`
  return new GatewayError('invalid_request', { message, param: path, retryable: true })
}
