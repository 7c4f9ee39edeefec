// A promise with a timeout.

/**
 * @param ms milliseconds
 * @param late makes the error of the timeout; the promise goes on unheard
 * @param mayGoOn asked when the time is over: whether it begins anew
 */
export function within <T> (
  pending: Promise<T>, ms: number, late: () => unknown, mayGoOn: () => boolean = () => false
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const onTime = (): void => {
      if (mayGoOn()) timer = setTimeout(onTime, ms)
      else reject(late())
    }
    let timer = setTimeout(onTime, ms)
    pending.then(resolve, reject).finally(() => { clearTimeout(timer) })
  })
}
