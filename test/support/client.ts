// An API client on one connection of its own, that can look at an answer while it arrives, stop reading, or leave.
import { EventEmitter, once } from 'node:events'
import { Agent, request, type ClientRequest, type IncomingMessage } from 'node:http'
import type { Test } from 'tap'
import { KEY, type TestGateway } from './gateway.ts'
import type { Entry } from '../../src/store/store.ts'
import { until } from './until.ts'

export interface Received {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly bytes: Buffer
  readonly text: string
  /** parsed, for answers that are JSON */
  readonly json: unknown
  /** false: the connection broke before the end of the body */
  readonly isWhole: boolean
  readonly id: string
}

export interface Client {
  post (body: unknown, headers?: Readonly<Record<string, string>>): Call
}

/** All calls go over one connection, one after the other, as long as it lives. */
export function client (t: Test, { url }: { readonly url: string }, path = '/v1/messages'): Client {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  t.teardown(() => { agent.destroy() })
  return {
    post: (body, headers = {}) => new Call(request(url + path, {
      agent, method: 'POST', headers: { 'content-type': 'application/json', 'x-api-key': KEY, ...headers }
    }).end(JSON.stringify(body)))
  }
}

export class Call {
  /** the answer's head */
  readonly head: Promise<IncomingMessage>
  readonly #request: ClientRequest
  readonly #chunks: Buffer[] = []
  readonly #changed = new EventEmitter()
  readonly #whole: Promise<Received>

  constructor (sent: ClientRequest) {
    this.#request = sent
    this.head = once(sent, 'response').then(([response]) => response as IncomingMessage)
    this.head.catch(() => {})
    sent.on('error', () => {})
    this.#whole = this.#read()
    this.#whole.catch(() => {})
  }

  /** whether it came over a connection that had served another call */
  get isReused (): boolean {
    return this.#request.reusedSocket
  }

  get soFar (): string {
    return Buffer.concat(this.#chunks).toString('utf8')
  }

  /** Waits until the body that has arrived contains this. */
  async sees (part: string): Promise<void> {
    while (!this.soFar.includes(part)) {
      if ((await once(this.#changed, 'change'))[0] === 'end' && !this.soFar.includes(part)) {
        throw new Error(`the answer ended without ${part}: ${this.soFar}`)
      }
    }
  }

  /** The answer, when it is over. @throws {Error} the connection broke before the head */
  whole (): Promise<Received> {
    return this.#whole
  }

  /** Reads nothing more, until `resume`. */
  async stopReading (): Promise<void> {
    (await this.head).pause()
  }

  async resume (): Promise<void> {
    (await this.head).resume()
  }

  leave (): void {
    this.#request.destroy()
  }

  async #read (): Promise<Received> {
    const response = await this.head
    response.on('error', () => {})
    response.on('data', (chunk: Buffer) => { this.#chunks.push(chunk); this.#changed.emit('change') })
    await once(response, 'close')
    this.#changed.emit('change', 'end')
    const bytes = Buffer.concat(this.#chunks)
    const text = bytes.toString('utf8')
    const isJson = response.headers['content-type'] === 'application/json'
    return { status: response.statusCode!, headers: response.headers, bytes, text,
      json: isJson && response.complete ? JSON.parse(text) : undefined, isWhole: response.complete,
      id: String(response.headers['x-request-id']) }
  }
}

export interface Event {
  readonly event: string
  readonly data: Readonly<Record<string, unknown>>
}

/** Reads canonical records only: `event: x`, `data: JSON`, a blank line. */
export function events (text: string): readonly Event[] {
  const records = text.split('\n\n')
  if (records.pop() !== '') throw new Error(`the stream ends inside a record: ${text.slice(-200)}`)
  return records.map((record) => {
    const parts = /^event: (\w+)\ndata: (.*)$/.exec(record)
    if (parts === null) throw new Error(`not a canonical record: ${record}`)
    return { event: parts[1]!, data: JSON.parse(parts[2]!) as Event['data'] }
  })
}

export function namesOf (text: string): string {
  return events(text).map(({ event }) => event).join(' ')
}

/** What the text deltas say, together. */
export function said (text: string): string {
  return events(text).map(({ event, data }) =>
    event === 'content_block_delta' ? (data['delta'] as { text?: string }).text ?? '' : ''
  ).join('')
}

/** An error in messages style, as its client reads it. */
export interface ClientError {
  readonly code: string
  readonly type: string
  readonly message: string
  readonly charged: string
  readonly id: string
}

/** Of a JSON answer, or of the stream's last event. @throws {Error} it is no error */
export function errorOf ({ json, text }: Received): ClientError {
  const last = json === undefined ? events(text).at(-1) : undefined
  if (last !== undefined && last.event !== 'error') {
    throw new Error(`the stream does not end in an error: ${text.slice(-500)}`)
  }
  const { error, request_id: id } = (json ?? last?.data) as {
    error: { type: string, message: string, charged_usd: string, details: { error_code: string } },
    request_id: string
  }
  return { code: error.details.error_code, type: error.type, message: error.message, charged: error.charged_usd, id }
}

/**
 * What became of a request: the log's line about it (which comes last), what it was charged, and what is still held.
 */
export interface Fate {
  readonly line: Readonly<Record<string, unknown>>
  readonly entries: readonly Entry[]
  readonly charged: bigint
  readonly openHolds: number
}

export async function fate (gateway: TestGateway, id: string): Promise<Fate> {
  const line = await until(() => gateway.logged.findLast((one) => one['msg'] === 'request' && one['request_id'] === id))
  const entries = await entriesOf(gateway, id)
  return { line, entries, charged: -entries.reduce((sum, { nanos }) => sum + nanos, 0n),
    openHolds: await gateway.services.store.openHolds() }
}

/** The entries that were read so far: a test may ask for the fates of thousands of requests. */
const known = new WeakMap<TestGateway, Entry[]>()

async function entriesOf (gateway: TestGateway, reference: string): Promise<readonly Entry[]> {
  const before = known.get(gateway) ?? []
  const entries = [...before]
  for await (const entry of gateway.services.store.entries(before.at(-1)?.id)) entries.push(entry)
  known.set(gateway, entries)
  return entries.filter((entry) => entry.reference === reference)
}

/** Of the request that came last, for a client that never learned its id. Asked before the request is sent. */
export function nextFate (gateway: TestGateway): () => Promise<Fate> {
  const before = gateway.logged.length
  return async () => {
    const line = await until(() => gateway.logged.slice(before).find((one) => one['msg'] === 'request'))
    return await fate(gateway, String(line['request_id']))
  }
}
