// Tokens that upstreams count beyond the bound of a request's input (bound.ts): chat templates, prompts of their own,
// images that weigh more than the allowance. They are not published, so they are learned from reports, for each model
// of each upstream: so that holds fit.
import { NO_CONTEXT, type InputBound } from './bound.ts'
import { PerCounter, type Counter } from './counter.ts'

/** A confirmed value is kept for so many reports, and for as many more at most. */
const REPORTS = 100
/** Most accounts of which a target's own overheads are kept; beyond them that of the one first seen is dropped. */
const ACCOUNTS = 1000

interface Witness {
  readonly value: number
  /** who has caused the report */
  readonly by: unknown
}

const NOBODY: Witness = Object.freeze({ value: 0, by: undefined })

/**
 * The second largest of the last reports, which two witnesses confirm. So a single false one raises no hold, and an
 * overhead that is reported no more is forgotten.
 */
class Confirmed {
  /** read by each request, and changed by few reports */
  value = 0
  /** the largest of these reports, and the largest of another witness; the same of those before them */
  #most = NOBODY
  #second = NOBODY
  #mostBefore = NOBODY
  #secondBefore = NOBODY
  #reports = 0

  add (value: number, by: unknown): void {
    const isNext = ++this.#reports > REPORTS
    if (isNext) {
      this.#mostBefore = this.#most
      this.#secondBefore = this.#second
      this.#most = this.#second = NOBODY
      this.#reports = 1
    }
    if (value > this.#most.value) {
      if (this.#most.by !== by) this.#second = this.#most
      this.#most = { value, by }
    } else if (value > this.#second.value && by !== this.#most.by) {
      this.#second = { value, by }
    } else if (!isNext) {
      return
    }
    const both = this.#most.by === this.#mostBefore.by ? 0 : Math.min(this.#most.value, this.#mostBefore.value)
    this.value = Math.max(both, this.#second.value, this.#secondBefore.value)
  }
}

/** Tokens beyond the bound: of a request, and of each image. */
class Overhead {
  readonly text = new Confirmed()
  readonly image = new Confirmed()

  learn ({ tokens, images }: InputBound, reported: number, by: unknown): void {
    const beyond = reported - tokens
    if (images === 0) this.text.add(beyond, by)
    else this.image.add(Math.ceil((beyond - this.text.value) / images), by)
  }

  of (images: number): number {
    return this.text.value + images * this.image.value
  }
}

/** What a target's reports say: to all accounts what two of them confirm, to each what two of its own do. */
class Learned {
  readonly shared = new Overhead()
  readonly own = new Map<string, Overhead>()
  reports = 0
}

/** The overheads of all targets. A hold that does not fit yet is extended when its request ends. */
export class Overheads {
  readonly #learned = new PerCounter<Learned>()

  /** The bound for one target: tokens, at most its context. */
  bound (counter: Counter, { tokens, images }: InputBound, context = NO_CONTEXT, account = ''): number {
    const learned = this.#learned.get(counter)
    if (learned === undefined) return tokens
    const own = learned.own.get(account)
    return Math.min(context, tokens + Math.max(learned.shared.of(images), own === undefined ? 0 : own.of(images)))
  }

  /**
   * A report above the context teaches nothing: it is none of such a model.
   * @param reported tokens of input of all classes that the target has counted for a request of this bound
   */
  learn (counter: Counter, bound: InputBound, reported: number, context = NO_CONTEXT, account = ''): void {
    if (reported > context) return
    let learned = this.#learned.get(counter)
    if (learned === undefined) this.#learned.set(counter, learned = new Learned())
    learned.shared.learn(bound, reported, account)
    this.#ownOf(learned, account).learn(bound, reported, ++learned.reports)
  }

  #ownOf ({ own }: Learned, account: string): Overhead {
    let overhead = own.get(account)
    if (overhead !== undefined) return overhead
    if (own.size === ACCOUNTS) for (const first of own.keys()) { own.delete(first); break }
    own.set(account, overhead = new Overhead())
    return overhead
  }
}
