// The live configuration: loads, compiles, swaps one reference, retires the old one. A configuration that does not load
// or compile changes nothing.
import { emitWarning } from 'node:process'
import type { Worker } from 'node:worker_threads'
import type { Logger } from 'pino'
import { formatUsd, parseUsd, type Nanos } from '../money/nanos.ts'
import type { Plugin } from '../core/plugin.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { within } from '../base/timeout.ts'
import { mark } from '../base/stall-marks.ts'
import { type Config, restartSections } from '../config/config.ts'
import type { Env } from '../config/yaml/interpolate.ts'
import { loadConfig, type LoadResult, type Place, type ValidLoad, warmUp } from '../config/load/load.ts'
import { formatPointer, isMap, parsePointer } from '../config/yaml/position.ts'
import { isGatewayError } from '../errors.ts'
import { ConfigError, formatProblem, PartError, type Problem, sortProblems } from '../config/problem.ts'
import { redact } from '../config/redact.ts'
import { diffConfigs } from '../config/diff.ts'
import type { ConfigDiff, ConfigState, ConfigStatus, Generation, Judgement, ReloadReason,
  ReloadResult } from '../config/state.ts'
import type { Snapshot } from './snapshot.ts'
import { loadUserPlugin, PluginError } from '../config/load/user-plugin.ts'
import { type Watcher, watchFiles, type WatchOptions } from '../config/load/watch.ts'

/** A warning about a part; its position is added. */
export type PartWarning = Pick<Problem, 'path' | 'message' | 'hint'>

export interface LiveOptions<Live extends Retirable = Snapshot> {
  readonly file: string
  readonly pluginsUrl: string | URL
  readonly env?: Env
  readonly services: { readonly now: () => number } & Partial<{
    readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
    readonly metrics: Pick<Metrics, 'configLive' | 'configRefused'>
  }>
  /**
   * Makes a snapshot, or throws and leaves nothing open.
   * @param userPlugins the user's own plugins by their path, which is `use` in config.pipeline
   */
  readonly compile: (
    config: Config,
    generation: number,
    userPlugins: ReadonlyMap<string, Plugin>
  ) => Live | Promise<Live>
  /**
   * Effects of going live beside the snapshot, such as the opening balances in the ledger; compiling has none. Called
   * when all other checks have passed; a throw refuses the configuration.
   */
  readonly goLive?: (snapshot: Live) => void | Promise<void>
  /** Warnings about the new configuration, in comparison with the one before. */
  readonly warnings?: (before: Live | undefined, now: Live) => readonly PartWarning[]
  /** The opening credit of an account, in nano-dollars; undefined: the account is new. Absent: credits are unknown. */
  readonly creditedTo?: (account: string) => Nanos | undefined | Promise<Nanos | undefined>
  /** Called after every reload, refused or not, and after the start. */
  readonly onReload?: (result: ReloadResult) => void
  readonly watch?: WatchOptions
  /** loads the configuration; for tests. Absent: a thread does, which is ready when the file comes to rest */
  readonly load?: typeof loadConfig
  /** limit for loading, and for compiling */
  readonly timeoutMs?: number
}

interface Retirable { retire (): unknown }

interface Running<Live> {
  readonly snapshot: Live
  readonly generation: number
  /** the running configuration: parts that need a restart are those of the start */
  readonly config: Config
  readonly digest: string
  readonly secrets: readonly string[]
  /** its files of YAML */
  readonly sources: readonly string[]
  readonly loadedAt: string
  /** of accounts and keys, by list and id: where the file says them now */
  readonly declared: ReadonlyMap<string, Place>
}

interface Pending {
  readonly reason: ReloadReason
  readonly promise: Promise<ReloadResult>
  readonly resolve: (result: ReloadResult) => void
}

/**
 * A disk that does not answer must not stop a reload either: after so many milliseconds it goes on without warnings.
 */
const WARNING_MS = 5000

/**
 * Digits of a hash that are shown, hexadecimal: enough to tell two configurations apart, too few to search for a
 * secret.
 */
const SHOWN_HASH = 16

/** A `create` or a connection that never ends must not stop all later reloads. */
const TIMEOUT_MS = 30_000

/** A text that takes longer to judge is no configuration: 1,000 models take half a second. */
const JUDGE_MS = 10_000

/** How long a thread waits for the next text: who writes a configuration has it judged again and again. */
const KEEP_JUDGE_MS = 5 * 60_000

