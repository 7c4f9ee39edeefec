// One listener of server-sent events, on its socket. Nothing is kept for it: while it does not read, it misses what
// happens, and after half a minute of that it is cut off.
import type { ServerResponse } from 'node:http'
import type { Listener } from './api/operation.ts'

/** Looks without an event after which a comment is sent: proxies cut what is silent for a minute. */
const SILENT_TICKS = 15
/** Looks for which a reader may be stuck. */
const PATIENT_TICKS = 30
/** Milliseconds that a browser waits before it asks again. */
const RETRY_MS = 3000

export class EventStream implements Listener {
  readonly #res: ServerResponse
  readonly #isKnown: () => boolean
  #silent = 0
  #stuck = 0
  #hasMissed = false

  /** @param res its head is written @param isKnown whether its token still holds */
  constructor (res: ServerResponse, isKnown: () => boolean) {
    this.#res = res
    this.#isKnown = isKnown
    res.write(`retry: ${RETRY_MS}\n\n`)
  }

  isKnown (): boolean {
    return this.#isKnown()
  }

  hear (data: string, isNew: boolean): boolean {
    if (this.#res.writableNeedDrain) {
      this.#hasMissed ||= isNew
      return ++this.#stuck < PATIENT_TICKS
    }
    this.#stuck = 0
    if (isNew || this.#hasMissed) {
      this.#hasMissed = false
      this.#silent = 0
      this.#res.write(`event: change\ndata: ${data}\n\n`)
    } else if (++this.#silent >= SILENT_TICKS) {
      this.#silent = 0
      this.#res.write(': nothing new\n\n')
    }
    return true
  }

  /** Cuts off a reader that is stuck, which would never get the end. */
  end (): void {
    if (this.#res.writableNeedDrain) this.#res.destroy()
    else this.#res.end()
  }
}
