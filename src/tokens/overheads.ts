// Tokens that upstreams count beyond the bound of a request's input (bound.ts): chat templates, prompts of their own,
// images that weigh more than the allowance. They are not published, so they are learned from reports, for each model
// of each upstream: so that holds fit.
import { NO_CONTEXT, type InputBound } from './bound.ts'
import { PerCounter, type Counter } from './counter.ts'

/** A confirmed value is kept for so many reports, and for as many more at most. */
const REPORTS = 100

/**
 * The second largest of the last reports, which two of them confirm. So a single false report raises no hold, and an
 * overhead that is reported no more is forgotten.
 */
class Confirmed {
  /** the two largest of these reports and of those before them, each with the larger first */
  #now: readonly [number, number] = [0, 0]
  #before: readonly [number, number] = [0, 0]
  #reports = 0

  get value (): number {
    const [most, second] = this.#now
    const [mostBefore, secondBefore] = this.#before
    return Math.max(Math.min(most, mostBefore), second, secondBefore)
  }

  add (value: number): void {
    if (++this.#reports > REPORTS) {
      this.#before = this.#now
      this.#now = [0, 0]
      this.#reports = 1
    }
    const [most, second] = this.#now
    if (value > most) this.#now = [value, most]
    else if (value > second) this.#now = [most, value]
  }
}

/** Tokens beyond the bound: of a request, and of each image. */
class Overhead {
  readonly text = new Confirmed()
  readonly image = new Confirmed()

  learn ({ tokens, images }: InputBound, reported: number): void {
    const beyond = reported - tokens
    if (images === 0) this.text.add(beyond)
    else this.image.add(Math.ceil((beyond - this.text.value) / images))
  }
}

/** The overheads of all targets. A hold that does not fit yet is extended when its request ends. */
export class Overheads {
  readonly #learned = new PerCounter<Overhead>()

  /** The bound for one target: tokens, at most its context. */
  bound (counter: Counter, { tokens, images }: InputBound, context = NO_CONTEXT): number {
    const learned = this.#learned.get(counter)
    if (learned === undefined) return tokens
    return Math.min(context, tokens + learned.text.value + images * learned.image.value)
  }

  /** @param reported tokens of input of all classes that the target has counted for a request of this bound */
  learn (counter: Counter, bound: InputBound, reported: number): void {
    let learned = this.#learned.get(counter)
    if (learned === undefined) this.#learned.set(counter, learned = new Overhead())
    learned.learn(bound, reported)
  }
}
