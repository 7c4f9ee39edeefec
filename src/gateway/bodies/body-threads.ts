// The threads of large bodies and answers, and what they have of an exchange as the event loop sees it.
import { availableParallelism } from 'node:os'
import { SharedChunks, SharedPages } from '../../core/body-memory.ts'
import type { BodyThreads, OpenedReply, Received, ReceivedBody } from '../../core/body-step.ts'
import { stepNamed } from '../../core/body-step.ts'
import type { Exchange } from '../../core/exchange.ts'
import { ApiKey, Body, factNamed, Model } from '../../core/facts.ts'
import { type BodyHead, bodyOf, headOf, type LargeBody, updateHead } from '../../core/large-body.ts'
import { guarded, LargeReply, replyStepNamed } from '../../core/reply-step.ts'
import { modalityOfBodies } from '../../core/route.ts'
import type { Upstream } from '../../core/upstream.ts'
import { QUESTION } from '../../endpoints/question.ts'
import { PRINT } from '../../pipeline/encode-reply.ts'
import { ResponsesWords } from '../../protocols/responses.ts'
import { EarlierCalls } from '../../upstream/dialects/call-ids.ts'
import { earlierCalls } from '../../upstream/dialects/earlier-calls.ts'
import { ENCODE, type Encoded } from '../../upstream/transport/encode-body.ts'
import { parseReceived } from '../../http/parse-body.ts'
import { type Answer, type Asked, type Call, type KnownFacts, receiveError, type SentRoute } from './messages.ts'
import type { Job } from './body-thread.ts'
import { type PoolOptions, ThreadPool } from './thread-pool.ts'

/**
 * Bytes from which a body or an answer is large: smaller ones keep the loop for 20 ms at most, whatever is in them, and
 * 5 ms where they are text (measured).
 */
const LARGE = 256 * 1024
/**
 * Threads of a process, which start when they are needed: with fewer than two, one long body would be in the way of all
 * others. Each may have a body of 32 MB as objects, or an answer of 64.
 */
const LEAST_THREADS = 2
const MOST_THREADS = 4
/** Milliseconds for one step: the worst bodies take half a second of a quiet core, the worst answers six. */
const PATIENCE_MS = 60_000

export interface BodyThreadsOptions extends Omit<PoolOptions, 'patience' | 'threads'> {
  /** processes of this gateway on the same cores */
  readonly processes: number
  /** bytes from which a body is large; for tests */
  readonly least?: number | undefined
  readonly patience?: number | undefined
}

export class LargeBodies implements BodyThreads {
  readonly least: number
  readonly memory = new SharedPages()
  readonly #pool: ThreadPool

