// The thread that reads, parses and validates a configuration: 1,000 models block a thread for half a second, and a user's
// plugin may block it for ever. Started by load.ts for one configuration, then thrown away with all that it has loaded.
import { parentPort, workerData } from 'node:worker_threads'
import type { FromWorker, WorkerInput } from './load.ts'
import { readConfig } from './read-config.ts'

const input = workerData as WorkerInput

function post (message: FromWorker): void {
  parentPort!.postMessage(message)
}

try {
  // at once, so that the files are watched even when what they hold never comes to an end
  post(await readConfig(input, (path, stamp) => { post({ kind: 'file', path, stamp }) }))
} catch (thrown) {
  // nothing here should throw: then at least say what did
  const message = thrown instanceof Error ? thrown.stack ?? thrown.message : String(thrown)
  post({ kind: 'invalid', problems: [{ file: input.file, line: 1, column: 1, path: '', message: `could not be checked: ${message}` }] })
}
