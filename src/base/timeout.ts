// A promise with a timeout.

/**
 * @param ms milliseconds
 * @param late makes the error of the timeout; the promise goes on unheard
 */
export function within <T> (pending: Promise<T>, ms: number, late: () => unknown): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const timer = setTimeout(() => { reject(late()) }, ms)
    pending.then(resolve, reject).finally(() => { clearTimeout(timer) })
  })
}
