// The JSON body of a request to the admin listener, read within limits.
import type { IncomingMessage } from 'node:http'
import { setImmediate } from 'node:timers/promises'
import { isGatewayError } from '../errors.ts'
import { JsonGuard } from '../base/json-limits.ts'
import { membersNamed } from '../base/json-members.ts'
import { repeatedKeyInPieces } from '../base/repeated-key.ts'
import { Chunks } from '../core/body-memory.ts'
import { Refusal } from './api/refusal.ts'

/** @throws {Refusal} the body is too large, or no JSON. Undefined: no body. */
export async function readJson (req: IncomingMessage, limit: number): Promise<unknown> {
  const chunks = await readBytes(req, limit)
  return chunks.length === 0 ? undefined : await parseJson(chunks)
}

/** @throws {Refusal} the body is too large, or breaks the limits of JSON */
export async function readBytes (req: IncomingMessage, limit: number): Promise<readonly Buffer[]> {
  const chunks = new Chunks()
  const guard = new JsonGuard()
  let size = 0
  for await (const chunk of req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > limit) {
      throw new Refusal('request_too_large', `The body is larger than ${limit / 1024} KiB. Send a smaller one.`)
    }
    look(guard, chunk)
    chunks.add(chunk)
  }
  return chunks.all()
}

/** Most bytes of a large body without the field that is not parsed. */
const REST = 64 * 1024

/**
 * Parses all but one field, which is {} then.
 * @returns with the bytes of that field
 * @throws {Refusal} it is no JSON, as far as it was read; or all but the field is too large
 */
export async function parseAllBut (
  field: string, chunks: readonly Buffer[]
): Promise<{ readonly body: unknown, readonly cut: Buffer }> {
  const json = Buffer.concat(chunks)
  const [found, again] = await membersNamed(field, json)
  if (again !== undefined) throw twice(field)
  const { start, end } = found ?? { start: json.length, end: json.length }
  if (json.length - (end - start) > REST) {
    throw new Refusal('request_too_large', `Of a large body all but its field ${JSON.stringify(field)} may have ` +
      `${REST / 1024} KiB. Send a smaller one.`)
  }
  return { body: await parseJson([json.subarray(0, start), Buffer.from('{}'), json.subarray(end)]),
    cut: json.subarray(start, end) }
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
  if (piece.value !== undefined) throw twice(piece.value)
  return body
}

function twice (key: string): Refusal {
  return new Refusal('invalid_request',
    `The body has the key ${JSON.stringify(key.slice(0, 80))} twice. Send it once.`)
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
