// How late the event loop was during the last minute: the gauges of prom-client, which takes a timer of its own for
// them. That wakes an idle process up a hundred times a second (a third of what it costs: 6 ms of CPU a second,
// measured), and tells the time between two looks: 10 ms of a loop that is never late.
import type { Gauge } from './gauges.ts'

const SAMPLE_MS = 100
const SAMPLES = 600

/** Milliseconds by which a timer was late, the last ones. */
class Lags {
  readonly #samples = new Float64Array(SAMPLES)
  #count = 0

  add (ms: number): void {
    this.#samples[this.#count++ % SAMPLES] = ms
  }

  get last (): number | undefined {
    return this.#count === 0 ? undefined : this.#samples[(this.#count - 1) % SAMPLES]
  }

  get sorted (): Float64Array {
    return this.#samples.slice(0, this.#count).sort()
  }
}

/** From now on, for as long as the process lives. */
export function watchEventLoop (): readonly Gauge[] {
  const lags = new Lags()
  let last = performance.now()
  setInterval(() => {
    const now = performance.now()
    lags.add(Math.max(0, now - last - SAMPLE_MS))
    last = now
  }, SAMPLE_MS).unref()
  const gauge = (name: string, help: string, of: (sorted: Float64Array) => number): Gauge => ({
    name: `nodejs_eventloop_lag_${name}seconds`,
    help,
    read: () => lags.last === undefined ? undefined : of(lags.sorted) / 1000
  })
  return [
    gauge('', 'How late the event loop was at the last look.', () => lags.last!),
    gauge('min_', 'How late the event loop was at least, of the looks of the last minute.', (sorted) => sorted[0]!),
    gauge('max_', 'How late the event loop was at most.', (sorted) => sorted.at(-1)!),
    gauge('mean_', 'How late the event loop was in the mean.', mean),
    gauge('stddev_', 'The standard deviation of how late the event loop was.', deviation),
    ...[50, 90, 99].map((percent) =>
      gauge(`p${percent}_`, `How late the event loop was at most in ${percent} of 100 looks.`,
        (sorted) => sorted[Math.ceil(sorted.length * percent / 100) - 1]!)
    )
  ]
}

function mean (all: Float64Array): number {
  return all.reduce((sum, one) => sum + one, 0) / all.length
}

function deviation (all: Float64Array): number {
  const middle = mean(all)
  return Math.sqrt(all.reduce((sum, one) => sum + (one - middle) ** 2, 0) / all.length)
}
