// `Idempotency-Key`: a repeated request with the same key gets the same answer, and is charged once. Keys belong to an
// account and last a day; failures are not remembered, so that a retry tries again. Repetitions wait for the first
// request while it runs.
//
// The answer is kept before it is charged: no charge is without its answer, whatever dies. The answer of a process that
// died in between was not sent; it is dropped at the next start (store/tasks.ts), and a repetition is served anew and
// charged once.
import { createHash } from 'node:crypto'
import { setImmediate as turn, setTimeout as pause } from 'node:timers/promises'
import type { Logger } from 'pino'
import { bodyStep } from '../core/body-step.ts'
import { GatewayError } from '../errors.ts'
import type { Exchange, Outcome } from '../core/exchange.ts'
import { ApiKey, Body, fact } from '../core/facts.ts'
import { callHook } from '../core/hooks.ts'
import { json, type JsonReply } from '../core/reply.ts'
import type { Answer, Answers } from '../store/tasks.ts'

/** The claim of an exchange that is the first with its key. Written by the core. */
export const Claimed = fact<Claim>('idempotency')

const LONGEST_NAME = 255
const LIFE_MS = 24 * 3_600_000
const SWEEP_MS = 3_600_000
/** Most answers that are kept; beyond them the oldest are dropped early. */
const MOST = 100_000
/**
 * Most values of a body that are compared: sorting them takes one turn of the loop. Forms and prompts have a few dozen.
 */
const MOST_VALUES = 10_000
/** Bytes of a body, or characters, that are hashed in one turn of the event loop. */
const TURN_BYTES = 1024 * 1024
/** Milliseconds between two polls for the answer of another process. */
const ELSEWHERE_MS = 200
/** Most characters of an answer that is kept whole. */
const TEXT_LIMIT = 64 * 1024

/** Result of the first request. `gone`: no result for the others; the next of them is the first. */
type Ending = { readonly kind: 'answered', readonly answer: Pick<Answer, 'request_id' | 'text'> } | {
  readonly kind: 'failed',
  readonly error: GatewayError
} | { readonly kind: 'gone' }

export class Idempotency {
  readonly #answers: Answers
  readonly #now: () => number
  readonly #log: Pick<Logger, 'error'>
  readonly #running = new Map<string, Claim>()
  #sweptAt = 0

  constructor (answers: Answers, now: () => number, log: Pick<Logger, 'error'>) {
    this.#answers = answers
    this.#now = now
    this.#log = log
  }

  /**
   * Called when the body is read, and before any hold.
   * @returns the earlier answer; undefined: the request is to be served
   * @throws {GatewayError} invalid_request: the key is malformed, or was used with another body; the first request's
   * error
   */
  async recall (exchange: Exchange): Promise<JsonReply | undefined> {
    const name = exchange.received.headers['idempotency-key']
    const owner = exchange.find(ApiKey)
    if (name === undefined || owner === undefined) return undefined
    const account = owner.account.id
    if (typeof name !== 'string' || name === '' || name.length > LONGEST_NAME) {
      throw new GatewayError('invalid_request', {
        message: `The header Idempotency-Key must be sent once, with 1 to ${LONGEST_NAME} characters.`,
        param: 'Idempotency-Key'
      })
    }
    const hash = exchange.large === undefined ? await hashOf(exchange) : await hashLarge(exchange, exchange.asked)
    const id = `${account}\n${name}`
    for (;;) {
      const first = this.#running.get(id)
      if (first === undefined) return await this.#lead(exchange, id, { account, name, hash })
      checkSame(first.hash, hash)
      const ending = await orLeave(first.ending, exchange)
      if (ending.kind === 'answered') return replay(ending.answer)
      // A first request aborted by its own client is no failure of this one, nor is one that its own key may not make.
      if (ending.kind === 'failed' && ending.error.row !== 'client_closed' && first.key === owner.key.id) {
        throw ending.error
      }
    }
  }

