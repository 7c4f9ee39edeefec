// Continues with a value that may be a promise: a value that is there stays in one turn, without a promise.

export type Awaitable<T> = T | Promise<T>

export function after<T, Next> (value: Awaitable<T>, next: (value: T) => Awaitable<Next>): Awaitable<Next> {
  return value instanceof Promise ? value.then(next) : next(value)
}

/** The same with one more argument, in the place of a closure, which takes memory at each call. */
export function afterWith<T, With, Next> (
  value: Awaitable<T>, next: (value: T, given: With) => Awaitable<Next>, given: With
): Awaitable<Next> {
  return value instanceof Promise ? thenWith(value, next, given) : next(value, given)
}

function thenWith<T, With, Next> (
  value: Promise<T>, next: (value: T, given: With) => Awaitable<Next>, given: With
): Promise<Next> {
  return value.then((there) => next(there, given))
}

/**
 * Goes on with the value of a step, in the same turn where it is there. An error of the step, or of `next`, goes to
 * `caught`, which must not throw.
 */
export function proceed<T> (
  step: () => Awaitable<T>,
  next: (value: T) => void,
  caught: (thrown: unknown) => void
): void {
  let value: Awaitable<T>
  try {
    value = step()
  } catch (thrown) {
    caught(thrown)
    return
  }
  if (value instanceof Promise) goOnWith(value, next, caught)
  else goOn(value, next, caught)
}

function goOn<T> (value: T, next: (value: T) => void, caught: (thrown: unknown) => void): void {
  try {
    next(value)
  } catch (thrown) {
    caught(thrown)
  }
}

/** A function of its own: variables that a closure uses take memory at each call, also where it is not made. */
function goOnWith<T> (value: Promise<T>, next: (value: T) => void, caught: (thrown: unknown) => void): void {
  value.then((there) => { goOn(there, next, caught) }, caught)
}

/** As `await` does: other code may have promises of its own kind. */
export function isPromise (value: unknown): value is PromiseLike<unknown> {
  return value instanceof Promise ||
    (typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function')
}

/**
 * Handles the rejection of a value that should be no promise and is not awaited: unhandled it would end the process.
 * @returns the value
 */
export function hearRejection<T> (value: T, report: (err: unknown) => void): T {
  if (isPromise(value)) Promise.resolve(value).catch(report)
  return value
}

/** Calls foreign code without awaiting it. @param report called with its error or rejection */
export function callSafely (call: () => unknown, report: (err: unknown) => void): void {
  try {
    hearRejection(call(), report)
  } catch (err) {
    report(err)
  }
}
