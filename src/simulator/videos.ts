// The dialect `videos` (OpenAI's video tasks): POST answers at once, the task is done after a while, and its file can
// be of any size without taking memory: each of its bytes is computed from its position.
import { randomBytes } from 'node:crypto'
import { SseEvent } from '../core/sse.ts'
import { isObject, VendorError, type Answer, type Asked, type Dialect, type Endpoint } from './dialect.ts'
import { withoutDirectives, type Faults } from './faults.ts'

export interface VideosOptions {
  /** milliseconds since the epoch; a task's progress is computed from it */
  readonly now: () => number
  /** milliseconds from the creation of a task to its end */
  readonly videoMs: number
  /** bytes of a finished file */
  readonly videoBytes: number
}

interface Wanted {
  readonly model: string
  readonly prompt: string
  readonly seconds: string
  readonly size: string
}

interface Task extends Wanted {
  readonly id: string
  readonly created: number
  /** milliseconds until it is done */
  readonly takes: number
  /** faults from the creation, which hold for the requests about the task too */
  readonly faults: Faults
  readonly remixOf: string | null
  /** requests for its status so far */
  asked: number
}

/** Most tasks that are remembered, the last ones. */
const KEPT = 10_000
/** Milliseconds that a file is available; the vendor says an hour. */
const FILE_LIFE_MS = 3_600_000
const SECONDS = ['4', '8', '12']
const SIZES = ['720x1280', '1280x720', '1024x1792', '1792x1024']

