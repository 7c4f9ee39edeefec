// The code of the simulator's thread; started by thread.ts only.
import { parentPort, workerData } from 'node:worker_threads'
import { startSimulator } from './simulator.ts'
import type { ThreadOptions } from './thread.ts'

// The log can't be read across threads.
const simulator = await startSimulator({ ...workerData as ThreadOptions, keepRequests: 0 })
parentPort?.postMessage(simulator.url, [])
