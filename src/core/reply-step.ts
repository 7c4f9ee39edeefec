// Reply steps: the work on the body of a whole answer, as functions of it. They run at once for nearly all answers, and
// for a large one in the thread that has it.
import type { Awaitable } from '../base/awaitable.ts'
import type { Json } from '../base/json.ts'
import { piecesOf } from '../base/pieces.ts'
import type { Exchange } from './exchange.ts'

/** In the place of a reply's body that is an object in a thread only: steps read it, the loop knows its type. */
export abstract class LargeReply {
  abstract readonly type: unknown

  /**
   * Runs a step there.
   * @throws {GatewayError} the step's own error; the reason of an abort; two threads have died of it
   */
  abstract run (step: string, args: readonly unknown[]): Promise<unknown>
}

/** The same as hooks have it. Reading any other field throws: it would look like one that the answer has not. */
export function guarded (reply: LargeReply): LargeReply {
  const refuse = (name: string | symbol): never => {
    throw new Error(`"${String(name)}" of a large answer was read outside of a reply step`)
  }
  const refuseAll = (): never => refuse('every field')
  return new Proxy(reply, {
    get: (own, name) => name === 'run' ? own.run.bind(own) : name === 'type' ? own.type
      : name === 'then' ? undefined : refuse(name),           // a promise that is fulfilled with it asks for `then`
    has: (_own, name) => name === 'run' || name === 'type' || (name !== 'then' && refuse(name)),
    ownKeys: refuseAll,
    getOwnPropertyDescriptor: refuseAll
  })
}

/** Characters of a piece that is printed. */
const PIECE = 256 * 1024

/** The JSON text of a body, as the result of a step: its memory changes threads. */
export function printed (body: unknown): { readonly pieces: readonly Uint8Array[] } {
  return { pieces: piecesOf(JSON.stringify(body), PIECE) }
}

type Run = (body: never, exchange: Exchange, ...args: never[]) => unknown

interface Step {
  readonly run: Run
  /** its result is the body from then on */
  readonly isChange: boolean
}

const steps = new Map<string, Step>()

/**
 * Declares a step that reads a body. What it uses beside that must come with its arguments, and arguments and result
 * are copied (structured clone): the route, the request's head, the client's key, `ResponsesWords` and the service
 * `seals`.
 * @param name unique among reply steps
 */
export function replyRead<Args extends readonly unknown[], Result> (
  name: string,
  read: (body: unknown, exchange: Exchange, ...args: Args) => Result
): (body: unknown, exchange: Exchange, ...args: Args) => Awaitable<Result> {
  declare(name, { run: read as unknown as Run, isChange: false })
  return (body, exchange, ...args) => body instanceof LargeReply
    ? body.run(name, args) as Promise<Result>
    : read(body, exchange, ...args)
}

/** Declares a step that makes another body of one, as above. */
export function replyChange<Args extends readonly unknown[]> (
  name: string,
  change: (body: Json, exchange: Exchange, ...args: Args) => Json
): (body: Json | LargeReply, exchange: Exchange, ...args: Args) => Awaitable<Json | LargeReply> {
  declare(name, { run: change as unknown as Run, isChange: true })
  return (body, exchange, ...args) => body instanceof LargeReply
    ? body.run(name, args).then(() => body)
    : change(body, exchange, ...args)
}

function declare (name: string, step: Step): void {
  if (steps.has(name)) throw new Error(`there are two reply steps "${name}"`)
  steps.set(name, step)
}

/** @throws {Error} nobody has declared it */
export function replyStepNamed (name: string): Step {
  const step = steps.get(name)
  if (step === undefined) throw new Error(`there is no reply step "${name}"`)
  return step
}
