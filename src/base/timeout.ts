// A promise with a timeout.
import { Alarm } from './wheel.ts'

/**
 * @param ms milliseconds
 * @param late makes the error of the timeout; the promise goes on unheard
 * @param mayGoOn asked when the time is over: whether it begins anew
 */
export function within <T> (
  pending: Promise<T>, ms: number, late: () => unknown, mayGoOn: () => boolean = () => false
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const alarm = new Alarm(() => {
      if (mayGoOn()) alarm.set(ms)
      else reject(late())
    })
    alarm.set(ms)
    pending.then((value) => { alarm.off(); resolve(value) }, (thrown: unknown) => { alarm.off(); reject(thrown) })
  })
}
