// Backups of a Redis that gateways use: the file that `gateway store export` writes, without what is held.
import type { Backup } from '../backup.ts'
import { type Row, rowsOf } from '../transfer.ts'
import { fileLines } from '../transfer-file.ts'

/** Bytes of lines that are gathered: a line by itself is sent with more around it than in it. */
const CHUNK = 65_536

export function backupOf (store: Parameters<typeof rowsOf>[0]): Backup {
  return {
    type: 'application/jsonl',
    async * read (signal) {
      let lines: string[] = []
      let size = 0
      for await (const line of fileLines({ driver: 'redis' }, movable(store))) {
        signal.throwIfAborted()
        lines.push(line)
        size += line.length
        if (size < CHUNK) continue
        yield Buffer.from(lines.join(''))
        lines = []
        size = 0
      }
      yield Buffer.from(lines.join(''))
    }
  }
}

/** A task that is open has a hold, which belongs to the process that watches it. */
async function * movable (store: Parameters<typeof rowsOf>[0]): AsyncIterable<Row> {
  for await (const row of rowsOf(store)) if (row.of !== 'task' || !row.value.is_open) yield row
}
