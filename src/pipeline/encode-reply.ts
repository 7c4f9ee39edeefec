// Encodes a whole answer before it is settled: one that can't be written must not be charged.
import { validateHeaderName, validateHeaderValue } from 'node:http'
import type { ErrorReply, JsonReply } from '../core/reply.ts'

/**
 * The text of a JSON answer.
 * @throws {Error} a plugin made a reply that can't be sent. Found out before the settlement: then nothing is charged.
 */
export function encode (
  { status, headers, body }: Pick<JsonReply | ErrorReply, 'status' | 'headers' | 'body'>
): string {
  const text = JSON.stringify(body) as string | undefined
  if (text === undefined || !(status >= 200 && status <= 599)) {
    throw new TypeError('a reply needs a status from 200 to 599 and a body that is JSON')
  }
  for (const name in headers) {
    validateHeaderName(name)
    validateHeaderValue(name, headers[name]!)
  }
  return text
}
