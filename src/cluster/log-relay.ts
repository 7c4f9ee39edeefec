// Copies the lines of a worker's log into the common log. Several processes that write to one pipe would tear each
// other's lines apart: a pipe takes no more than 4 KiB in one piece (PIPE_BUF), and a worker writes 64.
import type { Readable } from 'node:stream'
import type { DestinationStream } from 'pino'

const NEWLINE = 10

/** Copies whole lines only. */
export function relay (from: Readable, to: DestinationStream): void {
  let rest: Buffer = Buffer.alloc(0)
  from.on('data', (chunk: Buffer) => {
    const all = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    const end = all.lastIndexOf(NEWLINE) + 1
    if (end > 0) to.write(all.toString('utf8', 0, end))
    rest = Buffer.from(all.subarray(end))
  })
  // The rest of a line, of a worker that was killed within it.
  from.on('end', () => { if (rest.length > 0) to.write(rest.toString('utf8') + '\n') })
  from.on('error', () => {})
}
