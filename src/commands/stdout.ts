// Writes a command's output to standard output, to the last byte: a slow reader holds the command up, so that nothing
// piles up in memory and nothing is lost when the process exits.
import { createWriteStream, fstatSync } from 'node:fs'
import process from 'node:process'
import type { Writable } from 'node:stream'

/** Exit code of a program that dies of SIGPIPE, which Node ignores. */
const READER_LEFT = 141

/** The output did not reach its reader. */
export class UnsaidError extends Error {
  /** true: the reader has closed the pipe, and no message is needed */
  readonly isQuiet: boolean
  readonly exitCode: number

  constructor (cause: NodeJS.ErrnoException) {
    super(`The output is not whole: ${cause.message}`, { cause })
    this.isQuiet = cause.code === 'EPIPE'
    this.exitCode = this.isQuiet ? READER_LEFT : 1
  }
}

let output: Writable | undefined

/** A disk that fills up takes a part of a text, and Node's own stream for files ignores how much that was (26.10). */
function openOutput (): Writable {
  const stream = fstatSync(1).isFile() ? createWriteStream('', { fd: 1, autoClose: false }) : process.stdout
  return stream.on('error', () => {})                         // `print` rejects
}

/** Replaces standard output, for tests that run commands in their own process. */
export function printTo (stream: Writable): void {
  output = stream
}

/** Characters that a terminal obeys, and those that change the order of others (Unicode's Bidi_Control). */
const OBEYED = /(?!\n|\t|\r\n)[\p{Cc}\u061C\u200E\u200F\u202A-\u202E\u2066-\u2069]/gu

/** A text with such characters as JSON escapes them: names may come from outside, and JSON stays what it is. */
export function harmless (text: string): string {
  return text.replace(OBEYED, escaped)
}

export function escaped (character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
}

/** To standard error. */
export function complain (text: string): void {
  console.error(harmless(text))
}

/** Ends when the system has taken the whole text. @throws {UnsaidError} */
export async function print (text: string): Promise<void> {
  const stream = output ??= openOutput()
  await new Promise<void>((resolve, reject) => {
    stream.write(harmless(text), (error) => { if (error == null) resolve(); else reject(new UnsaidError(error)) })
  })
}

/** Ends when the system has taken the output of console.error, or its reader has gone. */
export async function complained (): Promise<void> {
  const { stderr } = process
  if (stderr.writableLength === 0) return
  stderr.on('error', () => {})
  await new Promise<void>((resolve) => { stderr.write('', () => { resolve() }) })
}
