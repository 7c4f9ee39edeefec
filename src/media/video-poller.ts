// Polls upstreams for the results of video tasks, whether their clients ask or not, and across restarts. A task is
// charged once, when its upstream reports that it is completed, and for nothing else. An unknown state is no failure,
// until `max_age` (src/README.md#video-terminal).
//
// A poll needs the upstream's name and address, which the task has, and its credentials, which are in the configuration
// only and never on the disk. So while the configuration has no upstream of that name at that address, the task is not
// polled: it waits for one to be configured again, or for `max_age`.
import type { Logger } from 'pino'
import type { Metrics, VideoEnd } from '../telemetry/metrics.ts'
import type { VideosConfig } from '../config/config.ts'
import type { LeasedSnapshot } from '../core/endpoint.ts'
import type { VideoTasks } from '../core/services.ts'
import type { Snapshot } from '../core/snapshot.ts'
import { formatUsd } from '../money/nanos.ts'
import { noUsage } from '../money/usage.ts'
import type { Rollups } from '../store/rollups.ts'
import type { Task, Tasks } from '../store/tasks.ts'
import type { Timer } from '../base/timer.ts'
import { ask } from '../upstream/transport/fetch-json.ts'
import { aboutTask } from '../upstream/dialects/videos/index.ts'
import { readPoll } from '../upstream/dialects/videos/report.ts'
import { scrub } from '../base/redact.ts'
import { saidIn } from '../core/failed-attempt.ts'
import { secretsOf } from '../core/upstream-secrets.ts'
import { credentialOf } from '../upstream/pool.ts'
import type { Upstream } from '../core/upstream.ts'
import { advance, deliveryOf, isOver, type Video, videoOf } from './video.ts'
import type { TaskReport } from '../core/task-report.ts'

export interface WatcherOptions {
  readonly tasks: Tasks & Pick<Rollups, 'failed'>
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  readonly metrics: Metrics
  /** milliseconds since the epoch */
  readonly now: () => number
  readonly timer: Timer
  readonly current: () => LeasedSnapshot
  /** from 0 to below 1 */
  readonly random?: () => number
}

/** Result of a poll. `silent`: the state is unknown. `gone`: the upstream says that the task does not exist. */
type Finding =
  | { readonly kind: 'report', readonly report: TaskReport }
  | { readonly kind: 'gone' }
  | { readonly kind: 'silent', readonly why: string, readonly said?: string | undefined }

/** The polls of one upstream: an upstream that hangs delays no other one's tasks. */
interface Line {
  /** ids of tasks that are due */
  readonly waiting: string[]
  /** polls in progress */
  asking: number
}

interface Watched {
  readonly line: Line
  /** polls in a row without a report: each doubles the pause */
  silences: number
  /** denials in a row: an upstream may take a moment until all its servers know a new task */
  gone: number
  /** time of the first of these, milliseconds since the epoch */
  goneSince: number
  cancel: () => void
}

const ASK_MS = 30_000
const GONE_ENOUGH = 3
/** The poll interval grows with a task's age, to so many times its length, from this age on. */
const SLOWEST = 6
const OLD_MS = 10 * 60_000
/** Longest pause after polls without an answer. */
const LONGEST_SILENCE_MS = 60_000
/** A pause is longer or shorter by up to this part. */
const JITTER = 0.2
const SWEEP_MS = 3_600_000

const LOST = { code: 'server_error',
  message: 'The provider has lost this video. Nothing was charged. Create it again.' }
const UNHEARD = { code: 'server_error',
  message: 'This video could not be recorded in time. Nothing was charged. Create it again.' }
const UNKNOWN = { code: 'server_error',
  message: 'The provider did not tell what became of this video in time. Nothing was charged. Create it again.' }

export class VideoWatcher implements VideoTasks {
  readonly #options: WatcherOptions
  readonly #random: () => number
  readonly #watched = new Map<string, Watched>()
  /** by the name of the upstream */
  readonly #lines = new Map<string, Line>()
  /** polls in progress at all upstreams */
  #asking = 0
  readonly #closing = new AbortController()
  #idle: (() => void) | undefined
  #cancelSweep: () => void = () => {}
  #unwatch: (() => void) | undefined

  constructor (options: WatcherOptions) {
    this.#options = options
    this.#random = options.random ?? Math.random
  }

  /** tasks that are watched */
  get size (): number {
    return this.#watched.size
  }

