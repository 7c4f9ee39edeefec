// Time that stands still until a test moves it: what the gateway's `now` and `timer` read in the place of the machine's
// clock.
import { setImmediate as turn } from 'node:timers/promises'
import type { Timer } from '../../src/base/timer.ts'
import { LIMIT_MS, refuseAfter } from './until.ts'

export interface Clock {
  readonly now: () => number
  readonly timer: Timer
  /** Moves on to each timer that is due by then, in their order. */
  advance (ms: number): Promise<void>
  /** Moves on to the next timer, again and again, until `seen` returns something. */
  until<T> (seen: () => T | undefined | false | Promise<T | undefined | false>): Promise<T>
}

interface Waiting {
  readonly at: number
  readonly callback: () => void
}

/** @param isBusy time does not pass while something runs that was begun */
export function startClock (isBusy: () => boolean = () => false, start = 1_800_000_000_000): Clock {
  let time = start
  const waiting = new Set<Waiting>()

  function next (): Waiting | undefined {
    return [...waiting].toSorted((a, b) => a.at - b.at)[0]
  }

  function ring (one: Waiting): void {
    waiting.delete(one)
    time = Math.max(time, one.at)
    one.callback()
  }

  return {
    now: () => time,
    timer (ms, callback) {
      const one = { at: time + Math.ceil(ms), callback }      // whole, as the machine's
      waiting.add(one)
      return () => { waiting.delete(one) }
    },
    async advance (ms) {
      const end = time + ms
      for (let one = next(); one !== undefined && one.at <= end; one = next()) {
        ring(one)
        do await turn()
        while (isBusy())
      }
      time = end
    },
    async until (seen) {
      for (const since = performance.now(); ;) {
        do await turn()
        while (isBusy())
        const found = await seen()
        if (found !== undefined && found !== false) return found
        refuseAfter(LIMIT_MS, since, seen)
        if (isBusy()) continue
        const one = next()
        if (one !== undefined) ring(one)
      }
    }
  }
}
