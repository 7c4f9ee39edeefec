// A scripted upstream on a real socket: it says what the test wrote down, step by step, and tells what it was asked.
import { EventEmitter, once } from 'node:events'
import { createServer as createHttpServer, type IncomingHttpHeaders, type IncomingMessage,
  type ServerResponse } from 'node:http'
import type { AddressInfo, Server } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { freePort } from './free-port.ts'

/** What of tap's `t` is needed here. */
interface Test {
  teardown (work: () => unknown): void
  fail (message: string): unknown
}

/** JSON that can be read, and is nested too deep to be printed. */
export const abyss = `{"type":"error","error":{"type":"api_error","message":"deep"},"more":${'['.repeat(20_000)}{"0":1}${']'.repeat(20_000)}}`

/** A request, read whole before its script begins. */
export interface Received {
  readonly method: string
  /** with the query */
  readonly url: string
  readonly path: string
  readonly headers: IncomingHttpHeaders
  /** as on the wire: name, value, name, value */
  readonly rawHeaders: readonly string[]
  readonly bytes: Buffer
  /** parsed, or undefined where it is not a JSON object */
  readonly body: Readonly<Record<string, unknown>> | undefined
  /** Resolves when the answer is over: the last byte was written, or `left`: the connection died before. */
  readonly closed: Promise<'done' | 'left'>
}

interface Visit {
  readonly request: Received
  readonly response: ServerResponse
  /** aborted when the connection is gone */
  readonly gone: AbortSignal
}

export interface Step {
  run (visit: Visit): unknown
}

/** Steps in order; lists in lists are as good as one list. After the last one the answer is ended, if it is not yet. */
export type Script = Step | readonly Script[]

export interface Upstream {
  readonly url: string
  /** so far, oldest first */
  readonly requests: readonly Received[]
  /** The next request that nobody was given yet; waits for it. */
  nextRequest (): Promise<Received>
}

/** Starts an upstream that answers each request by the script, or by what `script` returns for it. */
export async function upstream (
  t: Test,
  script: Script | ((request: Received) => Script | Promise<Script>)
): Promise<Upstream> {
  const requests: Received[] = []
  const arrivals = new EventEmitter()
  let given = 0

  const server = createHttpServer((request, response) => {
    serve(request, response).catch((error: unknown) => {
      response.destroy()
      t.fail(`the upstream's script threw: ${error instanceof Error ? error.stack : String(error)}`)
    })
  })
  server.requestTimeout = 0

  async function serve (request: IncomingMessage, response: ServerResponse): Promise<void> {
    const gone = new AbortController()
    response.on('error', () => {})
    const closed = once(response, 'close').then(() => {
      gone.abort()
      return response.writableFinished ? 'done' as const : 'left' as const
    })
    const bytes = await read(request)
    if (bytes === undefined) return                       // left while it was still asking
    const received: Received = {
      method: request.method ?? '',
      url: request.url ?? '',
      path: (request.url ?? '').split('?', 1)[0] ?? '',
      headers: request.headers,
      rawHeaders: request.rawHeaders,
      bytes,
      body: parse(bytes),
      closed
    }
    requests.push(received)
    arrivals.emit('request')
    try {
      const steps = typeof script === 'function' ? await script(received) : script
      for (const step of flatten(steps)) {
        if (gone.signal.aborted) return
        await step.run({ request: received, response, gone: gone.signal })
      }
      if (!response.writableEnded && !response.destroyed) response.end()
    } catch (error) {
      if (!gone.signal.aborted) throw error
    }
  }

  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => close(server))
  return {
    url: urlOf(server),
    requests,
    async nextRequest () {
      const index = given++
      for (;;) {
        const request = requests[index]
        if (request !== undefined) return request
        await once(arrivals, 'request')
      }
    }
  }
}

/** A url where nobody listens: of ports that no test's server is given. */
export async function refusing (): Promise<string> {
  return `http://127.0.0.1:${await freePort(30_000, 32_000)}`
}

// Steps. Each may be used many times.

/** A step of the test's own. */
export function step (run: Step['run']): Step {
  return { run }
}

export function status (code: number, headers: Readonly<Record<string, string | string[]>> = {}): Step {
  return step(({ response }) => {
    response.writeHead(code, headers)
    response.flushHeaders()
  })
}

