// An AbortSignal whose listeners can do no harm: Node rethrows an error or a rejection of an EventTarget's listener
// where only the process can catch it.
import { callSafely } from '../base/awaitable.ts'

type Add = EventTarget['addEventListener']
type Listener = NonNullable<Parameters<Add>[1]>

/**
 * Guards the signal in place, because `fetch`, `AbortSignal.any` and timers need the object itself. `onabort` is
 * guarded too: Node adds it with `addEventListener`.
 * @param report called with the error or rejection of a listener
 */
export function guardListeners (signal: AbortSignal, report: (err: unknown) => void): void {
  /** by the original listener, so that `removeEventListener` finds it, and adding it twice adds it once */
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
