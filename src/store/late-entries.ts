// An entry about a request that has one of its kind already: the ledger has one of each kind and reference, so this
// one's reference says what it is. With Redis a process may settle a request that was charged for it, because nobody
// had heard of it for so long.

/** Behind the request's id. The difference to its charge: an `adjust`, and a `shortfall`. */
export const SETTLED_LATE = ' settle'
/** All of that, given back. */
export const REFUNDED_LATE = ' refund'

/** The request that an `adjust` is about; it is given back where it was not settled late. */
export function readReference (reference: string): { readonly request: string, readonly isSettledLate: boolean } {
  const late = [SETTLED_LATE, REFUNDED_LATE].find((end) => reference.endsWith(end)) ?? ''
  return { request: reference.slice(0, reference.length - late.length), isSettledLate: late === SETTLED_LATE }
}
