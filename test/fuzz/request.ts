// What an input is, and a request of one.
import { KEY } from './arena.ts'

export interface Input {
  /** bytes on a connection to the gateway, piece by piece; of a configuration, the file */
  readonly send: readonly Buffer[]
  /** the connection ends behind the last piece */
  readonly isTorn?: boolean
  /** what the upstream says to it; HOSTILE in it is the upstream's own address */
  readonly answer?: readonly Buffer[]
  /** what it says at the link in that answer */
  readonly linked?: readonly Buffer[]
}

export const HOSTILE = '{hostile}'

/** A request as a client would send it. */
export function request (line: string, headers: Readonly<Record<string, string>>, body: Buffer | string = ''): Buffer {
  const bytes = Buffer.from(body)
  const all = { host: 'gateway', authorization: `Bearer ${KEY}`, ...headers, connection: 'close',
    ...(bytes.length > 0 && { 'content-length': String(bytes.length) }) }
  return Buffer.concat([
    Buffer.from(
      `${line} HTTP/1.1\r\n${Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`,
      'latin1'
    ),
    bytes
  ])
}
