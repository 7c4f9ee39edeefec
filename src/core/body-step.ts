// Body steps: the work on a request's body, as functions of the exchange. They run at once for nearly all requests, and
// for a large body in the thread that has it, on a copy of the exchange.
import type { Awaitable } from '../base/awaitable.ts'
import type { BodyPieces, Lender, SharedPages } from './body-memory.ts'
import type { Exchange } from './exchange.ts'
import type { Body } from './facts.ts'
import type { Base64 } from './large-strings.ts'
import type { LargeReply } from './reply-step.ts'
import type { Upstream } from './upstream.ts'

/**
 * A step on the body of a request. What it uses beside these must come with its arguments, and arguments and result are
 * copied (structured clone): the route, the request, the received head, the facts of `knownInThreads` and those that
 * steps before it wrote, `blobs`, and the service `seals`. What it may write: the body, `exchange.request`, facts that
 * can be copied, and `answerHeaders`.
 */
export type BodyStep<Args extends readonly unknown[], Result> = (exchange: Exchange, ...args: Args) => Awaitable<Result>

type Run = (exchange: Exchange, ...args: never[]) => unknown

const steps = new Map<string, Step>()

interface Step {
  readonly run: Run
  /** It changes nothing, so that it need not be run again where the thread has lost the body. */
  readonly isRead: boolean
}

/** Declares a step. @param name unique */
export function bodyStep<Args extends readonly unknown[], Result> (
  name: string,
  run: (exchange: Exchange, ...args: Args) => Result,
  { isRead = false }: { readonly isRead?: boolean } = {}
): BodyStep<Args, Result> {
  if (steps.has(name)) throw new Error(`there are two body steps "${name}"`)
  steps.set(name, { run: run as unknown as Run, isRead })
  return (exchange, ...args) => exchange.large === undefined
    ? run(exchange, ...args)
    : exchange.large.run(name, args) as Promise<Result>
}

/** @throws {Error} nobody has declared it */
export function stepNamed (name: string): Step {
  const step = steps.get(name)
  if (step === undefined) throw new Error(`there is no body step "${name}"`)
  return step
}

/** What was received, and decompressed, in memory that threads share. */
export interface Received extends BodyPieces {
  readonly memory: Lender
}

export interface ReceivedBody extends Received {
  readonly base64: readonly Base64[]
  /** The field of what was received that is the body. Undefined: all of it is. */
  readonly field?: string | undefined
}

/** The threads of large bodies, and of large answers of upstreams. */
export interface BodyThreads {
  /** bytes from which a body or an answer is large */
  readonly least: number
  readonly memory: SharedPages
  /** Starts a thread, if there is none: a large body is on its way. */
  prepare (): void
  /**
   * Parses a body in a thread, and makes it the exchange's: `exchange.large`.
   * @returns what is known of it here. Undefined: there is no thread for it, so it is to be parsed here
   * @throws {GatewayError} bad_request
   */
  open (exchange: Exchange, received: ReceivedBody): Promise<Body | undefined>
  /**
   * The same for a dry run: its body is a field, an object, of the large one of the exchange that it is within.
   * @param readsInThreads whether threads may read the bodies of its route; it is parsed here, otherwise
   */
  openField (name: string, asked: Exchange, readsInThreads: boolean): Promise<Body>
  /**
   * The same of an object that was cut out of another body.
   * @throws {GatewayError} bad_request
   */
  openCut (json: Buffer, asked: Exchange, readsInThreads: boolean): Promise<Body>
  /**
   * Parses a whole answer in a thread, and translates it into the inner language.
   * @returns undefined: there is no thread for it, so it is to be parsed here
   * @throws what the dialect has thrown
   */
  openReply (exchange: Exchange, upstream: Upstream, received: Received): Promise<OpenedReply | undefined>
}

export interface OpenedReply {
  readonly body: LargeReply
  /** it has no content */
  readonly isEmpty: boolean
}
