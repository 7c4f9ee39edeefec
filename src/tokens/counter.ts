// Who counts tokens: a model of an upstream. What is learned from its reports is kept by that.

/** A target's upstream, and the model's id there. */
export interface Counter {
  readonly upstream: string
  readonly model: string
}

/** Outlives reloads. Of this process, from what it has seen; as many as were ever configured. */
export class PerCounter<T> {
  readonly #learned = new Map<string, T>()

  get (counter: Counter): T | undefined {
    return this.#learned.get(nameOf(counter))
  }

  set (counter: Counter, learned: T): void {
    this.#learned.set(nameOf(counter), learned)
  }
}

function nameOf ({ upstream, model }: Counter): string {
  return `${upstream}\n${model}`
}