/** Generations that are told of. */
const KEPT_GENERATIONS = 20

/** Most problems, warnings and unread values of a text that are told. */
const MOST_TOLD = 200

const NO_DIFF: ConfigDiff = { changes: [], more_changes: 0 }

export class LiveConfig<Live extends Retirable = Snapshot> {
  readonly #options: LiveOptions<Live>
  #running: Running<Live> | undefined
  #last: ReloadResult | undefined
  #stamps = new Map<string, string>()
  #isReloading = false
  #pending: Pending | undefined
  #awaited = Promise.withResolvers<ReloadResult>()
  #watcher: Watcher | undefined
  #warmed: Worker | undefined
  /** has judged a text, and may judge another one */
  #judge: { readonly thread: Worker, readonly end: NodeJS.Timeout } | undefined
  #isClosed = false
  #shown: { readonly generation: number, readonly config: Config } | undefined
  /** the newest first */
  #generations: readonly Generation[] = []

  constructor (options: LiveOptions<Live>) {
    this.#options = options
  }

  /** @throws {ConfigError} the configuration can't be used: none is live */
  async start (): Promise<void> {
    const result = await this.reload('start')
    if (!result.ok) throw new ConfigError(result.problems)
  }

  /** @throws {Error} before start() */
  current (): Live {
    if (this.#running === undefined) throw new Error('no configuration is live yet')
    return this.#running.snapshot
  }

  /** Where the file says an account or a key; undefined: it does not. */
  placeOf (list: 'accounts' | 'keys', id: string): Place | undefined {
    return this.#running?.declared.get(`${list} ${id}`)
  }

  /** Every file that the configuration was read from: the files to watch. */
  files (): readonly string[] {
    return [...this.#stamps.keys()]
  }

  /** Reloads when a file changes, until close(). */
  watch (): Watcher {
    this.#watcher ??= watchFiles(() => this.files(), () => { void this.reload('file') }, {
      known: (file) => this.#stamps.get(file), onStir: () => { this.#warm() }, ...this.#options.watch
    })
    return this.#watcher
  }

  /** Stops watching, and ends the threads that wait. The live configuration stays live. */
  close (): void {
    this.#isClosed = true
    this.#takeJudge()?.terminate().catch(() => {})
    this.#watcher?.close()
    this.#watcher = undefined
    this.#warmed?.terminate().catch(() => {})
    this.#warmed = undefined
  }

  /** Starts a thread while the files come to rest. */
  #warm (): void {
    if (this.#options.load !== undefined) return
    try {
      this.#warmed ??= warmUp(this.#options.pluginsUrl)
    } catch {
      // without a thread now: the reload tries again, and reports the reason
    }
  }

  /** Ends with the next reload. */
  reloaded (): Promise<ReloadResult> {
    return this.#awaited.promise
  }

  /** Reloads one at a time; requests during a reload are served by one after it. Never rejects. */
  async reload (reason: ReloadReason): Promise<ReloadResult> {
    if (this.#isReloading) {
      this.#pending ??= { reason, ...Promise.withResolvers<ReloadResult>() }
      return await this.#pending.promise
    }
    this.#isReloading = true
    const result = await this.#attempt(reason)
    this.#isReloading = false
    const pending = this.#pending
    this.#pending = undefined
    if (pending !== undefined) void this.reload(pending.reason).then(pending.resolve)
    return result
  }

  async #attempt (reason: ReloadReason): Promise<ReloadResult> {
    const startedAt = performance.now()
    const outcome = await this.#load(reason).catch((thrown: unknown) => refused([this.#problemOf(thrown)]))
    const result: ReloadResult = {
      ...outcome,
      reason,
      at: new Date(this.#options.services.now()).toISOString(),
      duration_ms: Math.round(performance.now() - startedAt),
      generation: this.#running?.generation ?? 0
    }
    this.#last = result
    this.#tell(result)
    const awaited = this.#awaited
    this.#awaited = Promise.withResolvers()
    awaited.resolve(result)
    return result
  }

