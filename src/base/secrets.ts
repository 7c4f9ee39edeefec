// The data folder: secrets that are generated rather than committed. Files are readable by their owner only.
import { randomBytes } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'

/**
 * The secret in `folder/name`, made at the first call.
 * @param create makes it; an existing file is read as it is, whatever it holds
 * @throws {Error} the folder can't be written: says which and why
 */
export function keepSecret (folder: string, name: string, create: () => string): string {
  const file = path.join(folder, name)
  try {
    return read(file) ?? write(folder, file, create())
  } catch (cause) {
    if (cause instanceof EmptySecret) throw cause
    throw new Error(
      `the data folder ${folder} can't be used (${(cause as Error).message}). Make it writable for this user, or ` +
      'name another one in store.path.',
      { cause }
    )
  }
}

/** The secret if it exists and can be read; never makes it. */
export function keptSecret (folder: string, name: string): string | undefined {
  try {
    return read(path.join(folder, name))
  } catch {
    return undefined
  }
}

class EmptySecret extends Error {}

/** Undefined: the file does not exist. */
function read (file: string): string | undefined {
  let secret: string
  try {
    secret = readFileSync(file, 'utf8').trim()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
  // Left behind by a full disk, or a writer that died. An empty secret must not grant access.
  if (secret === '') {
    throw new EmptySecret(`the file ${file} is empty. Delete it: a new secret is generated at the next start.`)
  }
  return secret
}

function write (folder: string, file: string, secret: string): string {
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  try {
    writeFileSync(file, secret + '\n', { mode: 0o600, flag: 'wx' })
  } catch (error) {
    // Another process was faster: its secret counts.
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return read(file)!
    throw error
  }
  return secret
}

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'

/** 32 letters and digits, uniformly distributed. */
export function randomSecret (): string {
  let text = ''
  while (text.length < 32) {
    for (const byte of randomBytes(64)) {
      // 248 = 4 × 62: the bytes from there on would make some characters more likely.
      if (byte < 248 && text.length < 32) text += ALPHABET[byte % 62]
    }
  }
  return text
}
