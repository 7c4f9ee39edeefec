// The body of a request to an upstream: JSON, or a form with files. Made anew for each attempt, from the same files.
import { randomBytes } from 'node:crypto'
import { modalities } from '../../config/sections/modalities.ts'
import type { BodyPieces } from '../../core/body-memory.ts'
import { bodyStep } from '../../core/body-step.ts'
import type { Exchange } from '../../core/exchange.ts'
import type { Attempt } from '../../core/facts.ts'
import type { FormFile, UpstreamRequest } from '../../core/plugin.ts'
import type { Upstream } from '../../core/upstream.ts'
import { inputEstimate } from '../../tokens/bound.ts'
import type { CallRequest } from './call.ts'
import type { EarlierCalls } from '../dialects/call-ids.ts'
import { dialectOf } from '../dialects/index.ts'
import { textOf } from '../dialects/passed-body.ts'
import { earlierCalls } from '../dialects/earlier-calls.ts'

export function encodeRequest (request: UpstreamRequest, exchange: Exchange): CallRequest {
  const { method, path, headers, files } = request
  const { endpoint } = exchange.route
  const once = endpoint.kind === 'model' && modalities[endpoint.modality].item !== undefined
  if (request instanceof EncodedRequest) return { method, path, headers, body: request, once }
  if (files === undefined) return { method, path, headers, body: exchange.blobs.join(textOf(request)), once }
  return encodeForm(request, files, once)
}

function encodeForm (
  { method, path, headers, body }: UpstreamRequest, files: readonly FormFile[], once: boolean
): CallRequest {
  const boundary = `----model-gateway-${randomBytes(18).toString('hex')}`
  const parts = [...Object.entries(body).flatMap(([name, value]) => fieldParts(name, value, boundary)),
    ...files.map((file) => filePart(file, boundary))]
  const end = Buffer.from(`--${boundary}--\r\n`)
  return {
    method,
    path,
    once,
    headers: { ...headers, 'content-type': `multipart/form-data; boundary=${boundary}` },
    body: {
      length: parts.reduce((sum, { head, size }) => sum + head.length + size + CRLF.length, end.length),
      async * [Symbol.asyncIterator] () {
        for (const { head, read } of parts) {
          yield head
          yield * read()
          yield CRLF
        }
        yield end
      }
    }
  }
}

/** Its name: after it a thread needs the body no longer, unless another attempt is made. */
export const ENCODE = 'encode'

export interface Encoded extends Pick<CallRequest, 'path' | 'headers'> {
  /** memory of its own: that of the body may be used again while an upstream still takes its last bytes */
  readonly bytes: Uint8Array
  readonly inputEstimate: number
  readonly earlierCalls: EarlierCalls
}

/**
 * The request to an upstream from a body that a thread has: whole, since no hook of a plugin may see it.
 * @throws {GatewayError} the client's request can't be expressed in this dialect
 */
export const encodeLarge = bodyStep(ENCODE, (
  exchange, attempt: Attempt, upstream: Upstream, purpose: 'answer' | 'count'
): Encoded => {
  const dialect = dialectOf(upstream)
  const request = (purpose === 'answer' ? dialect : dialect.countTokens!).encode(exchange, attempt, upstream)
  const body = exchange.blobs.join(textOf(request))
  return { path: request.path, headers: request.headers, inputEstimate: inputEstimate(exchange),
    earlierCalls: earlierCalls(exchange),
    bytes: typeof body === 'string' ? Buffer.from(body) : Buffer.concat(body.pieces) }
}, { isRead: true })

/** A body is written in pieces of so many bytes, between which other events pass. */
const PIECE_BYTES = 256 * 1024

/** The request of a large body, printed. */
export class EncodedRequest implements UpstreamRequest, BodyPieces {
  readonly method = 'POST'
  path: string
  readonly headers: Record<string, string>
  readonly pieces: readonly Buffer[]
  readonly memory = undefined

  constructor ({ path, headers, bytes: { buffer, byteOffset, byteLength } }: Encoded) {
    this.path = path
    this.headers = { ...headers }
    this.pieces = Array.from({ length: Math.ceil(byteLength / PIECE_BYTES) }, (_, i) =>
      Buffer.from(buffer, byteOffset + i * PIECE_BYTES, Math.min(PIECE_BYTES, byteLength - i * PIECE_BYTES)))
  }

  get body (): never {
    throw new Error('the body of a large request was read after it was printed')
  }

  set body (_body: Readonly<Record<string, unknown>>) {
    throw new Error('the body of a large request was replaced after it was printed')
  }
}

const CRLF = Buffer.from('\r\n')

interface Part {
  readonly head: Buffer
  /** bytes behind the head */
  readonly size: number
  read (): Iterable<Buffer> | AsyncIterable<Buffer>
}

function fieldParts (name: string, value: unknown, boundary: string): Part[] {
  if (value === undefined || value === null) return []
  if (Array.isArray(value)) return value.flatMap((one) => fieldParts(`${name}[]`, one, boundary))
  const bytes = Buffer.from(typeof value === 'object' ? JSON.stringify(value) : String(value))
  return [{ head: Buffer.from(`--${boundary}\r\nContent-Disposition: form-data; name="${escape(name)}"\r\n\r\n`),
    size: bytes.length, read: () => [bytes] }]
}

function filePart ({ field, upload }: FormFile, boundary: string): Part {
  const type = /^[\w.+-]{1,60}\/[\w.+-]{1,60}$/.test(upload.type) ? upload.type : 'application/octet-stream'
  return {
    head: Buffer.from(
      `--${boundary}\r\n` +
      `Content-Disposition: form-data; name="${escape(field)}"; filename="${escape(upload.name)}"\r\n` +
      `Content-Type: ${type}\r\n\r\n`
    ),
    size: upload.size,
    read: () => upload.read()
  }
}

/** As browsers do (HTML standard, multipart/form-data): a name can't end its line or its quotes. */
function escape (name: string): string {
  return name.replace(/[\r\n"]/g, (character) => ({ '\r': '%0D', '\n': '%0A', '"': '%22' })[character]!)
}
