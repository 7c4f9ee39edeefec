// A request's body that is too large for the event loop: a thread has it, and the loop knows the few small fields that
// decide its way. Steps over the whole of it are body steps (body-step.ts).
import { isRecord, type Json } from '../base/json.ts'

/** The body in its thread, as the exchange has it. */
export interface LargeBody {
  /** Runs a step there. @throws {GatewayError} the step's own error; the reason of an abort; the thread has died */
  run (step: string, args: readonly unknown[]): Promise<unknown>
  /** tokens (tokens/bound.ts); known once the request has been encoded for an upstream */
  readonly inputEstimate: number | undefined
  /** Reads the body on the loop after all, for what no step does. To be called before a step has written a fact. */
  bringHere (): void
}

/** Characters of a text that are told: no model has a longer name. */
const LONGEST = 1000
/** Fields that are told as they are, if they are no lists and no objects. */
const PLAIN = ['model', 'stream', 'max_tokens'] as const
/** Fields of which the loop may only ask whether they are given, and of which type. */
const PARTS = ['messages', 'input'] as const

/** Most stop sequences that an answer's end is compared with; vendors take a few. */
const MOST_STOPS = 1000
/** All of which something is told. */
const KNOWN = [...PLAIN, ...PARTS, 'stream_options', 'stop_sequences'] as const

export type BodyHead = Partial<Record<(typeof KNOWN)[number], unknown>>

export function headOf (body: Json): BodyHead {
  const head: Record<string, unknown> = {}
  for (const name of [...PLAIN, ...PARTS]) if (Object.hasOwn(body, name)) head[name] = shortOf(body[name])
  const { stream_options: options, stop_sequences: stops } = body
  if (stops !== undefined) {
    head['stop_sequences'] = Array.isArray(stops) ? stops.slice(0, MOST_STOPS).map(shortOf) : shortOf(stops)
  }
  if (options !== undefined) {
    head['stream_options'] = isRecord(options) ? { include_usage: shortOf(options.include_usage) } : shortOf(options)
  }
  return head
}

function shortOf (value: unknown): unknown {
  if (Array.isArray(value)) return []
  if (typeof value === 'object' && value !== null) return {}
  return typeof value === 'string' ? value.slice(0, LONGEST) : value
}

const known: ReadonlySet<string> = new Set(KNOWN)

/** The body as the loop sees it. Reading any other field throws: it would look like one that the client left out. */
export function bodyOf (head: BodyHead): Json {
  const refuse = (name: string | symbol): never => {
    throw new Error(`"${String(name)}" of a large body was read outside of a body step`)
  }
  const refuseAll = (): never => refuse('every field')
  return new Proxy<Record<string, unknown>>(head, {
    // A promise that is fulfilled with it asks for `then`, which JSON can't have as a function.
    get: (fields, name) => name === 'then' ? undefined
      : typeof name === 'string' && known.has(name) ? fields[name] : refuse(name),
    has: (fields, name) => typeof name === 'string' && known.has(name) ? name in fields : refuse(name),
    ownKeys: refuseAll,
    getOwnPropertyDescriptor: (fields, name) =>
      typeof name === 'string' && known.has(name) ? Object.getOwnPropertyDescriptor(fields, name) : refuse(name)
  })
}

/** Takes over what a step has changed. */
export function updateHead (head: BodyHead, now: BodyHead): void {
  for (const name of Object.keys(head)) if (!Object.hasOwn(now, name)) Reflect.deleteProperty(head, name)
  Object.assign(head, now)
}
