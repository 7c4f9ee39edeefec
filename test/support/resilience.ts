// What the tests of failing targets share: a clock that tells what the gateway waits for, and words for what is said.
import type { Test } from 'tap'
import type { Timer } from '../../src/base/timer.ts'
import { errorOf, type Received } from './client.ts'
import { startClock } from './clock.ts'
import { CALM, withCase, yaml, type TestGateway } from './gateway.ts'
import { until } from './until.ts'
import type { Script } from './upstream.ts'

/** Of `answer`, with its usage. */
export const ANSWER_NANOS = 10n * 3000n + 5n * 15000n

/** A clock for the gateway, and what it waits for on it. */
export interface Time {
  readonly now: () => number
  readonly timer: Timer
  advance (ms: number): Promise<void>
  /** Until the gateway waits for so long. */
  waits (ms: number): Promise<void>
  /** pauses that nobody took back and that are not over */
  readonly pauses: ReadonlySet<number>
}

export function time (): Time {
  const clock = startClock()
  const pauses = new Map<symbol, number>()
  return {
    now: clock.now,
    timer (ms, callback) {
      const id = Symbol('pause')
      if (ms < 100_000) pauses.set(id, ms)
      const stop = clock.timer(ms, () => { pauses.delete(id); callback() })
      return () => { pauses.delete(id); stop() }
    },
    advance: clock.advance,
    async waits (ms) { await until(() => this.pauses.has(ms)) },
    get pauses () { return new Set(pauses.values()) }
  }
}

/** @param settings of each upstream */
export function text (urls: readonly string[], settings: string): string {
  return withCase(yaml(urls)).replaceAll(CALM, settings)
}

/** One script after the other, and the last again and again. */
export function inTurn (...scripts: readonly Script[]): () => Script {
  let turn = 0
  return () => scripts[Math.min(turn++, scripts.length - 1)]!
}

/** Lines of the exposition that begin so. */
export async function metric (gw: TestGateway, name: string): Promise<readonly string[]> {
  return (await (await fetch(`${gw.urls.admin}/metrics`)).text()).split('\n').filter((line) => line.startsWith(name))
}

/** Of a counter, those that something has happened to. */
export async function counted (gw: TestGateway, name: string): Promise<readonly string[]> {
  return (await metric(gw, name)).filter((line) => !line.endsWith(' 0'))
}

export function isOverloaded (t: Test, got: Received, retryAfter: number): void {
  t.strictSame(
    [got.status, errorOf(got).code, errorOf(got).charged, got.headers['retry-after']],
    [503, 'model_overloaded', '0', String(retryAfter)]
  )
}
