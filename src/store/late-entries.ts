// References of entries about a request that has an entry of their kind already. The ledger has one entry of each kind
// and reference, so the reference of a late one has a suffix that says what it is. With Redis, a request whose process
// was silent for too long is charged by another process, and may be settled by its own later.

/** Suffix of the `adjust` and `shortfall` of a late settlement: its difference to the charge. */
export const SETTLED_LATE = ' settle'
/** Suffix of the `adjust` that refunds a charge and its late settlement. */
export const REFUNDED_LATE = ' refund'

/** The request of an `adjust`; the entry is a refund unless `isSettledLate`. */
export function readReference (reference: string): { readonly request: string, readonly isSettledLate: boolean } {
  const late = [SETTLED_LATE, REFUNDED_LATE].find((end) => reference.endsWith(end)) ?? ''
  return { request: reference.slice(0, reference.length - late.length), isSettledLate: late === SETTLED_LATE }
}
