// The unit of learning from reports: a model of an upstream, whose tokenizer counts.

/** A target's upstream, and the model's id there. */
export interface Counter {
  readonly upstream: string
  readonly model: string
}

/** Values per target, learned by this process. Outlives reloads; bounded by the targets that were ever configured. */
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