  async #lead (
    exchange: Exchange,
    id: string,
    named: Pick<Answer, 'account' | 'name' | 'hash'>
  ): Promise<JsonReply | undefined> {
    const claim = new Claim(this.#answers, named, exchange.get(ApiKey).key.id, exchange.id, this.#now)
    // Before the store is asked: of two at once only one is the first.
    this.#running.set(id, claim)
    exchange.onFinish(async (outcome) => {
      try {
        await claim.finish(outcome)
      } catch (err) {
        this.#log.error({ request_id: exchange.id, err }, 'an answer that was not charged could not be forgotten')
      } finally {
        this.#running.delete(id)
        claim.giveUp()
        await this.#answers.unclaimAnswer?.(exchange.id)
      }
    })
    this.#sweep()
    const known = await this.#find(exchange, named)
    if (known === undefined || known.created < this.#now() - LIFE_MS) {
      exchange.set(Claimed, claim)
      return undefined
    }
    checkSame(known.hash, named.hash)
    claim.repeat(known)
    return replay(known)
  }

  /**
   * Looks for an earlier answer. Where processes share the store, the process with the claim serves, and the others
   * poll for its answer until there is one or the claim is given up.
   */
  async #find (exchange: Exchange, { account, name }: Pick<Answer, 'account' | 'name'>): Promise<Answer | undefined> {
    for (;;) {
      // Claimed before the read: a process keeps its answer before it gives up its claim.
      const isOurs = await callHook(this.#answers.claimAnswer?.(account, name, exchange.id) ?? true, 'idempotency',
        exchange)
      const known = await callHook(this.#answers.answer(account, name), 'idempotency', exchange)
      if (isOurs || known !== undefined) return known
      await orLeave(pause(ELSEWHERE_MS), exchange)
    }
  }

  #sweep (): void {
    const now = this.#now()
    if (now < this.#sweptAt + SWEEP_MS) return
    this.#sweptAt = now
    const report = (err: unknown): void => { this.#log.error({ err }, 'old answers could not be forgotten') }
    try {
      const swept = this.#answers.forgetAnswers(now - LIFE_MS, MOST)
      if (swept instanceof Promise) swept.catch(report)
    } catch (thrown) {
      report(thrown)
    }
  }
}

/** The claim of the first request with its key, while that runs. */
export class Claim {
  readonly hash: string
  /** id of the key of the first request */
  readonly key: string
  readonly ending: Promise<Ending>
  readonly #answers: Answers
  readonly #named: Pick<Answer, 'account' | 'name' | 'hash'>
  readonly #requestId: string
  readonly #now: () => number
  readonly #resolve: (ending: Ending) => void
  #kept: Answer | undefined
  #isOver = false

  constructor (
    answers: Answers,
    named: Pick<Answer, 'account' | 'name' | 'hash'>,
    key: string,
    requestId: string,
    now: () => number
  ) {
    this.#answers = answers
    this.#named = named
    this.hash = named.hash
    this.key = key
    this.#requestId = requestId
    this.#now = now
    const { promise, resolve } = Promise.withResolvers<Ending>()
    this.ending = promise
    this.#resolve = resolve
  }

  /**
   * Keeps the answer, before the charge. @param text undefined: too large to be kept. @throws {Error} it can't be
   * recorded
   */
  async keep (text: string | undefined): Promise<void> {
    const answer: Answer = { ...this.#named, request_id: this.#requestId, created: this.#now(),
      text: text === undefined || text.length > TEXT_LIMIT ? undefined : text }
    this.#kept = answer
    await this.#answers.keepAnswer(answer)
  }

  /** Gives the kept answer to waiting repetitions, after the charge. */
  confirm (): void {
    if (this.#kept !== undefined) this.repeat(this.#kept)
  }

  repeat (answer: Answer): void {
    this.#isOver = true
    this.#resolve({ kind: 'answered', answer })
  }

  /** Ends the claim without a charge. @throws {Error} the kept answer could not be dropped */
  async finish (outcome: Outcome): Promise<void> {
    if (this.#isOver) return
    if (this.#kept !== undefined) await this.#answers.dropAnswer(this.#named.account, this.#named.name)
    if (outcome.kind === 'failed') this.#resolve({ kind: 'failed', error: outcome.error })
  }

  /** Lets the next waiting request be the first. */
  giveUp (): void {
    this.#resolve({ kind: 'gone' })
  }
}

function replay ({ request_id: requestId, text }: Pick<Answer, 'request_id' | 'text'>): JsonReply {
  if (text === undefined) {
    throw new GatewayError('invalid_state', {
      message:
        `This Idempotency-Key was answered and charged before, by the request ${requestId}, with an answer too ` +
          'large to be kept. Use another key; links instead of base64 are kept.',
      param: 'Idempotency-Key'
    })
  }
  return json(JSON.parse(text), { 'idempotent-replayed': 'true' })
}

/** @throws {GatewayError} invalid_request */
function checkSame (known: string, asked: string): void {
  if (known === asked) return
  throw new GatewayError('invalid_request', {
    message: 'This Idempotency-Key was used before with another request. Use another one, or send the same request.',
    param: 'Idempotency-Key'
  })
}

/**
 * @param before number of values counted before
 * @returns the count with this value
 * @throws {GatewayError} invalid_request: too many
 */
function countValues (value: unknown, before: number): number {
  let count = before + 1
  if (count > MOST_VALUES) {
    throw new GatewayError('invalid_request', {
      message: `A request with an Idempotency-Key may hold ${MOST_VALUES} values at most. Send fewer, or no key.`,
      param: 'Idempotency-Key'
    })
  }
  if (typeof value !== 'object' || value === null) return count
  for (const key in value) { count = countValues((value as Readonly<Record<string, unknown>>)[key], count) }
  return count
}

function * slicesOf (pieces: readonly (string | Buffer)[]): Generator<string | Buffer> {
  for (const piece of pieces) {
    for (let at = 0, end = 0; at < piece.length; at = end) {
      end = at + TURN_BYTES
      // A surrogate pair must not be split: half of it has no encoding of its own.
      if (typeof piece === 'string' && /[\uD800-\uDBFF]/.test(piece.charAt(end - 1))) end++
      yield typeof piece === 'string' ? piece.slice(at, end) : piece.subarray(at, end)
    }
  }
}

/** Hash of the body's values, whatever their order and spelling. */
async function hashOf (exchange: Exchange): Promise<string> {
  const hash = createHash('sha256')
  const read = exchange.blobs.memory?.lend()
  let bytes = 0
  try {
    for (const piece of piecesOf(exchange, exchange.asked)) {
      hash.update(piece)
      if ((bytes += piece.length) < TURN_BYTES) continue
      bytes = 0
      await turn()                                            // other events pass between two pieces
    }
  } finally {
    read?.()
  }
  return hash.digest('hex')
}

export const HASH = 'idempotency'

/** The same in the thread of a large body. */
const hashLarge = bodyStep(HASH, (exchange, asked: string | undefined) => {
  const hash = createHash('sha256')
  for (const piece of piecesOf(exchange, asked)) hash.update(piece)
  return hash.digest('hex')
}, { isRead: true })

/**
 * What is hashed.
 * @param asked the name by which the client asked for the model; undefined: its id
 * @throws {GatewayError} invalid_request: too many values
 */
function * piecesOf (exchange: Exchange, asked: string | undefined): Generator<string | Buffer> {
  const body = exchange.get(Body)
  countValues(body, 0)
  const sent = (name: string, value: unknown, of: unknown): unknown =>
    of === body && name === 'model' ? asked ?? value : value
  const canonical = JSON.stringify(body, (_key, value: unknown) =>
    isMap(value)
      ? Object.fromEntries(Object.keys(value).toSorted().map((name) => [name, sent(name, value[name], value)])) :
      value)
  yield `${exchange.route.name}\n`
  const joined = exchange.blobs.join(canonical)
  yield * slicesOf(typeof joined === 'string' ? [joined] : joined.pieces)
}

function isMap (value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** @throws {GatewayError} the abort reason, when the exchange is aborted meanwhile */
async function orLeave<T> (pending: Promise<T>, exchange: Exchange): Promise<T> {
  exchange.throwIfAborted()
  const { promise, reject } = Promise.withResolvers<never>()
  const leave = (): void => { reject(exchange.abortReason) }
  exchange.onAbort(leave)
  try {
    return await Promise.race([pending, promise])
  } finally {
    exchange.offAbort(leave)
  }
}
