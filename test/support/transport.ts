// Upstreams for the tests of how upstreams are reached: a model on any kind of server, and a gateway that asks it in
// both ways.
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Http2ServerRequest } from 'node:http2'
import { createServer as createHttpsServer, type ServerOptions } from 'node:https'
import type { AddressInfo, Server, Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { Authority } from './certificates.ts'
import { KEY, messagesRequest, yaml, type TestGateway } from './gateway.ts'
import { eventBytes, message } from './upstream.ts'

interface Test {
  teardown (work: () => unknown): void
}

export const authority = new Authority()
export const ROUTE = 'routes:\n  - { match: "GET,POST /v1/files/*", forward: u0, price: { usd: "0.001" } }\n'
/** what the model's answer costs: 10 tokens of input and 5 of output */
export const NANOS = 10n * 3000n + 5n * 15000n

export type Request = IncomingMessage | Http2ServerRequest
/** What both kinds of answer can do. */
export interface Answer {
  writeHead (status: number, headers: Readonly<Record<string, string>>): unknown
  end (bytes: Buffer | string): unknown
}

export async function listening (t: Test, server: Server, close = (): void => { server.close() }): Promise<number> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('error', () => {}).on('close', () => {
      sockets.delete(socket)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => { close(); for (const socket of sockets) socket.destroy() })
  return (server.address() as AddressInfo).port
}

export const events = (text: string): Buffer[] => [
  eventBytes('message_start', { type: 'message_start',
    message: { id: 'msg_1', type: 'message', role: 'assistant', model: 'm', content: [], stop_reason: null,
      stop_sequence: null, usage: { input_tokens: 10, output_tokens: 1 } } }),
  eventBytes('content_block_start', { type: 'content_block_start', index: 0,
    content_block: { type: 'text', text: '' } }),
  eventBytes('content_block_delta', { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })
]
export const last = [
  eventBytes('content_block_stop', { type: 'content_block_stop', index: 0 }),
  eventBytes('message_delta', { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null },
    usage: { output_tokens: 5 } }),
  eventBytes('message_stop', { type: 'message_stop' })
]

export async function readAll (request: Request): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks)
}

/** A model that says which connection it was asked on. */
export async function serve (request: Request, response: Answer, says = 'hi'): Promise<void> {
  const body = JSON.parse((await readAll(request)).toString() || '{}') as { stream?: boolean }
  if (body.stream === true) {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end(Buffer.concat([...events(says), ...last]))
  } else {
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify(message(says)))
  }
}

export interface Secure {
  readonly url: string
  /** in the order in which they came */
  readonly sockets: readonly TLSSocket[]
}

export async function secure (
  t: Test,
  options: ServerOptions,
  listener: (request: IncomingMessage, response: ServerResponse) => unknown = serve
): Promise<Secure> {
  const sockets: TLSSocket[] = []
  const server = createHttpsServer({ ...options }, (request, response) => { void listener(request, response) })
  server.on('secureConnection', (socket) => { sockets.push(socket) })
  return { url: `https://127.0.0.1:${await listening(t, server)}`, sockets }
}

/** @param more of the upstream, in YAML */
export function reaching (url: string, more: string): string {
  return yaml([url], ROUTE).replace('"upstream-secret-0" } }', `"upstream-secret-0" }, ${more} }`)
}

/** On both ways to the upstream. */
export async function both (gw: TestGateway): Promise<readonly Response[]> {
  return [await gw.messages(messagesRequest), await fetch(`${gw.url}/v1/files/a`, { headers: { 'x-api-key': KEY } })]
}

export const causes = (gw: TestGateway): unknown[] =>
  gw.logged.filter(({ msg }) => msg === 'request').map((line) => line['cause'])
