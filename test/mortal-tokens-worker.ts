// The thread that counts tokens, but for its end: text that says so makes it die, or hang.
import { parentPort } from 'node:worker_threads'
import type { ToThread } from '../src/money/tokens-thread.ts'

// First, so that it comes before the thread's own listener.
parentPort!.on('message', ({ text }: ToThread) => {
  if (text.includes('DIE')) process.exit(7)
  while (text.includes('HANG')) { /* for ever */ }
})
await import('../src/money/tokens-worker.ts')