/** A whole JSON answer. */
export function json (body: unknown, code = 200, headers: Readonly<Record<string, string | string[]>> = {}): Step {
  return step(({ response }) => {
    response.writeHead(code, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
  })
}

/** One event; the first one brings the head of a stream with it, unless `status` was before it. */
export function sse (event: string, data: unknown): Step {
  return raw(eventBytes(event, data))
}

/** These bytes of the body. */
export function raw (bytes: string | Uint8Array): Step {
  return step(async ({ response, gone }) => {
    if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
    await orGone(gone, new Promise<void>((resolve) => { response.write(bytes, () => { resolve() }) }))
  })
}

/** These bytes on the connection itself, past HTTP: an answer that is none. */
export function bytes (text: string): Step {
  return step(async ({ response, gone }) => {
    await orGone(gone, new Promise<void>((resolve) => { response.socket?.write(text, () => { resolve() }) }))
  })
}

/** Until the test's promise resolves, or for so many milliseconds; or until the client leaves. */
export function wait (until: number | PromiseLike<unknown>): Step {
  return step(({ gone }) =>
    orGone(gone, typeof until === 'number' ? setTimeout(until, undefined, { signal: gone }) : until)
  )
}

/** Closes the connection; what was written before arrives. */
export function cut (): Step {
  return step(({ response }) => { response.destroy() })
}

export function end (): Step {
  return step(({ response }) => { response.end() })
}

/** Silent until the client leaves. */
export function stall (): Step {
  return step(({ gone }) => orGone(gone, new Promise(() => {})))
}

// What a messages-style vendor says.

export interface AnswerOptions {
  readonly model?: string
  readonly id?: string
  /** replaces the default counters, field by field */
  readonly usage?: Readonly<Record<string, unknown>>
  readonly stop_reason?: string
}

const defaultUsage = { input_tokens: 10, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 }

export function messageStart (
  { model = 'upstream-model', id = 'msg_upstream', usage = {} }: AnswerOptions = {}
): Script {
  const message = { id, type: 'message', role: 'assistant', model, content: [], stop_reason: null, stop_sequence: null,
    usage: { ...defaultUsage, output_tokens: 1, ...usage } }
  return sse('message_start', { type: 'message_start', message })
}

export function ping (): Script {
  return sse('ping', { type: 'ping' })
}

export function blockStart (index: number, content_block: unknown = { type: 'text', text: '' }): Script {
  return sse('content_block_start', { type: 'content_block_start', index, content_block })
}

export function blockDelta (index: number, delta: unknown): Script {
  return sse('content_block_delta', { type: 'content_block_delta', index, delta })
}

export function textDelta (index: number, text: string): Script {
  return blockDelta(index, { type: 'text_delta', text })
}

export function blockStop (index: number): Script {
  return sse('content_block_stop', { type: 'content_block_stop', index })
}

/** A whole text block, a delta for each piece. */
export function textBlock (index: number, ...pieces: readonly string[]): Script {
  return [blockStart(index), ...pieces.map((piece) => textDelta(index, piece)), blockStop(index)]
}

export function messageDelta ({ stop_reason = 'end_turn', usage = {} }: AnswerOptions = {}): Script {
  return sse('message_delta', { type: 'message_delta', delta: { stop_reason, stop_sequence: null },
    usage: { output_tokens: 5, ...usage } })
}

export function messageStop (): Script {
  return sse('message_stop', { type: 'message_stop' })
}

/** The last two events. */
export function messageEnd (options: AnswerOptions = {}): Script {
  return [messageDelta(options), messageStop()]
}

export function errorEvent (type = 'overloaded_error', message = 'Overloaded'): Script {
  return sse('error', { type: 'error', error: { type, message } })
}

/** An error status in the vendor's shape. */
export function errorReply (
  code: number,
  type: string,
  message: string,
  headers: Readonly<Record<string, string>> = {}
): Script {
  return json({ type: 'error', error: { type, message }, request_id: 'req_upstream' }, code, headers)
}

/** The same answer as a stream or as JSON, as the request wants it. `usage` is the final one. */
export function answer (text: string, options: AnswerOptions = {}): Script {
  const usage = { output_tokens: 5, ...options.usage }
  const stream = flatten([messageStart({ ...options, usage: { ...options.usage, output_tokens: 1 } }), ping(),
    textBlock(0, text), messageEnd({ ...options, usage })])
  const whole = json(message(text, options))
  return step(async (visit) => {
    const { body } = visit.request
    if (body?.['stream'] === true) for (const one of stream) await one.run(visit)
    else await whole.run(visit)
  })
}

/** The body of a JSON answer. */
export function message (
  text: string,
  { model = 'upstream-model', id = 'msg_upstream', usage = {}, stop_reason = 'end_turn' }: AnswerOptions = {}
): Record<string, unknown> {
  return { id, type: 'message', role: 'assistant', model, content: [{ type: 'text', text }], stop_reason,
    stop_sequence: null, usage: { ...defaultUsage, output_tokens: 5, ...usage } }
}

/** One event on the wire; data that is text goes as it is. */
export function eventBytes (event: string, data: unknown): Buffer {
  const text = typeof data === 'string' ? data : JSON.stringify(data)
  return Buffer.from(`${event === '' ? '' : `event: ${event}\n`}data: ${text}\n\n`)
}

function flatten (script: Script): Step[] {
  return 'run' in script ? [script] : script.flatMap(flatten)
}

async function orGone<T> (gone: AbortSignal, work: PromiseLike<T>): Promise<T | undefined> {
  if (gone.aborted) return undefined
  const left = new AbortController()
  try {
    return await Promise.race([work, once(gone, 'abort', { signal: left.signal }).then(() => undefined)])
  } catch (error) {
    if (gone.aborted) return undefined
    throw error
  } finally {
    left.abort()
  }
}

async function read (request: IncomingMessage): Promise<Buffer | undefined> {
  const chunks: Buffer[] = []
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk)
  } catch {
    return undefined
  }
  return Buffer.concat(chunks)
}

function parse (bytes: Buffer): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(bytes.toString())
    return typeof value === 'object' && value !== null ? value as Readonly<Record<string, unknown>> : undefined
  } catch {
    return undefined
  }
}

function urlOf (server: Server): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

async function close (server: ReturnType<typeof createHttpServer>): Promise<void> {
  const closed = once(server, 'close')
  server.close()
  server.closeAllConnections()
  await closed
}
