// A request's body that is too large for the event loop: a thread has it, and the loop knows the few small fields that
// decide its way. Steps over the whole of it are body steps (body-step.ts).
import type { ModelKind } from '../config/config.ts'
import { isRecord, type Json } from '../base/json.ts'

/** The body in its thread, as the exchange has it. */
export interface LargeBody {
  /** Runs a step there. @throws {GatewayError} the step's own error; the reason of an abort; the thread has died */
  run (step: string, args: readonly unknown[]): Promise<unknown>
  /** tokens (tokens/bound.ts); known once the request has been encoded for an upstream */
  readonly inputEstimate: number | undefined
  /** bytes that are parsed: those that were received and decompressed, without base64 */
  readonly parsedBytes: number
  /** Reads the body on the loop after all, for what no step does. To be called before a step has written a fact. */
  bringHere (): void
}

/** Characters of a text that are told: no model has a longer name. */
const LONGEST = 1000
/** The same of a prompt, of which as much is valid (config/requests/videos.json): a video is described with it. */
const LONGEST_PROMPT = 64_000
/** Fields that are told as they are, if they are no lists and no objects. */
const PLAIN = ['model', 'stream'] as const
/** The same, of what a body asks for; of a list or an object the loop may only ask whether it is given. */
const OWN = {
  text: ['max_tokens', 'messages', 'input', 'stream_options', 'usage', 'stop_sequences'],
  image: ['n', 'response_format'],
  video: ['prompt']
} as const satisfies Readonly<Record<ModelKind, readonly string[]>>

/** Most stop sequences that an answer's end is compared with; vendors take a few. */
const MOST_STOPS = 1000

export type BodyHead = Partial<Record<(typeof PLAIN)[number] | (typeof OWN)[ModelKind][number], unknown>>

/** @param modality what the body asks for; undefined: it is nothing for a model */
export function headOf (body: Json, modality: ModelKind | undefined): BodyHead {
  const head: Record<string, unknown> = {}
  for (const name of toldOfBodies(modality)) if (Object.hasOwn(body, name)) head[name] = toldOf(name, body[name])
  return head
}

function toldOf (name: string, value: unknown): unknown {
  switch (name) {
    case 'prompt': return shortOf(value, LONGEST_PROMPT)
    case 'stop_sequences':
      return Array.isArray(value) ? value.slice(0, MOST_STOPS).map((stop) => shortOf(stop)) : shortOf(value)
    case 'stream_options': return isRecord(value) ? { include_usage: shortOf(value.include_usage) } : shortOf(value)
    case 'usage': return isRecord(value) ? { include: shortOf(value.include) } : shortOf(value)
    default: return shortOf(value)
  }
}

function shortOf (value: unknown, longest = LONGEST): unknown {
  if (Array.isArray(value)) return []
  if (typeof value === 'object' && value !== null) return {}
  return typeof value === 'string' ? value.slice(0, longest) : value
}

/** All of which something is told. */
const known: Readonly<Record<ModelKind, ReadonlySet<string>>> = {
  text: new Set([...PLAIN, ...OWN.text]),
  image: new Set([...PLAIN, ...OWN.image]),
  video: new Set([...PLAIN, ...OWN.video])
}

const plain: ReadonlySet<string> = new Set(PLAIN)

function toldOfBodies (modality: ModelKind | undefined): ReadonlySet<string> {
  return modality === undefined ? plain : known[modality]
}

/**
 * The body as the loop sees it. Reading any other field throws: it would look like one that the client left out.
 * @param modality what the body asks for
 */
export function bodyOf (head: BodyHead, modality: ModelKind | undefined): Json {
  const told = toldOfBodies(modality)
  const refuse = (name: string | symbol): never => {
    throw new Error(`"${String(name)}" of a large body was read outside of a body step`)
  }
  const refuseAll = (): never => refuse('every field')
  return new Proxy<Record<string, unknown>>(head, {
    // A promise that is fulfilled with it asks for `then`, which JSON can't have as a function.
    get: (fields, name) => name === 'then' ? undefined
      : typeof name === 'string' && told.has(name) ? fields[name] : refuse(name),
    has: (fields, name) => typeof name === 'string' && told.has(name) ? name in fields : refuse(name),
    ownKeys: refuseAll,
    getOwnPropertyDescriptor: (fields, name) =>
      typeof name === 'string' && told.has(name) ? Object.getOwnPropertyDescriptor(fields, name) : refuse(name)
  })
}

/** Takes over what a step has changed. */
export function updateHead (head: BodyHead, now: BodyHead): void {
  for (const name of Object.keys(head)) if (!Object.hasOwn(now, name)) Reflect.deleteProperty(head, name)
  Object.assign(head, now)
}
