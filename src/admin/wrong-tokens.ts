// Requests to the admin listener with a wrong token: counted, logged, and answered late. Each guess from an address
// (of IPv6, from a network of 64 bits, which is what one subscriber has) makes the next one wait for twice as long, up
// to half a minute. Answers that wait hold a connection, so there is a bound to them. Beyond it tokens of that address
// are refused without being looked at, except those that were right from there before: an operator shares an address
// with a guesser where both are behind one NAT. A right token never waits.
import { hash, randomBytes } from 'node:crypto'
import { canonical, lowestOf } from '../base/ip-address.ts'
import { startTimer, type Timer } from '../base/timer.ts'
import type { Services } from '../core/services.ts'
import { Refusal } from './api/refusal.ts'

const FIRST_WAIT_MS = 500
const LONGEST_WAIT_MS = 32_000
/** From an address without a guess for so long the next one is the first. */
const FORGOTTEN_MS = 15 * 60_000
/** Most answers that wait at a time, for one address and for all. */
const MOST_HERE = 16
const MOST_WAITING = 256
const LOG_EVERY_MS = 1000
/**
 * Addresses share so many counters, by a hash that nobody can foresee: however many guess, that is the memory. Who
 * shares one with a guesser waits longer, and only for a wrong token.
 */
const COUNTERS = 4096
/** How long a token that was right from an address passes there while others guess. */
const USED_MS = 24 * 60 * 60_000
/** Most networks that are kept for it, and most tokens of each; the oldest go first. */
const MOST_NETWORKS = 1024
const MOST_TOKENS = 16
/** As many double the first wait to the longest one. */
const MOST_GUESSES = 1 + Math.ceil(Math.log2(LONGEST_WAIT_MS / FIRST_WAIT_MS))

export class Strangers {
  readonly #services: Pick<Services, 'log' | 'metrics' | 'now'>
  readonly #timer: Timer
  readonly #salt = randomBytes(16).toString('hex')
  readonly #guesses = new Uint8Array(COUNTERS)
  /** milliseconds since the epoch */
  readonly #last = new Float64Array(COUNTERS)
  readonly #waitingHere = new Uint8Array(COUNTERS)
  /** Digests of tokens that were right, with the time of their last use, by network; oldest first. */
  readonly #used = new Map<string, Map<string, number>>()
  #waiting = 0
  #loggedAt = -Infinity
  #unlogged = 0

  constructor (services: Pick<Services, 'log' | 'metrics' | 'now'>, timer: Timer = startTimer) {
    this.#services = services
    this.#timer = timer
  }

  /** Resolves when the guess may be answered. @returns false: at once, because too many wait */
  async note (address: string, path: string): Promise<boolean> {
    this.#services.metrics.rejected('admin_token')
    const at = this.#counterOf(address)
    const guesses = this.#count(at)
    const wait = Math.min(FIRST_WAIT_MS * 2 ** (guesses - 1), LONGEST_WAIT_MS)
    const isPatient = this.#waiting < MOST_WAITING && this.#waitingHere[at]! < MOST_HERE
    this.#log({ address, path, wait_ms: isPatient ? wait : 0 })
    if (!isPatient) return false
    this.#waiting++
    this.#waitingHere[at]!++
    await new Promise<void>((resolve) => { this.#timer(wait, resolve) })
    this.#waiting--
    this.#waitingHere[at]!--
    return true
  }

  /** A token was right. @param digest of the token */
  noteRight (address: string, digest: Buffer): void {
    const network = networkOf(address)
    const tokens = this.#used.get(network) ?? new Map<string, number>()
    renew(this.#used, network, tokens, MOST_NETWORKS)
    renew(tokens, digest.toString('base64'), this.#services.now(), MOST_TOKENS)
  }

  /**
   * To be called before a token is looked at.
   * @param digest of the token; undefined: not read yet
   * @throws {Refusal} too many guesses came from this address
   */
  check (address: string, path: string, digest: Buffer | undefined): void {
    const at = this.#counterOf(address)
    if (!this.#isBlocked(at) || this.#wasRight(address, digest)) return
    this.#services.metrics.rejected('admin_token')
    this.#log({ address, path, wait_ms: 0 })
    throw tooManyGuesses()
  }

  #isBlocked (at: number): boolean {
    if (this.#waitingHere[at]! >= MOST_HERE) return true
    // While others fill the room, an address has a few guesses: it may be an operator's.
    return this.#waiting >= MOST_WAITING && this.#guesses[at]! >= MOST_GUESSES && !this.#isForgotten(at)
  }

  #wasRight (address: string, digest: Buffer | undefined): boolean {
    const tokens = this.#used.get(networkOf(address))
    if (tokens === undefined) return false
    const since = this.#services.now() - USED_MS
    return digest === undefined
      ? [...tokens.values()].some((at) => at > since)
      : (tokens.get(digest.toString('base64')) ?? -Infinity) > since
  }

  #isForgotten (at: number): boolean {
    return this.#services.now() - this.#last[at]! >= FORGOTTEN_MS
  }

  #count (at: number): number {
    const before = this.#isForgotten(at) ? 0 : this.#guesses[at]!
    this.#last[at] = this.#services.now()
    return this.#guesses[at] = Math.min(before + 1, MOST_GUESSES)
  }

  #counterOf (address: string): number {
    return hash('sha256', this.#salt + networkOf(address), 'buffer').readUInt32LE() % COUNTERS
  }

  #log (guess: object): void {
    const { log, now } = this.#services
    if (now() - this.#loggedAt < LOG_EVERY_MS) {
      this.#unlogged++
      return
    }
    log.warn({ ...guess, ...(this.#unlogged > 0 && { more: this.#unlogged }) }, 'a wrong admin token')
    this.#loggedAt = now()
    this.#unlogged = 0
  }
}

export function tooManyGuesses (): Refusal {
  return new Refusal('busy', 'Too many wrong tokens came from this address, so this one was not checked. Try again ' +
    'later, or from another address.', { headers: { 'retry-after': `${LONGEST_WAIT_MS / 1000}`, connection: 'close' } })
}

/** Puts an entry at the end of a map of limited size. */
function renew<Value> (kept: Map<string, Value>, key: string, value: Value, most: number): void {
  kept.delete(key)
  kept.set(key, value)
  if (kept.size > most) kept.delete(kept.keys().next().value!)
}

/** An address of IPv4, or the first 64 bits of one of IPv6. */
function networkOf (address: string): string {
  const known = canonical(address) ?? ''
  return known.includes(':') ? lowestOf({ family: 'ipv6', address: known, prefix: 64 })! : known
}
