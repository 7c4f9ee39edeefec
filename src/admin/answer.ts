// What the admin listener answers, before it is written.
import type { Bytes } from './byte-answer.ts'
import type { Place } from './api/operation.ts'

export interface Answer {
  readonly status: number
  readonly type: string
  readonly text: string | Buffer
  /** they go before those of every answer, such as "cache-control: no-store" */
  readonly headers?: Readonly<Record<string, string>>
  /** present: events follow, and `text` is none */
  readonly follow?: Follow
  /** present: the body, and `text` is none */
  readonly bytes?: Bytes
}

/** A stream of events: its place among those who listen, and whether who asked for it still may. */
export interface Follow {
  readonly place: Place
  readonly isKnown: () => boolean
}

export function asJson (body: unknown, status = 200): Answer {
  return { status, type: 'application/json', text: JSON.stringify(body) + '\n' }
}
