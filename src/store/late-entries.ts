// References of entries. The ledger has one entry of each kind and reference. So the reference of a booking begins with
// its kind and account; and that of an entry about a request that has one of its kind already has a suffix that says
// what it is: with Redis, a request whose process was silent for too long is charged by another process, and may be
// settled by its own later.
import type { Entry } from './store.ts'

/** Suffix of the `adjust` and `shortfall` of a late settlement: its difference to the charge. */
export const SETTLED_LATE = ' settle'
/** Suffix of the `adjust` that refunds a charge and its late settlement. */
export const REFUNDED_LATE = ' refund'

/** The request of an `adjust`; the entry is a refund unless `isSettledLate`. */
export function readReference (reference: string): { readonly request: string, readonly isSettledLate: boolean } {
  const late = [SETTLED_LATE, REFUNDED_LATE].find((end) => reference.endsWith(end)) ?? ''
  return { request: reference.slice(0, reference.length - late.length), isSettledLate: late === SETTLED_LATE }
}

/** The reference of a booking as its account knows it: without its kind and account, where it begins with those. */
export function knownReference ({ kind, account, reference }: Pick<Entry, 'kind' | 'account' | 'reference'>): string {
  const begin = `${kind}:${account}:`
  return reference.startsWith(begin) ? reference.slice(begin.length) : reference
}

/** Whether an entry belongs to a request of this id, or was booked under this reference, whole or as it is known. */
export function isAbout (entry: Pick<Entry, 'kind' | 'account' | 'reference'>, reference: string): boolean {
  return ['', SETTLED_LATE, REFUNDED_LATE].some((end) => entry.reference === reference + end) ||
    knownReference(entry) === reference
}
