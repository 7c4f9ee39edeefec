// The unit of learning from reports: a model of an upstream, whose tokenizer counts.

/** A target's upstream, and the model's id there. */
export interface Counter {
  readonly upstream: string
  readonly model: string
}

/** Values per target, learned by this process. Outlives reloads; bounded by the targets that were ever configured. */
export class PerCounter<T> {
  /** by upstream and model: a name made of both would be put together and hashed for every request */
  readonly #learned = new Map<string, Map<string, T>>()

  get ({ upstream, model }: Counter): T | undefined {
    return this.#learned.get(upstream)?.get(model)
  }

  set ({ upstream, model }: Counter, learned: T): void {
    let models = this.#learned.get(upstream)
    if (models === undefined) this.#learned.set(upstream, models = new Map())
    models.set(model, learned)
  }
}
