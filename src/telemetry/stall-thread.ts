// Watches the event loop from a thread of its own, which goes on while the loop does not. It counts its own looks and
// no time, so a process that was suspended, or a thread that gets no processor, sees no stall.
import { writeSync } from 'node:fs'
import { Session } from 'node:inspector'
import { workerData } from 'node:worker_threads'
import { BEAT, FLAG, type Mark } from '../base/stall-marks.ts'

/** The loop's; the module has made its own in this thread. */
const shared = new Int32Array(workerData as SharedArrayBuffer)

/** Milliseconds between two looks; and looks without a turn after which the loop is stalled. */
const LOOK_MS = 20
const LOOKS = 5
/** Looks after which the thread writes a line itself, because the loop may never do so: 5, 30 and 120 s. */
const LINES = new Set([250, 1500, 6000])

let beat = -1
let looks = 0

setInterval(() => {
  if (shared[BEAT] !== beat) {
    beat = shared[BEAT]!
    looks = 0
    return
  }
  looks++
  if (looks === LOOKS) shared[FLAG] = 1
  if (LINES.has(looks)) report(looks * LOOK_MS)
}, LOOK_MS)

/**
 * Standard error, because the log is written by the loop. The mark is read by the debugger's protocol, which interrupts
 * the loop wherever it is; where that is not possible, the line goes without.
 */
function report (ms: number): void {
  const session = new Session()
  let isWritten = false
  const write = (found?: Partial<Mark>): void => {
    if (isWritten) return
    isWritten = true
    try {
      writeSync(2, JSON.stringify({ level: 'error', time: new Date().toISOString(), pid: process.pid, request_id: found?.id,
        phase: found?.phase, plugin: found?.plugin, ms, msg: 'the event loop is stopped: no request is served' }) + '\n')
    } catch {
      // Nobody reads standard error.
    }
  }
  setTimeout(write, LOOK_MS * LOOKS).unref()
  try {
    session.connectToMainThread()
    session.post('Runtime.evaluate', { expression: `JSON.stringify(globalThis[Symbol.for('gateway.stall')]())`,
      returnByValue: true }, (error, told) => {
      let found: Partial<Mark> | undefined
      try {
        found = error === null ? JSON.parse(String(told.result.value)) as Partial<Mark> : undefined
      } catch {
        // There was no mark to read.
      }
      write(found)
      // Here alone: the loop answers, so it does not wait for one that never does.
      session.disconnect()
    })
  } catch {
    write()
  }
}
