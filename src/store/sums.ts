// Sums of entries: the balance of each account, and what each key has spent, ever and in each period.
import type { Nanos } from '../money/nanos.ts'
import { monthOf } from '../money/calendar.ts'
import { isOver, nameOf } from './periods.ts'

export class Sums {
  readonly accounts = new Map<string, Nanos>()
  readonly keys = new Map<string, Nanos>()
  /** by `nameOf` */
  readonly periods = new Map<string, Nanos>()
  /** number of entries added */
  entries = 0
  readonly #oldest: string

  /** @param oldest earlier days and months are left out */
  constructor (oldest = '') {
    this.#oldest = oldest
  }

  /** @param day of the key's entry */
  add (account: string, key: string | null | undefined, nanos: Nanos, day: string | null | undefined): void {
    this.entries++
    plus(this.accounts, account, nanos)
    if (key == null) return
    plus(this.keys, key, -nanos)
    if (day == null) return
    for (const period of [day, monthOf(day)]) {
      if (!isOver(period, this.#oldest)) plus(this.periods, nameOf(period, key), -nanos)
    }
  }

  addAll ({ accounts, keys, periods, entries }: Sums): void {
    for (const [account, nanos] of accounts) plus(this.accounts, account, nanos)
    for (const [key, nanos] of keys) plus(this.keys, key, nanos)
    for (const [period, nanos] of periods) plus(this.periods, period, nanos)
    this.entries += entries
  }
}

function plus (sums: Map<string, Nanos>, id: string, nanos: Nanos): void {
  sums.set(id, (sums.get(id) ?? 0n) + nanos)
}
