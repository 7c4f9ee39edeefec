// What memory knows of requests (src/store/local/balances.ts): a hold until it is settled or released, however many
// requests come meanwhile; a charge to be given back, or undone, while it is recent; and for long that it was charged.
import fc from 'fast-check'
import t from 'tap'
import { Books, type Charge } from '../../src/store/local/balances.ts'
import { REFUNDABLE, REMEMBERED } from '../../src/store/local/settled.ts'
import { MOST_NANOS } from '../../src/money/nanos.ts'
import { noUsage } from '../../src/money/usage.ts'

const OPENING = 10n ** 15n

interface Known { nanos: bigint, state: 'open' | 'charged' | 'given back', charge?: Charge | undefined, age: number,
  isCorrected?: boolean }

/** The books beside a simple account of what they must know. */
class Both {
  readonly books = new Books()
  readonly known = new Map<string, Known>()
  #ids = 0
  /** charges so far */
  #charges = 0
  #spent = 0n

  constructor () {
    const opening = { kind: 'credit' as const, account: 'a', reference: 'opening', nanos: OPENING }
    this.books.announce(opening)
    this.books.deposit(opening)
  }

  hold (nanos: bigint): string {
    const id = `r${this.#ids++}`
    this.books.hold({ request_id: id, account: 'a', key: 'k', nanos }, 0)
    this.known.set(id, { nanos, state: 'open', age: 0 })
    return id
  }

