// The thread that records, with faults: a file in the data folder says which. Run by the store in place of its own
// thread.
import fs, { existsSync, rmSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { workerData } from 'node:worker_threads'

const { folder } = workerData as { readonly folder: string }
const { exec } = DatabaseSync.prototype
const { fdatasync, fsyncSync } = fs

function isAsked (fault: string): boolean {
  return existsSync(path.join(folder, fault))
}

/** Once: the next thread lives. */
function dieIfAsked (fault: string): void {
  if (!isAsked(fault)) return
  rmSync(path.join(folder, fault))
  process.exit(7)
}

DatabaseSync.prototype.exec = function (sql: string): void {
  if (sql !== 'COMMIT') { exec.call(this, sql); return }
  while (isAsked('hang')) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
  dieIfAsked('die-before')
  if (isAsked('disk-full')) throw new Error('database or disk is full')
  exec.call(this, sql)
  dieIfAsked('die-after')
}

fs.fdatasync = Object.assign((fd: number, callback: (error: Error | null) => void): void => {
  if (isAsked('no-sync')) callback(new Error('EIO: i/o error, fdatasync'))
  else fdatasync(fd, callback)
}, fdatasync)

/** A file says that the folder's names were put on the disk. */
fs.fsyncSync = (fd: number): void => {
  fsyncSync(fd)
  if (fs.fstatSync(fd).isDirectory()) fs.writeFileSync(path.join(folder, 'folder-synced'), '')
}
syncBuiltinESMExports()

if (isAsked('stay-dead')) process.exit(7)
await import('../../src/store/embedded/writer-thread.ts')
