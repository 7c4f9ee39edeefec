// Loads gateway.yaml without blocking: a fresh worker reads, parses and validates it. Every failure of the worker
// becomes a problem of the configuration, never an unhandled error.
import { extname } from 'node:path'
import { env as processEnv } from 'node:process'
import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { startTimer, type Timer } from '../../base/timer.ts'
import type { Config } from '../config.ts'
import type { Env } from '../yaml/interpolate.ts'
import type { Problem } from '../problem.ts'
import type { SentText } from '../yaml/read.ts'

export interface LoadOptions {
  /** the module that exports the shipped `plugins` */
  readonly pluginsUrl: string | URL
  readonly env?: Env
  /** limit for reading and checking */
  readonly timeoutMs?: number
  /** measures that limit; for tests */
  readonly timer?: Timer
  /** milliseconds since the epoch */
  readonly now?: number
  /** a thread of `warmUp`; this call consumes it */
  readonly warm?: Worker | undefined
  /** takes the thread, where it has given its verdict, for another call's `warm`; absent: it is ended */
  readonly keep?: ((thread: Worker) => void) | undefined
  /** judged in the place of what stands in the file */
  readonly sent?: SentConfig
  /** for `access` of an invalid configuration */
  readonly forAccess?: boolean
}

/** A text that somebody has sent. */
export interface SentConfig extends SentText {
  /** the user's own plugins that it may name, absolute: loading one runs it */
  readonly plugins: readonly string[]
}

export interface Place { readonly file: string, readonly line: number, readonly column: number }

interface Loaded {
  /** of a text that was sent: values that were not looked at, in which mistakes were not looked for */
  readonly unread?: readonly Problem[]
  /** every file that was read or looked for, absolute, with its stamp from before the read */
  readonly stamps: ReadonlyMap<string, string>
  readonly files: readonly string[]
}

export type LoadResult = ValidLoad | InvalidLoad

export interface ValidLoad extends Loaded {
  readonly kind: 'valid'
  /** deeply frozen */
  readonly config: Config
  readonly warnings: readonly Problem[]
  /**
   * of all that a reload applies, the code of the user's plugins included: with the same digest it has nothing to do
   */
  readonly digest: string
  /** JSON pointers below /pipeline of values that must not be printed */
  readonly secrets: readonly string[]
  /** the files of YAML among them */
  readonly sources: readonly string[]
  /** by JSON pointer: positions of parts that need a restart, or that only a plugin can refuse */
  readonly places: Readonly<Record<string, Place>>
}

export interface InvalidLoad extends Loaded {
  readonly kind: 'invalid'
  readonly problems: readonly Problem[]
  /** undefined: it was not requested, or the file could not be read */
  readonly access?: Access
}

/** As far as an invalid configuration says it: where its gateway runs, and how to prove that one may ask it. */
export interface Access {
  /** `server.admin.listen` and `server.admin.token` */
  readonly listen?: string
  readonly token?: string
  /** `store.path` */
  readonly path?: string
}

export interface WorkerInput {
  readonly file: string
  readonly forAccess?: boolean
  readonly env: Env
  readonly pluginsUrl: string
  /** milliseconds since the epoch; absent: the machine's clock */
  readonly now?: number
  readonly sent?: SentConfig
}

/**
 * The configuration crosses as JSON text in pieces: parsing and freezing 1,000 models at once blocked for 3 to 6 ms, in
 * pieces of 50 for 0.1 to 0.4 (measured, 0.5 MB; a structured clone took longer than both).
 */
export interface Parts {
  readonly rest: string
  readonly lists: Readonly<Record<'models' | 'keys' | 'accounts' | 'routes', readonly string[]>>
}

export type FromWorker = Verdict | { readonly kind: 'file', readonly path: string, readonly stamp: string }

export type InvalidVerdict = Pick<InvalidLoad, 'kind' | 'problems' | 'unread' | 'access'>

export type Verdict =
  | InvalidVerdict
  | Pick<ValidLoad, 'kind' | 'warnings' | 'unread' | 'sources' | 'digest' | 'secrets' | 'places'>
  & { readonly parts: Parts }

const TIMEOUT_MS = 30_000
/** A runaway worker dies alone; without a limit it takes the process with it. */
const WORKER_HEAP_MB = 1024

/** @param name of a module without its ending: .ts in a checkout, .js in the packed build. @param base of its URL */
export function startThread (name: string, base: string, workerData: unknown): Worker {
  return new Worker(new URL(name + extname(new URL(base).pathname), base), {
    workerData, execArgv: [], resourceLimits: { maxOldGenerationSizeMb: WORKER_HEAP_MB }
  })
}

/**
 * A thread that loads its modules, and then waits for a configuration. To be started as soon as one may come: loading
 * takes 200 ms, a third of the way from an edit of a small configuration to its being live (measured).
 */
