// What a command says on standard output, to the last byte: a slow reader holds the command up, so that nothing piles
// up in memory and nothing is lost when the process exits.
import { createWriteStream, fstatSync } from 'node:fs'
import process from 'node:process'
import type { Writable } from 'node:stream'

/** As a shell counts it when a program dies of SIGPIPE, which Node ignores. */
const READER_LEFT = 141

/** What was asked for did not reach its reader. */
export class UnsaidError extends Error {
  /** the reader has seen enough, or is dead: there is nobody to be told more */
  readonly isQuiet: boolean
  readonly exitCode: number

  constructor (cause: NodeJS.ErrnoException) {
    super(`The output is not whole: ${cause.message}`, { cause })
    this.isQuiet = cause.code === 'EPIPE'
    this.exitCode = this.isQuiet ? READER_LEFT : 1
  }
}

let output: Writable | undefined

/**
 * A disk that fills up takes a part of a text, and Node's own stream for files does not look how much that was (26.10).
 */
function openOutput (): Writable {
  const stream = fstatSync(1).isFile() ? createWriteStream('', { fd: 1, autoClose: false }) : process.stdout
  return stream.on('error', () => {})                         // whoever prints is told
}

/** In the place of standard output: for tests, which run commands in their own process. */
export function printTo (stream: Writable): void {
  output = stream
}

/** Ends when the system has taken the whole text. @throws {UnsaidError} */
export async function print (text: string): Promise<void> {
  const stream = output ??= openOutput()
  await new Promise<void>((resolve, reject) => {
    stream.write(text, (error) => { if (error == null) resolve(); else reject(new UnsaidError(error)) })
  })
}

/** Ends when the system has taken what console.error was given, or nobody reads that any more. */
export async function complained (): Promise<void> {
  const { stderr } = process
  if (stderr.writableLength === 0) return
  stderr.on('error', () => {})
  await new Promise<void>((resolve) => { stderr.write('', () => { resolve() }) })
}
