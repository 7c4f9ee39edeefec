// Bytes of one write to a socket, in memory that is used again as soon as the system has taken them. A text that is put
// together of pieces would be copied once more to become bytes (measured: 2.7 KB of a request's 30).
import type { Socket } from 'node:net'

/** Most of what a request or an answer of JSON takes: a stuck client keeps so much. */
const BYTES = 16 * 1024
/** Characters from which on a text is quicker with a call of the engine than one by one (measured). */
const LONG = 16

let memory = Buffer.allocUnsafeSlow(BYTES)

/**
 * To be filled and sent before anybody else gets memory.
 * @param bytes how many there will be at most
 */
export function memoryFor (socket: Socket, bytes: number): Buffer {
  const isFree = socket.writableLength === 0 && socket.writableCorked === 0
  return isFree && bytes <= BYTES ? memory : Buffer.allocUnsafe(bytes)
}

/**
 * @param from of `memoryFor`, whose first bytes they are
 */
export function send (socket: Socket, from: Buffer, length: number): void {
  socket.write(from.subarray(0, length))
  // What the system has not taken yet is the socket's.
  if (from === memory && socket.writableLength > 0) memory = Buffer.allocUnsafeSlow(BYTES)
}

/**
 * @param text of Latin-1
 * @returns offset behind it
 */
export function put (bytes: Buffer, at: number, text: string): number {
  if (text.length >= LONG) return at + bytes.write(text, at, 'latin1')
  for (let i = 0; i < text.length; i++) bytes[at + i] = text.charCodeAt(i)
  return at + text.length
}
