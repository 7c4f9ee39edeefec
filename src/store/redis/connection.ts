// The way to Redis: every command is bounded in time, and where one fails the next ones fail at once, until a single
// probe has found that Redis answers again. So while it is away nobody waits for it, and when it comes back nobody
// storms it.
import { Cluster, Redis, ReplyError } from 'ioredis'
import type { Logger } from 'pino'
import type { Timer } from '../../base/timer.ts'
import type { Client } from './address.ts'
import { defineScripts, type Script } from './scripts.ts'

export interface LinkOptions {
  readonly client: Client
  /** for people */
  readonly name: string
  /** milliseconds for each command */
  readonly timeout: number
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  /** of what happens in the background */
  readonly timer: Timer
  /** Redis does not answer */
  readonly onAway?: () => void
  /**
   * It answers again, or has other `ids` than before: until this has ended only `early` commands go there.
   * @returns false: it is away again
   */
  readonly onBack: () => Promise<boolean>
  /** It answers to everybody again. */
  readonly onUp?: () => void
}

/** Redis does not answer, or not in time. Whether it did what was asked is unknown, where it was asked. */
export class AwayError extends Error {
  override readonly name = 'AwayError'
  /** it was away before, and has not heard of it */
  readonly isUnasked: boolean

  constructor (
    message: string,
    { cause, isUnasked = false }: { readonly cause?: unknown, readonly isUnasked?: boolean } = {}
  ) {
    super(message, { cause })
    this.isUnasked = isUnasked
  }
}

export type Argument = string | number

/** away: nobody asks it, but for a probe. told: it hears what it may have missed. */
type State = 'away' | 'told' | 'up'

export interface Way {
  /** @throws {AwayError} it is unknown whether it was done @throws {Error} Redis refused it: nothing was done */
  run (script: Script, key: string, ...args: readonly Argument[]): Promise<unknown>
  /** Commands that change nothing, or that may be repeated: where the connection broke they are. @throws {AwayError} */
  call<T> (command: (client: Client) => Promise<T>): Promise<T>
}

/**
 * The first pause between two probes; twice as long after each that failed, up to the longest, and by a half longer or
 * shorter.
 */
const PROBE_MS = 50
const LONGEST_PROBE_MS = 1000
/** Probes in a row without an answer after which the connection itself is doubted. */
const DOUBTED = 5
/** Between two looks at who it is and how far its replicas are behind; and a probe while nobody asks. */
const LOOK_MS = 2000
/** A Redis that has much to hear is asked after so long all the same. */
const TOLD_MS = 3000
/** To connect at the start. */
const START_MS = 10_000

/** Answers of a Redis that can't do what it is asked at this moment, whoever asks. */
const TROUBLE =
  /^(?:LOADING|READONLY|CLUSTERDOWN|MASTERDOWN|TRYAGAIN|BUSY|NOREPLICAS|MISCONF|OOM|NOAUTH|WRONGPASS|NOPERM|UNBLOCKED|MOVED|ASK)\b/

export class Link implements Way {
  /** For what Redis must hear before it is asked anything. */
  readonly early: Way
  readonly #client: Client
  readonly #options: LinkOptions
  readonly #scripts: ReturnType<typeof defineScripts>
  #state: State = 'away'
  #isMissed = false
  #isClosed = false
  #cancel: () => void = () => {}
  #awaySince = 0
  #failures = 0
  #lag = 0
  readonly #waiting = new Set<(isUp: boolean) => void>()
  #ids: ReadonlyMap<string, string> = new Map()

