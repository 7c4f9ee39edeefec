// The file ledger-mark beside gateway.db: a line with the last entry on the disk. So a start notices that the ledger is
// gone, or that its end was cut off, instead of silently beginning a new one.
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, statSync, writeSync } from 'node:fs'
import path from 'node:path'

export interface Mark {
  /** number of the last entry; -1: none */
  readonly seq: number
  /** its time, milliseconds since the epoch */
  readonly time: number
}

const NAME = 'ledger-mark'
const LEDGER = ['gateway.db', 'gateway.db-wal'] as const
const LINE = /^gateway\.db: entries up to number +(-?\d+), written at (\S+)\n$/

export function markFile (folder: string): string {
  return path.join(folder, NAME)
}

/** Undefined: there was no ledger, or one older than marks. */
export function readMark (folder: string): Mark | undefined {
  let text: string
  try {
    text = readFileSync(markFile(folder), 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
  const [, seq, time] = LINE.exec(text) ?? []
  return { seq: Number(seq ?? -1), time: Date.parse(time ?? '') || 0 }
}

/** Written in place, and always of one length: a full disk takes it, and a kill leaves no half of it. */
export function writeMark (folder: string, { seq, time }: Mark): void {
  const file = markFile(folder)
  const isNew = sizeOf(file) === undefined
  const descriptor = openSync(file, isNew ? 'wx' : 'r+', 0o600)
  try {
    writeSync(descriptor,
      `gateway.db: entries up to number ${String(seq).padStart(16)}, written at ${new Date(time).toISOString()}\n`, 0)
    if (isNew) fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

/** The remains of a lost ledger; undefined: none is lost. Opens nothing: that would destroy the remains. */
export function findLoss (
  folder: string
): { readonly state: 'not there' | 'empty', readonly mark: Mark | undefined, readonly logBytes: number } | undefined {
  const size = sizeOf(path.join(folder, 'gateway.db'))
  const logBytes = sizeOf(path.join(folder, 'gateway.db-wal')) ?? 0
  const mark = readMark(folder)
  return (size ?? 0) > 0 || (mark === undefined && logBytes === 0)
    ? undefined
    : { state: size === undefined ? 'not there' : 'empty', mark, logBytes }
}

/** Also true of the remains of a lost ledger. */
export function hasLedger (folder: string): boolean {
  return sizeOf(path.join(folder, LEDGER[0])) !== undefined || findLoss(folder) !== undefined
}

/** The folder's ledger is lost: says what to do, in words for the operator. */
export class LossError extends Error {}

/** @throws {LossError} */
export function refuseLoss (folder: string): void {
  const loss = findLoss(folder)
  if (loss !== undefined) throw new LossError(textOf(folder, loss))
}

/**
 * The mark is written after the sync, so its entries were on the disk: a power loss does not explain that they are
 * missing.
 * @param last the last entry that the ledger has
 * @throws {LossError}
 */
export function refuseCut (folder: string, mark: Mark, last: Mark): void {
  if (last.seq >= mark.seq) return
  const date = ({ time }: Mark): string => new Date(time).toISOString()
  throw new LossError(
    `the ledger of the data folder ${folder} ends earlier than it did: ${mark.seq - last.seq} entries are missing. ` +
    `It ${last.seq < 0 ? 'has no entries' : `has entries up to ${date(last)}`}, and had entries up to ${date(mark)}. ` +
    'gateway.db and ledger-mark belong to different times, such as after gateway.db-wal was deleted or an older ' +
    'gateway.db was put in place. Put the missing files back, or move gateway.db away and restore a backup: gateway ' +
    'store restore FILE. To accept the loss and go on with this ledger: gateway store new --accept-loss.'
  )
}

/** Accepts that the ledger ends earlier: only the mark gets another name. @returns the new names */
export function setMarkAside (folder: string): readonly string[] {
  return setAside(folder, [NAME])
}

function textOf (folder: string, { state, mark, logBytes }: NonNullable<ReturnType<typeof findLoss>>): string {
  const had = mark === undefined || mark.seq < 0 ? '' : `, which had entries up to ${new Date(mark.time).toISOString()}`
  const log = logBytes === 0
    ? ''
    : ` Its write-ahead log is there (gateway.db-wal, ${logBytes} bytes), and is of use only beside it: ` +
      'it was not touched.'
  return `the ledger of the data folder ${folder} is lost: gateway.db is ${state}${had}.${log} A new one would know ` +
    'nothing of what was spent, and would credit opening balances again. ' +
    'Put gateway.db back, or restore a backup: gateway store restore FILE (an export: gateway store import FILE). To ' +
    'accept the loss: gateway store new --accept-loss.'
}

/** Renames the remains of a lost ledger. @returns the new names */
export function setAside (folder: string, names: readonly string[] = [...LEDGER, NAME]): readonly string[] {
  const suffix = `.lost-${new Date().toISOString().replaceAll(/[-:]|\.\d+/g, '')}`
  const files = names.map((name) => path.join(folder, name)).filter((file) => sizeOf(file) !== undefined)
  for (const file of files) renameSync(file, file + suffix)
  return files.map((file) => file + suffix)
}

/** Moves a new ledger in, its mark first: until the file is there too, the folder is one whose ledger is lost. */
export function replaceLost (folder: string, beside: string): void {
  renameSync(markFile(beside), markFile(folder))
  setAside(folder, LEDGER)
  renameSync(path.join(beside, LEDGER[0]), path.join(folder, LEDGER[0]))
  syncFolder(folder)
}

/** A file whose directory entry is not on the disk is lost with all that was synced into it. */
export function syncFolder (folder: string): void {
  if (process.platform === 'win32') return
  const directory = openSync(folder, 'r')
  try { fsyncSync(directory) } catch { /* not every file system can */ } finally { closeSync(directory) }
}

function sizeOf (file: string): number | undefined {
  return statSync(file, { throwIfNoEntry: false })?.size
}
