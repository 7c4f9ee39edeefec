// The ledger of a dry run: holds and admissions are decided on the store's present state, which stays as it is. Each
// method that changes something is overridden by name: one that the port gains does not compile until it has a dry
// answer.
import type { Ledger } from '../core/ledger.ts'
import type { Admission, HoldRequest, Settlement } from '../store/store.ts'

export class DryLedger implements Ledger {
  readonly #ledger: Ledger

  constructor (ledger: Ledger) {
    this.#ledger = ledger
  }

  hold (request: HoldRequest): ReturnType<Ledger['hold']> {
    return this.#ledger.wouldHold(request)
  }

  wouldHold (request: HoldRequest): ReturnType<Ledger['wouldHold']> {
    return this.#ledger.wouldHold(request)
  }

  admit (admission: Admission): ReturnType<Ledger['admit']> {
    return this.#ledger.wouldAdmit(admission)
  }

  wouldAdmit (admission: Admission): ReturnType<Ledger['wouldAdmit']> {
    return this.#ledger.wouldAdmit(admission)
  }

  /** @throws {Error} always: a dry run has no hold that could grow */
  extend (requestId: string): never {
    throw new Error(`the request ${requestId} has no hold to extend: this is a dry run`)
  }

  /** Charges nothing. */
  settle (_settlement: Settlement): bigint {
    return 0n
  }

  release (): void {}

  refund (): void {}

  progress (): void {}

  failed (): void {}

  leave (): void {}

  balance (account: string): ReturnType<Ledger['balance']> {
    return this.#ledger.balance(account)
  }

  keyUsage (key: string, period?: string): ReturnType<Ledger['keyUsage']> {
    return this.#ledger.keyUsage(key, period)
  }
}
