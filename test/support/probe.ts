// Preloaded into a gateway by gateway-process.ts: tells over IPC how long its event loop stood still, and what it keeps
// in memory. Ends the process when the test is gone, however that died.
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { getHeapSpaceStatistics } from 'node:v8'
import { isMainThread } from 'node:worker_threads'

export type Question = 'delay' | 'heap' | 'memory' | 'old'

export interface Answers {
  /** milliseconds since the last time it was asked; `cpu`: that the loop has computed at most between two beats */
  readonly delay: { readonly max: number, readonly p99: number, readonly cpu: number }
  /** bytes after a garbage collection */
  readonly heap: number
  /** the same with what is outside of the heap: buffers */
  readonly memory: number
  /** bytes of the old generation, where all is by then that scavenges have let live */
  readonly old: number
}

const RESOLUTION_MS = 1
const BEAT_MS = 10

async function collect (): Promise<NodeJS.MemoryUsage> {
  // Three times, a turn apart: the first finds what only finalizers hold.
  for (let round = 0; round < 3; round++) {
    void globalThis.gc!()
    await new Promise(setImmediate)
  }
  return process.memoryUsage()
}

/** Twice: what has survived one scavenge is moved by the next. */
function scavenge (): number {
  void globalThis.gc!({ type: 'minor' })
  void globalThis.gc!({ type: 'minor' })
  return getHeapSpaceStatistics().filter(({ space_name: name }) => name === 'old_space').reduce(
    (sum, { space_used_size: used }) => sum + used,
    0
  )
}

if (isMainThread && process.send !== undefined) {
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
  histogram.enable()
  let cpu = 0
  let before = process.threadCpuUsage()
  setInterval(() => {
    const { user, system } = process.threadCpuUsage(before)
    before = process.threadCpuUsage()
    cpu = Math.max(cpu, (user + system) / 1000)
  }, BEAT_MS).unref()
  process.on('message', async (question: Question) => {
    if (question === 'heap') { process.send!((await collect()).heapUsed); return }
    if (question === 'memory') {
      const { heapUsed, external } = await collect()
      process.send!(heapUsed + external)
      return
    }
    if (question === 'old') { process.send!(scavenge()); return }
    const ms = (ns: number): number => Math.max(0, ns / 1e6 - RESOLUTION_MS)
    process.send!({ max: ms(histogram.max), p99: ms(histogram.percentile(99)), cpu })
    histogram.reset()
    cpu = 0
  })
  process.on('disconnect', () => process.exit(1))
  process.channel!.unref()
}
