// The client of an exchange on its socket: reads and writes of the pipeline, in one object.
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { BodyLimits } from '../core/body-memory.ts'
import type { OwnRequest, Routed } from '../core/endpoint.ts'
import type { Body } from '../core/facts.ts'
import type { BytesReply } from '../core/reply.ts'
import type { Client } from '../pipeline/client.ts'
import { forward } from '../upstream/passthrough/forward.ts'
import { connectTunnel, type Tunnel, type Upgrade } from '../upstream/passthrough/websocket.ts'
import { isForm, readForm } from './form.ts'
import { readBody } from './request-body.ts'
import { ClientWriter, type WriterLimits } from './response-writer.ts'

export class HttpClient extends ClientWriter implements Client {
  readonly #req: IncomingMessage
  readonly #res: ServerResponse
  readonly #limits: BodyLimits
  readonly #upgrade: Upgrade | undefined

  constructor (
    req: IncomingMessage,
    res: ServerResponse,
    exchange: Routed,
    timeouts: WriterLimits,
    limits: BodyLimits,
    upgrade: Upgrade | undefined
  ) {
    super(req, res, exchange, timeouts)
    this.#req = req
    this.#res = res
    this.#limits = limits
    this.#upgrade = upgrade
  }

  readBody (exchange: Routed): Promise<Body> {
    const { route: { endpoint, readsInThreads }, snapshot: { bodies } } = exchange
    if (endpoint.kind === 'model' && endpoint.form === true && isForm(this.#req)) {
      return readForm(this.#req, this.#res, this.#limits, exchange)
    }
    return readBody(this.#req, this.#res, this.#limits, exchange, bodies, readsInThreads)
  }

  forward (exchange: Routed, upstream: string, own?: OwnRequest): Promise<BytesReply> {
    return forward(exchange, upstream, this.#req, this.#res, this.#limits, own)
  }

  get isUpgrade (): boolean {
    return this.#upgrade !== undefined
  }

  connect (exchange: Routed, upstream: string): Promise<Tunnel | BytesReply> {
    return connectTunnel(exchange, upstream, this.#upgrade!)
  }
}
