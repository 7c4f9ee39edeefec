// Reads a small text file, or says in plain words why it can't. Notes every file that it was asked for: they are
// watched.
import { readFileSync, statSync } from 'node:fs'
import { stampSync } from '../load/stamp.ts'

const MAX_BYTES = 16 * 1024 * 1024

export type ReadResult = { readonly kind: 'text', readonly text: string } | { readonly kind: 'unreadable',
  readonly message: string }
export type ReadText = (path: string) => ReadResult

/** @param note called with each file before it is read, also with a missing one, and its stamp of that moment */
export function textReader (note: (path: string, stamp: string) => void): ReadText {
  const seen = new Map<string, ReadResult>()
  return (path) => {
    const known = seen.get(path)
    if (known !== undefined) return known
    note(path, stampSync(path))
    const result = read(path)
    seen.set(path, result)
    return result
  }
}

function read (path: string): ReadResult {
  try {
    const stat = statSync(path)
    // a pipe or a device would block the worker, or never end
    if (!stat.isFile()) {
      return { kind: 'unreadable',
        message: `is not a file but ${stat.isDirectory() ? 'a folder' : 'a device or pipe'}: ${path}` }
    }
    if (stat.size > MAX_BYTES) return { kind: 'unreadable', message: `is larger than 16 MB: ${path}` }
    return { kind: 'text', text: new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(path)) }
  } catch (thrown) {
    return { kind: 'unreadable', message: `${explain(thrown)}: ${path}` }
  }
}

function explain (thrown: unknown): string {
  if (thrown instanceof TypeError) return 'is not UTF-8 text'
  const code = thrown instanceof Error && 'code' in thrown ? thrown.code : undefined
  if (code === 'ENOENT' || code === 'ENOTDIR') return 'does not exist'
  if (code === 'EACCES' || code === 'EPERM') return 'may not be read by this user'
  return `cannot be read (${String(code ?? thrown)})`
}
