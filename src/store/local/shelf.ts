// What a process knows of the responses that it keeps: whose each is, when it ends, and which must go for a new one.

export interface Place {
  /** the account, or what stands for it */
  readonly owner: string
  readonly id: string
  readonly bytes: number
  /** milliseconds since the epoch */
  expires: number
}

interface Owned<P> {
  bytes: number
  /** by id; the one that was used longest ago comes first, here and in `#all` */
  readonly places: Map<string, P>
}

export class Shelf<P extends Place> {
  readonly #space: number
  readonly #now: () => number
  readonly #all = new Map<string, P>()
  readonly #owned = new Map<string, Owned<P>>()
  #bytes = 0

  /** @param space bytes of all owners together */
  constructor (space: number, now: () => number) {
    this.#space = space
    this.#now = now
  }

  /** bytes of all places */
  get bytes (): number {
    return this.#bytes
  }

  /** Undefined: there is none, or it is over. */
  find (owner: string, id: string): P | undefined {
    const place = this.#owned.get(owner)?.places.get(id)
    return place === undefined || place.expires <= this.#now() ? undefined : place
  }

  /**
   * Adds a place. @param space bytes of its owner
   * @returns those that went for it; undefined: it is too large
   */
  add (place: P, space: number): readonly P[] | undefined {
    if (place.bytes > Math.min(space, this.#space)) return undefined
    const gone: P[] = []
    const before = this.#owned.get(place.owner)?.places.get(place.id)
    if (before !== undefined) gone.push(this.remove(before))
    for (let owned; (owned = this.#owned.get(place.owner)) !== undefined && owned.bytes + place.bytes > space;) {
      gone.push(this.remove(first(owned.places)))
    }
    while (this.#bytes + place.bytes > this.#space) gone.push(this.remove(first(this.#all)))
    const owned = this.#owned.get(place.owner) ?? { bytes: 0, places: new Map<string, P>() }
    this.#owned.set(place.owner, owned)
    owned.bytes += place.bytes
    this.#bytes += place.bytes
    this.#put(owned, place)
    return gone
  }

  /** Makes it the place that was used last. */
  use (place: P, expires: number): void {
    const owned = this.#owned.get(place.owner)
    if (owned?.places.get(place.id) !== place) return
    place.expires = expires
    owned.places.delete(place.id)
    this.#all.delete(nameOf(place))
    this.#put(owned, place)
  }

  remove (place: P): P {
    const owned = this.#owned.get(place.owner)
    if (owned?.places.get(place.id) !== place) return place
    owned.places.delete(place.id)
    owned.bytes -= place.bytes
    if (owned.places.size === 0) this.#owned.delete(place.owner)
    this.#all.delete(nameOf(place))
    this.#bytes -= place.bytes
    return place
  }

  /** Removes the places that are over. */
  sweep (): readonly P[] {
    const now = this.#now()
    return [...this.#all.values()].filter(({ expires }) => expires <= now).map((place) => this.remove(place))
  }

  #put (owned: Owned<P>, place: P): void {
    owned.places.set(place.id, place)
    this.#all.set(nameOf(place), place)
  }
}

function nameOf ({ owner, id }: Place): string {
  return `${owner}\n${id}`
}

function first<P> (places: ReadonlyMap<string, P>): P {
  return places.values().next().value!
}
