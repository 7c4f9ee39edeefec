// Tokens per character of each model's text, learned from its upstream's reports of whole answers: tokenizers are not
// published for all models, and another vendor's is wrong for each of them in its own way.
import { PerCounter, type Counter } from './counter.ts'
import { HiddenOutput } from './hidden-output.ts'
import { LEAST_RATES, MOST_RATES, START_RATES, type Rates, type TextCount } from './text-count.ts'

/** Fewest tokens of an answer that is learned from: in shorter ones the frame and the rounding dominate. */
const LEAST_TOKENS = 32
/**
 * Factor beyond which a report is ignored: it is about something else, such as thoughts that are not shown, or a wrong
 * count.
 */
const BELIEVED = 3
/** Factor to which a report is clipped, and the share of it that is learned: so no rate changes by more than 6 %. */
const FURTHEST = 1.25
const SPEED = 1 / 8

export class TokenRates {
  readonly hidden = new HiddenOutput()
  readonly #learned = new PerCounter<Rates>()

  /** The array is never changed, so two estimates with it are comparable. */
  of (counter: Counter): Rates {
    return this.#learned.get(counter) ?? START_RATES
  }

  /**
   * Moves the rates of the answer's classes, by their share in it, towards its report (normalized least mean squares,
   * of logarithms).
   * @param text all output that the report covers
   * @param reported tokens of output
   */
  learn (counter: Counter, text: TextCount, reported: number): void {
    const off = reported / text.weigh(START_RATES)             // NaN, or Infinity, for no text
    if (reported < LEAST_TOKENS || !(off >= 1 / BELIEVED && off <= BELIEVED)) return
    const rates = this.of(counter)
    const weight = text.weigh(rates)
    const ratio = within(reported / weight, 1 / FURTHEST, FURTHEST)
    const { counts } = text.counted
    let squares = 0
    for (let kind = 0; kind < counts.length; kind++) squares += (counts[kind]! * rates[kind]! / weight) ** 2
    const learned = [...rates]
    for (let kind = 0; kind < learned.length; kind++) {
      if (counts[kind] === 0) continue                        // most classes: their rates stay as they are
      const share = counts[kind]! * rates[kind]! / weight
      const moved = rates[kind]! * ratio ** (SPEED * share / squares)
      learned[kind] = within(moved, LEAST_RATES[kind]!, MOST_RATES[kind]!)
    }
    this.#learned.set(counter, learned)
  }
}

function within (value: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, value))
}
