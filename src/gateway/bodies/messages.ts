// What the event loop and a thread of large bodies and answers say to each other.
import type { ReceivedBody } from '../../core/body-step.ts'
import type { ClientRequest } from '../../core/exchange.ts'
import type { ApiKey, Model } from '../../core/facts.ts'
import type { ResponsesWords } from '../../protocols/responses.ts'
import type { EarlierCalls } from '../../upstream/dialects/call-ids.ts'
import type { ModelKind } from '../../config/config.ts'
import type { BodyHead } from '../../core/large-body.ts'
import type { Route } from '../../core/route.ts'
import type { Upstream } from '../../core/upstream.ts'
import { type ErrorCode, GatewayError, isGatewayError } from '../../errors.ts'
import { briefly } from '../../base/json.ts'
import { type CallFlaw, UnusableCall, UpstreamErrorBody } from '../../upstream/dialects/error-reply.ts'

export interface ThreadInput {
  /** the module with the shipped plugins, which declare body steps */
  readonly pluginsUrl: string
  /** of `Seals`, in their order */
  readonly sealSecrets: readonly [string, ...string[]]
  /** The thread takes long jobs, so it leaves the processor to the event loop and to threads with short ones. */
  readonly isForLong: boolean
}

export type ToThread =
  | Asked
  /** it is needed no more; without an id: the thread is to end */
  | { readonly id?: string, readonly isOver: true }

export type Asked = AskedOfBody | AskedOfReply

interface AskedOfAny {
  /** by which the thread has it */
  readonly id: string
  /** steps that changed it, which a thread runs that has it anew */
  readonly replay: readonly Call[]
  /** undefined: only to read it */
  readonly call: Call | undefined
  /** it may be forgotten then */
  readonly isLast: boolean
}

export interface AskedOfBody extends AskedOfAny {
  readonly of: 'body'
  /** present: the thread does not have this body */
  readonly opened?: Opened & Pick<ReceivedBody, 'base64' | 'field'>
  readonly known: KnownFacts
}

export interface AskedOfReply extends AskedOfAny {
  readonly of: 'reply'
  /** present: the thread does not have this answer */
  readonly opened?: Opened & OpenedReply
}

interface Opened {
  /** of the exchange */
  readonly exchange: string
  readonly route: SentRoute
  readonly received: ClientRequest
  readonly pieces: readonly Uint8Array[]
}

/** What an answer is translated with. */
interface OpenedReply {
  readonly upstream: Upstream
  /** of the request */
  readonly head: BodyHead
  readonly known: KnownFacts
  readonly words: ResponsesWords | undefined
  readonly calls: EarlierCalls
}

/** A route of which the style is sent by its name, and of the endpoint the data alone. */
export interface SentRoute extends Omit<Route, 'style' | 'endpoint'> {
  readonly style: string
  /** what its bodies ask models for; undefined: nothing */
  readonly modality: ModelKind | undefined
  /** whether models answer; the gateway itself, otherwise */
  readonly isModels: boolean
  readonly schema: string | undefined
  readonly compacts: boolean
}

/** Facts of the core and of plugins above, which steps may read. */
export interface KnownFacts {
  readonly owner?: ApiKey | undefined
  readonly model?: Model | undefined
}

export interface Call {
  readonly step: string
  readonly args: readonly unknown[]
}

export interface Answer {
  readonly result?: unknown
  readonly error?: SentError
  /** those that steps have written since the last answer */
  readonly facts: readonly (readonly [name: string, value: unknown])[]
  readonly answerHeaders: Readonly<Record<string, string>>
  /** of the body as its client sent it; undefined: it could not be read, or is an answer's */
  readonly asked?: BodyHead
  /** `exchange.request`; `head` undefined: its body is the same as asked */
  readonly request?: { readonly head: BodyHead | undefined, readonly stream: boolean } | undefined
  /** of an answer's body */
  readonly type?: unknown
}

export type SentError =
  | { readonly row: ErrorCode, readonly message: string, readonly options: ErrorOptionsOf }
  | { readonly row: undefined, readonly thrown: unknown }
  /** an error of the upstream's as its whole answer */
  | { readonly row: undefined, readonly upstreams: unknown }
  /** a call that no client can run */
  | { readonly row: undefined, readonly flaw: CallFlaw }

type ErrorOptionsOf = NonNullable<ConstructorParameters<typeof GatewayError>[1]>

export function sendError (thrown: unknown): SentError {
  if (thrown instanceof UpstreamErrorBody) return { row: undefined, upstreams: briefly(thrown.body) }
  if (thrown instanceof UnusableCall) return { row: undefined, flaw: thrown.code }
  if (!isGatewayError(thrown)) return { row: undefined, thrown: sendable(thrown) }
  const { row, message, type, retryable, param, vendorCode, retryAfter, headers, cause } = thrown
  return { row, message, options: { type, retryable, headers,
    ...(param !== null && { param }),
    ...(vendorCode !== undefined && { vendorCode }),
    ...(retryAfter !== undefined && { retryAfter }),
    ...(cause !== undefined && { cause: sendable(cause) }) } }
}

export function receiveError (sent: SentError): unknown {
  if (sent.row === undefined) {
    return 'flaw' in sent ? new UnusableCall(sent.flaw)
      : 'upstreams' in sent ? new UpstreamErrorBody(sent.upstreams) : sent.thrown
  }
  const error = new GatewayError(sent.row, sent.options)
  error.message = sent.message                                // as it was made: {wait} may be a word of the client's
  return error
}

function sendable (value: unknown): unknown {
  try {
    return structuredClone(value)
  } catch {
    return String(value)
  }
}
