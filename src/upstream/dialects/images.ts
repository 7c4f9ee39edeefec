// The dialect `images` (OpenAI's images API, protocol.md D): the inner language of images itself. Fields that nobody has priced
// do not travel, and how the images come back is the gateway's affair: it makes links of base64, and base64 of links.
import { Blobs } from '../../blobs.ts'
import type { Exchange } from '../../exchange.ts'
import { Model, Variant } from '../../facts.ts'
import { checkRoom, deliverImages, type MadeImage } from '../../images/deliver.ts'
import { isUpload, readInputs, type Inputs } from '../../images/inputs.ts'
import { JsonGuard } from '../../json-guard.ts'
import type { FormFile, UpstreamRequest } from '../../plugin.ts'
import { ownHeaders } from '../headers.ts'
import type { Upstream } from '../upstream.ts'
import type { DialectModule } from './index.ts'
import { versioned } from './versioned.ts'
import { isRecord } from '../../json-value.ts'

/** What travels beside the model's parameters. Not `response_format`: the vendor's own models refuse it, and answer base64 always. */
const FIELDS = ['prompt', 'n', 'size', 'background', 'output_format', 'output_compression', 'moderation', 'style', 'user', 'safety_identifier', 'negative_prompt', 'seed'] as const

/** Of an answer, beside `data`. */
const TOLD = ['background', 'output_format', 'quality', 'size', 'usage'] as const

export const images: DialectModule = {
  // ten images of the largest kind, in base64
  replyLimit: 160 * 1024 * 1024,

  encode (exchange, attempt, upstream) {
    checkRoom(countOf(exchange), exchange)
    const { body } = exchange.request
    const parameters = Object.keys(exchange.get(Model).parameters ?? {})
    const fields: Record<string, unknown> = { model: attempt.model }
    for (const name of [...FIELDS, ...parameters]) if (body[name] !== undefined && body[name] !== null) fields[name] = body[name]
    if (!isEdit(exchange)) return request('/images/generations', fields, upstream)
    const inputs = readInputs(body)
    // All of a request are of the same sort.
    if (!inputs.images.every(isUpload)) return request('/images/edits', { ...fields, images: inputs.images, ...Object.fromEntries(inputs.marks) }, upstream)
    return { ...request('/images/edits', fields, upstream), files: filesOf(inputs) }
  },

  decodeReply (body) {
    return body
  },

  async readReply (chunks, exchange, attempt, upstream) {
    const blobs = new Blobs()
    const answer = parse(chunks, blobs)
    const made = madeImages(answer).slice(0, countOf(exchange))
    if (made.length === 0) return undefined
    const data = await deliverImages(made, blobs, exchange, upstream)
    if (data.length === 0) throw new Error('none of the images could be delivered')
    const told = Object.fromEntries(TOLD.flatMap((name) => answer[name] === undefined ? [] : [[name, answer[name]]]))
    return { created: Math.floor(exchange.snapshot.services.now() / 1000), data, ...told, ...settingsOf(exchange), channel: attempt.channel }
  },

  decodeStream () {
    throw new Error('an image is no stream')
  }
}

/** How many images a request asks for. */
export function countOf (exchange: Exchange): number {
  const { n } = exchange.request.body
  return typeof n === 'number' ? n : 1
}

function isEdit ({ route }: Exchange): boolean {
  return route.endpoint.kind === 'model' && route.endpoint.schema === 'images-edits'
}

function request (path: string, fields: Readonly<Record<string, unknown>>, upstream: Upstream): UpstreamRequest {
  return {
    method: 'POST',
    path: versioned(upstream.basePath) + path,
    headers: { ...ownHeaders(false), ...upstream.config.headers },
    body: fields
  }
}

/** As official SDKs spell it: one file is `image`, several are `image[]`. */
function filesOf ({ images: inputs, marks }: Inputs): readonly FormFile[] {
  const field = inputs.length === 1 ? 'image' : 'image[]'
  return [...inputs.map((input) => [field, input] as const), ...marks].flatMap(([name, input]) => isUpload(input) ? [{ field: name, upload: input }] : [])
}

/** Megabytes of base64 stay the bytes that came. @throws {Error} not JSON, or no answer of this API */
function parse (chunks: readonly Buffer[], blobs: Blobs): Readonly<Record<string, unknown>> {
  const guard = new JsonGuard()
  try {
    for (const chunk of chunks) guard.push(chunk)
  } catch (cause) {
    throw new Error('the answer is nested too deeply, or has too many values', { cause })      // the guard's own error is for clients
  }
  const text = guard.longStrings.length > 0 ? blobs.lift(chunks, guard.longStrings) : Buffer.concat(chunks)
  const answer: unknown = JSON.parse(text.toString('utf8'))
  if (!isRecord(answer) || !Array.isArray(answer['data'])) throw new Error('the answer holds no list of images')
  return answer
}

/** What is neither link nor base64 is no image, and nobody is charged for it. */
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

/** What the images were made with, where the client may have left it to the defaults. */
function settingsOf (exchange: Exchange): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries(exchange.find(Variant) ?? {}).filter(([name]) => name === 'size' || name === 'quality'))
}
