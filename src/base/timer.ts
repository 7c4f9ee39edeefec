// What calls back once, after a while. Whatever waits in the background is given one, so that tests need not.

/** Calls back once after so many milliseconds. @returns takes it back */
export type Timer = (ms: number, callback: () => void) => () => void

/** Does not keep the process alive. */
export function startTimer (ms: number, callback: () => void): () => void {
  const timer = setTimeout(callback, ms).unref()
  return () => { clearTimeout(timer) }
}
