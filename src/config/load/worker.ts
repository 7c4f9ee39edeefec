// The thread that reads, parses and validates a configuration: 1,000 models block a thread for half a second, and a
// user's plugin may block it for ever. Gets one configuration from load.ts, and is discarded then with all that it has
// loaded; only for texts that name no plugin of a user's it gets one after the other.
import { parentPort, workerData } from 'node:worker_threads'
import type { FromWorker, WorkerInput } from './load.ts'
import { readConfig } from './read-config.ts'

function post (message: FromWorker): void {
  parentPort!.postMessage(message)
}

parentPort!.on('message', (input: WorkerInput) => { void judge(input) })
// meanwhile; if it fails, readConfig says so
const loading = import(workerData as string).catch(() => {})

async function judge (input: WorkerInput): Promise<void> {
  await loading
  try {
    // at once, so that the files are watched even when reading them never ends
    post(await readConfig(input, (path, stamp) => { post({ kind: 'file', path, stamp }) }))
  } catch (thrown) {
    // no error is expected here: if there is one, it is reported
    const message = thrown instanceof Error ? thrown.stack ?? thrown.message : String(thrown)
    post({ kind: 'invalid',
      problems: [{ file: input.file, line: 1, column: 1, path: '', message: `could not be checked: ${message}` }] })
  }
}