  async #load (reason: ReloadReason): Promise<Pick<ReloadResult, 'ok' | 'changed' | 'problems' | 'warnings'>> {
    const { file, pluginsUrl, env, timeoutMs, load = loadConfig } = this.#options
    const warm = this.#warmed
    this.#warmed = undefined
    const loaded = await load(file, {
      pluginsUrl,
      warm,
      now: this.#options.services.now(),
      ...(env !== undefined && { env }),
      ...(timeoutMs !== undefined && { timeoutMs })
    })
    this.#noteFiles(loaded)
    if (loaded.kind === 'invalid') return refused(loaded.problems)
    const old = this.#running
    const config = old === undefined
      ? loaded.config
      : Object.freeze({ ...loaded.config, server: old.config.server, store: old.config.store })
    const { creditedTo } = this.#options
    // When the store is open: compiling the first configuration opens it.
    const warn = async (): Promise<
      readonly Problem[]
    > => [...old === undefined ? [] : needsRestart(old.config, loaded), ...creditedTo === undefined
      ? []
      : await within(changedOpenings(loaded, creditedTo), WARNING_MS, () => undefined).catch(() => []),
      ...loaded.warnings]
    const declared = declaredIn(loaded)
    // Lines move without a change, such as below a comment.
    if (old?.digest === loaded.digest) {
      this.#running = { ...old, declared }
      return { ok: true, changed: false, problems: [], warnings: await warn() }
    }
    const generation = (old?.generation ?? 0) + 1
    let snapshot: Live
    try {
      snapshot = await this.#compile(config, generation)
      await this.#goLive(snapshot)
    } catch (thrown) {
      return refused(thrown instanceof ConfigError ? thrown.problems : [this.#problemOf(thrown, loaded)])
    }
    this.#running = { snapshot, generation, config, digest: loaded.digest, secrets: loaded.secrets,
      sources: loaded.sources, declared, loadedAt: new Date(this.#options.services.now()).toISOString() }
    if (old !== undefined) retire(old.snapshot)
    await this.#keepGeneration(old, this.#running, reason)
    const odd = this.#options.warnings?.(old?.snapshot, snapshot) ?? []
    return { ok: true, changed: true, problems: [],
      warnings: [...odd.map((one) => ({ ...findPlace(parsePointer(one.path), loaded.places), ...one })),
        ...await warn()] }
  }

  async #keepGeneration (old: Running<Live> | undefined, live: Running<Live>, reason: ReloadReason): Promise<void> {
    const { generation, digest, loadedAt: at } = live
    const diff = old === undefined ? NO_DIFF : await diffConfigs(old, live).catch((thrown: unknown) => {
      // It is live all the same.
      emitWarning(thrown instanceof Error ? thrown : String(thrown))
      return NO_DIFF
    })
    this.#generations = [{ generation, hash: digest.slice(0, SHOWN_HASH), at, reason, ...diff }, ...this.#generations]
      .slice(0, KEPT_GENERATIONS)
  }

  /**
   * Judges a text as if it stood in the file, which it does not replace: in a thread, by all checks of a reload but
   * the plugins' own `create`. Reads no environment, no secret file, and no file or plugin but those of the live
   * configuration: who sends the text may be somebody else than who keeps the machine.
   * @throws {Error} before start()
   */
  async judge (text: string): Promise<Judgement> {
    const live = this.#running
    if (live === undefined) throw new Error('no configuration is live yet')
    const { file, pluginsUrl, load = loadConfig, services: { now } } = this.#options
    const own = live.config.pipeline.flatMap(({ use, version }) => version === undefined ? [] : [use])
    // A user's plugin may leave anything behind in its thread.
    const isKept = own.length === 0
    const loaded = await load(file, { pluginsUrl, now: now(), timeoutMs: JUDGE_MS,
      sent: { text, includes: live.sources, plugins: own },
      ...(isKept && { warm: this.#takeJudge(), keep: (thread: Worker) => { this.#keepJudge(thread) } }) })
    const isValid = loaded.kind === 'valid'
    const [problems, warnings] = isValid ? [[], loaded.warnings] : [loaded.problems, []]
    const { unread = [] } = loaded
    return {
      ok: isValid,
      problems: problems.slice(0, MOST_TOLD),
      warnings: warnings.slice(0, MOST_TOLD),
      unread: unread.slice(0, MOST_TOLD),
      is_cut: [problems, warnings, unread].some(({ length }) => length > MOST_TOLD),
      ...isValid
        ? await diffConfigs(live, loaded, unread.map(({ path }) => path))
        : NO_DIFF
    }
  }

  #takeJudge (): Worker | undefined {
    const judge = this.#judge
    this.#judge = undefined
    clearTimeout(judge?.end)
    return judge?.thread
  }

  #keepJudge (thread: Worker): void {
    const end = (): void => { thread.terminate().catch(() => {}) }
    if (this.#isClosed || this.#judge !== undefined) { end(); return }
    this.#judge = { thread, end: setTimeout(() => {
      this.#judge = undefined
      end()
    }, KEEP_JUDGE_MS).unref() }
  }

  async #compile (config: Config, generation: number): Promise<Live> {
    const userPlugins = new Map<string, Plugin>()
    for (const { use, version } of config.pipeline) {
      if (version !== undefined) userPlugins.set(use, await loadUserPlugin<Plugin>(use, version))
    }
    const { promise: timeout, reject } = Promise.withResolvers<never>()
    const { compile, timeoutMs = TIMEOUT_MS } = this.#options
    const timer = setTimeout(() => { reject(notReady(timeoutMs)) }, timeoutMs)
    const compiling = (async () => {
      mark('reload')
      return await compile(config, generation, userPlugins)
    })()
    let isLate = false
    compiling.then((snapshot) => { if (isLate) retire(snapshot) }, () => {})
    try {
      return await Promise.race([compiling, timeout])
    } catch (thrown) {
      isLate = true
      throw thrown
    } finally {
      clearTimeout(timer)
    }
  }

