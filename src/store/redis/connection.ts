// The connection to Redis: every command is bounded in time, and after a failure the next ones fail at once, until a
// single probe has found that Redis answers again. So during an outage no request waits for Redis, and after it no
// storm of retries hits it.
import { Cluster, Redis, ReplyError } from 'ioredis'
import type { Logger } from 'pino'
import { atEndOfTurn } from '../../base/end-of-turn.ts'
import type { Timer } from '../../base/timer.ts'
import { UnreachableError } from '../unreachable.ts'
import type { Client } from './address.ts'
import { type Argument, ScriptCall } from './script-call.ts'
import { luaScripts, type Script } from './scripts.ts'

export interface LinkOptions {
  readonly client: Client
  /** for people: address without secrets */
  readonly name: string
  /** milliseconds for each command */
  readonly timeout: number
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  /** runs the probes and checks in the background */
  readonly timer: Timer
  /** called when Redis stops answering */
  readonly onAway?: () => void
  /**
   * Called when Redis answers again, or has other `ids` than before: until it has ended only `early` commands pass.
   * @returns false: Redis is away again
   */
  readonly onBack: () => Promise<boolean>
  /** Called with each check of Redis while commands pass. @returns true: `onBack` is due, as for another Redis */
  readonly onCheck?: () => Promise<boolean>
  /** called when all commands pass again */
  readonly onUp?: () => void
}

/** Redis does not answer, or not in time. A command that was sent may or may not have been executed. */
export class AwayError extends UnreachableError {
  override readonly name = 'AwayError'
  /** true: Redis was away before, and the command was not sent */
  readonly isUnasked: boolean

  constructor (
    message: string,
    { cause, isUnasked = false }: { readonly cause?: unknown, readonly isUnasked?: boolean } = {}
  ) {
    super(message, { cause })
    this.isUnasked = isUnasked
  }
}

/**
 * away: only a probe is sent. told: Redis receives what it may have missed, by `early` commands. up: all commands pass.
 */
type State = 'away' | 'told' | 'up'

export interface Way {
  /** @throws {AwayError} it is unknown whether it was done @throws {Error} Redis refused it: nothing was done */
  run (script: Script, key: string, ...args: readonly Argument[]): Promise<unknown>
  /**
   * For commands that change nothing, or that may be repeated: after a broken connection they are. @throws {AwayError}
   */
  call<T> (command: (client: Client) => Promise<T>): Promise<T>
}

/** Pauses between two probes: the first, and the longest. Doubled after each failure, and varied by half of it. */
const PROBE_MS = 50
const LONGEST_PROBE_MS = 1000
/** Failed probes in a row after which the connection is made anew. */
const DOUBTED = 5
/** Milliseconds between two checks of the replication id and lag; without other traffic they are the probe. */
const LOOK_MS = 2000
/** Milliseconds after which commands pass though Redis has not yet received all that it missed. */
const TOLD_MS = 3000
/** Milliseconds to connect at the start. */
const START_MS = 10_000

/** Errors that concern Redis as a whole, not the command: it can't serve at this moment. */
const TROUBLE =
  /^(?:LOADING|READONLY|CLUSTERDOWN|MASTERDOWN|TRYAGAIN|BUSY|NOREPLICAS|MISCONF|OOM|NOAUTH|WRONGPASS|NOPERM|UNBLOCKED|MOVED|ASK)\b/

export class Link implements Way {
  /** The way of messages that Redis must have before any decision. */
  readonly early: Way
  readonly #client: Client
  readonly #options: LinkOptions
  readonly #scripts = luaScripts()
  #state: State = 'away'
  #isMissed = false
  #isClosed = false
  /** the commands of this turn are held back until its end */
  #isGathering = false
  #cancel: () => void = () => {}
  #awaySince = 0
  #failures = 0
  #lag = 0
  readonly #waiting = new Set<(isUp: boolean) => void>()
  #ids: ReadonlyMap<string, string> = new Map()