  constructor ({ processes, least = LARGE, patience = PATIENCE_MS, ...options }: BodyThreadsOptions) {
    this.least = least
    const cores = Math.floor((availableParallelism() - 1) / processes)
    this.#pool = new ThreadPool({ ...options, patience,
      threads: Math.max(LEAST_THREADS, Math.min(MOST_THREADS, cores)) })
  }

  prepare (): void {
    this.#pool.prepare()
  }

  async open (exchange: Exchange, received: ReceivedBody): Promise<Body | undefined> {
    return this.#pool.prepare() ? await new ThreadedBody(exchange, received, this.#pool).read() : undefined
  }

  async openField (name: string, asked: Exchange, readsInThreads: boolean): Promise<Body> {
    const large = asked.dry?.within?.large
    if (!(large instanceof ThreadedBody)) throw new Error('a dry run is within no large body')
    return await this.#openPart(asked, large.receivedField(name), readsInThreads)
  }

  async openCut (json: Buffer, asked: Exchange, readsInThreads: boolean): Promise<Body> {
    const memory = new SharedChunks(this.memory, [json])
    asked.onFinish(() => { memory.end() })
    return await this.#openPart(asked, { pieces: await memory.all(), memory, base64: [] }, readsInThreads)
  }

  async #openPart (asked: Exchange, received: ReceivedBody, readsInThreads: boolean): Promise<Body> {
    const opened = readsInThreads ? await this.open(asked, received) : undefined
    return opened ?? parseHere(asked, received)
  }

  async openReply (exchange: Exchange, upstream: Upstream, received: Received): Promise<OpenedReply | undefined> {
    if (!this.#pool.prepare()) return undefined
    return await new ThreadedReply(exchange, upstream, received, this.#pool).read()
  }

  async close (ms: number): Promise<void> {
    await this.#pool.close(ms)
  }
}

/** Bodies and answers that threads were given, so that each has an id of its own. */
let given = 0

/** What a thread has of an exchange: received bytes, and what it has made of them. */
class InThread {
  readonly #exchange: Exchange
  readonly #pool: ThreadPool
  /** The received bytes are read no longer. */
  readonly #giveBack: () => void
  readonly #id = `${++given}`
  readonly #lives: number
  readonly #bytes: number
  /** a step has begun in the thread, and has not ended */
  #isRunning = false
  #isOver = false

  /** @param lives threads that may die of it before it is given up */
  constructor (exchange: Exchange, received: Received, pool: ThreadPool, lives: number) {
    this.#exchange = exchange
    this.#pool = pool
    this.#giveBack = received.memory.lend()
    this.#lives = lives
    this.#bytes = sizeOf(received)
    exchange.onFinish(() => { this.end() })
  }

  /**
   * @param message made when its turn comes. @param has whether the thread has it
   * @throws the step's own error; {GatewayError} the reason of an abort; the thread has died
   */
  async ask (message: (id: string, has: boolean) => Asked): Promise<Answer> {
    const exchange = this.#exchange
    // Of a dry run for a client: that client is who may leave, and who waits too.
    const outer = exchange.dry?.within ?? exchange
    outer.throwIfAborted()
    if (this.#isOver) throw new Error('a step was asked for behind the end of its request')
    const { promise, resolve, reject } = Promise.withResolvers<Answer>()
    const job: Job = {
      requestId: exchange.id,
      id: this.#id,
      ...payerOf(outer),
      bytes: this.#bytes,
      lives: this.#lives,
      ask: (has) => {
        this.#isRunning = true
        return message(this.#id, has)
      },
      resolve: (answer) => {
        this.#isRunning = false
        if (this.#isOver) this.#giveBack()
        resolve(answer)
      },
      reject
    }
    const onAbort = (): void => {
      job.lives = 0
      this.#pool.remove(job)
      reject(outer.abortReason)
    }
    const waiting = new Set([exchange, outer])
    for (const one of waiting) one.inThreads++
    outer.onAbort(onAbort)
    this.#pool.add(job)
    try {
      return await promise
    } finally {
      for (const one of waiting) {
        one.inThreads--
        one.endedInThreads++
      }
      outer.offAbort(onAbort)
    }
  }

  get isOver (): boolean {
    return this.#isOver
  }

  /** Nobody asks for it again. */
  end (): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#pool.forget(this.#id)
    if (!this.#isRunning) this.#giveBack()                    // a step of a client that has left may run on
  }
}

class ThreadedBody implements LargeBody {
  readonly #exchange: Exchange
  readonly #received: ReceivedBody
  readonly #thread: InThread
  readonly #asked: BodyHead = {}
  /** of the body that translators have made of it */
  #inner: BodyHead | undefined
  /** steps that changed it */
  readonly #done: Call[] = []
  readonly parsedBytes: number
  inputEstimate: number | undefined

  constructor (exchange: Exchange, received: ReceivedBody, pool: ThreadPool) {
    this.#exchange = exchange
    this.#received = received
    this.#thread = new InThread(exchange, received, pool, 1)
    this.parsedBytes = sizeOf(received) - received.base64.reduce((sum, { start, end }) => sum + end - start, 0)
  }

  async read (): Promise<Body> {
    await this.#ask(undefined, false)
    this.#exchange.large = this
    return bodyOf(this.#asked, modalityOfBodies(this.#exchange.route.endpoint))
  }

  async run (step: string, args: readonly unknown[]): Promise<unknown> {
    const call: Call = { step, args }
    const result = await this.#ask(call, LAST.has(step))
    if (!stepNamed(step).isRead) this.#done.push(call)
    if (step === ENCODE) this.#note(result as Encoded)
    return result
  }

  #note ({ inputEstimate, earlierCalls: calls }: Encoded): void {
    this.inputEstimate = inputEstimate
    if (this.#exchange.find(EarlierCalls) === undefined) this.#exchange.set(EarlierCalls, calls)
  }

  async #ask (call: Call | undefined, isLast: boolean): Promise<unknown> {
    const exchange = this.#exchange
    const answer = await this.#thread.ask((id, has) => ({
      of: 'body',
      id,
      ...(!has && { opened: { exchange: exchange.id, route: sentRoute(exchange), received: exchange.received,
        pieces: this.#received.pieces, base64: this.#received.base64, field: this.#received.field } }),
      known: knownFacts(exchange),
      replay: has ? [] : this.#done,
      call,
      isLast
    }))
    this.#apply(answer)
    if (answer.error !== undefined) throw receiveError(answer.error)
    return answer.result
  }

  bringHere (): void {
    const exchange = this.#exchange
    if (this.#inner !== undefined) throw new Error('the body was translated in its thread already')
    const body = parseHere(exchange, this.#received)
    Object.assign(body, { model: this.#asked.model })         // of the model that was found by that name
    exchange.bringBody(Body, body)
    this.#thread.end()
    for (const { step, args } of this.#done) void stepNamed(step).run(exchange, ...args as never[])
  }

  receivedField (name: string): ReceivedBody {
    // The memory may be another's by then: the exchange has ended without its dry run, by its time limit.
    if (this.#thread.isOver) throw new Error('the body was asked for behind the end of its exchange')
    return { ...this.#received, field: name }
  }

  #apply ({ facts, answerHeaders, asked, request }: Answer): void {
    const exchange = this.#exchange
    if (asked !== undefined) updateHead(this.#asked, asked)
    Object.assign(exchange.answerHeaders, answerHeaders)
    for (const [name, value] of facts) exchange.set(factNamed(name), value)
    if (request?.head === undefined) return
    if (this.#inner !== undefined) { updateHead(this.#inner, request.head); return }
    this.#inner = request.head
    exchange.request = { body: bodyOf(request.head, modalityOfBodies(exchange.route.endpoint)), stream: request.stream }
  }
}

/** Threads that may die of one answer, which is paid for: the second reads it again. */
const LIVES = 2

class ThreadedReply extends LargeReply {
  readonly #exchange: Exchange
  readonly #upstream: Upstream
  readonly #received: Received
  readonly #thread: InThread
  /** steps that changed it */
  readonly #done: Call[] = []
  type: unknown

  constructor (exchange: Exchange, upstream: Upstream, received: Received, pool: ThreadPool) {
    super()
    this.#exchange = exchange
    this.#upstream = upstream
    this.#received = received
    this.#thread = new InThread(exchange, received, pool, LIVES)
  }

  async read (): Promise<OpenedReply> {
    return { body: guarded(this), isEmpty: await this.#ask(undefined, false) as boolean }
  }

  async run (step: string, args: readonly unknown[]): Promise<unknown> {
    const call: Call = { step, args }
    const isPrinted = step === PRINT
    const result = await this.#ask(call, isPrinted)
    if (replyStepNamed(step).isChange) this.#done.push(call)
    if (isPrinted) this.#thread.end()
    return result
  }

  async #ask (call: Call | undefined, isLast: boolean): Promise<unknown> {
    const exchange = this.#exchange
    const { error, result, type } = await this.#thread.ask((id, has) => ({
      of: 'reply',
      id,
      ...(!has && { opened: { exchange: exchange.id, route: sentRoute(exchange), received: exchange.received,
        pieces: this.#received.pieces, upstream: this.#upstream, head: headOf(exchange.request.body, 'text'),
        known: knownFacts(exchange), words: exchange.find(ResponsesWords),
        calls: earlierCalls(exchange) } }),
      replay: has ? [] : this.#done,
      call,
      isLast
    }))
    if (error !== undefined) {
      this.#thread.end()
      throw receiveError(error)
    }
    this.type = type
    return result
  }
}

function sizeOf ({ pieces }: Received): number {
  return pieces.reduce((sum, { length }) => sum + length, 0)
}

/** Whose turn the work takes; where there are no keys, the address's. */
function payerOf (exchange: Exchange): Pick<Job, 'key' | 'account'> {
  const turn = exchange.dry?.turn
  if (turn !== undefined) return { key: turn, account: turn }
  const owner = exchange.find(ApiKey)
  const { address } = exchange.received
  return owner === undefined ? { key: address, account: address }
    : { key: `${owner.account.id} ${owner.key.id}`, account: owner.account.id }
}

function knownFacts (exchange: Exchange): KnownFacts {
  return { owner: exchange.find(ApiKey), model: exchange.find(Model) }
}

function sentRoute (exchange: Exchange): SentRoute {
  const { name, methods, path, style, endpoint, isInMaintenance, plugins } = exchange.route
  return { name, methods, path, isInMaintenance, plugins, style: style.name, modality: modalityOfBodies(endpoint),
    schema: 'schema' in endpoint ? endpoint.schema : undefined, isModels: endpoint.kind === 'model',
    compacts: endpoint.kind === 'model' && endpoint.compacts === true }
}

/** Steps behind which nobody looks at the body again. */
const LAST: ReadonlySet<string> = new Set([ENCODE, QUESTION])

/** @throws {GatewayError} bad_request */
function parseHere (exchange: Exchange, received: ReceivedBody): Body {
  exchange.blobs.memory = received.memory
  return parseReceived(received, exchange.blobs)
}
