// The dialect `videos` (OpenAI's video tasks): POST answers at once, the task is done after a while, and its file can
// be of any size, because nobody has it in memory: each of its bytes follows from where it stands.
import { randomBytes } from 'node:crypto'
import { SseEvent } from '../core/sse.ts'
import { isObject, VendorError, type Answer, type Asked, type Dialect, type Endpoint } from './dialect.ts'
import { withoutDirectives, type Faults } from './faults.ts'

export interface VideosOptions {
  /** milliseconds since the epoch: how far a task is follows from it */
  readonly now: () => number
  /** milliseconds from the creation of a task to its end */
  readonly videoMs: number
  /** of a finished file */
  readonly videoBytes: number
}

interface Task {
  readonly id: string
  readonly model: string
  readonly prompt: string
  readonly seconds: string
  readonly size: string
  readonly created: number
  /** milliseconds until it is done */
  readonly takes: number
  /** what was told when it was made, and holds for the requests about it too */
  readonly faults: Faults
  readonly remixOf: string | null
  /** requests for its status so far */
  asked: number
}

/** So many tasks are remembered, the last ones. */
const KEPT = 10_000
/** How long a file can be had, in milliseconds; the vendor says an hour. */
const FILE_LIFE_MS = 3_600_000
const SECONDS = ['4', '8', '12']
const SIZES = ['720x1280', '1280x720', '1024x1792', '1792x1024']

