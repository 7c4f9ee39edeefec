// A cooldown: a credential is not used for a while after a refusal, and for longer after each further one. With probes,
// one request at a time finds out at its end whether the credential is accepted again. No timers: its state is computed
// from the clock.
import { LOOK_MS } from './breaker.ts'

export type CooldownState = 'healthy' | 'cooling_down' | 'probing'

export class Cooldown<Reason extends string> {
  /** milliseconds that a probe is exclusive; 0: no probes */
  readonly #probe: number
  /** milliseconds since the epoch, as every `now` here */
  #until = 0
  /** refusals in a row, without a success between them */
  #inARow = 0
  /** of the last refusal */
  #reason: Reason | undefined
  /** end of the running probe's exclusive time; 0: none runs */
  #probeUntil = 0
  /** Counts refusals. Parallel requests get the same refusal: that is one, not twenty. */
  #term = 0

  constructor (probe = 0) {
    this.#probe = probe
  }

  /** Milliseconds until a request may try; 0: now. Short while a probe runs, which may end at any time. */
  wait (now: number): number {
    return Math.max(0, this.#until - now, Math.min(LOOK_MS, this.#probeUntil - now))
  }

  /** An upper bound of the milliseconds until a request may go. */
  recovery (now: number): number {
    return Math.max(0, this.#until - now, this.#probeUntil - now)
  }

  state (now: number): CooldownState {
    if (now < this.#until) return 'cooling_down'
    return this.#probe > 0 && this.#inARow > 0 ? 'probing' : 'healthy'
  }

  /** Undefined: it is healthy. */
  reason (now: number): Reason | undefined {
    return this.state(now) === 'healthy' ? undefined : this.#reason
  }

  /** Begins a request, or the probe; only when `wait` is 0. @returns the term, to be passed with the result */
  enter (now: number): number {
    if (this.#probe > 0 && this.#inARow > 0) this.#probeUntil = now + this.#probe
    return this.#term
  }

  /**
   * @param term the term when the request was sent
   * @param times milliseconds
   * @param pause milliseconds of the upstream's retry-after; undefined: it sent none
   * @returns whether it is the first refusal since a success
   */
  put (
    term: number,
    reason: Reason,
    { first, longest }: { readonly first: number, readonly longest: number },
    now: number,
    pause?: number
  ): boolean {
    const isNew = term === this.#term
    if (isNew) {
      this.#change()
      this.#inARow++
    }
    const ms = pause ?? (isNew ? Math.min(longest, first * 2 ** Math.min(this.#inARow - 1, 30)) : 0)
    if (isNew || now + ms > this.#until) this.#reason = reason
    this.#until = Math.max(this.#until, now + ms)
    return isNew && this.#inARow === 1
  }

  /** A request that ended without a verdict on the credential: the next one may be the probe. */
  leave (term: number): void {
    if (term === this.#term) this.#probeUntil = 0
  }

  /** Ends the cooldown after a success. @returns whether refusals came before it */
  reset (term: number): boolean {
    if (term !== this.#term || this.#inARow === 0) return false
    this.#inARow = this.#probeUntil = 0
    return true
  }

  /** Ends the cooldown at once. Refusals of requests that were sent before do not begin another one. */
  clear (): void {
    this.#change()
    this.#inARow = this.#until = 0
  }

  #change (): void {
    this.#probeUntil = 0
    this.#term++
  }
}
