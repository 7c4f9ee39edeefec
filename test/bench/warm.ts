// What requests cost by the number of those that the process has served: what users pay after each deploy, and from
// where on the other experiments may measure.
import type { Experiment } from './experiments.ts'
import { startClosedLoop } from './load.ts'
import { smallRequest } from './payloads.ts'
import { median } from './statistics.ts'

/** Requests served at the end of each stage. */
const STAGES = [1, 100, 2000, 8000, 20_000, 40_000] as const
const CONNECTIONS = 32

const nameOf = (stage: number): string => `to${stage}`
const last = nameOf(STAGES.at(-1)!)

export const warm: Experiment = {
  name: 'warm',
  title: 'JSON requests of 1 KB by number since the start, 32 connections: CPU µs of each, all threads',
  columns: STAGES.map((stage) => ({ key: nameOf(stage), title: stage === 1 ? 'the first' : `to ${stage}`, digits: 0 })),
  isFresh: true,
  skips: ['direct'],
  rounds: ({ isQuick }) => isQuick ? 1 : 2,
  lasts: () => 0,
  async burst ({ dialect }, { child, port }) {
    const request = smallRequest(dialect, false)
    const sample: Record<string, number> = {}
    let served = 0
    for (const stage of STAGES) {
      const before = child!.cpuNs()
      await startClosedLoop(port, request, Math.min(CONNECTIONS, stage)).reaches(stage - served)
      sample[nameOf(stage)] = (child!.cpuNs() - before) / 1000 / (stage - served)
      served = stage
    }
    return sample
  },
  goals (of) {
    const [early, late] = [median(of('gateway', nameOf(100))), median(of('gateway', last))]
    return [{ text: 'the first hundred requests of a process: at most 10x what later ones cost', isMet: early <= 10 * late,
      found: `${(early / late).toFixed(1)}x (${early.toFixed(0)} µs against ${late.toFixed(0)} µs)` }]
  }
}