  /** polls in progress */
  get asking (): number {
    return this.#asking
  }

  /** Watches the open tasks of the process before this one, and from then on those that other processes leave. */
  start (): void {
    const { tasks, timer } = this.#options
    this.#unwatch = tasks.watchTasks?.((id) => { this.watch(id) })
    const open = tasks.openTasks()
    // Spread over one interval.
    for (const task of open) { this.#watch(task, this.#config.poll_interval * this.#random()) }
    if (open.length > 0) {
      this.#options.log.info({ tasks: open.length }, 'video tasks are open: their upstreams are asked again')
    }
    const sweep = (): void => {
      this.#cancelSweep = timer(SWEEP_MS, sweep)
      void this.#forget()
    }
    sweep()
  }

  /** Watches the open task of this id, if there is one. */
  watch (id: string): void {
    const task = this.#find(id)
    if (this.#closing.signal.aborted || this.#watched.has(id) || task === undefined) return
    this.#watch(task, this.#jittered(this.#config.poll_interval))
  }

  /**
   * Records the result that an upstream gave with its acceptance. Never rejects: where that fails the task is polled
   * like all others.
   */
  async hear (id: string, report: TaskReport): Promise<void> {
    const task = this.#find(id)
    if (this.#closing.signal.aborted || this.#watched.has(id) || task === undefined) return
    this.#asking++
    try {
      const video = videoOf(task)
      if (report.status === 'completed') await this.#complete(task, video, report)
      else if (report.status === 'failed') await this.#fail(task, video, report.error!, 'failed', report.word)
      else this.watch(id)
    } catch (err) {
      this.#options.log.error({ err, task: id, request_id: task.request_id },
        'what became of a video task could not be recorded: it is tried again')
      this.watch(id)
    } finally {
      if (--this.#asking === 0) this.#idle?.()
    }
  }

  /**
   * Cancels a task whose client was told that it does not exist: it is not charged, and removed. Where that can't be
   * recorded it is tried again at the next poll, in the next process too. Never rejects.
   */
  async takeBack (id: string): Promise<void> {
    const { tasks, now, log } = this.#options
    const task = this.#find(id)
    if (task === undefined) return
    try {
      tasks.noteTask(id,
        JSON.stringify({ ...videoOf(task), status: 'failed', ended: now(), error: UNHEARD } satisfies Video))
      await this.#remove(this.#find(id)!)
    } catch (err) {
      log.error({ err, task: id, request_id: task.request_id },
        'a video that its client has not heard of could not be taken back: it is tried again')
      this.watch(id)
    }
  }

  /** @throws {Error} it can't be recorded */
  async #remove ({ id, text }: Task): Promise<true> {
    const { tasks } = this.#options
    await tasks.endTask(id, text)
    await tasks.removeTask(id)
    return true
  }

  /** Milliseconds after which a client should poll again. */
  pollAfter (task: Task): number {
    return Math.round(this.#pauseOf(task))
  }

  /**
   * Stops polling, aborts the polls in progress, and waits until their results are recorded: the store is closed next.
   */
  async close (): Promise<void> {
    this.#closing.abort()
    this.#cancelSweep()
    this.#unwatch?.()
    for (const { cancel } of this.#watched.values()) cancel()
    for (const { waiting } of this.#lines.values()) waiting.length = 0
    if (this.#asking > 0) await new Promise<void>((resolve) => { this.#idle = resolve })
  }

  get #config (): VideosConfig {
    return this.#options.current().config.videos
  }

  #find (id: string): Task | undefined {
    return this.#options.tasks.findOpenTask(id)
  }

  /** Watches a task. An unreadable record is reported, and costs no other task its watch. */
  #watch (task: Task, ms: number): void {
    let upstream: string
    try {
      upstream = videoOf(task).upstream
    } catch (err) {
      this.#options.log.error({ err, task: task.id, request_id: task.request_id },
        'the record of a video task cannot be read: its upstream is not asked, and its hold stays open')
      return
    }
    let line = this.#lines.get(upstream)
    if (line === undefined) this.#lines.set(upstream, line = { waiting: [], asking: 0 })
    const watched: Watched = { line, silences: 0, gone: 0, goneSince: 0, cancel: () => {} }
    this.#watched.set(task.id, watched)
    this.#schedule(task.id, watched, ms)
  }

  #schedule (id: string, watched: Watched, ms: number): void {
    if (this.#closing.signal.aborted) return
    watched.cancel = this.#options.timer(ms, () => {
      watched.line.waiting.push(id)
      this.#next(watched.line)
    })
  }

