// A binary heap that knows the position of each item: a changed item is moved, and any item removed, in O(log n).

export class Heap<T> {
  readonly #isBefore: (one: T, other: T) => boolean
  readonly #items: T[] = []
  readonly #places = new Map<T, number>()

  constructor (isBefore: (one: T, other: T) => boolean) {
    this.#isBefore = isBefore
  }

  get size (): number {
    return this.#items.length
  }

  get first (): T | undefined {
    return this.#items[0]
  }

  /** Adds the item, or moves it after a change. */
  place (item: T): void {
    const place = this.#places.get(item) ?? this.#items.length
    this.#put(item, place)
    this.#down(this.#up(place))
  }

  /** A no-op for an item that is not in the heap. */
  remove (item: T): void {
    const place = this.#places.get(item)
    if (place === undefined) return
    const last = this.#items.pop()!
    this.#places.delete(item)
    if (place === this.#items.length) return
    this.#put(last, place)
    this.#down(this.#up(place))
  }

  #put (item: T, place: number): void {
    this.#items[place] = item
    this.#places.set(item, place)
  }

  /** @returns its new position */
  #up (place: number): number {
    while (place > 0) {
      const above = (place - 1) >> 1
      if (!this.#swaps(above, place)) break
      place = above
    }
    return place
  }

  #down (place: number): void {
    for (;;) {
      const [left, right] = [2 * place + 1, 2 * place + 2]
      if (left >= this.#items.length) return
      const below = right < this.#items.length && this.#isBefore(this.#items[right]!, this.#items[left]!) ? right : left
      if (!this.#swaps(place, below)) return
      place = below
    }
  }

  /** @returns whether the two were in the wrong order */
  #swaps (above: number, below: number): boolean {
    const [upper, lower] = [this.#items[above]!, this.#items[below]!]
    if (!this.#isBefore(lower, upper)) return false
    this.#put(lower, above)
    this.#put(upper, below)
    return true
  }
}
