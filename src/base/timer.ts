// The timer of background work, as a parameter, so that tests need not wait.

/** Calls back once after so many milliseconds. @returns cancels it */
export type Timer = (ms: number, callback: () => void) => () => void

/** A timer that does not keep the process alive. */
export function startTimer (ms: number, callback: () => void): () => void {
  const timer = setTimeout(callback, ms).unref()
  return () => { clearTimeout(timer) }
}
