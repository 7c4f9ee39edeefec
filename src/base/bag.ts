// Things that come and go by the thousand, in no order. Not a Set: V8 makes a new table for one every few dozen
// changes, and the old table points to the new one. Once a dead table is in the old generation, all that has been in it
// since lives until a full collection: 5 KB a request, and each scavenge copies it (measured: 7 ms in the place of 2,
// which every stream feels).

/** Where something stands. Whoever put it in takes it out with this. */
export interface Place<T> {
  readonly item: T
  /** written by the bag */
  at: number
}

export class Bag<T> {
  readonly #places: Place<T>[] = []

  get size (): number {
    return this.#places.length
  }

  /** @returns for `remove`, once */
  add (item: T): Place<T> {
    const place = { item, at: this.#places.length }
    this.#places.push(place)
    return place
  }

  /** The last one takes its place. */
  remove (place: Place<T>): void {
    const last = this.#places.pop()!
    if (last === place) return
    this.#places[place.at] = last
    last.at = place.at
  }

  /** As they are now: they may leave while they are looked at. */
  all (): T[] {
    return this.#places.map(({ item }) => item)
  }
}
