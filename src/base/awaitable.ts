// Goes on with a value that may be there already: what need not wait stays in one turn, without a promise.

export type Awaitable<T> = T | Promise<T>

export function after<T, Next> (value: Awaitable<T>, next: (value: T) => Awaitable<Next>): Awaitable<Next> {
  return value instanceof Promise ? value.then(next) : next(value)
}

/** Whatever `await` waits for: code of others may bring promises of its own kind. */
export function isPromise (value: unknown): value is PromiseLike<unknown> {
  return value instanceof Promise ||
    (typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function')
}

/**
 * Hears the rejection of what should have been no promise, and is waited for by nothing: unheard it would end the
 * process.
 * @returns the value
 */
export function hearRejection<T> (value: T, report: (err: unknown) => void): T {
  if (isPromise(value)) Promise.resolve(value).catch(report)
  return value
}

/** Calls code of others that nothing waits for. @param report told what it threw, or was rejected with */
export function callSafely (call: () => unknown, report: (err: unknown) => void): void {
  try {
    hearRejection(call(), report)
  } catch (err) {
    report(err)
  }
}
