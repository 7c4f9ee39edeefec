// How many tokens each model makes of its text, learned from what its upstream reports of whole answers: it is not
// published for all models, and another vendor's tokenizer is wrong for each of them in its own way.
import { PerCounter, type Counter } from './counter.ts'
import { LEAST_RATES, MOST_RATES, START_RATES, type Rates, type TextCount } from './text-count.ts'

/** Tokens that an answer must have to teach anything: in shorter ones it is the frame that counts, and the rounding. */
const LEAST_TOKENS = 32
/**
 * A report further off than that from the start is about something else: thoughts that are not shown, a wrong count.
 */
const BELIEVED = 3
/**
 * How far off a report is taken to be at most, and which part of that is learned: so no rate changes by more than 6 %.
 */
const FURTHEST = 1.25
const SPEED = 1 / 8

export class TokenRates {
  readonly #learned = new PerCounter<Rates>()

  /** Never changed: who keeps them estimates the same text alike. */
  of (counter: Counter): Rates {
    return this.#learned.get(counter) ?? START_RATES
  }

  /**
   * Moves the rates of the classes that the answer has, by their share in it, towards what was reported of it
   * (normalized least mean squares, of logarithms).
   * @param text all that the report is about
   * @param reported tokens of output
   */
  learn (counter: Counter, text: TextCount, reported: number): void {
    const off = reported / text.weigh(START_RATES)             // NaN, or Infinity, for no text
    if (reported < LEAST_TOKENS || !(off >= 1 / BELIEVED && off <= BELIEVED)) return
    const rates = this.of(counter)
    const ratio = within(reported / text.weigh(rates), 1 / FURTHEST, FURTHEST)
    const shares = text.shares(rates)
    const squares = shares.reduce((sum, share) => sum + share ** 2, 0)
    const moved = rates.map((rate, kind) => rate * ratio ** (SPEED * shares[kind]! / squares))
    this.#learned.set(counter, moved.map((rate, kind) => within(rate, LEAST_RATES[kind]!, MOST_RATES[kind]!)))
  }
}

function within (value: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, value))
}
