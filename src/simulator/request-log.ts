// The simulator's record of each request, read and written: the oracle that tests compare bills with.
import { EventEmitter } from 'node:events'
import type { IncomingHttpHeaders } from 'node:http'
import type { Emission, ReportedUsage } from './dialect.ts'
import type { Faults } from './faults.ts'

/** How a request ended for the simulator. */
export type Ending =
  /** all was written that the vendor would write */
  | 'complete'
  /** the simulator closed the connection, or ended the stream early */
  | 'cut'
  | 'client_left'
  /** an error status, an error event, or something that is no answer */
  | 'error'

/** Changes until `ended` is set. */
export interface RequestRecord {
  /** as in the `request-id` header */
  readonly id: string
  /** milliseconds since the epoch */
  readonly at: number
  readonly method: string
  readonly path: string
  readonly headers: IncomingHttpHeaders
  /** parsed; undefined where it was large, or not wanted */
  body: unknown
  body_bytes: number
  body_sha256: string
  model: string | undefined
  faults: Faults
  stream: boolean
  /** 0 until the head is written */
  status: number
  /** whole events that the socket took */
  events_sent: number
  /** text, thinking and tool input that the socket took, in order */
  text_sent: string
  /** as reported so far, in the vendor's fields; undefined until something was reported */
  usage: ReportedUsage | undefined
  ended: Ending | undefined
  /** what the vendor says of a request that it refuses, behind the name of the rule with `vendor` */
  refusal: string | undefined
  /** a defect of the simulator itself */
  failure: unknown
}

export interface LogEvents {
  /** the head arrived */
  open: [RequestRecord]
  /** the request was read */
  request: [RequestRecord]
  /** the socket took one more event, or the body */
  sent: [RequestRecord]
  end: [RequestRecord]
}

const changes = ['open', 'request', 'sent', 'end'] as const

/** Remembers the last requests only: `keep` of them. */
export class RequestLog {
  readonly requests: RequestRecord[] = []
  readonly events = new EventEmitter<LogEvents>()
  readonly #keep: number

  constructor (keep: number) {
    this.#keep = keep
    this.events.setMaxListeners(0)          // a load test waits for hundreds of conditions at a time
  }

  open (id: string, at: number, method: string, path: string, headers: IncomingHttpHeaders): RequestRecord {
    const record: RequestRecord = {
      id,
      at,
      method,
      path,
      headers,
      body: undefined,
      body_bytes: 0,
      body_sha256: '',
      model: undefined,
      faults: {},
      stream: false,
      status: 0,
      events_sent: 0,
      text_sent: '',
      usage: undefined,
      ended: undefined,
      refusal: undefined,
      failure: undefined
    }
    this.requests.push(record)
    if (this.requests.length > this.#keep) this.requests.shift()
    this.events.emit('open', record)
    return record
  }

  read (record: RequestRecord): void {
    this.events.emit('request', record)
  }

  sent (record: RequestRecord, emission: Omit<Emission, 'event'>, events = 1): void {
    record.events_sent += events
    if (emission.text !== undefined) record.text_sent += emission.text
    if (emission.usage !== undefined) record.usage = { ...record.usage, ...emission.usage }
    this.events.emit('sent', record)
  }

  end (record: RequestRecord, ending: Ending): void {
    record.ended = ending
    this.events.emit('end', record)
  }

  /** Waits until `seen` returns something; it is asked again whenever the log changes. */
  until<T> (seen: () => T | undefined | false): Promise<T> {
    const { events } = this
    return new Promise((resolve, reject) => {
      function look (): void {
        try {
          const result = seen()
          if (result === undefined || result === false) return
          resolve(result)
        } catch (error) {
          reject(error)
        }
        for (const name of changes) events.off(name, look)
      }
      for (const name of changes) events.on(name, look)
      look()
    })
  }
}