/** A dialect remembers tasks: make one per simulator. */
export function videosDialect ({ now, videoMs, videoBytes }: VideosOptions): Dialect {
  const tasks = new Map<string, Task>()

  const create: Endpoint = {
    keepsBody: true,
    prompt: (body) => isObject(body) ? String(body['prompt'] ?? '') : '',
    answer (asked) {
      checkKey(asked)
      const { model, prompt, seconds = SECONDS[0], size = SIZES[0] } = asBody(asked)
      if (typeof prompt !== 'string' || prompt === '') {
        throw new VendorError(400, 'Missing required parameter: \'prompt\'.')
      }
      if (typeof model !== 'string') throw new VendorError(400, 'Missing required parameter: \'model\'.')
      // As the vendor: a text, not a number.
      if (typeof seconds !== 'string' || !SECONDS.includes(seconds)) {
        throw new VendorError(
          400,
          `Invalid value: ${JSON.stringify(seconds)}. Supported values are: ` +
          `${SECONDS.map((one) => `'${one}'`).join(', ')}.`
        )
      }
      if (typeof size !== 'string' || !SIZES.includes(size)) {
        throw new VendorError(
          400,
          `Invalid value: ${JSON.stringify(size)}. Supported values are: ${SIZES.map((one) => `'${one}'`).join(', ')}.`
        )
      }
      if (asked.faults.content_policy === true) {
        throw new VendorError(400, 'Your request was blocked by our moderation system.')
      }
      return json(shown(begin({ model, prompt, seconds, size, faults: asked.faults, remixOf: null })))
    }
  }

  const remix: Endpoint = {
    ...create,
    answer (asked) {
      checkKey(asked)
      const { model, seconds, size, id } = find(asked)
      const { prompt } = asBody(asked)
      if (typeof prompt !== 'string' || prompt === '') {
        throw new VendorError(400, 'Missing required parameter: \'prompt\'.')
      }
      return json(shown(begin({ model, prompt, seconds, size, faults: asked.faults, remixOf: id })))
    }
  }

  const retrieve = about((task) => {
    task.asked++
    const { poll_status: status, poll_errors: errors } = task.faults
    if (status !== undefined && task.asked <= (errors ?? Infinity)) {
      throw new VendorError(status, 'The server had an error while processing your request.')
    }
    return json(shown(task))
  })

  const list = plain((asked) => {
    const query = new URLSearchParams(asked.query)
    const all = [...tasks.values()].filter((task) => !isGone(task)).toReversed()
    const after = query.get('after')
    const from = after === null ? 0 : all.findIndex(({ id }) => id === after) + 1
    const limit = Number(query.get('limit') ?? 20)
    const page = all.slice(from, from + limit)
    return json({ object: 'list', data: page.map(shown), first_id: page[0]?.id ?? null,
      last_id: page.at(-1)?.id ?? null, has_more: all.length > from + limit })
  })

  const remove = about((task) => {
    if (statusOf(task) === 'queued' || statusOf(task) === 'in_progress') {
      throw new VendorError(400, 'A video that is in progress cannot be deleted.')
    }
    tasks.delete(task.id)
    return json({ id: task.id, object: 'video.deleted', deleted: true })
  })

  const content = about((task, { query, headers, faults }) => {
    if (statusOf(task) !== 'completed') {
      throw new VendorError(400, 'Video is not ready yet, use GET /v1/videos/{video_id} to check status.')
    }
    if (task.faults.file_expired === true || now() >= endOf(task) + FILE_LIFE_MS) {
      throw new VendorError(404, `Video ${task.id} has expired.`)
    }
    const variant = new URLSearchParams(query).get('variant') ?? 'video'
    const isVideo = variant === 'video'
    return {
      kind: 'file',
      type: isVideo ? task.faults.file_type ?? 'video/mp4' : variant === 'thumbnail' ? 'image/webp' : 'image/jpeg',
      size: isVideo ? task.faults.file_bytes ?? videoBytes : 1024,
      etag: `"${task.id}-${variant}"`,
      range: headers.range,
      ifRange: headers['if-range'] as string | undefined,
      cutAfter: faults.file_cut ?? task.faults.file_cut,
      read: (at, length) => bytesOf(task.id, at, length)
    }
  })

  function begin (told: Pick<Task, 'model' | 'prompt' | 'seconds' | 'size' | 'faults' | 'remixOf'>): Task {
    const task: Task = { id: `video_${randomBytes(16).toString('hex')}`, created: now(),
      takes: told.faults.task_time ?? videoMs, asked: 0, ...told }
    tasks.set(task.id, task)
    if (tasks.size > KEPT) tasks.delete(tasks.keys().next().value!)
    return task
  }

  /** @throws {VendorError} */
  function find ({ path }: Asked): Task {
    const id = path.split('/')[3]!
    const task = tasks.get(id)
    if (task === undefined || isGone(task)) throw new VendorError(404, `Video with id '${id}' not found.`)
    return task
  }

  function isGone ({ faults, asked }: Task): boolean {
    return faults.task_vanishes !== undefined && asked >= faults.task_vanishes
  }

  function endOf ({ created, takes }: Task): number {
    return created + takes
  }

  function statusOf (task: Task): string {
    const { created, takes, faults } = task
    if (now() >= created + takes && faults.task_stalls !== true) {
      return faults.task_fails === true
        ? 'failed'
        : faults.task_status ?? 'completed'
    }
    return now() < created + takes / 10 ? 'queued' : 'in_progress'
  }

  function shown (task: Task): Readonly<Record<string, unknown>> {
    const status = statusOf(task)
    const end = Math.floor(endOf(task) / 1000)
    const part = (now() - task.created) / task.takes
    return {
      id: task.id,
      object: 'video',
      model: task.model,
      status,
      progress: status === 'completed' ? 100 : status === 'queued' ? 0 : Math.min(99, Math.floor(part * 100)),
      created_at: Math.floor(task.created / 1000),
      completed_at: status === 'completed' ? end : null,
      expires_at: status === 'completed' ? end + FILE_LIFE_MS / 1000 : null,
      prompt: withoutDirectives(task.prompt),
      size: task.size,
      seconds: task.seconds,
      remixed_from_video_id: task.remixOf,
      error: status === 'failed'
        ? { code: 'video_generation_failed', message: 'The video could not be generated.' }
        : null
    }
  }

  /** An endpoint that reads no body. Directives come with the query, or came with the prompt. */
  function plain (answer: (asked: Asked) => Answer): Endpoint {
    return { keepsBody: false, prompt: () => '', answer (asked) { checkKey(asked); return answer(asked) } }
  }

  function about (answer: (task: Task, asked: Asked) => Answer): Endpoint {
    return plain((asked) => answer(find(asked), asked))
  }

  const below: readonly (readonly [pattern: RegExp, endpoint: Endpoint])[] = [
    [/^GET \/v1\/videos\/[^/]+$/, retrieve],
    [/^DELETE \/v1\/videos\/[^/]+$/, remove],
    [/^(?:GET|HEAD) \/v1\/videos\/[^/]+\/content$/, content],
    [/^POST \/v1\/videos\/[^/]+\/remix$/, remix]
  ]

  return {
    endpoints: { 'POST /v1/videos': create, 'GET /v1/videos': list },
    find: (method, path) => below.find(([pattern]) => pattern.test(`${method} ${path}`))?.[1],
    errorBody: ({ status, message }) => ({
      error: { message, type: status < 500 ? 'invalid_request_error' : 'server_error', param: null,
        code: /moderation/.test(message) ? 'moderation_blocked' : null }
    }),
    errorEvent: (type) => ({ event: SseEvent.of('error', { error: { type } }) }),
    brokenEvent: () => ({ event: new SseEvent('', '{"object":"vi') }),
    unknownEvent: () => ({ event: SseEvent.of('future_event', {}) })
  }
}

function json (body: unknown): Answer {
  return { kind: 'json', status: 200, body }
}

/** @throws {VendorError} */
function checkKey ({ headers }: Asked): void {
  if (headers['authorization'] === undefined && headers['x-api-key'] === undefined) {
    throw new VendorError(401, 'You didn\'t provide an API key.')
  }
}

function asBody ({ body }: Asked): Readonly<Record<string, unknown>> {
  return isObject(body) ? body : {}
}

/** A box of MP4 with nothing in it, so that the type can be told from the first bytes. */
const HEAD = Buffer.from('000000186674797069736f6d0000020069736f6d6d703432', 'hex')
const BLOCK = 1024

/** Every block of a file begins with its number and the task's id: a piece that is missing, or comes twice, is seen. */
function bytesOf (id: string, at: number, length: number): Buffer {
  const first = Math.floor(at / BLOCK)
  const bytes = Buffer.alloc(Math.ceil((at + length) / BLOCK) * BLOCK - first * BLOCK, '.')
  for (let i = 0; i * BLOCK < bytes.length; i++) bytes.write(`${first + i} ${id} `, i * BLOCK)
  if (first === 0) HEAD.copy(bytes)
  return bytes.subarray(at - first * BLOCK, at - first * BLOCK + length)
}
