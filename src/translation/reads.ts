// Reads of clients' bodies, whose types are unknown: schema-validate may not be in the pipeline.
import { GatewayError } from '../errors.ts'

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
