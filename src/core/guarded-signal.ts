// An AbortSignal whose listeners can do no harm: Node throws what a listener of an EventTarget throws, or rejects with,
// where only the process can catch it.
import { callSafely } from '../base/awaitable.ts'

type Add = EventTarget['addEventListener']
type Listener = NonNullable<Parameters<Add>[1]>

/**
 * It stays the same object, which `fetch`, `AbortSignal.any` and timers take. `onabort` is guarded too: Node adds it
 * with `addEventListener`.
 * @param report told what a listener threw, or was rejected with
 */
export function guardListeners (signal: AbortSignal, report: (err: unknown) => void): void {
  /** so that `removeEventListener` finds what was added, and the same listener is added once */
  const guarded = new WeakMap<Listener, Listener>()
  const { addEventListener, removeEventListener } = signal

  function guard (listener: Listener): Listener {
    const known = guarded.get(listener)
    if (known !== undefined) return known
    const made = (event: Event): void => {
      callSafely(() => typeof listener === 'function'
        ? listener.call(signal, event) as unknown
        : listener.handleEvent(event) as unknown, report)
    }
    guarded.set(listener, made)
    return made
  }

  const add: Add = (type, listener, options) => {
    addEventListener.call(signal, type, listener && guard(listener), options)
  }
  const remove: Add = (type, listener, options) => {
    removeEventListener.call(signal, type, listener && (guarded.get(listener) ?? listener), options)
  }
  Object.defineProperties(signal, { addEventListener: { value: add }, removeEventListener: { value: remove } })
}
