// One parse of a body that has arrived; its long strings of base64 stay bytes.
import { parseJson } from '../base/json.ts'
import { isUtf8 } from 'node:buffer'
import type { ReceivedBody } from '../core/body-step.ts'
import type { Body } from '../core/facts.ts'
import type { Base64, Blobs } from '../core/large-strings.ts'
import { GatewayError } from '../errors.ts'

/**
 * @param pieces the body in order
 * @param base64 of `base64In`, which `blobs` take
 * @throws {GatewayError} bad_request
 */
export function parseBody (pieces: readonly Buffer[], base64: readonly Base64[], blobs: Blobs): Body {
  return parse(base64.length > 0 ? blobs.lift(pieces, base64)
    : pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces))
}

/** The same of a large body. @throws {GatewayError} bad_request */
export function parseReceived (
  { pieces, base64, field }: Pick<ReceivedBody, 'pieces' | 'base64' | 'field'>,
  blobs: Blobs
): Body {
  const body = parseBody(pieces, base64, blobs)
  return field === undefined ? body : body[field] as Body
}

/** @throws {GatewayError} bad_request */
function parse (bytes: Buffer): Body {
  if (bytes.length === 0) {
    throw new GatewayError('bad_request', { message: 'The request body is empty. Send a JSON object.' })
  }
  if (!isUtf8(bytes)) throw new GatewayError('bad_request', { message: 'The request body is not valid UTF-8.' })
  let value: unknown
  try {
    value = parseJson(bytes.toString('utf8'))
  } catch (cause) {
    // V8's message quotes a piece of the text; the position is enough to find it, and reveals nothing of a prompt.
    const position = /at position \d+(?: \(line \d+ column \d+\))?/.exec((cause as Error).message)
    throw new GatewayError('bad_request', {
      message: `The request body is not valid JSON${position === null ? '' : ` ${position[0]}`}.`,
      cause: position?.[0]
    })
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new GatewayError('bad_request', {
      message: 'The request body is JSON, but not an object. Send an object: {"model": …}.'
    })
  }
  return value as Body
}
