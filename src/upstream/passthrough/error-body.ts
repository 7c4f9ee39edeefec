// Reads an upstream's error on a forward route, whose other answers are passed on unread.
import type { IncomingMessage } from 'node:http'
import { pipeline, type Transform } from 'node:stream'
import { codingOf, createDecoder } from '../transport/inflate.ts'

/** Most bytes kept of an error's body. */
const ERROR_LIMIT = 64 * 1024

/** The beginning of the body, decoded where the client has asked for it compressed. Never rejects. */
export async function readError (response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  let size = 0
  try {
    for await (const chunk of decoded(response)) {
      chunks.push(chunk)
      size += chunk.length
      if (size >= ERROR_LIMIT) break
    }
  } catch {
    // The status alone is enough.
  }
  return Buffer.concat(chunks).toString('utf8')
}

async function * decoded (response: IncomingMessage): AsyncIterable<Buffer> {
  const coding = codingOf(response.headers['content-encoding'])
  let decoder: Transform | undefined
  for await (const chunk of response.iterator({ destroyOnReturn: coding === undefined }) as AsyncIterable<Buffer>) {
    if (coding === undefined) { yield chunk; continue }
    decoder = createDecoder(coding, chunk)
    response.unshift(chunk)
    break
  }
  // The end may be missing: the bytes received are decoded all the same.
  if (decoder !== undefined) yield * pipeline(response, decoder, () => {})
}