  async #goLive (snapshot: Live): Promise<void> {
    const { goLive, timeoutMs = TIMEOUT_MS } = this.#options
    try {
      await within(Promise.resolve(goLive?.(snapshot)), timeoutMs, () => notReady(timeoutMs))
    } catch (thrown) {
      retire(snapshot)
      throw thrown
    }
  }

  /**
   * Notes the files to watch. A refused load may have stopped before it had read all of them: then the old ones still
   * count.
   */
  #noteFiles ({ kind, stamps }: LoadResult): void {
    this.#stamps = kind === 'valid' ? new Map(stamps) : new Map([...this.#stamps, ...stamps])
  }

  #problemOf (thrown: unknown, loaded?: ValidLoad): Problem {
    const text = textOf(thrown)
    const message = `could not be put to use: ${loaded === undefined ? text : hideSecrets(text, loaded)}`
    if (thrown instanceof PartError && loaded !== undefined) {
      return { ...findPlace(parsePointer(thrown.path), loaded.places), path: thrown.path, message,
        ...(thrown.hint !== undefined && { hint: thrown.hint }) }
    }
    const place = thrown instanceof PluginError && thrown.file !== undefined
      ? { file: thrown.file, line: thrown.line ?? 1, column: thrown.column ?? 1 }
      : { file: this.#options.file, line: 1, column: 1 }
    return { ...place, path: '', message }
  }

  #tell (result: ReloadResult): void {
    const { log, metrics } = this.#options.services
    const { onReload, file } = this.#options
    const facts = { reason: result.reason, generation: result.generation, duration_ms: result.duration_ms }
    try {
      if (result.changed) metrics?.configLive(result.generation, this.#running!.config)
      // a failed start is no reload, and reports itself
      else if (!result.ok && result.reason !== 'start') { metrics?.configRefused() }
      else if (result.ok && result.reason !== 'start') { metrics?.configLive(result.generation, this.#running!.config) }
      for (const warning of result.warnings) { log?.warn(formatProblem(warning)) }
      if (result.ok) {
        log?.info(facts, result.changed
          ? `${file} ${result.reason === 'start' ? 'was loaded' : 'is live'}`
          : `${file} was read again: nothing to apply`)
      } else if (result.reason !== 'start') {
        log?.error({ ...facts, problems: result.problems.map(formatProblem) },
          `${file} was refused; generation ${result.generation} stays live`)
      }
      onReload?.(result)
    } catch (thrown) {
      emitWarning(thrown instanceof Error ? thrown : String(thrown))
    }
  }

  /** @throws {Error} before start() */
  status (): ConfigStatus {
    const state = this.state()
    const { generation, config, secrets } = this.#running!
    if (this.#shown?.generation !== generation) this.#shown = { generation, config: redact(config, secrets) }
    return { ...state, config: this.#shown.config, generations: this.#generations }
  }

  /** @throws {Error} before start() */
  state (): ConfigState {
    const running = this.#running
    const last = this.#last
    if (running === undefined || last === undefined) throw new Error('no configuration is live yet')
    const { ok, at, reason, duration_ms, problems, warnings } = last
    return {
      generation: running.generation,
      hash: running.digest.slice(0, SHOWN_HASH),
      loaded_at: running.loadedAt,
      source: this.#options.file,
      last_reload: { ok, at, reason, duration_ms },
      problems,
      warnings
    }
  }
}

function refused (problems: readonly Problem[]): Pick<ReloadResult, 'ok' | 'changed' | 'problems' | 'warnings'> {
  return { ok: false, changed: false, problems, warnings: [] }
}

function notReady (timeoutMs: number): Error {
  return new Error(`it was not ready within ${timeoutMs / 1000} s`)
}

function retire (snapshot: Retirable): void {
  // in the background: retiring must not affect the live configuration
  void (async () => {
    await snapshot.retire()
  })().catch((thrown: unknown) => {
    emitWarning(thrown instanceof Error ? thrown : String(thrown))
  })
}

/** Redacts an error of a plugin's `create`, which may quote its options. */
function hideSecrets (message: string, { config, secrets: pointers }: ValidLoad): string {
  const options = pointers.map((pointer) => parsePointer(pointer).reduce<unknown>(
    (value, step) => (value as Readonly<Record<string, unknown>> | undefined)?.[step], config
  ))
  const secrets = [
    ...options.filter((value) => typeof value === 'string'),
    config.server.admin.token,
    ...config.keys.map(({ secret }) => secret),
    ...Object.values(config.upstreams)
      .flatMap(({ headers, credentials, tls, proxy }) => [
        ...[headers, ...(credentials ?? []).map((one) => one.headers)].flatMap((one) => Object.values(one)),
        tls?.key ?? '',
        proxy ?? ''
      ])
  ]
  return secrets.reduce((text, secret) => secret.length < 4 ? text : text.replaceAll(secret, '***'), message)
}

/** A warning for each value of server: and store: that differs from the running one. */
function needsRestart (running: Config, { config, places }: ValidLoad): Problem[] {
  const changed = restartSections.flatMap((name) => differences(running[name], config[name], [name]))
  return sortProblems(changed.map((path) => ({
    ...findPlace(path, places),
    path: formatPointer(path),
    message: 'has changed: it needs a restart, and keeps its old value until then'
  })))
}

/**
 * Warns of changed opening balances: one is credited once, ever, so a later change has no effect. No warnings where the
 * ledger can't be read.
 */
async function changedOpenings (
  { config, places }: ValidLoad,
  creditedTo: NonNullable<LiveOptions['creditedTo']>
): Promise<Problem[]> {
  const changed = await Promise.all(config.accounts.map(async ({ id, opening_balance_usd: opening }, index) => {
    const credited = await (async () => await creditedTo(id))().catch(() => undefined)
    if (credited === undefined || credited === parseUsd(opening)) return []
    const path = ['accounts', String(index), 'opening_balance_usd']
    return [{
      ...findPlace(path, places),
      path: formatPointer(path),
      message: `has changed from ${formatUsd(credited)} to ${opening}, which does nothing: it was credited once, ` +
        'when the account was new'
    }]
  }))
  return changed.flat()
}

function differences (a: unknown, b: unknown, path: readonly string[]): (readonly string[])[] {
  if (isMap(a) && isMap(b)) {
    return [...new Set([...Object.keys(a), ...Object.keys(b)])].flatMap((key) =>
      differences(a[key], b[key], [...path, key])
    )
  }
  return JSON.stringify(a) === JSON.stringify(b) ? [] : [path]
}

function declaredIn ({ config, places }: ValidLoad): ReadonlyMap<string, Place> {
  return new Map((['accounts', 'keys'] as const).flatMap((list) => config[list].map(({ id }, index) =>
    [`${list} ${id}`, findPlace([list, String(index), 'id'], places)] as const)))
}

/** The position of a value; a value that went back to its default has none: then that of the nearest part above it. */
function findPlace (path: readonly string[], places: Readonly<Record<string, Place>>): Place {
  for (let end = path.length; end >= 0; end--) {
    const place = places[formatPointer(path.slice(0, end))]
    if (place !== undefined) return place
  }
  throw new Error('the root of a configuration always has a place')
}

/** For operators: what clients are told of an outage does not name it. */
function textOf (thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown)
  return isGatewayError(thrown) && thrown.row === 'service_unavailable' && thrown.cause instanceof Error
    ? `the store does not answer at this moment: ${thrown.cause.message}`
    : thrown.message
}
