// Two endpoints outside the dialects of text: targets of forward routes that show what arrives.
import { createHash } from 'node:crypto'
import { SseEvent } from '../core/sse.ts'
import { isObject, VendorError, type Dialect, type Endpoint } from './dialect.ts'
import { withoutDirectives } from './faults.ts'
import { countTokens } from './tokens.ts'

const dimensions = 8

const embeddings: Endpoint = {
  keepsBody: true,
  prompt: (body) => isObject(body) ? inputsOf(body['input']).join('\n') : '',
  answer ({ headers, body }) {
    if (headers['authorization'] === undefined && headers['x-api-key'] === undefined) {
      throw new VendorError(401, 'You didn\'t provide an API key.')
    }
    if (!isObject(body) || typeof body['model'] !== 'string') {
      throw new VendorError(400, 'you must provide a model parameter')
    }
    const inputs = inputsOf(body['input'])
    if (inputs.length === 0) {
      throw new VendorError(400, '\'input\' must be a string or a list of strings, and not empty')
    }
    const tokens = inputs.reduce((sum, input) => sum + countTokens(input), 0)
    const usage = { prompt_tokens: tokens, total_tokens: tokens }
    const data = inputs.map((input, index) => ({
      object: 'embedding',
      index,
      embedding: vectorOf(withoutDirectives(input))
    }))
    return { kind: 'json', status: 200, body: { object: 'list', data, model: body['model'], usage }, usage }
  }
}

/** Reports what arrived. The body may be of any size: it is counted and hashed as it comes. */
const echo: Endpoint = {
  keepsBody: false,
  prompt: () => '',
  answer: ({ method, path, query, headers, bodyBytes, bodySha256 }) => ({
    kind: 'json',
    status: 200,
    body: { method, path, query, headers, body: { bytes: bodyBytes, sha256: bodySha256 } }
  })
}

export const plainDialect: Dialect = {
  name: 'plain',
  endpoints: { 'POST /v1/embeddings': embeddings, '* /v1/echo': echo },
  errorBody: ({ message }) => ({ error: { message, type: 'invalid_request_error', param: null, code: null } }),
  errorEvent: (type) => ({ event: SseEvent.of('error', { error: { type } }) }),
  brokenEvent: () => ({ event: new SseEvent('', '{"object":"li') }),
  unknownEvent: () => ({ event: SseEvent.of('future_event', {}) })
}

function inputsOf (input: unknown): string[] {
  if (typeof input === 'string') return input === '' ? [] : [input]
  return Array.isArray(input) && input.every((one) => typeof one === 'string') ? input : []
}

/** A unit vector; the same text gives the same one. */
function vectorOf (text: string): number[] {
  const bytes = createHash('sha256').update(text).digest().subarray(0, dimensions)
  const numbers = Array.from(bytes, (byte) => byte - 127.5)
  const length = Math.hypot(...numbers)
  return numbers.map((number) => number / length)
}
