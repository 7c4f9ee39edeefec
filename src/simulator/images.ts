// The dialect `images` (OpenAI's images API): pictures as base64, or as links that this server serves itself.
import { randomBytes } from 'node:crypto'
import { SseEvent } from '../core/sse.ts'
import { isObject, VendorError, type Asked, type Dialect, type Endpoint } from './dialect.ts'
import { withoutDirectives } from './faults.ts'
import { picture } from './picture.ts'

export interface ImagesOptions {
  /** whether images are links by default */
  readonly links: boolean
  readonly now: () => number
}

/** Most pictures behind links that are remembered, the last ones. */
const KEPT = 1000
/** An image takes as long as so many tokens of text. */
const WORK_TOKENS = 50

/** A dialect remembers pictures: make one per simulator. */
export function imagesDialect ({ links, now }: ImagesOptions): Dialect {
  const pictures = new Map<string, Buffer>()

  const generate: Endpoint = {
    keepsBody: true,
    prompt: (body) => isObject(body) ? String(body['prompt'] ?? '') : '',
    answer (asked) {
      checkKey(asked)
      const { faults, headers } = asked
      const body = isObject(asked.body) ? asked.body : {}
      const { model, prompt } = body
      if (typeof model !== 'string') throw new VendorError(400, 'you must provide a model parameter')
      if (typeof prompt !== 'string' || prompt === '') {
        throw new VendorError(400, 'Missing required parameter: \'prompt\'.')
      }
      // As the vendor's own models: they answer base64 always, and know no such field.
      if (body['response_format'] !== undefined) throw new VendorError(400, 'Unknown parameter: \'response_format\'.')
      const count = Number(body['n'] ?? 1)
      if (!Number.isInteger(count) || count < 1 || count > 10) {
        throw new VendorError(400, `Invalid 'n': expected a number from 1 to 10, but got ${count} instead.`)
      }
      if (asked.path.endsWith('/edits') && imagesOf(body).length === 0) {
        throw new VendorError(400, 'Missing required parameter: \'image\'.')
      }
      if (faults.content_policy === true) {
        throw new VendorError(400, 'Your request was rejected as a result of our safety system.')
      }
      const made = faults.empty === true ? 0 : faults.images ?? count
      const data = Array.from({ length: made }, (_, i) => {
        const bytes = faults.not_an_image === true
          ? Buffer.from('<html>this is no image</html>')
          : picture(`${withoutDirectives(prompt)} ${i}`, faults.image_bytes)
        if (faults.link_to !== undefined) return { url: decodeURIComponent(faults.link_to) }
        if (!links && faults.links !== true) return { b64_json: bytes.toString('base64') }
        return { url: `http://${headers.host ?? ''}/images/${keep(bytes)}` }
      })
      return { kind: 'json', status: 200,
        body: { created: Math.floor(now() / 1000), data,
          usage: { input_tokens: 10, output_tokens: 100 * made, total_tokens: 10 + 100 * made } }, tokens: WORK_TOKENS }
    }
  }

  const serve: Endpoint = {
    keepsBody: false,
    prompt: () => '',
    answer ({ path, headers }) {
      const bytes = pictures.get(path.slice('/images/'.length))
      if (bytes === undefined) throw new VendorError(404, 'The specified blob does not exist.')
      return {
        kind: 'file',
        type: 'image/png',
        size: bytes.length,
        etag: `"${path.slice(-16)}"`,
        range: headers.range,
        ifRange: headers['if-range'] as string | undefined,
        cutAfter: undefined,
        read: (at, length) => bytes.subarray(at, at + length)
      }
    }
  }

  function keep (bytes: Buffer): string {
    const name = `${randomBytes(16).toString('hex')}.png`
    pictures.set(name, bytes)
    if (pictures.size > KEPT) pictures.delete(pictures.keys().next().value!)
    return name
  }

  return {
    name: 'images',
    endpoints: { 'POST /v1/images/generations': generate, 'POST /v1/images/edits': generate },
    find: (method, path) => (method === 'GET' || method === 'HEAD') && path.startsWith('/images/') ? serve : undefined,
    errorBody: ({ status, message }) => ({
      error: { message, type: status < 500 ? 'invalid_request_error' : 'server_error', param: null,
        code: /safety system/.test(message) ? 'moderation_blocked' : null }
    }),
    errorEvent: (type) => ({ event: SseEvent.of('error', { error: { type } }) }),
    brokenEvent: () => ({ event: new SseEvent('', '{"created":') }),
    unknownEvent: () => ({ event: SseEvent.of('future_event', {}) })
  }
}

/** @throws {VendorError} */
function checkKey ({ headers }: Asked): void {
  if (headers['authorization'] === undefined && headers['x-api-key'] === undefined) {
    throw new VendorError(401, 'You didn\'t provide an API key.')
  }
}

function imagesOf (body: Readonly<Record<string, unknown>>): readonly unknown[] {
  return [body['image'], body['image[]'], body['images']].flat().filter((one) => one !== undefined && one !== null)
}
