// The body of a request to an upstream: JSON, or a form with files. Made anew for each attempt, from the same files.
import { randomBytes } from 'node:crypto'
import { modalities } from '../../config/sections/modalities.ts'
import type { Exchange } from '../../core/exchange.ts'
import type { FormFile, UpstreamRequest } from '../../core/plugin.ts'
import type { CallRequest } from './call.ts'
import { textOf } from '../dialects/passed-body.ts'

export function encodeRequest (request: UpstreamRequest, exchange: Exchange): CallRequest {
  const { method, path, headers, files } = request
  const { endpoint } = exchange.route
  const once = endpoint.kind === 'model' && modalities[endpoint.modality].item !== undefined
  if (files === undefined) return { method, path, headers, body: exchange.blobs.join(textOf(request)), once }
  const boundary = `----model-gateway-${randomBytes(18).toString('hex')}`
  const parts = [...Object.entries(request.body).flatMap(([name, value]) => fieldParts(name, value, boundary)),
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
