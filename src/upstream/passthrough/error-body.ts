// What an upstream says of an error, of an answer that is else passed on unread.
import type { IncomingMessage } from 'node:http'
import { pipeline, type Transform } from 'node:stream'
import { codingOf, createDecoder } from '../transport/inflate.ts'

/** Bytes kept of an error's body. */
const ERROR_LIMIT = 64 * 1024

/** As much of an answer as is worth keeping, decoded where its client has asked for it compressed. Never rejects. */
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
    // The status alone says enough.
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
  // Its end may be missing: what came is read all the same.
  if (decoder !== undefined) yield * pipeline(response, decoder, () => {})
}
