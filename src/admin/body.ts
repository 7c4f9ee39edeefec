// The JSON body of a request to the admin listener, read within limits.
import type { IncomingMessage } from 'node:http'
import { setImmediate } from 'node:timers/promises'
import { isGatewayError } from '../errors.ts'
import { JsonGuard } from '../base/json-limits.ts'
import { repeatedKeyInPieces } from '../base/repeated-key.ts'
import { Refusal } from './api/refusal.ts'

/** @throws {Refusal} the body is too large, or no JSON. Undefined: no body. */
export async function readJson (req: IncomingMessage, limit: number): Promise<unknown> {
  const chunks = await readBytes(req, limit)
  return chunks.length === 0 ? undefined : await parseJson(chunks)
}

/** @throws {Refusal} the body is too large, or breaks the limits of JSON */
export async function readBytes (req: IncomingMessage, limit: number): Promise<readonly Buffer[]> {
  const chunks: Buffer[] = []
  const guard = new JsonGuard()
  let size = 0
  for await (const chunk of req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > limit) {
      throw new Refusal('request_too_large', `The body is larger than ${limit / 1024} KiB. Send a smaller one.`)
    }
    look(guard, chunk)
    chunks.push(chunk)
  }
  return chunks
}

/** Leaves the loop to others between its steps. @throws {Refusal} it is no JSON */
export async function parseJson (chunks: readonly Buffer[]): Promise<unknown> {
  let text: string
  let body: unknown
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks))
    body = JSON.parse(text)
  } catch (cause) {
    throw new Refusal('invalid_request', 'The body is not JSON in UTF-8. Send a JSON object.', { cause })
  }
  const pieces = repeatedKeyInPieces(text)
  let piece = pieces.next()
  for (; piece.done !== true; piece = pieces.next()) await setImmediate()
  const twice = piece.value
  if (twice !== undefined) {
    throw new Refusal('invalid_request',
      `The body has the key ${JSON.stringify(twice.slice(0, 80))} twice. Send it once.`)
  }
  return body
}

/** Applies the limits of client bodies: eight megabytes of "[" take seconds to parse. @throws {Refusal} */
function look (guard: JsonGuard, chunk: Buffer): void {
  try {
    guard.push(chunk)
  } catch (cause) {
    if (!isGatewayError(cause)) throw cause
    throw new Refusal('invalid_request', cause.message, { cause })
  }
}