  settle (id: string, nanos: bigint): void {
    const one = this.known.get(id)!
    const charge = this.books.settle({ request_id: id, nanos, model: 'm', usage: noUsage, usage_source: 'provider' })
    if ((charge === undefined) !== (one.state !== 'open')) throw new Error(`${id} was charged twice, or not at all`)
    if (charge === undefined) return
    const charged = nanos < one.nanos ? nanos : one.nanos
    if (charge.nanos !== charged) throw new Error(`${charge.nanos} was charged, not ${charged}`)
    this.known.set(id, { nanos: charged, state: 'charged', charge, age: ++this.#charges })
    this.#spent += charged
  }

  release (id: string): void {
    const one = this.known.get(id)!
    const released = this.books.release(id) !== undefined
    if (released !== (one.state === 'open')) throw new Error(`${id} was released, though it is ${one.state}`)
    if (released) this.known.delete(id)
  }

  giveBack (id: string): void {
    const one = this.known.get(id)!
    const charge = this.books.recentCharge(id)
    if (one.state !== 'charged') {
      if (charge !== undefined) throw new Error(`${id} could be given back, though it is ${one.state}`)
      return
    }
    if (charge === undefined) {
      if (this.#charges - one.age < REFUNDABLE) throw new Error(`${id} can't be given back`)
      return
    }
    this.books.giveBack(charge)
    this.#spent -= one.nanos
    this.known.set(id, { ...one, nanos: 0n, state: 'given back' })
  }

  /** Undoes a charge that could not be recorded: of one that was charged long ago too. */
  revoke (id: string): void {
    const one = this.known.get(id)!
    if (one.state !== 'charged') return
    this.books.revoke(one.charge!)
    this.#spent -= one.nanos
    this.known.set(id, { nanos: one.nanos, state: 'open', age: 0 })
  }

  /** The ledger has charged another amount before, which is in its sums. */
  correct (id: string, nanos: bigint): void {
    const one = this.known.get(id)!
    if (one.state !== 'charged' || one.isCorrected === true) return
    this.books.correct(one.charge!, nanos)
    this.#spent -= one.nanos
    one.nanos = nanos
    one.isCorrected = true
  }

  check (): void {
    let [held, open] = [0n, 0]
    for (const [id, { nanos, state, age }] of this.known) {
      const charged = this.books.chargeOf(id)
      if (state === 'open') { held += nanos; open++ }
      if (this.books.hasHold(id) !== (state === 'open')) throw new Error(`${id} is ${state}`)
      if (state === 'open' ? charged !== undefined : charged !== nanos &&
        (charged !== undefined || this.#charges - age < REMEMBERED)) throw new Error(`${charged} of ${id}, not ${nanos}`)
    }
    const balance = this.books.balance('a')
    if (balance.balance !== OPENING - this.#spent || balance.held !== held || balance.open_holds !== open ||
      this.books.openHolds !== open) {
      throw new Error(`the books say ${balance.balance}, ${balance.held} held by ${balance.open_holds}`)
    }
    const key = this.books.keyUsage('k')
    if (key.spent !== this.#spent || key.held !== held) throw new Error(`the key has spent ${key.spent}`)
  }

  /** So many others are charged. */
  others (count: number): void {
    for (let i = 0; i < count; i++) this.settle(this.hold(2n), 1n)
  }
}

void t.test('any order of holds, charges, refunds and undone charges, with many requests between them', async () => {
  const kinds = ['hold', 'settle', 'settle again', 'release', 'giveBack', 'revoke', 'correct', 'others'] as const
  const step = fc.record({ what: fc.constantFrom(...kinds), which: fc.nat(12), nanos: fc.bigInt(0n, 60n),
    count: fc.constantFrom(1, 3, REFUNDABLE - 1, REFUNDABLE, REFUNDABLE + 1) })
  let [late, back] = [0, 0]
  fc.assert(fc.property(fc.array(step, { minLength: 8, maxLength: 40, size: 'max' }), (steps) => {
    const both = new Both()
    const mine: string[] = []
    for (const { what, which, nanos, count } of steps) {
      const id = mine.at(-1 - which % Math.max(mine.length, 1))
      if (what === 'others') both.others(count)
      else if (what === 'hold' || id === undefined || !both.known.has(id)) mine.push(both.hold(nanos))
      else if (what === 'release') both.release(id)
      else if (what === 'giveBack') {
        both.giveBack(id)
        if (both.known.get(id)!.state === 'charged') late++
        else if (both.known.get(id)!.state === 'given back') back++
      } else if (what === 'revoke') both.revoke(id)
      else if (what === 'correct') both.correct(id, nanos)
      else both.settle(id, nanos)
    }
    both.check()
  }), { numRuns: 60 })
  if (late === 0 || back === 0) throw new Error(`${late} were too late to be given back, ${back} were not`)
})

void t.test('a hold outlives any number of charges, and its own charge is remembered from then on', async (t) => {
  const both = new Both()
  const id = both.hold(7n)
  const released = both.hold(3n)
  for (let generation = 0; generation < 3; generation++) both.others(REMEMBERED)
  t.ok(both.books.hasHold(id))
  both.release(released)
  t.notOk(both.books.hasHold(released))
  both.settle(id, 5n)
  both.others(REMEMBERED - 1)
  t.equal(both.books.chargeOf(id), 5n)
  both.settle(id, 6n)                                          // changes nothing
  both.check()
  both.others(2 * REMEMBERED)
  t.equal(both.books.chargeOf(id), undefined, 'and is forgotten, as is all that was long ago')
})

void t.test('a charge can be given back while fewer came behind it than are kept, and its amount is known after that', async (t) => {
  const both = new Both()
  const [first, second] = [both.hold(7n), both.hold(8n)]
  both.settle(first, 7n)
  both.settle(second, 8n)
  both.others(REFUNDABLE - 2)
  t.equal(both.books.recentCharge(first)?.nanos, 7n)
  both.giveBack(first)
  both.others(1)
  t.equal(both.books.chargeOf(first), 0n, 'what was given back stays so')
  t.equal(both.books.recentCharge(second)?.nanos, 8n)
  both.others(1)
  t.equal(both.books.recentCharge(second), undefined)
  t.equal(both.books.chargeOf(second), 8n)
  both.revoke(second)
  t.ok(both.books.hasHold(second))
  both.settle(second, 1n)
  both.check()
})

void t.test('what was used is counted in whole numbers, of a charge and of one that may come', async (t) => {
  const both = new Both()
  const id = both.hold(7n)
  const settlement = { request_id: id, nanos: 1n, model: 'm', usage: { ...noUsage, input: 0.5 },
    usage_source: 'provider' } as const
  t.throws(() => both.books.previewCharge(settlement), RangeError)
  t.throws(() => both.books.settle(settlement), RangeError)
  both.check()
})

t.test('balances and what keys have spent are each their own, however many there are', (t) => {
  const books = new Books()
  const count = 400
  for (let i = 0; i < count; i++) {
    books.load('account', `a${i}`, BigInt(10 * i))
    books.load('key', `k${i}`, BigInt(i))
    books.hold({ request_id: `r${i}`, account: `a${i}`, key: `k${i}`, day: '2026-11-21', nanos: BigInt(5 * i) }, 0)
  }
  for (let i = 0; i < count; i += 2) {
    books.settle({ request_id: `r${i}`, nanos: BigInt(3 * i), model: 'm', usage: noUsage, usage_source: 'provider' })
  }
  for (let i = 0; i < count; i++) {
    const [charged, held] = i % 2 === 0 ? [BigInt(3 * i), 0n] : [0n, BigInt(5 * i)]
    t.strictSame(books.balance(`a${i}`), { balance: BigInt(10 * i) - charged, held, open_holds: i % 2 })
    t.strictSame(books.keyUsage(`k${i}`), { spent: BigInt(i) + charged, held })
    for (const period of ['2026-11-21', '2026-11']) {
      t.strictSame(books.keyUsage(`k${i}`, period), { spent: charged, held })
    }
  }
  t.end()
})

void t.test('what comes back behind a credit up to the most that can be counted is not lost', async (t) => {
  const books = new Books()
  const booking = (kind: 'credit' | 'debit', nanos: bigint): Parameters<Books['announce']>[0] =>
    ({ kind, account: 'a', reference: `${kind} of ${nanos}`, nanos })
  const book = (of: ReturnType<typeof booking>): void => { books.announce(of); books.deposit(of) }
  const charge = (id: string): Charge => {
    books.hold({ request_id: id, account: 'a', key: 'k', nanos: 10n }, 0)
    return books.settle({ request_id: id, nanos: 10n, model: 'm', usage: noUsage, usage_source: 'provider' })!
  }
  const balance = (): bigint => books.balance('a').balance
  book(booking('credit', MOST_NANOS))
  const [refunded, undone] = [charge('r1'), charge('r2')]
  const failing = booking('debit', 5n)
  books.announce(failing)
  const coming = booking('credit', 25n)
  books.announce(coming)
  books.giveBack(refunded)
  books.deposit(coming)
  t.equal(balance(), MOST_NANOS + 10n)
  books.revoke(undone)
  books.withdraw(failing)
  t.strictSame(books.balance('a'), { balance: MOST_NANOS + 25n, held: 10n, open_holds: 1 })
  t.equal(books.balances().get('a'), MOST_NANOS + 25n)
  t.throws(() => books.announce(booking('credit', 1n)), /would pass/)
  books.release('r2')
  charge('r3')
  book(booking('debit', 15n))
  t.equal(balance(), MOST_NANOS)
  t.match(books.hold({ request_id: 'r4', account: 'a', key: 'other', nanos: MOST_NANOS }, 0), { kind: 'held' })
})
