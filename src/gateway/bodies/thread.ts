// A thread that has large bodies: parses them, and runs body steps on a copy of their exchange. It has no services but
// seals, and no configuration: what a step needs comes with it.
import { parentPort, workerData } from 'node:worker_threads'
import { collectGarbage } from '../../base/collect-garbage.ts'
import { Seals } from '../../base/seals.ts'
import { stepNamed } from '../../core/body-step.ts'
import { Exchange } from '../../core/exchange.ts'
import { ApiKey, Body, factNamed, Model } from '../../core/facts.ts'
import { SAID } from '../../core/failed-attempt.ts'
import { headOf } from '../../core/large-body.ts'
import type { Ledger } from '../../core/ledger.ts'
import type { EndpointKind } from '../../core/route.ts'
import type { Snapshot } from '../../core/snapshot.ts'
import { COUNT } from '../../endpoints/input-tokens.ts'
import { parseBody } from '../../http/parse-body.ts'
import { styles } from '../../protocols/index.ts'
import { ENCODE } from '../../upstream/transport/encode-body.ts'
import { type Answer, type Asked, type Opened, sendError, type ThreadInput, type ToThread } from './messages.ts'

const { pluginsUrl, sealSecrets } = workerData as ThreadInput
const loaded = import(pluginsUrl)
for (const step of [COUNT, ENCODE, SAID]) stepNamed(step)           // the plugins bring theirs

const snapshot = {
  generation: 0,
  services: { seals: new Seals(sealSecrets) },
  models: new Map(),
  upstreams: new Map()
} as unknown as Snapshot

/** A copy of an exchange, with the names of the facts that its loop knows. */
interface Copy {
  readonly exchange: Exchange
  readonly told: Set<string>
}

const copies = new Map<string, Copy>()

/** Bytes of bodies after which garbage is worth a collection, and milliseconds of rest before it. */
const TIDY_BYTES = 16 * 1024 * 1024
const TIDY_MS = 500
let read = 0
let resting: NodeJS.Timeout | undefined

parentPort!.on('message', (message: ToThread) => {
  if ('isOver' in message) {
    if (message.id === undefined) parentPort!.close()
    else copies.delete(message.id)
    tidy()
    return
  }
  void loaded.then(() => {
    const answer = answerTo(message)
    parentPort!.postMessage(answer, transferable(answer.result))
    tidy()
  })
})

function answerTo ({ id, opened, known, replay, call, isLast }: Asked): Answer {
  let copy = copies.get(id)
  try {
    if (opened !== undefined) {
      copy = open(id, opened)
      copies.set(id, copy)
    }
    const { exchange, told } = copy!
    learn(exchange, known)
    for (const { step, args } of replay) void stepNamed(step).run(exchange, ...args as never[])
    if (replay.length > 0) for (const name of exchange.factNames) told.add(name)
    const result = call === undefined ? undefined : stepNamed(call.step).run(exchange, ...call.args as never[])
    return { result, ...changesOf(copy!) }
  } catch (thrown) {
    return { error: sendError(thrown), ...(copy === undefined ? { facts: [], answerHeaders: {} } : changesOf(copy)) }
  } finally {
    if (isLast) copies.delete(id)
  }
}

/** @throws {GatewayError} bad_request */
function open (id: string, { route, received, pieces, base64 }: Opened): Copy {
  const style = styles.find(({ name }) => name === route.style)!
  const { isModels, schema, compacts } = route
  read += pieces.reduce((sum, { length }) => sum + length, 0)
  const endpoint: EndpointKind = { style, ...(schema !== undefined && { schema }),
    ...(isModels ? { kind: 'model', modality: 'text', ...(compacts && { compacts }) } : { kind: 'local', reads: 'body' }) }
  const exchange = new Exchange(id, { ...route, style, endpoint }, received, snapshot, undefined as unknown as Ledger)
  exchange.set(Body, parseBody(pieces.map(bufferOf), base64, exchange.blobs))
  return { exchange, told: new Set([Body.name]) }
}

/** What the pipeline does where the body is read, and what came before. */
function learn (exchange: Exchange, { owner, model }: Asked['known']): void {
  if (owner !== undefined && exchange.find(ApiKey) === undefined) exchange.set(ApiKey, owner)
  if (model === undefined || exchange.find(Model) !== undefined) return
  exchange.set(Model, model)
  const body = exchange.get(Body)
  if (body.model !== model.id) Object.assign(body, { model: model.id })
  exchange.request = { body, stream: body.stream === true }
}

function changesOf ({ exchange, told }: Copy): Pick<Answer, 'facts' | 'answerHeaders' | 'asked' | 'request'> {
  const facts = exchange.factNames.filter((name) => !told.has(name) && name !== ApiKey.name && name !== Model.name)
    .map((name) => [name, exchange.find(factNamed(name))] as const)
  for (const [name] of facts) told.add(name)
  const asked = exchange.get(Body)
  const { request } = exchange.find(Model) === undefined ? { request: undefined } : exchange
  return { facts, answerHeaders: exchange.answerHeaders, asked: headOf(asked),
    request: request && { head: request.body === asked ? undefined : headOf(request.body), stream: request.stream } }
}

function bufferOf ({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength)
}

/** The memory of a result's bytes, unless they are so few that they lie among others. */
function transferable (result: unknown): ArrayBuffer[] {
  const { bytes } = Object(result) as { readonly bytes?: Uint8Array }
  return bytes?.buffer instanceof ArrayBuffer && bytes.buffer.byteLength === bytes.byteLength ? [bytes.buffer] : []
}

/** Collects what is left of bodies when none has come for a while: a thread that rests would keep it for good. */
function tidy (): void {
  clearTimeout(resting)
  if (copies.size > 0 || read < TIDY_BYTES) return
  resting = setTimeout(() => {
    read = 0
    collectGarbage()
  }, TIDY_MS).unref()
}
