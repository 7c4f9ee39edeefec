// The dialect `videos` (OpenAI's video tasks): requests to an upstream, and the meaning of its reports. This API is
// also the inner language of videos, so a creation passes as it came, except for the model's name.
import { Model } from '../../../core/facts.ts'
import { isUpload } from '../../../core/image-inputs.ts'
import { version as gatewayVersion } from '../../../base/package.ts'
import type { UpstreamRequest } from '../../../core/plugin.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { isErrorBody } from '../../../core/vendor-error.ts'
import type { DialectModule } from '../dialect.ts'
import { UpstreamErrorBody } from '../error-reply.ts'
import { hasStatus, saysError } from './report.ts'
import { asRecord, isGiven, parseJson } from '../../../base/json.ts'
import { versioned } from '../versioned.ts'

/** Ids go into paths: other characters could name something other than a task, and so could dots alone. */
const ID = /^(?!\.+$)[\w.:=~@+-]{1,500}$/

export const dialect: DialectModule = {
  encode (exchange, attempt, upstream) {
    const { body } = exchange.request
    const reference = body['input_reference']
    const fields: Record<string, unknown> = { model: attempt.model }
    // Fields without a price are not sent.
    for (const name of ['prompt', ...Object.keys(exchange.get(Model).parameters ?? {})]) {
      if (body[name] !== undefined && body[name] !== null) {
        fields[name] = body[name]
      }
    }
    const file = Array.isArray(reference) ? reference.find(isUpload) : undefined
    return {
      method: 'POST',
      path: `${versioned(upstream.basePath)}/videos`,
      headers: { ...headersFor(upstream), 'content-type': 'application/json' },
      body: file !== undefined || !isGiven(reference)
        ? fields
        : { ...fields, input_reference: { image_url: asRecord(reference)['image_url'] } },
      ...(file !== undefined && { files: [{ field: 'input_reference', upload: file }] })
    }
  },

  decodeReply (body) {
    return body
  },

  decodeTask (chunks) {
    const body = parseTask(Buffer.concat(chunks).toString('utf8'))
    const isTask = idIn(body) !== undefined && (hasStatus(body) || !isErrorBody(body))
    if (!isTask && (isErrorBody(body) || saysError(body))) throw new UpstreamErrorBody(body)
    createdId(body)
    return body
  },

  decodeStream () {
    throw new Error('a video is no stream')
  }
}

/** Numbers that JavaScript would round stay texts: ids of 19 digits. @throws {SyntaxError} */
function parseTask (text: string): unknown {
  return parseJson(text, (_name, value: unknown, { source }) =>
    typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value) ? source : value
  )
}

/** Names of the field with a task's id, the surest first: some vendors number their answers in `request_id`. */
const ID_FIELDS = ['id', 'task_id', 'taskId', 'job_id', 'video_id', 'request_id']

/** The upstream's id of a task that it has just accepted. @throws {Error} it is no task */
export function createdId (body: unknown): string {
  const id = idIn(body)
  if (id === undefined) throw new Error('the answer is no video task')
  return id
}

function idIn (body: unknown): string | undefined {
  const around = asRecord(body)
  const places = [around, ...['data', 'output', 'result', 'task'].map((name) => asRecord(around[name]))]
  for (const name of ID_FIELDS) {
    for (const place of places) {
      const id = typeof place[name] === 'number' ? String(place[name]) : place[name]
      if (typeof id === 'string' && ID.test(id)) return id
    }
  }
  return undefined
}

/** A request about a task: its status with GET, its deletion with DELETE. */
export function aboutTask (
  method: 'GET' | 'DELETE',
  upstream: Upstream,
  id: string
): Pick<UpstreamRequest, 'method' | 'path' | 'headers'> & { readonly body: '' } {
  return { method, path: `${versioned(upstream.basePath)}/videos/${id}`, headers: headersFor(upstream), body: '' }
}

export function contentPath (upstream: Upstream, id: string): string {
  return `${versioned(upstream.basePath)}/videos/${id}/content`
}

function headersFor (upstream: Upstream): Record<string, string> {
  return { accept: 'application/json', 'accept-encoding': 'identity', 'user-agent': `model-gateway/${gatewayVersion}`,
    ...upstream.config.headers }
}
