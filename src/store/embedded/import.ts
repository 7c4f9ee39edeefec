// Fills an empty data folder with the rows of another store. For a command that has the folder for itself: it writes in
// its own thread, because no request waits for it.
import { mkdirSync, rmSync } from 'node:fs'
import path from 'node:path'
import type { Row } from '../transfer.ts'
import { type Cell, pushEntry, taskRow } from '../local/cells.ts'
import { seqOf } from '../local/entry-ids.ts'
import { NO_WRITE } from '../local/writer.ts'
import { Ledger } from './ledger.ts'
import { findLoss, replaceLost } from './ledger-mark.ts'

/** Entries and failures per write. */
const BATCH = 500
/** Format of an entry's id that a driver of this process made from number and time: such ids are kept. */
const OWN_ID = /^[0-9a-z]{17}$/

/**
 * Fills the folder, also in the place of a lost ledger, of which the rest gets other names.
 * @throws {Error} the folder can't be used, or is not empty, or reading the rows failed: then nothing is in it
 */
export async function fillFolder (folder: string, rows: AsyncIterable<Row>): Promise<void> {
  if (findLoss(folder) === undefined) { await fill(folder, rows); return }
  await putInPlace(folder, async (beside) => { await fill(beside, rows) })
}

/**
 * Puts a ledger into the place of a lost one. It is made beside it: a kill must leave a folder whose ledger is lost,
 * not an empty one that the next start begins anew.
 */
export async function putInPlace (folder: string, make: (beside: string) => Promise<void>): Promise<void> {
  const beside = path.join(folder, 'import-in-progress')
  rmSync(beside, { recursive: true, force: true })            // of a process that was killed
  mkdirSync(beside, { mode: 0o700 })
  try {
    await make(beside)
    replaceLost(folder, beside)
  } finally {
    rmSync(beside, { recursive: true, force: true })
  }
}

async function fill (folder: string, rows: AsyncIterable<Row>): Promise<void> {
  const ledger = new Ledger(folder, true)
  try {
    await ledger.fill(async () => { await put(ledger, rows) })
  } catch (thrown) {
    ledger.abandon()                                          // a clean end would drop the windows of its rate limits
    throw thrown
  }
  ledger.close([])
}

async function put (ledger: Ledger, rows: AsyncIterable<Row>): Promise<void> {
  let entries: Cell[] = []
  let failures: Cell[] = []
  let count = 0
  let [seq, time] = [-1, 0]
  const flush = (): void => {
    if (
      count > 0 && ledger.write({ ...NO_WRITE, entries, failures }).length > 0
    ) throw new Error('an entry is there twice')
    entries = []
    failures = []
    count = 0
  }
  for await (const { of, value } of rows) {
    switch (of) {
      case 'record': ledger.documents.putRecord(value); break
      case 'audit': ledger.documents.putAuditLine(value); break
      case 'entry':
        seq = OWN_ID.test(value.id) ? seqOf(value.id) : seq + 1
        // Other drivers order by more than the time that they tell.
        time = Math.max(time, Date.parse(value.at))
        pushEntry(entries, value, seq, time)
        if (++count === BATCH) flush()
        break
      case 'task': ledger.documents.writeTasks(taskRow(value, undefined)); break
      case 'answer': ledger.documents.keepAnswer(value); break
      case 'failures': {
        const { at, account, key, model, channel = '', count: number } = value
        failures.push(Date.parse(at), account, key, model, channel, number)
        if (++count === BATCH) flush()
      }
    }
  }
  flush()
}
