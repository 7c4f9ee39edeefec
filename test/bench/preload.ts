// Loaded into every contender before its own code: collects garbage when asked (memory experiment), and ends the
// process when the benchmark is gone, however that died.
import { closeSync, openSync, writeSync } from 'node:fs'
import { isMainThread } from 'node:worker_threads'

// A worker of the gateway ends with its primary, and has no standard input.
if (isMainThread && process.env['GATEWAY_WORKER'] === undefined) {
  const { BENCH_COLLECTED: file } = process.env
  const collect = globalThis.gc
  if (file !== undefined && collect !== undefined) {
    process.on('SIGUSR2', () => {
      void collect()
      // Twice, a turn apart: the first finds what only finalizers hold.
      setImmediate(() => {
        void collect()
        const descriptor = openSync(file, 'a')
        writeSync(descriptor, JSON.stringify(process.memoryUsage()) + '\n')
        closeSync(descriptor)
      })
    })
  }
  process.stdin.on('end', () => process.exit(1)).on('error', () => process.exit(1)).resume()
  process.stdin.unref()    // a contender that has nothing left to do shall end as it would alone
}
