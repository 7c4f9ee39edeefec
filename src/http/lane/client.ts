// The client of an exchange in the lane: its body is there.
import type { BodyLimits } from '../../core/body-memory.ts'
import type { Routed } from '../../core/endpoint.ts'
import type { Body } from '../../core/facts.ts'
import { type Base64, base64In } from '../../core/large-strings.ts'
import { isHarmless, JsonGuard } from '../../base/json-limits.ts'
import { GatewayError } from '../../errors.ts'
import type { Client } from '../../pipeline/client.ts'
import { parseBody } from '../parse-body.ts'
import { ClientWriter, type WriterLimits } from '../response-writer.ts'
import type { LaneResponse } from './response.ts'

export class LaneClient extends ClientWriter implements Client {
  readonly #res: LaneResponse
  readonly #exchange: Routed
  readonly #limits: BodyLimits
  #body: Buffer

  constructor (res: LaneResponse, exchange: Routed, timeouts: WriterLimits, limits: BodyLimits, body: Buffer) {
    super(undefined, res, exchange, timeouts)
    this.#res = res
    this.#exchange = exchange
    this.#limits = limits
    this.#body = body
  }

  /** The same checks as in request-body.ts, but for what no request of the lane has. */
  readBody (exchange: Routed): Body {
    const body = this.#body
    this.#body = NOTHING
    this.#limits.memory.take(body.length)
    exchange.bodyBytes = body.length
    exchange.record.body_at = performance.now()
    exchange.throwIfAborted()
    const pieces = [body]
    if (isHarmless(body)) return parseBody(pieces, NO_BASE64, exchange.blobs)
    const guard = new JsonGuard()
    guard.push(body)
    return parseBody(pieces, base64In(pieces, guard.longStrings), exchange.blobs)
  }

  /** The connection is gone. */
  left (): void {
    if (!this.#res.writableFinished && !this.isBrokenOff) this.#exchange.abort(new GatewayError('client_closed'))
  }

  get isUpgrade (): boolean {
    return false
  }

  forward (): never {
    throw new Error('a request of the lane has nothing to forward')
  }

  connect (): never {
    throw new Error('a request of the lane is no upgrade')
  }
}

const NOTHING = Buffer.alloc(0)
const NO_BASE64: readonly Base64[] = []
