// The end of a process, where a part of it never ends; and how the time until then is divided.
import fc from 'fast-check'
import { pino } from 'pino'
import t from 'tap'
import { drainTimes } from '../../src/config/drain-times.ts'
import type { Gateway } from '../../src/gateway/gateway.ts'
import { Ending, type EndingOptions } from '../../src/gateway/shutdown.ts'
import type { LogOutput } from '../../src/telemetry/log-output.ts'

/** A gateway of which only the end counts. */
function stub (drain: Gateway['drain'], waitsFor: string | undefined): Gateway {
  const server = { drain_delay: 0, drain_timeout: 100 }
  return { drain, waitsFor: () => waitsFor, live: { current: () => ({ config: { server } }) } } as unknown as Gateway
}

interface Seen {
  readonly ending: Ending
  readonly lines: readonly Record<string, unknown>[]
  /** milliseconds that the log may take */
  readonly patience: readonly number[]
  readonly killed: () => number
}

async function begin (gateway: Gateway, options: EndingOptions = {}): Promise<Seen> {
  const [lines, patience]: [Record<string, unknown>[], number[]] = [[], []]
  let killed = 0
  const log = pino({}, { write: (line: string) => { lines.push(JSON.parse(line) as Record<string, unknown>) } })
  const output = { end: async (ms: number) => { patience.push(ms) } } as unknown as LogOutput
  const ending = new Ending(log, output, { ...options, kill: () => { killed++ } })
  await ending.of(Promise.resolve(gateway))
  ending.drain()
  return { ending, lines, patience, killed: () => killed }
}

t.test('a part that never answers keeps no process: the log names it, and nothing waits for it again', async (t) => {
  for (const isWorker of [false, true]) {
    const { ending, lines, patience, killed } = await begin(stub(() => new Promise(() => {}), 'the store'), { isWorker })
    t.equal(await ending.wait(), 1)
    t.match(lines, [{ level: 60, waits_for: 'the store' }])
    t.equal(killed(), 0, 'no thread is left')
    const { giveUp, giveUpWorker, killWorkers, end } = drainTimes({ drain_delay: 0, drain_timeout: 100 })
    t.ok(patience[0]! <= (isWorker ? killWorkers - giveUpWorker : end - giveUp) + 1, 'the log has what is left')
  }
})

t.test('a drain that ends is not cut short', async (t) => {
  const drained = Promise.withResolvers<void>()
  const { ending, lines, killed } = await begin(stub(() => drained.promise, undefined))
  drained.resolve()
  t.equal(await ending.wait(), 0)
  t.strictSame([lines, killed()], [[], 0])
})

t.test('all that happens behind a signal happens within drain_delay and drain_timeout, and in its order', async (t) => {
  const ms = fc.oneof(fc.integer({ min: 1000, max: 10_000 }), fc.integer({ min: 1000, max: 86_400_000 }))
  fc.assert(fc.property(fc.nat(60_000), ms, fc.boolean(), (delay, timeout, isUrgent) => {
    const times = drainTimes({ drain_delay: delay, drain_timeout: timeout }, isUrgent)
    const { close, abort, disconnect, giveUpWorker, killWorkers, giveUp, end } = times
    const order = [close, abort, disconnect, giveUpWorker, killWorkers, giveUp, end]
    t.strictSame(order, order.toSorted((a, b) => a - b), JSON.stringify(times))
    t.equal(end, (isUrgent ? 0 : delay) + timeout)
    t.ok(end - abort <= Math.min(5000, timeout / 4) + 1, 'running requests have nearly all of it')
  }))
  t.strictSame(drainTimes({ drain_delay: 0, drain_timeout: 30_000 }), { close: 0, abort: 25_000, disconnect: 27_000,
    giveUpWorker: 28_000, killWorkers: 28_500, giveUp: 29_000, end: 30_000 })
  t.match(drainTimes({ drain_delay: 0, drain_timeout: 0 }), { abort: 0, end: 1000 }, 'a second for the log')
})
