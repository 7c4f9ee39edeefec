// What upstreams count beyond the bound of a request's input (bound.ts): chat templates, prompts of their own, images that weigh more
// than the allowance. Nobody publishes it, so it is learned from what they report, for each model of each upstream: so that holds fit.
import { NO_CONTEXT, type InputBound } from './bound.ts'

/** Whose: a target's upstream, and the model's id there. */
export interface Counter {
  readonly upstream: string
  readonly model: string
}

/** Tokens beyond the bound: of any request, and of each image. */
interface Overhead {
  text: number
  image: number
}

/** An overhead that was in none of the last so many reports is forgotten, with the next as many at most. */
const REPORTS = 1000

class Learned {
  #now: Overhead = { text: 0, image: 0 }
  #before: Overhead = { text: 0, image: 0 }
  #reports = 0

  get text (): number { return Math.max(this.#now.text, this.#before.text) }
  get image (): number { return Math.max(this.#now.image, this.#before.image) }

  learn ({ tokens, images }: InputBound, reported: number): void {
    if (++this.#reports > REPORTS) {
      this.#before = this.#now
      this.#now = { text: 0, image: 0 }
      this.#reports = 1
    }
    const beyond = reported - tokens
    if (images === 0) this.#now.text = Math.max(this.#now.text, beyond)
    else this.#now.image = Math.max(this.#now.image, Math.ceil((beyond - this.text) / images))
  }
}

/** Outlives reloads. Of this process, from what it has seen: a hold that does not fit yet is extended when its request ends. */
export class Overheads {
  readonly #learned = new Map<string, Learned>()

  /** The bound for one target: tokens, at most its context. */
  bound (counter: Counter, { tokens, images }: InputBound, context = NO_CONTEXT): number {
    const learned = this.#learned.get(nameOf(counter))
    return learned === undefined ? tokens : Math.min(context, tokens + learned.text + images * learned.image)
  }

  /** @param reported tokens of input, of all classes, that it has counted for a request of this bound */
  learn (counter: Counter, bound: InputBound, reported: number): void {
    const name = nameOf(counter)
    let learned = this.#learned.get(name)
    if (learned === undefined) this.#learned.set(name, learned = new Learned())
    learned.learn(bound, reported)
  }
}

/** As many as were ever configured. */
function nameOf ({ upstream, model }: Counter): string {
  return `${upstream}\n${model}`
}
