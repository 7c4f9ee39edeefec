// A thread that has large bodies and answers: parses them, and runs steps on them, each with a copy of its exchange. It
// has no services but seals, and no configuration: what a step needs comes with it.
import { readlinkSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { parentPort, workerData } from 'node:worker_threads'
import { bufferOf } from '../../base/pieces.ts'
import { collectGarbage } from '../../base/collect-garbage.ts'
import { asRecord } from '../../base/json.ts'
import { Seals } from '../../base/seals.ts'
import { stepNamed } from '../../core/body-step.ts'
import { Exchange } from '../../core/exchange.ts'
import { ApiKey, Body, factNamed, Model } from '../../core/facts.ts'
import { SAID } from '../../core/failed-attempt.ts'
import { bodyOf, headOf } from '../../core/large-body.ts'
import type { Ledger } from '../../core/ledger.ts'
import { replyStepNamed } from '../../core/reply-step.ts'
import { type EndpointKind, modalityOfBodies } from '../../core/route.ts'
import type { Snapshot } from '../../core/snapshot.ts'
import { COUNT } from '../../endpoints/input-tokens.ts'
import { QUESTION } from '../../endpoints/question.ts'
import { parseReceived } from '../../http/parse-body.ts'
import { PRINT } from '../../pipeline/encode-reply.ts'
import { HASH } from '../../pipeline/idempotency.ts'
import { styles } from '../../protocols/index.ts'
import { isEmptyReply } from '../../protocols/messages.ts'
import { ResponsesWords } from '../../protocols/responses.ts'
import { EarlierCalls } from '../../upstream/dialects/call-ids.ts'
import { readAnswer } from '../../upstream/dialects/whole-answer.ts'
import { ENCODE } from '../../upstream/transport/encode-body.ts'
import { type Answer, type Asked, type AskedOfBody, type AskedOfReply, type Call, sendError, type ThreadInput,
  type ToThread } from './messages.ts'

const { pluginsUrl, sealSecrets, isForLong } = workerData as ThreadInput
if (isForLong) yieldProcessor()
const loaded = import(pluginsUrl)
for (const step of [COUNT, ENCODE, HASH, QUESTION, SAID]) stepNamed(step)           // the plugins bring theirs
replyStepNamed(PRINT)

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

/** A whole answer as the steps until now have made it, with a copy of its exchange. */
interface Reply {
  readonly exchange: Exchange
  body: unknown
}

const copies = new Map<string, Copy>()
const replies = new Map<string, Reply>()

/** Bytes after which garbage is worth a collection, and milliseconds of rest before it. */
const TIDY_BYTES = 16 * 1024 * 1024
const TIDY_MS = 500
let read = 0
let resting: NodeJS.Timeout | undefined

parentPort!.on('message', (message: ToThread) => {
  if ('isOver' in message) {
    if (message.id === undefined) parentPort!.close()
    else {
      copies.delete(message.id)
      replies.delete(message.id)
    }
    tidy()
    return
  }
  void loaded.then(() => {
    const answer = message.of === 'body' ? answerTo(message) : answerToReply(message)
    parentPort!.postMessage(answer, transferable(answer.result))
    tidy()
  })
})

/**
 * Lowers this thread's priority where the system has priorities of threads: Linux takes a thread's id for that of a
 * process (setpriority(2), NOTES). Nice 5 is a third of the loop's share of a core that both want.
 */
function yieldProcessor (): void {
  try {
    os.setPriority(Number(path.basename(readlinkSync('/proc/thread-self'))), 5)
  } catch {
    // Without it the loop is as fast as the system is fair.
  }
}

function answerTo ({ id, opened, known, replay, call, isLast }: AskedOfBody): Answer {
  let copy = copies.get(id)
  try {
    if (opened !== undefined) {
      copy = open(opened)
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

function answerToReply ({ id, opened, replay, call, isLast }: AskedOfReply): Answer {
  try {
    let reply = replies.get(id)
    if (opened !== undefined) replies.set(id, reply = openReply(opened))
    for (const one of replay) runOn(reply!, one)
    const result = call === undefined ? isEmptyReply(reply!.body as Parameters<typeof isEmptyReply>[0])
      : runOn(reply!, call)
    return { result, type: asRecord(reply!.body).type, facts: [], answerHeaders: {} }
  } catch (thrown) {
    replies.delete(id)
    return { error: sendError(thrown), facts: [], answerHeaders: {} }
  } finally {
    if (isLast) replies.delete(id)
  }
}

/** @returns what is to be copied of it */
function runOn (reply: Reply, { step, args }: Call): unknown {
  const { run, isChange } = replyStepNamed(step)
  const made = run(reply.body as never, reply.exchange, ...args as never[])
  if (!isChange) return made
  reply.body = made
}

type Opened<Of extends Asked> = NonNullable<Of['opened']>

/** @throws {GatewayError} bad_request */
function open (opened: Opened<AskedOfBody>): Copy {
  const exchange = copyOf(opened)
  exchange.set(Body, parseReceived({ ...opened, pieces: opened.pieces.map(bufferOf) }, exchange.blobs))
  return { exchange, told: new Set([Body.name]) }
}

/** @throws what the dialect throws */
function openReply (opened: Opened<AskedOfReply>): Reply {
  const { pieces, upstream, head, known, words, calls } = opened
  const exchange = copyOf(opened)
  if (known.owner !== undefined) exchange.set(ApiKey, known.owner)
  if (known.model !== undefined) exchange.set(Model, known.model)
  if (words !== undefined) exchange.set(ResponsesWords, words)
  exchange.set(EarlierCalls, calls)
  exchange.request = { body: bodyOf(head, 'text'), stream: false }
  exchange.large = { inputEstimate: undefined, parsedBytes: 0, run: isElsewhere, bringHere: isElsewhere }
  return { exchange, body: readAnswer(Buffer.concat(pieces.map(bufferOf)), exchange, upstream) }
}

function isElsewhere (): never {
  throw new Error('the body of the request was asked for, which is not here')
}

function copyOf ({ exchange: id, route, received, pieces }: Opened<Asked>): Exchange {
  const style = styles.find(({ name }) => name === route.style)!
  const { modality, isModels, schema, compacts } = route
  const bytes = pieces.reduce((sum, { length }) => sum + length, 0)
  read += bytes
  const endpoint: EndpointKind = { style, ...(schema !== undefined && { schema }),
    ...(isModels ? { kind: 'model', modality: modality!, ...(compacts && { compacts }) }
      : { kind: 'local', reads: modality === undefined ? 'json' : 'body' }) }
  const exchange = new Exchange(id, { ...route, style, endpoint }, received, snapshot, undefined as unknown as Ledger)
  exchange.bodyBytes = bytes
  return exchange
}

/** What the pipeline does where the body is read, and what came before. */
function learn (exchange: Exchange, { owner, model }: AskedOfBody['known']): void {
  if (owner !== undefined && exchange.find(ApiKey) === undefined) exchange.set(ApiKey, owner)
  if (model === undefined || exchange.find(Model) !== undefined) return
  exchange.set(Model, model)
  const body = exchange.get(Body)
  if (body.model !== model.id) Object.assign(body, { model: model.id })
  exchange.request = { body, stream: body.stream === true }
}

function changesOf ({ exchange, told }: Copy): Pick<Answer, 'facts' | 'answerHeaders' | 'asked' | 'request'> {
  const facts = exchange.factNames.filter((name) => !told.has(name) && name !== ApiKey.name && name !== Model.name)
    .map(factNamed).filter(({ isOfBody }) => !isOfBody).map((fact) => [fact.name, exchange.find(fact)] as const)
  for (const [name] of facts) told.add(name)
  const asked = exchange.get(Body)
  const modality = modalityOfBodies(exchange.route.endpoint)
  const { request } = exchange.find(Model) === undefined ? { request: undefined } : exchange
  return { facts, answerHeaders: exchange.answerHeaders, asked: headOf(asked, modality),
    request: request && { head: request.body === asked ? undefined : headOf(request.body, modality),
      stream: request.stream } }
}

/** The memory of a result's bytes, unless they are so few that they lie among others. */
function transferable (result: unknown): ArrayBuffer[] {
  const { bytes, pieces } = Object(result) as { readonly bytes?: Uint8Array, readonly pieces?: readonly Uint8Array[] }
  return (pieces ?? (bytes === undefined ? [] : [bytes])).flatMap(({ buffer, byteLength }) =>
    buffer instanceof ArrayBuffer && buffer.byteLength === byteLength ? [buffer] : [])
}

/** Collects what is left of bodies when none has come for a while: a thread that rests would keep it for good. */
function tidy (): void {
  clearTimeout(resting)
  if (copies.size + replies.size > 0 || read < TIDY_BYTES) return
  resting = setTimeout(() => {
    read = 0
    collectGarbage()
  }, TIDY_MS).unref()
}
