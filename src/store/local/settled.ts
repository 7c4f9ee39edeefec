// The requests that were settled last, and the amounts: so that a repeated settlement changes nothing, and the last
// ones can be given back. In flat arrays: each full collection would look at the objects of 100,000 requests.
import { hashOfId } from '../../base/id-table.ts'
import type { Nanos } from '../../money/nanos.ts'

/**
 * At least so many settled requests are remembered, so that a repeated settlement changes nothing. Repetitions come
 * within minutes.
 */
export const REMEMBERED = 50_000

/** At least so many of the last charges can be given back: a refund follows its settlement at once. */
export const REFUNDABLE = 5000

const FIRST_REQUESTS = 64
const NONE = -1

/** In the place of the number of a request's terms: the request was removed. */
const REMOVED = -2

/** Requests in the order in which they came. */
class Generation {
  readonly #ids: string[] = []
  #removed = 0
  #nanos = new BigInt64Array(FIRST_REQUESTS)
  /** by request: the number of its terms, `NONE` or `REMOVED` */
  #turns = new Float64Array(FIRST_REQUESTS)
  /** by hash, or behind it where that is taken: the index of a request, plus one; 0: free */
  #places = new Int32Array(4 * FIRST_REQUESTS)

  /** It has as many requests as are remembered, or twice as many with those that were removed. */
  get isFull (): boolean {
    return this.#ids.length - this.#removed >= REMEMBERED || this.#ids.length >= 2 * REMEMBERED
  }

  /** The index of a request, or `NONE`. */
  find (id: string): number {
    const index = this.#places[this.#placeOf(id)]! - 1
    return index === NONE || this.#turns[index] === REMOVED ? NONE : index
  }

  nanosOf (index: number): Nanos {
    return this.#nanos[index]!
  }

  turnOf (index: number): number {
    return this.#turns[index]!
  }

  put (index: number, nanos: Nanos, turn: number): void {
    this.#nanos[index] = nanos
    this.#turns[index] = turn
  }

  /** @param id of a request that is not in it, or was removed */
  add (id: string, nanos: Nanos, turn: number): void {
    if (this.#ids.length === this.#nanos.length) this.#grow()
    const place = this.#placeOf(id)
    if (this.#places[place] === 0) this.#places[place] = this.#ids.push(id)
    else this.#removed--
    this.put(this.#places[place]! - 1, nanos, turn)
  }

  remove (index: number): void {
    this.#turns[index] = REMOVED
    this.#removed++
  }

  /** Where its index is, or would be. */
  #placeOf (id: string): number {
    const places = this.#places
    const last = places.length - 1
    let at = hashOfId(id) & last
    while (places[at] !== 0 && this.#ids[places[at]! - 1] !== id) at = (at + 1) & last
    return at
  }

  #grow (): void {
    const [nanos, turns] = [this.#nanos, this.#turns]
    this.#nanos = new BigInt64Array(2 * nanos.length)
    this.#turns = new Float64Array(2 * nanos.length)
    this.#nanos.set(nanos)
    this.#turns.set(turns)
    this.#places = new Int32Array(8 * nanos.length)
    for (const [i, id] of this.#ids.entries()) this.#places[this.#placeOf(id)] = i + 1
  }
}

/** @typeParam Terms what is told again when a charge is given back */
export class SettledRequests<Terms> {
  #now = new Generation()
  /** forgotten as a whole, when as many have come after it as are remembered */
  #before = new Generation()
  /** those of the last charges, each at its place until its turn comes again */
  readonly #terms: Array<Terms | undefined> = []
  #turn = 0
  /** the last of the ids: those of requests grow */
  #last = ''

  has (id: string): boolean {
    return id <= this.#last && this.#isKnown(id)
  }

  #isKnown (id: string): boolean {
    return this.#now.find(id) !== NONE || this.#before.find(id) !== NONE
  }

  /** What was charged. */
  nanosOf (id: string): Nanos | undefined {
    const generation = this.#of(id)
    return generation?.nanosOf(generation.find(id))
  }

  /** Undefined: it can't be given back, or was. */
  termsOf (id: string): Terms | undefined {
    const generation = this.#of(id)
    if (generation === undefined) return undefined
    const turn = generation.turnOf(generation.find(id))
    return turn === NONE || this.#turn - turn > REFUNDABLE ? undefined : this.#terms[turn % REFUNDABLE]
  }

  /** @param id of a request that is not known */
  add (id: string, nanos: Nanos, terms: Terms): void {
    this.#terms[this.#turn % REFUNDABLE] = terms
    this.#put(id, nanos, this.#turn++)
  }

  /** Of a request that is known, or of another one; that can't be given back. */
  remember (id: string, nanos: Nanos): void {
    this.#put(id, nanos, NONE)
  }

  /** Replaces the amount, if the request is still known; it can be given back as before. */
  amend (id: string, nanos: Nanos): void {
    const generation = this.#of(id)
    const index = generation?.find(id) ?? NONE
    generation?.put(index, nanos, generation.turnOf(index))
  }

  /** The settlement is undone. */
  remove (id: string): void {
    for (const generation of [this.#now, this.#before]) {
      const index = generation.find(id)
      if (index !== NONE) generation.remove(index)
    }
  }

  #of (id: string): Generation | undefined {
    return [this.#now, this.#before].find((generation) => generation.find(id) !== NONE)
  }

  #put (id: string, nanos: Nanos, turn: number): void {
    const index = id > this.#last ? NONE : this.#now.find(id)
    if (index !== NONE) { this.#now.put(index, nanos, turn); return }
    if (id > this.#last) this.#last = id
    this.#now.add(id, nanos, turn)
    if (!this.#now.isFull) return
    this.#before = this.#now
    this.#now = new Generation()
  }
}
