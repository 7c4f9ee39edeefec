// The store that forgets: all state in this process, for tests and demos. Its ledger grows with every request, without a bound.
// Every method runs to its end without waiting, and changes nothing before its last check: that makes each of them atomic.
import type { Nanos } from '../money/nanos.ts'
import { Pages } from './pages.ts'
import type { Balance, Entry, HoldRequest, HoldResult, KeyUsage, Settlement, Store } from './store.ts'

interface Account { readonly id: string, balance: Nanos, held: Nanos, open_holds: number }
interface Key { readonly id: string, spent: Nanos, held: Nanos }
interface Hold { readonly account: Account, readonly key: Key, readonly nanos: Nanos }
type Line = Omit<Entry, 'id' | 'at'>

/** An entry as it is kept: JSON has no integers of any size, and a date is a number until somebody reads it. */
type Written = Omit<Entry, 'at' | 'nanos' | 'shortfall'> & { readonly time: number, readonly nanos: string, readonly shortfall?: string }

/** At least so many settled requests are remembered, so that settling one again changes nothing. Nobody does after minutes. */
const REMEMBERED = 50_000

/** What `store: { driver: memory }` opens. It answers at once, never with a promise. */
export class MemoryStore implements Store {
  readonly #now: () => number
  readonly #accounts = new Map<string, Account>()
  readonly #keys = new Map<string, Key>()
  readonly #holds = new Map<string, Hold>()
  /** by request id; the full one before it is kept beside it, and then forgotten */
  #charged = new Map<string, Nanos>()
  #chargedBefore: ReadonlyMap<string, Nanos> = new Map()
  readonly #credited = new Set<string>()
  readonly #entries = new Pages()
  #lastTime = 0
  #sequence = 0

  /** @param now milliseconds since the epoch */
  constructor (now: () => number = Date.now) {
    this.#now = now
  }

  credit (account: string, reference: string, nanos: Nanos): boolean {
    refuseNegative(nanos)
    if (this.#credited.has(reference)) return false
    this.#credited.add(reference)
    this.#account(account).balance += nanos
    this.#write({ kind: 'credit', account, reference, nanos })
    return true
  }

  hold (request: HoldRequest): HoldResult {
    const { request_id: id, nanos } = request
    refuseNegative(nanos)
    if (this.#holds.has(id) || this.#chargeOf(id) !== undefined) throw new Error(`the request ${id} has a hold or a settlement already`)
    const account = this.#account(request.account)
    const key = this.#key(request.key)
    const left = request.usage_limit === undefined ? undefined : request.usage_limit - key.spent
    const refused = (by: 'balance' | 'usage_limit', total: Nanos, held: Nanos): HoldResult =>
      ({ kind: 'refused', by, needed: nanos, available: total - held, held_by_others: held })

    if (nanos > account.balance) return refused('balance', account.balance, account.held)
    if (left !== undefined && nanos > left) return refused('usage_limit', left, key.held)
    if (nanos > account.balance - account.held) return refused('balance', account.balance, account.held)
    if (left !== undefined && nanos > left - key.held) return refused('usage_limit', left, key.held)

    this.#holds.set(id, { account, key, nanos })
    account.held += nanos
    account.open_holds++
    key.held += nanos
    return { kind: 'held' }
  }

  settle (settlement: Settlement): Nanos {
    const { request_id: id, nanos, ...what } = settlement
    refuseNegative(nanos)
    const before = this.#chargeOf(id)
    if (before !== undefined) return before
    const hold = this.#holds.get(id)
    if (hold === undefined) throw new Error(`the request ${id} has no hold to settle`)
    const { account, key } = hold
    const charged = nanos < hold.nanos ? nanos : hold.nanos

    this.#drop(id, hold)
    this.#remember(id, charged)
    account.balance -= charged
    key.spent += charged
    const line = { account: account.id, key: key.id, reference: id, ...what }
    this.#write({ kind: 'settle', nanos: -charged, ...line })
    if (nanos > charged) this.#write({ kind: 'shortfall', nanos: 0n, shortfall: nanos - charged, ...line })
    return charged
  }

  release (requestId: string): void {
    const hold = this.#holds.get(requestId)
    if (hold !== undefined) this.#drop(requestId, hold)
  }

  balance (account: string): Balance {
    const { balance, held, open_holds } = this.#accounts.get(account) ?? { balance: 0n, held: 0n, open_holds: 0 }
    return { balance, held, open_holds }
  }

  keyUsage (key: string): KeyUsage {
    const { spent, held } = this.#keys.get(key) ?? { spent: 0n, held: 0n }
    return { spent, held }
  }

  openHolds (): number {
    return this.#holds.size
  }

  async * entries (): AsyncIterable<Entry> {
    for (const line of this.#entries.lines()) {
      const { time, nanos, shortfall, ...entry } = JSON.parse(line) as Written
      yield Object.freeze({ ...entry, nanos: BigInt(nanos), ...(shortfall !== undefined && { shortfall: BigInt(shortfall) }), at: new Date(time).toISOString() })
    }
  }

  close (): void {}

  #drop (id: string, { account, key, nanos }: Hold): void {
    this.#holds.delete(id)
    account.held -= nanos
    account.open_holds--
    key.held -= nanos
  }

  #remember (id: string, charged: Nanos): void {
    this.#charged.set(id, charged)
    if (this.#charged.size < REMEMBERED) return
    this.#chargedBefore = this.#charged
    this.#charged = new Map()
  }

  #chargeOf (id: string): Nanos | undefined {
    return this.#charged.get(id) ?? this.#chargedBefore.get(id)
  }

  #account (id: string): Account {
    let account = this.#accounts.get(id)
    if (account === undefined) this.#accounts.set(id, account = { id, balance: 0n, held: 0n, open_holds: 0 })
    return account
  }

  #key (id: string): Key {
    let key = this.#keys.get(id)
    if (key === undefined) this.#keys.set(id, key = { id, spent: 0n, held: 0n })
    return key
  }

  #write (line: Line): void {
    // A clock that is set back must not disorder the ledger.
    this.#lastTime = Math.max(this.#lastTime, this.#now())
    const id = this.#lastTime.toString(36).padStart(9, '0') + (this.#sequence++).toString(36).padStart(8, '0')
    const { nanos, shortfall, ...what } = line
    this.#entries.add(JSON.stringify({ id, time: this.#lastTime, nanos: nanos.toString(), shortfall: shortfall?.toString(), ...what }))
  }
}

function refuseNegative (nanos: Nanos): void {
  if (nanos < 0n) throw new RangeError(`a negative amount: ${nanos} nano-dollars`)
}
