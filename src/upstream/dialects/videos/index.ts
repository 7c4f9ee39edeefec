// The dialect `videos` (OpenAI's video tasks): requests to an upstream, and the meaning of its reports. This API is
// also the inner language of videos, so a creation passes as it came, except for the model's name.
import { Model } from '../../../core/facts.ts'
import { isUpload } from '../../../core/image-inputs.ts'
import { version as gatewayVersion } from '../../../base/package.ts'
import type { UpstreamRequest } from '../../../core/plugin.ts'
import { errorOf, type TaskReport } from '../../../core/task-report.ts'
import type { Upstream } from '../../../core/upstream.ts'
import type { DialectModule } from '../dialect.ts'
import { noAnswer } from '../error-reply.ts'
import { asRecord, isGiven, parseJson } from '../../../base/json.ts'
import { versioned } from '../versioned.ts'

/** Ids go into paths: other characters could name something other than a task. */
const ID = /^[\w-]{1,200}$/

/**
 * Statuses as vendors write them. Those of an end that was not asked for are failures; an unknown one counts as no
 * report.
 */
const STATUSES: Readonly<Record<string, TaskReport['status']>> = {
  queued: 'queued', pending: 'queued', submitted: 'queued',
  in_progress: 'in_progress', processing: 'in_progress', running: 'in_progress',
  completed: 'completed', succeeded: 'completed',
  failed: 'failed', cancelled: 'failed', canceled: 'failed', expired: 'failed', rejected: 'failed'
}

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
    const body = parseJson(Buffer.concat(chunks).toString('utf8'))
    createdId(body)
    return body
  },

  decodeStream () {
    throw new Error('a video is no stream')
  }
}

/** The upstream's id of a task that it has just accepted. @throws {Error} it is no task, or one that failed at once */
export function createdId (body: unknown): string {
  const { id } = asRecord(body)
  if (typeof id !== 'string' || !ID.test(id)) throw noAnswer(body, 'the answer is no video task')
  return id
}

/** @throws {Error} it is no task */
export function readReport (body: unknown): TaskReport {
  const { id, status, progress, expires_at: expires, error } = asRecord(body)
  if (typeof id !== 'string' || typeof status !== 'string') throw new Error('the answer is no video task')
  const known = Object.hasOwn(STATUSES, status) ? STATUSES[status]! : 'unheard'
  return {
    status: known,
    progress: typeof progress === 'number' && progress >= 0 ? progress : 0,
    ...(typeof expires === 'number' && expires > 0 && { expires: expires * 1000 }),
    ...(known === 'failed' && { error: errorOf(error) })
  }
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