export function warmUp (pluginsUrl: string | URL): Worker {
  return rest(startThread('./worker', import.meta.url, String(pluginsUrl)))
}

/** Lets a thread wait for work. Its errors are reported only once it has some, and it keeps no process alive. */
function rest (worker: Worker): Worker {
  worker.on('error', () => {})
  worker.unref()
  return worker
}

/** @param file name in problems; relative to the working folder */
export async function loadConfig (
  file: string,
  { pluginsUrl, env = processEnv, timeoutMs, timer, now, warm, keep, sent, forAccess = false }: LoadOptions
): Promise<LoadResult> {
  const stamps = new Map<string, string>()
  const input: WorkerInput = {
    file, env: sent === undefined ? { ...env } : {}, pluginsUrl: String(pluginsUrl), ...(now !== undefined && { now }),
    ...(sent !== undefined && { sent }), forAccess
  }
  const start = (): Worker => {
    const worker = warm === undefined || hasEnded(warm) ? warmUp(pluginsUrl) : warm
    worker.ref()
    worker.postMessage(input)
    return worker
  }
  const verdict = await hearThread<Verdict>({
    file, start, timeoutMs, timer, keep,
    onMessage (message: FromWorker, resolve) {
      if (message.kind !== 'file') resolve(message)
      else if (!stamps.has(message.path)) stamps.set(message.path, message.stamp)
    }
  })
  return await resultOf(verdict, stamps)
}

interface Hearing<Answer, Message> {
  /** name in problems */
  readonly file: string
  /** @returns a thread with its task */
  readonly start: () => Worker
  readonly timeoutMs?: number | undefined
  readonly timer?: Timer | undefined
  readonly onMessage: (message: Message, resolve: (answer: Answer) => void) => void
  /** takes a thread that has answered; absent: it is ended */
  readonly keep?: ((thread: Worker) => void) | undefined
}

/** The answer of a thread, which is ended if it is not kept; every failure of it is a problem of the configuration. */
export async function hearThread<Answer, Message = Answer> (
  { file, start, timeoutMs = TIMEOUT_MS, timer = startTimer, onMessage, keep }: Hearing<Answer, Message>
): Promise<Answer | InvalidVerdict> {
  const { promise, resolve } = Promise.withResolvers<Answer | InvalidVerdict>()
  const fail = (message: string): void => {
    resolve({ kind: 'invalid', problems: [{ file, line: 1, column: 1, path: '', message }] })
  }
  let worker: Worker
  try {
    worker = start()
  } catch (thrown) {
    fail(`the thread that checks it could not be started: ${String(thrown)}`)
    return await promise
  }
  let isWell = false
  worker.on('message', (message: Message) => {
    onMessage(message, (answer) => {
      isWell = true
      resolve(answer)
    })
  })
  worker.on('error', (error: unknown) => {
    fail(`the thread that checks it died: ${error instanceof Error ? error.message : String(error)}`)
  })
  worker.on('messageerror', (error) => {
    fail(`the thread that checks it sent something unreadable: ${error.message}`)
  })
  worker.on('exit', (code) => {
    fail(`the thread that checks it ended early (exit code ${code}): does a plugin end the process?`)
  })
  const stop = timer(timeoutMs, () => {
    fail(`checking it took longer than ${timeoutMs / 1000} s: does a plugin hang while it is loaded?`)
  })
  const answer = await promise
  stop()
  if (keep !== undefined && isWell) {
    // All at once would take those of Node itself.
    for (const event of ['message', 'error', 'messageerror', 'exit']) worker.removeAllListeners(event)
    rest(worker)
    keep(worker)
    return answer
  }
  // in the background: its end may take long
  worker.terminate().catch(() => {})
  return answer
}

function hasEnded (worker: Worker): boolean {
  return worker.threadId === -1
}

/** The result for the main thread: parsed in pieces, frozen. */
export async function resultOf (message: Verdict, stamps: ReadonlyMap<string, string>): Promise<LoadResult> {
  const files = [...stamps.keys()]
  if (message.kind === 'invalid') return { ...message, stamps, files }
  const { parts: { rest, lists }, ...more } = message
  const config = JSON.parse(rest) as Record<string, unknown>
  for (const [name, texts] of Object.entries(lists)) {
    const list: unknown[] = []
    for (const text of texts) {
      list.push(...freeze(JSON.parse(text) as unknown[]))
      await setImmediate()
    }
    config[name] = Object.freeze(list)
  }
  return { ...more, config: freeze(config) as unknown as Config, stamps, files }
}

/** Freezes deeply. Objects of JSON only: no cycles. */
function freeze<T> (value: T): T {
  if (typeof value !== 'object' || value === null) return value
  for (const child of Object.values(value)) if (typeof child === 'object' && !Object.isFrozen(child)) freeze(child)
  return Object.freeze(value)
}
