// Copies the lines of a worker's log into the common log. Several processes that write to one pipe would tear each
// other's lines apart: a pipe takes no more than 4 KiB in one piece (PIPE_BUF), and a worker writes 64.
import type { Readable } from 'node:stream'
import type { LogOutput } from '../telemetry/log-output.ts'

const NEWLINE = 10

const NOTHING = Buffer.alloc(0)

/** Copies whole lines only, as the bytes that they are. */
export function relay (from: Readable, to: Pick<LogOutput, 'writeBytes'>): void {
  let rest: Buffer = NOTHING
  from.on('data', (chunk: Buffer) => {
    const all = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    const end = all.lastIndexOf(NEWLINE) + 1
    if (end > 0) to.writeBytes(all.subarray(0, end))
    rest = end === all.length ? NOTHING : Buffer.from(all.subarray(end))
  })
  // The rest of a line, of a worker that was killed within it.
  from.on('end', () => { if (rest.length > 0) to.writeBytes(Buffer.concat([rest, Buffer.of(NEWLINE)])) })
  from.on('error', () => {})
}