/** A dialect remembers tasks: make one per simulator. */
export function videosDialect (options: VideosOptions): Dialect {
  const videos = new Videos(options)
  const create = endpoint(true, (asked) => videos.create(asked))
  const list = endpoint(false, (asked) => videos.list(asked))
  const below: readonly (readonly [pattern: RegExp, endpoint: Endpoint])[] = [
    [/^GET \/v1\/videos\/[^/]+$/, endpoint(false, (asked) => videos.retrieve(asked))],
    [/^DELETE \/v1\/videos\/[^/]+$/, endpoint(false, (asked) => videos.remove(asked))],
    [/^(?:GET|HEAD) \/v1\/videos\/[^/]+\/content$/, endpoint(false, (asked) => videos.content(asked))],
    [/^POST \/v1\/videos\/[^/]+\/remix$/, endpoint(true, (asked) => videos.remix(asked))]
  ]

  return {
    name: 'videos',
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

/** Directives are in the query, or in the prompt, if there is one. */
function endpoint (keepsBody: boolean, answer: (asked: Asked) => Answer): Endpoint {
  return {
    keepsBody,
    prompt: (body) => keepsBody && isObject(body) ? String(body['prompt'] ?? '') : '',
    answer (asked) {
      checkKey(asked)
      return answer(asked)
    }
  }
}

/** The tasks, with a method for each endpoint. */
class Videos {
  readonly #options: VideosOptions
  readonly #tasks = new Map<string, Task>()

  constructor (options: VideosOptions) {
    this.#options = options
  }

  /** @throws {VendorError} */
  create ({ body, faults }: Asked): Answer {
    const wanted = readWanted(body)
    if (faults.content_policy === true) {
      throw new VendorError(400, 'Your request was blocked by our moderation system.')
    }
    return this.#begin({ ...wanted, faults, remixOf: null })
  }

  /** @throws {VendorError} */
  remix (asked: Asked): Answer {
    const { model, seconds, size, id } = this.#find(asked)
    return this.#begin({ model, prompt: readPrompt(asked.body), seconds, size, faults: asked.faults, remixOf: id })
  }

  /** @throws {VendorError} */
  retrieve (asked: Asked): Answer {
    const task = this.#find(asked)
    task.asked++
    const { poll_status: status, poll_errors: errors } = task.faults
    if (status !== undefined && task.asked <= (errors ?? Infinity)) {
      throw new VendorError(status, 'The server had an error while processing your request.')
    }
    return json(shown(task, this.#options.now()))
  }

  list (asked: Asked): Answer {
    const query = new URLSearchParams(asked.query)
    const all = [...this.#tasks.values()].filter((task) => !isGone(task)).toReversed()
    const after = query.get('after')
    const from = after === null ? 0 : all.findIndex(({ id }) => id === after) + 1
    const limit = Number(query.get('limit') ?? 20)
    const page = all.slice(from, from + limit)
    const now = this.#options.now()
    return json({ object: 'list', data: page.map((task) => shown(task, now)), first_id: page[0]?.id ?? null,
      last_id: page.at(-1)?.id ?? null, has_more: all.length > from + limit })
  }

  /** @throws {VendorError} */
  remove (asked: Asked): Answer {
    const task = this.#find(asked)
    const status = statusOf(task, this.#options.now())
    if (status === 'queued' || status === 'in_progress') {
      throw new VendorError(400, 'A video that is in progress cannot be deleted.')
    }
    this.#tasks.delete(task.id)
    return json({ id: task.id, object: 'video.deleted', deleted: true })
  }

  /** @throws {VendorError} */
  content (asked: Asked): Answer {
    const { query, headers, faults } = asked
    const task = this.#find(asked)
    const now = this.#options.now()
    if (statusOf(task, now) !== 'completed') {
      throw new VendorError(400, 'Video is not ready yet, use GET /v1/videos/{video_id} to check status.')
    }
    if (task.faults.file_expired === true || now >= endOf(task) + FILE_LIFE_MS) {
      throw new VendorError(404, `Video ${task.id} has expired.`)
    }
    const variant = new URLSearchParams(query).get('variant') ?? 'video'
    const isVideo = variant === 'video'
    return {
      kind: 'file',
      type: isVideo ? task.faults.file_type ?? 'video/mp4' : variant === 'thumbnail' ? 'image/webp' : 'image/jpeg',
      size: isVideo ? task.faults.file_bytes ?? this.#options.videoBytes : 1024,
      etag: `"${task.id}-${variant}"`,
      range: headers.range,
      ifRange: headers['if-range'] as string | undefined,
      cutAfter: faults.file_cut ?? task.faults.file_cut,
      read: (at, length) => bytesOf(task.id, at, length)
    }
  }

  #begin (wanted: Wanted & Pick<Task, 'faults' | 'remixOf'>): Answer {
    const now = this.#options.now()
    const task: Task = { id: `video_${randomBytes(16).toString('hex')}`, created: now,
      takes: wanted.faults.task_time ?? this.#options.videoMs, asked: 0, ...wanted }
    this.#tasks.set(task.id, task)
    if (this.#tasks.size > KEPT) this.#tasks.delete(this.#tasks.keys().next().value!)
    return json(shown(task, now))
  }

  /** @throws {VendorError} */
  #find ({ path }: Asked): Task {
    const id = path.split('/')[3]!
    const task = this.#tasks.get(id)
    if (task === undefined || isGone(task)) throw new VendorError(404, `Video with id '${id}' not found.`)
    return task
  }
}

/** @throws {VendorError} */
function readWanted (body: unknown): Wanted {
  const prompt = readPrompt(body)
  const { model, seconds = SECONDS[0], size = SIZES[0] } = isObject(body) ? body : {}
  if (typeof model !== 'string') throw new VendorError(400, 'Missing required parameter: \'model\'.')
  // As the vendor: a text, not a number.
  return { model, prompt, seconds: oneOf(SECONDS, seconds), size: oneOf(SIZES, size) }
}

/** @throws {VendorError} */
function readPrompt (body: unknown): string {
  const prompt = isObject(body) ? body['prompt'] : undefined
  if (typeof prompt !== 'string' || prompt === '') {
    throw new VendorError(400, 'Missing required parameter: \'prompt\'.')
  }
  return prompt
}

/** @throws {VendorError} */
function oneOf (supported: readonly string[], value: unknown): string {
  if (typeof value === 'string' && supported.includes(value)) return value
  throw new VendorError(400, `Invalid value: ${JSON.stringify(value)}. Supported values are: ` +
    `${supported.map((one) => `'${one}'`).join(', ')}.`)
}

function isGone ({ faults, asked }: Task): boolean {
  return faults.task_vanishes !== undefined && asked >= faults.task_vanishes
}

function endOf ({ created, takes }: Task): number {
  return created + takes
}

function statusOf (task: Task, now: number): string {
  const { created, takes, faults } = task
  if (now >= endOf(task) && faults.task_stalls !== true) {
    return faults.task_fails === true
      ? 'failed'
      : faults.task_status ?? 'completed'
  }
  return now < created + takes / 10 ? 'queued' : 'in_progress'
}

function shown (task: Task, now: number): Readonly<Record<string, unknown>> {
  const status = statusOf(task, now)
  const end = Math.floor(endOf(task) / 1000)
  const part = (now - task.created) / task.takes
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

function json (body: unknown): Answer {
  return { kind: 'json', status: 200, body }
}

/** @throws {VendorError} */
function checkKey ({ headers }: Asked): void {
  if (headers['authorization'] === undefined && headers['x-api-key'] === undefined) {
    throw new VendorError(401, 'You didn\'t provide an API key.')
  }
}

/** An empty box of MP4, so that the type can be detected from the first bytes. */
const HEAD = Buffer.from('000000186674797069736f6d0000020069736f6d6d703432', 'hex')
const BLOCK = 1024

/** Every block of a file begins with its number and the task's id: a missing or repeated piece is noticed. */
function bytesOf (id: string, at: number, length: number): Buffer {
  const first = Math.floor(at / BLOCK)
  const bytes = Buffer.alloc(Math.ceil((at + length) / BLOCK) * BLOCK - first * BLOCK, '.')
  for (let i = 0; i * BLOCK < bytes.length; i++) bytes.write(`${first + i} ${id} `, i * BLOCK)
  if (first === 0) HEAD.copy(bytes)
  return bytes.subarray(at - first * BLOCK, at - first * BLOCK + length)
}