  #next (line: Line): void {
    while (!this.#closing.signal.aborted && line.waiting.length > 0 && line.asking < this.#config.poll_concurrency) {
      const id = line.waiting.shift()!
      line.asking++
      this.#asking++
      void this.#turn(id).finally(() => {
        line.asking--
        if (--this.#asking === 0) this.#idle?.()
        this.#next(line)
      })
    }
  }

  /** Polls a task once. Never rejects: the task is polled again, or it is over. */
  async #turn (id: string): Promise<void> {
    const { log } = this.#options
    const watched = this.#watched.get(id)
    const task = this.#find(id)
    if (watched === undefined || task === undefined) { this.#watched.delete(id); return }
    try {
      if (await this.#look(task, watched)) { this.#watched.delete(id); return }
    } catch (err) {
      watched.silences++
      log.error({ err, task: id, request_id: task.request_id },
        'what became of a video task could not be recorded: it is tried again')
    }
    const longest = Math.max(LONGEST_SILENCE_MS, this.#config.poll_interval)
    const pause = watched.silences === 0
      ? this.#pauseOf(task)
      : Math.min(longest, this.#pauseOf(task) * 2 ** Math.min(watched.silences, 10))
    const left = task.created + this.#config.max_age - this.#options.now()
    this.#schedule(id, watched, Math.max(1, Math.min(this.#jittered(pause), left > 0 ? left : Infinity)))
  }

  /** @returns whether the task is over @throws {Error} the result can't be recorded */
  async #look (task: Task, watched: Watched): Promise<boolean> {
    const { tasks, now, log } = this.#options
    const video = videoOf(task)
    if (isOver(video)) return await this.#remove(task)
    const finding = await this.#ask(task, video)
    const taken = this.#find(task.id)
    if (taken === undefined) return true
    if (isOver(videoOf(taken))) return await this.#remove(taken)  // cancelled during the poll
    // Aborted by `close`: no sign of the upstream's state.
    if (finding.kind === 'silent' && this.#closing.signal.aborted) return false
    watched.gone = finding.kind === 'gone' ? watched.gone + 1 : 0
    if (watched.gone === 1) watched.goneSince = now()
    // A denial is an answer: the upstream needs no longer pause.
    watched.silences = finding.kind === 'silent' ? watched.silences + 1 : 0
    if (finding.kind === 'report') {
      const { report } = finding
      if (report.status === 'completed') return await this.#complete(task, video, report)
      if (report.status === 'failed') return await this.#fail(task, video, report.error!, 'failed', report.word)
      const next = advance(video, report)
      if (next !== video) tasks.noteTask(task.id, JSON.stringify(next))
    }
    // Only after `lost_after`: a proxy in front of an upstream answers 404 while that is being deployed.
    if (watched.gone >= GONE_ENOUGH && now() >= watched.goneSince + this.#config.lost_after) {
      log.error({ alert: 'video_lost', ...about(task, video) },
        'an upstream has lost a video task: it has failed, and is not charged. ' +
        'Look at the upstream whether it costs something there.')
      return await this.#fail(task, video, LOST, 'lost')
    }
    if (now() < task.created + this.#config.max_age) {
      // Logged for the 1st, 2nd, 4th, 8th … time.
      if (finding.kind === 'silent' && (watched.silences & (watched.silences - 1)) === 0) {
        log.warn({ ...about(task, video), why: finding.why, said: finding.said, times: watched.silences },
          'an upstream did not tell how far a video task is')
      }
      return false
    }
    // An alert for the operator: the client is told that it costs nothing, and the provider may still charge for it.
    log.error({ alert: 'video_unknown', ...about(task, video) },
      'nobody knows what became of a video task: it has failed, and is not charged. ' +
      'Look at the upstream whether it costs something there.')
    return await this.#fail(task, video, UNKNOWN, 'unknown')
  }

  async #complete (task: Task, video: Video, report: TaskReport): Promise<true> {
    const { tasks, now, log, metrics } = this.#options
    const ended = now()
    // One before the task is no time: a number of seconds from now, maybe.
    const told = report.expires === undefined || report.expires < task.created ? Infinity : report.expires
    const expires = Math.min(ended + this.#config.file_life, told)
    const { seconds, nanos, cost } = deliveryOf(video, task.nanos, report.seconds)
    const text = JSON.stringify({ ...video, status: 'completed', progress: 100, seconds, ended, expires,
      charged: nanos.toString(),
      ...(report.link !== undefined && { link: report.link }) } satisfies Video)
    const charged = await tasks.endTask(task.id, text, {
      nanos,
      model: video.model,
      channel: video.channel,
      usage: { ...noUsage, ...(seconds !== '' && { extras: { video_second: Number(seconds) } }) },
      usage_source: 'provider',
      ...(video.price_version !== undefined && { price_version: video.price_version })
    })
    if (charged === undefined) return true
    metrics.videoEnded('completed', { ...video, nanos: charged, cost })
    log.info({ ...about(task, video), charged_usd: formatUsd(charged), seconds, ordered_seconds: video.seconds,
      unknown_status: report.word, took_ms: ended - task.created }, 'a video is completed')
    return true
  }

  async #fail (
    task: Task, video: Video, error: NonNullable<Video['error']>, end: VideoEnd, unknownStatus?: string
  ): Promise<true> {
    const { tasks, now, log, metrics } = this.#options
    const ended = now()
    const charged = await tasks.endTask(task.id,
      JSON.stringify({ ...video, status: 'failed', ended, error } satisfies Video))
    if (charged === undefined) return true
    const { account, key } = task
    tasks.failed({ account, key, model: video.model, channel: video.channel })
    metrics.videoEnded(end, { ...video, nanos: 0n, cost: undefined })
    log.info({ ...about(task, video), code: error.code, end, unknown_status: unknownStatus,
      took_ms: ended - task.created }, 'a video has failed')
    return true
  }

  async #ask (task: Task, video: Video): Promise<Finding> {
    const snapshot = this.#options.current().lease()
    try {
      const upstream = upstreamOf(snapshot, video)
      if (upstream === undefined) {
        return { kind: 'silent', why: 'the configuration has no upstream of this name at this address' }
      }
      if (upstream.config.maintenance) return { kind: 'silent', why: 'the upstream is in maintenance' }
      const told = await ask(upstream, aboutTask('GET', upstream, video.upstream_id), ASK_MS, this.#closing.signal)
      if ('kind' in told) return { kind: 'silent', why: told.kind }
      if (told.status === 404 || told.status === 410) return { kind: 'gone' }
      const secrets = secretsOf(upstream.config)
      try {
        const report = readPoll(told)
        return report.status === 'unheard'
          ? { kind: 'silent', why: 'its status is an unknown word',
            said: report.word === undefined ? undefined : scrub(report.word, secrets) }
          : { kind: 'report', report }
      } catch (err) {
        return { kind: 'silent', why: (err as Error).message, said: saidIn({ kind: 'status', ...told }, secrets) }
      }
    } finally {
      snapshot.release()
    }
  }

  async #forget (): Promise<void> {
    const { tasks, now, log } = this.#options
    try {
      await tasks.forgetTasks(now() - this.#config.keep)
    } catch (err) {
      log.error({ err }, 'old video tasks could not be forgotten')
    }
  }

  #pauseOf ({ created }: Task): number {
    const age = Math.max(0, this.#options.now() - created)
    return this.#config.poll_interval * (1 + (SLOWEST - 1) * Math.min(1, age / OLD_MS))
  }

  #jittered (ms: number): number {
    return ms * (1 - JITTER + 2 * JITTER * this.#random())
  }
}

/**
 * The upstream of a video with the account that made it; where that account is gone, another one may know the task too.
 * @returns undefined: the configuration has no upstream of this name at this address any more; another vendor must not
 * be asked for this one's tasks
 */
export function upstreamOf (
  snapshot: Snapshot,
  { upstream: name, url, credential }: Pick<Video, 'upstream' | 'url' | 'credential'>
): Upstream | undefined {
  const upstream = snapshot.config.upstreams[name]?.url === url ? snapshot.upstreams.get(name) : undefined
  return upstream && credentialOf(upstream, credential).upstream
}

/** A task's fields in the log. */
function about (
  { id, request_id, account, key }: Task,
  { model, channel, upstream, upstream_id }: Video
): Readonly<Record<string, string>> {
  return { task: id, request_id, account, key_id: key, model, channel, upstream, upstream_id }
}
