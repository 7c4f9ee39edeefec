// A client on a real socket that writes down what it got, event by event, and can leave at any of them: its log is half
// of the truth about a bill. Knows nothing of the gateway's code.
import { type IncomingHttpHeaders, request as httpRequest } from 'node:http'

export interface ClientEvent {
  readonly event: string
  readonly data: Readonly<Record<string, unknown>>
}

/** What a client has in its hands when it is over. */
export interface Got {
  /** 0: no head came */
  readonly status: number
  readonly headers: IncomingHttpHeaders
  /** whole ones */
  readonly events: readonly ClientEvent[]
  /** of an answer that is not a stream, where it is whole JSON */
  readonly body: Readonly<Record<string, unknown>> | undefined
  readonly ended: 'whole' | 'cut' | 'left'
}

export interface Asking {
  readonly headers?: Readonly<Record<string, string>>
  /** leaves with exactly so many events in its hands */
  readonly leaveAfter?: number
  /** leaves at once, whatever it has */
  readonly leave?: AbortSignal
  /** called with the head; a promise holds back the reading of the body */
  readonly onHead?: (status: number) => Promise<void> | void
  readonly onEvent?: (count: number) => void
}

/** POSTs JSON. Never rejects: a connection that dies is a result. */
export function ask (url: string, body: unknown, asking: Asking = {}): Promise<Got> {
  const { promise, resolve } = Promise.withResolvers<Got>()
  const events: ClientEvent[] = []
  let status = 0
  let headers: IncomingHttpHeaders = {}
  let text = ''
  let hasLeft = false
  const end = (ended: Got['ended']): void => {
    resolve({ status, headers, events, body: ended === 'whole' ? parse(text) : undefined,
      ended: hasLeft ? 'left' : ended })
  }
  const sending = JSON.stringify(body)
  const request = httpRequest(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(sending), ...asking.headers }
  })
  const leave = (): void => {
    hasLeft = true
    request.destroy()
  }
  request.on('error', () => { end('cut') })
  request.on('response', async (response) => {
    status = response.statusCode ?? 0
    headers = response.headers
    response.on('error', () => {})
    response.once('close', () => { end(response.complete ? 'whole' : 'cut') })
    await asking.onHead?.(status)
    const isStream = headers['content-type']?.startsWith('text/event-stream') === true
    response.setEncoding('utf8')
    response.on('data', (chunk: string) => {
      text += chunk
      for (let blank = text.indexOf('\n\n'); isStream && blank !== -1 && !hasLeft; blank = text.indexOf('\n\n')) {
        events.push(readEvent(text.slice(0, blank)))
        text = text.slice(blank + 2)
        asking.onEvent?.(events.length)
        if (events.length === asking.leaveAfter) leave()
      }
    })
  })
  if (asking.leave?.aborted === true) leave()
  else asking.leave?.addEventListener('abort', leave, { once: true })
  request.end(sending)
  return promise
}

function readEvent (record: string): ClientEvent {
  const lines = record.split('\n')
  const event = lines.find((line) => line.startsWith('event: '))?.slice(7) ?? ''
  const data = lines.filter((line) => line.startsWith('data: ')).map((line) => line.slice(6)).join('\n')
  return { event, data: parse(data) ?? {} }
}

function parse (text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    return JSON.parse(text) as Readonly<Record<string, unknown>>
  } catch {
    return undefined
  }
}

/** All that the deltas of an answer say, whichever kind they are. */
export function textOf (events: readonly ClientEvent[]): string {
  return events.map(({ event, data }) => {
    const delta = (event === 'content_block_delta' ? data['delta'] : {}) as Readonly<Record<string, string | undefined>>
    return delta['text'] ?? delta['partial_json'] ?? delta['thinking'] ?? ''
  }).join('')
}

export interface ClientError {
  readonly code: string
  readonly message: string
  readonly charged_usd: string
  readonly request_id: string
}

/** The error of a JSON answer in messages style, or of the last event of a stream. */
export function errorOf ({ body, events }: Got): ClientError | undefined {
  const last = events.at(-1)
  const shaped = (last?.event === 'error' ? last.data : body) as {
    error?: { message: string, charged_usd: string, details: { error_code: string } },
    request_id: string
  } | undefined
  if (shaped?.error === undefined) return undefined
  return { code: shaped.error.details.error_code, message: shaped.error.message, charged_usd: shaped.error.charged_usd,
    request_id: shaped.request_id }
}
