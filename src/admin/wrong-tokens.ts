// Requests to the admin listener with a wrong token: counted, logged, and answered late. Each guess from an address
// (of IPv6, from a network of 64 bits, which is what one subscriber has) makes the next one wait for twice as long, up
// to half a minute. Answers that wait hold a connection, so there is a bound to them; those beyond are given at once
// and cost the guesser a connection. A right token never waits, whoever guesses beside it: so what protects in the end
// is the length of the token.
import { hash, randomBytes } from 'node:crypto'
import { canonical, lowestOf } from '../base/ip-address.ts'
import { startTimer, type Timer } from '../base/timer.ts'
import type { Services } from '../core/services.ts'

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
  #waiting = 0
  #loggedAt = -Infinity
  #unlogged = 0

  constructor (services: Pick<Services, 'log' | 'metrics' | 'now'>, timer: Timer = startTimer) {
    this.#services = services
    this.#timer = timer
  }

  /** Resolves when the request may be answered. @returns false: at once, because too many wait */
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

  #count (at: number): number {
    const now = this.#services.now()
    const before = now - this.#last[at]! >= FORGOTTEN_MS ? 0 : this.#guesses[at]!
    this.#last[at] = now
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

/** An address of IPv4, or the first 64 bits of one of IPv6. */
function networkOf (address: string): string {
  const known = canonical(address) ?? ''
  return known.includes(':') ? lowestOf({ family: 'ipv6', address: known, prefix: 64 })! : known
}
