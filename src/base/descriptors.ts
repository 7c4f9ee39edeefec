// What this machine lacks when no connection can be made: descriptors, ports or memory. No fault of the other side.
import { closeSync, openSync, readFileSync } from 'node:fs'
import { devNull } from 'node:os'

/** Errors of the system's calls that make a socket (socket(2), connect(2)). */
const EXHAUSTED = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'ENOBUFS', 'EADDRNOTAVAIL'])
/** Milliseconds for which the process is no place for new clients behind such an error. */
const LASTING_MS = 5000
/** Fewer descriptors are a mistake: a stream takes two, and nobody plans for some hundred clients. */
export const FEW_DESCRIPTORS = 4096

/** `performance.now()` of the last such error */
let failedAt = -Infinity

/** Whether a connection failed for what this machine lacks; remembers that it did. */
export function lacksResources (error: Error): boolean {
  const { code = '', syscall } = error as NodeJS.ErrnoException
  // The system's resolver says that a name does not exist where it can't open a socket.
  const isLacking = EXHAUSTED.has(code) || (syscall === 'getaddrinfo' && !canOpen())
  if (isLacking) failedAt = performance.now()
  return isLacking
}

/** Whether new connections can't be made or accepted: now, or some seconds ago. */
export function isOutOfResources (): boolean {
  if (performance.now() - failedAt >= LASTING_MS && !canOpen()) failedAt = performance.now()
  return performance.now() - failedAt < LASTING_MS
}

function canOpen (): boolean {
  try {
    closeSync(openSync(devNull, 'r'))
    return true
  } catch {
    return false
  }
}

/** Most descriptors of this process. Undefined: the system does not say. */
export function mostDescriptors (): number | undefined {
  try {
    const most = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]
    return most === undefined ? undefined : Number(most)
  } catch {
    return undefined
  }
}