  constructor (options: LinkOptions) {
    this.#options = options
    this.#client = options.client
    this.early = {
      run: (script, key, ...args) => this.#run(true, script, [key, ...args]),
      call: async (command) =>
        await this.repeated(async () => await this.#bounded(async () => await command(this.#client), true))
    }
    // ioredis reports each failed attempt to connect; the log reports an outage once.
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

  /** Replication ids, by address in a cluster: a master with another id may lack writes that the one before it had. */
  get ids (): ReadonlyMap<string, string> {
    return this.#ids
  }

  /** lag of the slowest replica in seconds, as far as is known */
  get lag (): number {
    return this.#lag
  }

  /** @throws {Error} Redis does not answer: says what was tried */
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
   * Repeats a request at the start while Redis is too slow, for at most `most` milliseconds: after an outage all
   * gateways start at once, and Redis is busy with them.
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
    return new UnreachableError(
      `Redis at ${this.#options.name} can't be used: ${explain(cause)}. Start it, or correct store: ` +
      'in the configuration.',
      { cause }
    )
  }

  async #connect (): Promise<void> {
    // `connect` of a cluster ends when the slots are known; the ready event comes when its nodes are connected.
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

  run (script: Script, key: string, ...args: readonly Argument[]): Promise<unknown> {
    return this.#run(false, script, [key, ...args])
  }

  /** As `#bounded`, for what each request asks four times: without a closure, and a promise in the place of three. */
  async #run (isEarly: boolean, script: Script, args: readonly Argument[]): Promise<unknown> {
    this.#refuseAway(isEarly)
    this.#gather()
    try {
      return await ScriptCall.send(this.#client, this.#scripts[script], args)
    } catch (thrown) {
      throw this.#failureOf(thrown as Error)
    }
  }

  async call<T> (command: (client: Client) => Promise<T>): Promise<T> {
    return await this.repeated(async () => await this.#bounded(async () => await command(this.#client)))
  }

  /** Repeats a failed request once, where Redis is back in the time that a command may take. */
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
    this.#refuseAway(isEarly)
    this.#gather()
    try {
      return await ask()
    } catch (thrown) {
      throw this.#failureOf(thrown as Error)
    }
  }

  /** @throws {AwayError} */
  #refuseAway (isEarly: boolean): void {
    if (this.#state === 'up' || (isEarly && this.#state === 'told')) return
    throw new AwayError(this.#isClosed ? 'the store is closed' : 'Redis is away', { isUnasked: true })
  }

  #failureOf (error: Error): Error {
    // An error of this command only: Redis is well.
    if (error instanceof ReplyError && !TROUBLE.test(error.message)) return error
    this.#noteTrouble(error)
    return new AwayError(explain(error), { cause: error })
  }

  /**
   * Lets what is sent in this turn of the event loop leave in one write: with 32 clients those of a dozen requests, of
   * which each has four commands. A write by itself takes 10 to 20 µs, and wakes Redis up.
   */
  #gather (): void {
    if (this.#isGathering) return
    this.#isGathering = true
    const streams = this.masters().map(({ stream }) => stream)
    for (const stream of streams) stream?.cork()
    atEndOfTurn(() => {
      this.#isGathering = false
      for (const stream of streams) stream?.uncork()
    })
  }

  /** Every node that takes writes. */
  masters (): readonly Redis[] {
    return this.#client instanceof Cluster ? this.#client.nodes('master') : [this.#client]
  }

  /**
   * A connection for subscriptions; a cluster has one beside the others.
   * @param begin called whenever there is a connection: subscribes. ioredis would do so by itself behind each but the
   *   first, without hearing of a failure, and what is rejected then ends the process.
   */
  subscriber (begin: (subscriber: Client) => void): Client {
    if (this.#client instanceof Cluster) {
      begin(this.#client)
      return this.#client
    }
    const subscriber = this.#client.duplicate({ lazyConnect: false, autoResubscribe: false })
    return subscriber.on('ready', () => { begin(subscriber) })
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
   * Waits for Redis at the beginning of an outage, for the time of a command; later in an outage it does not wait.
   * @param most milliseconds
   * @returns whether Redis is back
   */
  async #isBack (most: number): Promise<boolean> {
    return this.isUp ||
      await this.#isUpWithin(Math.min(most, this.#options.timeout - (performance.now() - this.#awaySince)))
  }

  /** @param ms 0 or less: not up in time, whatever the state is now */
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
      // A peer that vanished without closing looks connected to the socket.
      if (this.#failures % DOUBTED === 0) {
        for (const node of this.masters()) { if (node.status === 'ready') node.disconnect(true) }
      }
      this.#schedule()
      return
    }
    if (!this.#isClosed) await this.#tell()
  }

  /** Sends Redis what it may have missed, before any decision is asked of it. Never rejects. */
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

  /** All masters of a cluster must answer: each holds keys of its own. */
  async #ping (): Promise<void> {
    const masters = this.masters()
    if (masters.length === 0) throw new Error('there is no master')
    await Promise.all(masters.map(async (node) => await node.ping()))
  }

  #watch (): void {
    this.#cancel()
    this.#cancel = this.#options.timer(LOOK_MS, () => {
      this.#look().then(async (areOthers) => areOthers || await this.#options.onCheck?.() === true).then((isDue) => {
        if (this.#state !== 'up') return
        if (isDue) void this.#tell()
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
        if (thrown.message.startsWith('NOPERM')) return ''    // without the right to INFO, only silence shows an outage
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

/** The outage behind an error for clients, or the error itself. */
function awayOf (error: Error): Error {
  return error.cause instanceof AwayError ? error.cause : error
}

/** Whether an error is a missing answer; any other error is an answer of Redis. */
function isSilence (error: Error): boolean {
  const away = awayOf(error)
  return away instanceof AwayError ? !(away.cause instanceof ReplyError) : explain(error) !== error.message
}

/** ioredis's messages, in the operator's words. */
function explain ({ message }: Error): string {
  if (message === 'Command timed out') return 'it did not answer in time'
  if (
    /max retries per request|Connection is closed|isn't writeable|isn't ready/.test(message)
  ) return 'the connection was lost'
  return message
}
