// A small request to an upstream outside any exchange: its answer is read whole, in limited time.
import type { IncomingHttpHeaders } from 'node:http'
import { parseOr } from '../../base/json.ts'
import type { UpstreamFailure } from '../../core/plugin.ts'
import { UpstreamCall, type CallRequest } from './call.ts'
import type { Upstream } from '../../core/upstream.ts'

/** Most bytes of an answer. */
const REPLY_LIMIT = 1024 * 1024

export interface JsonAnswer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  /** parsed JSON, else the text */
  readonly body: unknown
}

/**
 * Sends a request and reads its answer, whatever the status. Never rejects: a failure is a result too.
 * @param ms limit of the whole
 * @param signal aborts it, which is a failure
 */
export function ask (
  upstream: Upstream,
  request: CallRequest,
  ms: number,
  signal?: AbortSignal
): Promise<JsonAnswer | UpstreamFailure> {
  const { promise, resolve } = Promise.withResolvers<JsonAnswer | UpstreamFailure>()
  let call: UpstreamCall | undefined = undefined             // undefined: it failed before it was sent
  let status = 0
  let headers: IncomingHttpHeaders = {}
  const chunks: Buffer[] = []
  let size = 0
  const end = (told: JsonAnswer | UpstreamFailure): void => {
    clearTimeout(timer)
    signal?.removeEventListener('abort', stop)
    call?.abort()
    resolve(told)
  }
  const stop = (): void => {
    end({ kind: 'reset', cause: new Error('the gateway ended the question') })
  }
  const timer = setTimeout(() => {
    end({ kind: 'first_byte_timeout', cause: new Error(`the upstream had not answered after ${ms} ms`) })
  }, ms)
  signal?.addEventListener('abort', stop)
  call = new UpstreamCall(upstream, request, {
    onHead (itsStatus, itsHeaders) { status = itsStatus; headers = itsHeaders },
    onData (chunk) {
      chunks.push(chunk)
      size += chunk.length
      if (size > REPLY_LIMIT) {
        end({ kind: 'malformed', cause: new Error(`the answer is longer than ${REPLY_LIMIT} bytes`) })
      }
    },
    onEnd () { end({ status, headers, body: parseOr(Buffer.concat(chunks).toString()) }) },
    onFailure: end
  })
  return promise
}
