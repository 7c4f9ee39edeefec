// The end of a process, where a part of it never ends.
import { pino } from 'pino'
import t from 'tap'
import type { Gateway } from '../../src/gateway/gateway.ts'
import { Ending } from '../../src/gateway/shutdown.ts'
import type { LogOutput } from '../../src/telemetry/log-output.ts'

const DRAIN_MS = 60_000

/** A gateway of which only the end counts. */
function stub (drain: Gateway['drain'], waitsFor: string | undefined): Gateway {
  const server = { drain_delay: 0, drain_timeout: DRAIN_MS }
  return { drain, waitsFor: () => waitsFor, live: { current: () => ({ config: { server } }) } } as unknown as Gateway
}

t.test('a part that never answers does not keep the process: the log names it, and the exit code is 1', async (t) => {
  const lines: Record<string, unknown>[] = []
  const patience: number[] = []
  const log = pino({}, { write: (line: string) => { lines.push(JSON.parse(line) as Record<string, unknown>) } })
  const output = { end: async (ms: number) => { patience.push(ms) } } as unknown as LogOutput
  const ending = new Ending(log, output, 10 - DRAIN_MS)
  await ending.of(Promise.resolve(stub(() => new Promise(() => {}), 'the store')))
  // The timer of the deadline keeps no process alive; sockets do until then.
  const alive = setInterval(() => {}, 1000)
  ending.drain()
  t.equal(await ending.wait(), 1)
  clearInterval(alive)
  t.match(lines, [{ level: 60, waits_for: 'the store' }])
  t.strictSame(patience, [1000], 'a reader of the log has a second, and not drain_timeout once more')
})

t.test('a drain that ends is not cut short', async (t) => {
  const log = pino({ level: 'silent' })
  const ending = new Ending(log, { end: async () => {} } as unknown as LogOutput, 600_000)
  const drained = Promise.withResolvers<void>()
  await ending.of(Promise.resolve(stub(() => drained.promise, undefined)))
  ending.drain()
  drained.resolve()
  t.equal(await ending.wait(), 0)
})
