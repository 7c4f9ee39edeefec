// The threads of large bodies, and the bodies in them as their exchanges see them.
import { availableParallelism } from 'node:os'
import { SharedPages } from '../../core/body-memory.ts'
import type { BodyThreads, ReceivedBody } from '../../core/body-step.ts'
import { stepNamed } from '../../core/body-step.ts'
import type { Exchange } from '../../core/exchange.ts'
import { ApiKey, Body, factNamed, Model } from '../../core/facts.ts'
import { type BodyHead, bodyOf, type LargeBody, updateHead } from '../../core/large-body.ts'
import { isOfText } from '../../core/route.ts'
import { ENCODE, type Encoded } from '../../upstream/transport/encode-body.ts'
import { parseBody } from '../../http/parse-body.ts'
import { type Answer, type Asked, type Call, receiveError } from './messages.ts'
import { type Job, type QueueOptions, ThreadQueue } from './thread-queue.ts'

/**
 * Bytes from which a body is large: smaller ones keep the loop for 20 ms at most, whatever is in them, and 4 ms where
 * they are conversations (measured).
 */
const LARGE = 256 * 1024
/** Most threads of a process: each may have a body of 32 MB as objects. */
const MOST_THREADS = 4
/** Milliseconds for one step: the worst bodies take half a second of a quiet core. */
const PATIENCE_MS = 60_000

export interface BodyThreadsOptions extends Omit<QueueOptions, 'patience'> {
  /** processes of this gateway on the same cores */
  readonly processes: number
  /** bytes from which a body is large; for tests */
  readonly least?: number | undefined
  readonly patience?: number | undefined
}

export class LargeBodies implements BodyThreads {
  readonly least: number
  readonly memory = new SharedPages()
  readonly #queues: readonly ThreadQueue[]

  constructor ({ processes, least = LARGE, patience = PATIENCE_MS, ...options }: BodyThreadsOptions) {
    this.least = least
    const cores = Math.floor((availableParallelism() - 1) / processes)
    this.#queues = Array.from({ length: Math.max(1, Math.min(MOST_THREADS, cores)) },
      () => new ThreadQueue({ ...options, patience }))
  }

  prepare (): void {
    this.#idlest().prepare()
  }

  async open (exchange: Exchange, received: ReceivedBody): Promise<Body | undefined> {
    const queue = this.#idlest()
    return queue.prepare() ? await new ThreadedBody(exchange, received, queue, this.memory).read() : undefined
  }

  async close (): Promise<void> {
    await Promise.all(this.#queues.map(async (queue) => { await queue.close() }))
  }

  #idlest (): ThreadQueue {
    return this.#queues.reduce((best, queue) => queue.load < best.load ? queue : best)
  }
}

class ThreadedBody implements LargeBody {
  readonly #exchange: Exchange
  readonly #received: ReceivedBody
  readonly #queue: ThreadQueue
  readonly #bytes: number
  readonly #asked: BodyHead = {}
  /** of the body that translators have made of it */
  #inner: BodyHead | undefined
  /** steps that changed it */
  readonly #done: Call[] = []
  #jobs = 0
  /** a step has begun in the thread, and has not ended */
  #isRunning = false
  #isHere = false
  inputEstimate: number | undefined

  constructor (exchange: Exchange, received: ReceivedBody, queue: ThreadQueue, memory: SharedPages) {
    this.#exchange = exchange
    this.#received = received
    this.#queue = queue
    this.#bytes = received.pieces.reduce((sum, { length }) => sum + length, 0)
    exchange.onFinish(() => {
      queue.forget(exchange.id)
      // A step of a client that has left may run on; what was brought here may be on its way to an upstream.
      if (!this.#isRunning && !this.#isHere) memory.give(received.pages)
    })
  }

  get isBusy (): boolean {
    return this.#jobs > 0
  }

  async read (): Promise<Body> {
    await this.#ask(undefined, false)
    this.#exchange.large = this
    return bodyOf(this.#asked)
  }

  async run (step: string, args: readonly unknown[]): Promise<unknown> {
    const call: Call = { step, args }
    const isEncoded = step === ENCODE
    const result = await this.#ask(call, isEncoded)
    if (!stepNamed(step).isRead) this.#done.push(call)
    if (isEncoded) this.inputEstimate = (result as Encoded).inputEstimate
    return result
  }

  async #ask (call: Call | undefined, isLast: boolean): Promise<unknown> {
    const exchange = this.#exchange
    exchange.throwIfAborted()
    const { promise, resolve, reject } = Promise.withResolvers<Answer>()
    const job: Job = {
      id: exchange.id,
      bytes: this.#bytes,
      ask: (has) => {
        this.#isRunning = true
        return this.#message(has, call, isLast)
      },
      resolve: (answer) => {
        this.#isRunning = false
        resolve(answer)
      },
      reject
    }
    const onAbort = (): void => {
      this.#queue.remove(job)
      reject(exchange.abortReason)
    }
    this.#jobs++
    exchange.onAbort(onAbort)
    this.#queue.add(job)
    try {
      const answer = await promise
      this.#apply(answer)
      if (answer.error !== undefined) throw receiveError(answer.error)
      return answer.result
    } finally {
      this.#jobs--
      exchange.offAbort(onAbort)
    }
  }

  bringHere (): void {
    const exchange = this.#exchange
    if (this.#inner !== undefined) throw new Error('the body was translated in its thread already')
    this.#isHere = true
    const body = parseBody(this.#received.pieces, this.#received.base64, exchange.blobs)
    Object.assign(body, { model: this.#asked.model })         // of the model that was found by that name
    exchange.bringBody(Body, body)
    this.#queue.forget(exchange.id)
    for (const { step, args } of this.#done) void stepNamed(step).run(exchange, ...args as never[])
  }

  #message (has: boolean, call: Call | undefined, isLast: boolean): Asked {
    const exchange = this.#exchange
    return {
      id: exchange.id,
      ...(!has && { opened: { route: this.#route(), received: exchange.received,
        pieces: this.#received.pieces, base64: this.#received.base64 } }),
      known: { owner: exchange.find(ApiKey), model: exchange.find(Model) },
      replay: has ? [] : this.#done,
      call,
      isLast
    }
  }

  #route (): NonNullable<Asked['opened']>['route'] {
    const { name, methods, path, style, endpoint, isInMaintenance, plugins } = this.#exchange.route
    if (!isOfText(endpoint)) throw new Error('only bodies for models of text are read there')
    return { name, methods, path, isInMaintenance, plugins, style: style.name, schema: endpoint.schema,
      isModels: endpoint.kind === 'model', compacts: endpoint.kind === 'model' && endpoint.compacts === true }
  }

  #apply ({ facts, answerHeaders, asked, request }: Answer): void {
    const exchange = this.#exchange
    if (asked !== undefined) updateHead(this.#asked, asked)
    Object.assign(exchange.answerHeaders, answerHeaders)
    for (const [name, value] of facts) exchange.set(factNamed(name), value)
    if (request?.head === undefined) return
    if (this.#inner !== undefined) { updateHead(this.#inner, request.head); return }
    this.#inner = request.head
    exchange.request = { body: bodyOf(request.head), stream: request.stream }
  }
}