  constructor (options: LinkOptions) {
    this.#options = options
    this.#client = options.client
    this.#scripts = defineScripts(options.client)
    this.early = {
      run: async (script, key, ...args) =>
        await this.#bounded(async () => await this.#scripts[script](key, args), true),
      call: async (command) =>
        await this.repeated(async () => await this.#bounded(async () => await command(this.#client), true))
    }
    // Each attempt to connect that fails says so; ours is to say it once.
    options.client.on('error', (error: Error) => {
      this.#noteTrouble(error)
    })
    if (options.client instanceof Redis) {
      options.client.on('close', () => {
        this.#noteTrouble(new Error('the connection was closed'))
      })
    }
  }

  get isUp (): boolean {
    return this.#state === 'up'
  }

  /** Replication ids, by address in a cluster: who has another one may not know what that one knew. */
  get ids (): ReadonlyMap<string, string> {
    return this.#ids
  }

  /** seconds that the slowest replica is behind, as far as is known */
  get lag (): number {
    return this.#lag
  }

  /** @throws {Error} nobody answers: says what was tried */
  async open (): Promise<void> {
    const over = Promise.withResolvers<never>()
    const timeout = setTimeout(() => { over.reject(new Error('it did not answer in time')) }, START_MS)
    try {
      await Promise.race([over.promise, this.#connect()])
      await this.#look()
    } catch (cause) {
      this.#isClosed = true
      this.#client.disconnect()
      throw this.#unusable(cause as Error)
    } finally {
      clearTimeout(timeout)
    }
    this.#state = 'up'
    this.#watch()
  }

  /**
   * For a start: what takes too long is asked again, for so long. After an outage all gateways start at once, and Redis
   * is busy with them.
   * @param ask may be repeated
   * @throws {Error} it took too long, or was refused: says what was tried
   */
  async patiently<T> (ask: () => Promise<T>, most = START_MS): Promise<T> {
    const began = performance.now()
    for (;;) {
      try {
        return await ask()
      } catch (thrown) {
        const error = thrown as Error
        if (!isSilence(error)) throw error
        if (!await this.#isUpWithin(most - (performance.now() - began))) throw this.#unusable(awayOf(error))
      }
    }
  }

  #unusable (cause: Error): Error {
    return new Error(
      `Redis at ${this.#options.name} can't be used: ${explain(cause)}. Start it, or correct store: ` +
      'in the configuration.',
      { cause }
    )
  }

  async #connect (): Promise<void> {
    // A cluster answers when it has its map; the ready event comes when its nodes are connected.
    const ready = new Promise<void>((resolve) => {
      this.#client.once('ready', resolve)
    })
    const failed = new Promise<never>((_resolve, reject) => {
      if (this.#client instanceof Redis) this.#client.once('error', reject)
    })
    failed.catch(() => {})
    await this.#client.connect()
    await Promise.race([ready.then(), failed, this.#client.status === 'ready' ? undefined : ready])
  }

  async run (script: Script, key: string, ...args: readonly Argument[]): Promise<unknown> {
    return await this.#bounded(async () => await this.#scripts[script](key, args))
  }

  async call<T> (command: (client: Client) => Promise<T>): Promise<T> {
    return await this.repeated(async () => await this.#bounded(async () => await command(this.#client)))
  }

  /** Asks once more, where Redis is back in the time that a command may take. */
  async repeated<T> (ask: () => Promise<T>): Promise<T> {
    const began = performance.now()
    try {
      return await ask()
    } catch (thrown) {
      if (
        !(thrown instanceof AwayError) || !await this.#isBack(this.#options.timeout - (performance.now() - began))
      ) throw thrown
      return await ask()
    }
  }

  async #bounded<T> (ask: () => Promise<T>, isEarly = false): Promise<T> {
    if (!(this.#state === 'up' || (isEarly && this.#state === 'told'))) {
      throw new AwayError(this.#isClosed ? 'the store is closed' : 'Redis is away', { isUnasked: true })
    }
    try {
      return await ask()
    } catch (thrown) {
      const error = thrown as Error
      // A reply to this question only: Redis is well.
      if (error instanceof ReplyError && !TROUBLE.test(error.message)) throw error
      this.#noteTrouble(error)
      throw new AwayError(explain(error), { cause: error })
    }
  }

  /** Each node that can be written to. */
  masters (): readonly Redis[] {
    return this.#client instanceof Cluster ? this.#client.nodes('master') : [this.#client]
  }

  /** A connection for what Redis tells by itself; a cluster has one beside the others. */
  subscriber (): Client {
    return this.#client instanceof Cluster
      ? this.#client
      : this.#client.duplicate({ lazyConnect: false, enableOfflineQueue: true, maxRetriesPerRequest: null })
  }

  release (subscriber: Client): void {
    if (subscriber !== this.#client) subscriber.disconnect()
  }

  close (): void {
    this.#isClosed = true
    this.#state = 'away'
    this.#cancel()
    for (const end of this.#waiting) end(false)
    this.#client.disconnect()
  }

  /**
   * Whoever comes when it has just gone waits for it, as long as for any command; later ones don't.
   * @param most milliseconds
   * @returns whether Redis is back
   */
  async #isBack (most: number): Promise<boolean> {
    return this.isUp ||
      await this.#isUpWithin(Math.min(most, this.#options.timeout - (performance.now() - this.#awaySince)))
  }

  /** @param ms where none are left, it is not up in time whatever it is now */
  async #isUpWithin (ms: number): Promise<boolean> {
    if (this.#isClosed || ms <= 0) return false
    if (this.isUp) return true
    return await new Promise<boolean>((resolve) => {
      const end = (isUp: boolean): void => {
        clearTimeout(timeout)
        this.#waiting.delete(end)
        resolve(isUp)
      }
      const timeout = setTimeout(end, ms, false)
      this.#waiting.add(end)
    })
  }

  #noteTrouble (error: Error): void {
    if (this.#state === 'away' || this.#isClosed) return
    this.#state = 'away'
    this.#schedule()
    this.#options.onAway?.()
    if (this.#isMissed) return
    this.#isMissed = true
    this.#awaySince = performance.now()
    this.#options.log.error({ err: error.message },
      `Redis at ${this.#options.name} does not answer: requests are handled as store.on_outage says, and what is ` +
      'charged waits in the outbox')
  }

  #schedule (): void {
    this.#cancel()
    const pause = Math.min(LONGEST_PROBE_MS, PROBE_MS * 2 ** this.#failures) * (0.5 + Math.random())
    this.#cancel = this.#options.timer(pause, () => { void this.#probe() })
  }

  /** Never rejects. */
  async #probe (): Promise<void> {
    if (this.#isClosed) return
    try {
      await this.#ping()
    } catch {
      this.#failures++
      // Whoever vanished without a word is still connected, as far as the socket knows.
      if (this.#failures % DOUBTED === 0) {
        for (const node of this.masters()) { if (node.status === 'ready') node.disconnect(true) }
      }
      this.#schedule()
      return
    }
    if (!this.#isClosed) await this.#tell()
  }

  /** Before it decides anything it hears what it may have missed. Never rejects. */
  async #tell (): Promise<void> {
    this.#cancel()
    this.#state = 'told'
    try {
      await this.#look()
    } catch (thrown) {
      this.#failures++
      this.#noteTrouble(thrown as Error)
      return
    }
    const isTold = await this.#telling()
    if (this.#state !== 'told') { this.#failures++; return }
    if (!isTold) { this.#failures++; this.#noteTrouble(new Error('it did not hear everything')); return }
    this.#state = 'up'
    this.#failures = 0
    for (const end of this.#waiting) { end(true) }
    if (this.#isMissed) {
      this.#options.log.info({ away_ms: Math.round(performance.now() - this.#awaySince) },
        `Redis at ${this.#options.name} answers again`)
    }
    this.#isMissed = false
    this.#options.onUp?.()
    this.#watch()
  }

  async #telling (): Promise<boolean> {
    const enough = Promise.withResolvers<boolean>()
    const timeout = setTimeout(enough.resolve, TOLD_MS, true)
    try {
      return await Promise.race([enough.promise, this.#options.onBack()])
    } finally {
      clearTimeout(timeout)
    }
  }

  /** Of a cluster all masters have to answer: each has keys that nobody else has. */
  async #ping (): Promise<void> {
    const masters = this.masters()
    if (masters.length === 0) throw new Error('there is no master')
    await Promise.all(masters.map(async (node) => await node.ping()))
  }

  #watch (): void {
    this.#cancel()
    this.#cancel = this.#options.timer(LOOK_MS, () => {
      this.#look().then((areOthers) => {
        if (this.#state !== 'up') return
        if (areOthers) void this.#tell()
        else this.#watch()
      }, (thrown: unknown) => { this.#noteTrouble(thrown as Error) })
    })
  }

  /** @returns whether there are other ids than before */
  async #look (): Promise<boolean> {
    const ids = new Map<string, string>()
    let lag = 0
    await Promise.all(this.masters().map(async (node) => {
      const told = await node.info('replication').catch((thrown: Error) => {
        if (thrown.message.startsWith('NOPERM')) return ''    // then only its silence can be seen
        throw thrown
      })
      const id = /^master_replid:(\w+)/m.exec(told)?.[1]
      if (id !== undefined) {
        ids.set(this.#client instanceof Cluster ? `${node.options.host}:${node.options.port}` : '', id)
      }
      for (const [, seconds] of told.matchAll(/^slave\d+:.*\blag=(\d+)/gm)) { lag = Math.max(lag, Number(seconds)) }
    }))
    const areOthers = [...ids].some(([where, id]) => this.#ids.get(where) !== id)
    this.#ids = ids
    this.#lag = lag
    return areOthers
  }
}

/** What clients are told has it as its cause. */
function awayOf (error: Error): Error {
  return error.cause instanceof AwayError ? error.cause : error
}

/** Nobody has answered, where another error is an answer. */
function isSilence (error: Error): boolean {
  const away = awayOf(error)
  return away instanceof AwayError ? !(away.cause instanceof ReplyError) : explain(error) !== error.message
}

/** ioredis's own words, for operators. */
function explain ({ message }: Error): string {
  if (message === 'Command timed out') return 'it did not answer in time'
  if (
    /max retries per request|Connection is closed|isn't writeable|isn't ready/.test(message)
  ) return 'the connection was lost'
  return message
}
