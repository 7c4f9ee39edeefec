// The dialect `images` (OpenAI's images API), which is also the inner language of images. Fields without a price are
// not sent, and the form of the images is the gateway's choice: it makes links of base64, and base64 of links.
import { base64In, Blobs } from '../../../core/large-strings.ts'
import type { Exchange } from '../../../core/exchange.ts'
import { Model } from '../../../core/facts.ts'
import { countOf, type MadeImage } from '../../../core/made-images.ts'
import { isUpload, readInputs, type Inputs } from '../../../core/image-inputs.ts'
import { JsonGuard } from '../../../base/json-limits.ts'
import type { FormFile, UpstreamRequest } from '../../../core/plugin.ts'
import { requestHeaders } from '../../transport/headers.ts'
import type { Upstream } from '../../../core/upstream.ts'
import type { DialectModule } from '../dialect.ts'
import { noAnswer } from '../error-reply.ts'
import { versioned } from '../versioned.ts'
import { isRecord, parseJson } from '../../../base/json.ts'

/**
 * Fields sent beside the model's parameters. Not `response_format`: the vendor's own models refuse it, and always
 * answer base64.
 */
const FIELDS = ['prompt', 'n', 'size', 'background', 'output_format', 'output_compression', 'moderation', 'style',
  'user', 'safety_identifier', 'negative_prompt', 'seed'] as const

/** Fields of an answer that are passed on beside `data`. */
const TOLD = ['background', 'output_format', 'quality', 'size', 'usage'] as const

export const dialect: DialectModule = {
  // ten images of the largest kind, in base64
  replyLimit: 160 * 1024 * 1024,

  encode (exchange, attempt, upstream) {
    const { body } = exchange.request
    const parameters = Object.keys(exchange.get(Model).parameters ?? {})
    const fields: Record<string, unknown> = { model: attempt.model }
    for (const name of [...FIELDS, ...parameters]) {
      if (body[name] !== undefined && body[name] !== null) fields[name] = body[name]
    }
    if (!isEdit(exchange)) return request('/images/generations', fields, upstream)
    const inputs = readInputs(body)
    // The images of a request are all uploads or all links.
    if (!inputs.images.every(isUpload)) {
      return request('/images/edits', { ...fields, images: inputs.images, ...Object.fromEntries(inputs.marks) },
        upstream)
    }
    return { ...request('/images/edits', fields, upstream), files: filesOf(inputs) }
  },

  decodeReply (body) {
    return body
  },

  decodeImages (chunks, exchange) {
    const blobs = new Blobs()
    const answer = parse(chunks, blobs)
    const told = Object.fromEntries(TOLD.flatMap((name) => answer[name] === undefined ? [] : [[name, answer[name]]]))
    return { images: madeImages(answer).slice(0, countOf(exchange)), blobs, told }
  },

  decodeStream () {
    throw new Error('an image is no stream')
  }
}

function isEdit ({ route }: Exchange): boolean {
  return route.endpoint.kind === 'model' && route.endpoint.schema === 'images-edits'
}

function request (path: string, fields: Readonly<Record<string, unknown>>, upstream: Upstream): UpstreamRequest {
  return {
    method: 'POST',
    path: versioned(upstream.basePath) + path,
    headers: requestHeaders(upstream, false),
    body: fields
  }
}

/** Form fields as official SDKs name them: one file is `image`, several are `image[]`. */
function filesOf ({ images: inputs, marks }: Inputs): readonly FormFile[] {
  const field = inputs.length === 1 ? 'image' : 'image[]'
  return [...inputs.map((input) => [field, input] as const), ...marks].flatMap(([name, input]) =>
    isUpload(input) ? [{ field: name, upload: input }] : []
  )
}

/**
 * Parses an answer; megabytes of base64 stay the bytes that came. @throws {Error} not JSON, or no answer of this API
 */
function parse (chunks: readonly Buffer[], blobs: Blobs): Readonly<Record<string, unknown>> {
  const guard = new JsonGuard()
  try {
    for (const chunk of chunks) guard.push(chunk)
  } catch (cause) {
    // the guard's own error is for clients
    throw new Error('the answer is nested too deeply, or has too many values', { cause })
  }
  const base64 = base64In(chunks, guard.longStrings)
  const text = base64.length > 0 ? blobs.lift(chunks, base64) : Buffer.concat(chunks)
  const answer: unknown = parseJson(text.toString('utf8'))
  if (!isRecord(answer) || !Array.isArray(answer['data'])) throw noAnswer(answer, 'the answer holds no list of images')
  return answer
}

/** The images of an answer. An item that is neither link nor base64 is no image, and is not charged. */
function madeImages ({ data }: Readonly<Record<string, unknown>>): readonly MadeImage[] {
  return (data as readonly unknown[]).flatMap((item): MadeImage[] => {
    if (!isRecord(item)) return []
    const { url, b64_json: base64, revised_prompt: prompt } = item
    const told = typeof prompt === 'string' ? { revised_prompt: prompt } : {}
    if (typeof base64 === 'string' && base64 !== '') return [{ base64, ...told }]
    if (typeof url !== 'string' || url === '') return []
    return [/^data:/i.test(url) ? { base64: url, ...told } : { url, ...told }]
  })
}
