// Goes on with a value that may be there already: what need not wait stays in one turn, without a promise.
import type { Awaitable } from './plugin.ts'

export function after<T, Next> (value: Awaitable<T>, next: (value: T) => Awaitable<Next>): Awaitable<Next> {
  return value instanceof Promise ? value.then(next) : next(value)
}
