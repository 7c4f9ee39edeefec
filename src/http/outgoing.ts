// What the writer needs of a response: node's own has it, and that of the fast lane.
import type { Socket } from 'node:net'
import type { Writable } from 'node:stream'

type Listener = () => void

export interface Outgoing {
  /** null: behind an earlier answer on its connection, or over */
  readonly socket: Socket | null
  readonly headersSent: boolean
  readonly chunkedEncoding: boolean
  readonly destroyed: boolean
  readonly writableFinished: boolean
  /** bytes that the system has not taken */
  readonly writableLength: number
  readonly writableNeedDrain: boolean

  /** @param fields names and values in turns @throws {Error} one of them is invalid: nothing has changed */
  writeHead (status: number, fields: string[]): unknown
  /** Sends the head that was written. */
  flushHeaders (): void
  /** @returns false: wait for `drain` */
  write (content: string | Buffer, onTaken?: () => void): boolean
  end (content: string | Buffer, encoding: 'latin1' | 'utf8'): unknown
  destroy (): unknown

  /** `close` comes once, when the answer is whole or the connection is gone. */
  once (event: 'close' | 'drain', listener: Listener): unknown
  on (event: 'close' | 'drain', listener: Listener): unknown
  off (event: 'close' | 'drain', listener: Listener): unknown

  /** absent: it is one */
  toStream? (): Writable
}
