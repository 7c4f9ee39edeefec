// Answers that are bytes: written as fast as their client reads them, and given up when it leaves or reads no more.
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'

/** Milliseconds that a client may leave what was written unread. */
const STALL_MS = 60_000

export interface Bytes {
  readonly first: IteratorResult<Uint8Array, unknown>
  readonly rest: AsyncGenerator<Uint8Array>
}

/** Reads the first of them: whoever can't be answered gets a status that says so. @throws what the reading throws */
export async function begin (rest: AsyncGenerator<Uint8Array>): Promise<Bytes> {
  return { first: await rest.next(), rest }
}

/**
 * Writes the body behind its head. Without an end of the chunks a client knows that they are not all.
 * @param stallMs for tests
 * @throws {Error} they could not be read to their end; what the client did is no error
 */
export async function writeBytes (
  res: ServerResponse, { first, rest }: Bytes, stallMs = STALL_MS
): Promise<void> {
  const gone = new AbortController()
  res.once('close', () => { gone.abort() })
  if (res.destroyed) gone.abort()
  res.socket?.setTimeout(stallMs, () => { res.destroy() })
  try {
    for (let step = first; step.done !== true; step = await rest.next()) {
      if (gone.signal.aborted) return
      if (!res.write(step.value)) await once(res, 'drain', { signal: gone.signal })
    }
    res.end()
  } catch (thrown) {
    if (!gone.signal.aborted) throw thrown
  } finally {
    await rest.return(undefined)
  }
}
