// Encodes a whole answer before it is settled: one that can't be written must not be charged.
import { validateHeaderName, validateHeaderValue } from 'node:http'
import { after, type Awaitable } from '../base/awaitable.ts'
import { bufferOf } from '../base/pieces.ts'
import type { Exchange } from '../core/exchange.ts'
import type { ErrorReply, JsonReply } from '../core/reply.ts'
import { LargeReply, printed, replyRead } from '../core/reply-step.ts'

type Encodable = Pick<JsonReply | ErrorReply, 'status' | 'headers' | 'body'>

/**
 * The text of a JSON answer.
 * @throws {Error} a plugin made a reply that can't be sent. Found out before the settlement: then nothing is charged.
 */
export function encode (reply: Encodable): string {
  const text = JSON.stringify(reply.body) as string | undefined
  check(reply, text !== undefined)
  return text!
}

/** Its name: after it a thread needs the answer no longer. */
export const PRINT = 'print'

const print = replyRead(PRINT, (body) => printed(body))

/** The same, in bytes where a thread has the answer. @throws as `encode` */
export function encodeReply (reply: JsonReply, exchange: Exchange): Awaitable<string | readonly Buffer[]> {
  const { body } = reply
  if (!(body instanceof LargeReply)) return encode(reply)
  check(reply, true)
  return after(print(body, exchange), ({ pieces }) => pieces.map(bufferOf))
}

function check ({ status, headers }: Encodable, hasBody: boolean): void {
  if (!hasBody || !(status >= 200 && status <= 599)) {
    throw new TypeError('a reply needs a status from 200 to 599 and a body that is JSON')
  }
  for (const name in headers) {
    validateHeaderName(name)
    validateHeaderValue(name, headers[name]!)
  }
}
