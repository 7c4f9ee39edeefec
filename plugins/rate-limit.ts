// rate-limit: the request rate and the concurrency of a key, and the requests that it abandons. Asks the store when the
// head is known, and once more when the model's family is; reports what is left in every answer.
import { after, type Awaitable, afterWith } from '../src/base/awaitable.ts'
import { quote } from '../src/config/check/messages.ts'
import { suggest } from '../src/config/check/suggest.ts'
import type { KeyConfig } from '../src/config/config.ts'
import { isMap } from '../src/config/yaml/position.ts'
import { GatewayError } from '../src/errors.ts'
import type { Exchange, Outcome } from '../src/core/exchange.ts'
import { ApiKey, fact, Model } from '../src/core/facts.ts'
import { definePlugin, type KeyHooks } from '../src/core/plugin.ts'
import type { Route } from '../src/core/route.ts'
import type { Services } from '../src/core/services.ts'
import type { Admission, AdmissionResult, SlotLimit, WindowLimit, WindowState } from '../src/store/store.ts'

interface Options {
  readonly default_rpm: number
  readonly default_concurrency: number
  readonly default_abandons: number
  readonly families: Readonly<Record<string, { readonly rpm: number }>>
}

/** State of the key's own window when the head was counted. Private to this plugin. */
const Counted = fact<WindowState>('rate-limit')

/** Polls a key may make per request: they must not use up its requests, and may not be unlimited either. */
const POLLS_PER_REQUEST = 10

/** Milliseconds of a window. */
const WIDTH_MS = 60_000

const LIMIT = { type: 'integer', minimum: 0, maximum: 1_000_000 }

export const rateLimit = definePlugin<Options>({
  name: 'rate-limit',
  readsInSteps: true,
  schema: {
    type: 'object',
    additionalProperties: false,
    properties: {
      default_rpm: {
        ...LIMIT,
        default: 60,
        description: 'Requests in any 60 seconds of a key without a rate_limit of its own; 0: no limit. Ten times ' +
          'as many polls (GET, HEAD and DELETE) are counted apart.'
      },
      default_concurrency: {
        ...LIMIT,
        default: 50,
        description: 'Requests at a time of a key without a concurrency of its own; 0: no limit.'
      },
      default_abandons: {
        ...LIMIT,
        default: 60,
        description: 'Requests in any 60 seconds that a key without an abandon_limit of its own may abandon before ' +
          'their answers begin: they cost the client nothing, and the operator what the provider charges. 0: no limit.'
      },
      families: {
        type: 'object',
        default: {},
        description: 'Limits of each key for the models of a family together, by the family\'s name.',
        additionalProperties: {
          type: 'object',
          additionalProperties: false,
          required: ['rpm'],
          description: 'A family of models.',
          properties: { rpm: { ...LIMIT, description: 'Requests in any 60 seconds; 0: no limit.' } }
        }
      }
    }
  },
  reads: [ApiKey, Model],
  writes: [Counted],
  enforces: ['rate_limit', 'concurrency', 'abandon_limit'],
  check ({ families }, { models }, _report, warn) {
    const known = new Set((Array.isArray(models) ? models : []).map((model) => isMap(model) ? model.family : undefined))
    const names = [...known].filter((family) => typeof family === 'string')
    for (const family of Object.keys(isMap(families) ? families : {})) {
      if (known.has(family)) continue
      warn(['families', family], `no model has the family ${quote(family)}`, suggest(family, names), true)
    }
  },
  create (options, _config, services) {
    /** Keys that may abandon no more requests, with the time at which they may again. All routes of a key share it. */
    const closed = new Map<string, number>()
    // A key's chain has no hooks for limits that it does not have.
    const perKey = (key: KeyConfig, route: Route): KeyHooks => {
      const { requests, polls, families, slot, abandoned } = compile(key, options)
      const abandons = abandoned === undefined || route.endpoint.kind !== 'model' ? undefined
        : new Abandons(abandoned, closed, services.now)
      const endAbandoned = (outcome: Outcome, exchange: Exchange): Awaitable<void> => abandons?.end(outcome, exchange)
      const judge = (result: AdmissionResult, exchange: Exchange): void => {
        tell(result, requests, exchange, services)
        if (result.kind === 'refused') {
          throw result.by === 'slot' ? full(result.taken, slot!.limit) : usedUp(requests.list[0]!, result.windows)
        }
        if (requests.list.length > 0) exchange.set(Counted, result.windows[0]!)
      }
      const judgePoll = (result: AdmissionResult, exchange: Exchange): void => {
        tell(result, polls, exchange, services)
        if (result.kind === 'refused') throw usedUp(polls.list[0]!, result.windows)
      }
      return {
        ...(slot !== undefined || requests.list.length > 0 || abandons !== undefined) && {
          onHead (exchange: Exchange) {
            // The request that asks was counted itself, and may have the only slot.
            if (exchange.dry?.within !== undefined) return
            abandons?.check()
            const { account } = exchange.get(ApiKey)
            const isPoll = route.endpoint.kind === 'local' && exchange.received.method !== 'POST'
            const { list } = isPoll ? polls : requests
            if (!isPoll && slot !== undefined) {
              const admission = { request_id: exchange.id, account: account.id, windows: list, slot }
              return new Slot(exchange, judge, abandons).take(admission)
            }
            if (abandons !== undefined) exchange.onFinish(endAbandoned)
            if (list.length > 0) {
              return afterWith(ask({ request_id: exchange.id, account: account.id, windows: list }, exchange),
                isPoll ? judgePoll : judge, exchange)
            }
          }
        },
        ...families.size > 0 && {
          onRequest (exchange: Exchange) {
            const family = exchange.find(Model)?.family
            const limits = family === undefined ? undefined : families.get(family)
            return limits === undefined ? undefined : countFamily(exchange, limits, services)
          }
        }
      }
    }
    /** A route without auth has no key to count for. */
    const hooksOf = (exchange: Exchange): KeyHooks => {
      const owner = exchange.find(ApiKey)
      return owner === undefined ? {} : perKey(owner.key, exchange.route)
    }
    return {
      perKey,
      onHead: (exchange) => hooksOf(exchange).onHead?.(exchange),
      onRequest: (exchange) => hooksOf(exchange).onRequest?.(exchange)
    }
  }
})

/** A rate limit with its names. */
interface Policy extends WindowLimit {
  readonly code: 'rate_limited' | 'family_rate_limited'
  /** the limited quantity, for people */
  readonly what: string
  /** names in the headers of draft-ietf-httpapi-ratelimit-headers-11 */
  readonly title: string
  readonly header: string
}

/** Limits that are asked and told of together. */
interface Policies {
  readonly list: readonly Policy[]
  /** all of them in one header */
  readonly header: string
}

/** The limits of one key, without those of 0. */
interface Limits {
  /** one, or none */
  readonly requests: Policies
  readonly polls: Policies
  readonly families: ReadonlyMap<string, FamilyLimits>
  readonly slot: SlotLimit | undefined
  readonly abandoned: WindowLimit | undefined
}

interface FamilyLimits {
  readonly policy: Policy
  readonly alone: Policies
  /** behind the key's own limit of requests */
  readonly withKey: Policies
}

/**
 * The limits are counted under the key's id, so that a reload that changes them forgets no request. No id has a space
 * in it.
 */
function compile (
  key: KeyConfig, { default_rpm, default_concurrency, default_abandons, families }: Options
): Limits {
  const name = `key:${key.id}`
  const limit = key.rate_limit ?? default_rpm
  const concurrency = key.concurrency ?? default_concurrency
  const abandons = key.abandon_limit ?? default_abandons
  const requests = limit === 0 ? [] : [policyOf(name, limit, 'rate_limited', 'key', 'This key')]
  const polls = limit === 0
    ? []
    : [policyOf(`${name} polls`, limit * POLLS_PER_REQUEST, 'rate_limited', 'polls', 'For lists and states, this key')]
  return {
    requests: together(requests),
    polls: together(polls),
    families: new Map(Object.entries(families).filter(([, { rpm }]) => rpm > 0).map(([family, { rpm }]) => {
      const policy = policyOf(`${name} family:${family}`, rpm, 'family_rate_limited', 'family',
        `For models of the family ${family}, this key`)
      return [family, { policy, alone: together([policy]), withKey: together([...requests, policy]) }]
    })),
    slot: concurrency === 0 ? undefined : { name, limit: concurrency },
    abandoned: abandons === 0 ? undefined : { name: `${name} abandons`, limit: abandons }
  }
}

function together (list: readonly Policy[]): Policies {
  return { list, header: list.map(({ header }) => header).join(', ') }
}

function policyOf (name: string, limit: number, code: Policy['code'], title: string, whose: string): Policy {
  return {
    name,
    limit,
    code,
    what: `${whose} has a limit of ${count(limit, 'request')} in any 60 seconds`,
    title: `"${title}"`,
    header: `"${title}";q=${limit};w=60`
  }
}

/**
 * @throws {GatewayError} the store is away: no request is admitted, and no key is called wrong
 * (src/README.md#away-is-503)
 */
function ask (admission: Admission, { ledger }: Exchange): Awaitable<AdmissionResult> {
  try {
    const result = ledger.admit(admission)
    return result instanceof Promise ? result.catch(unavailable) : result
  } catch (thrown) {
    return unavailable(thrown)
  }
}

/** Asks the limit of a family, behind the key's own. @throws {GatewayError} family_rate_limited */
function countFamily (
  exchange: Exchange, { policy, alone, withKey }: FamilyLimits, services: Services
): Awaitable<void> {
  const ofKey = exchange.find(Counted)
  const both = ofKey === undefined ? alone : withKey
  const admission = { request_id: exchange.id, account: exchange.get(ApiKey).account.id }
  return after(ask({ ...admission, windows: alone.list }, exchange), (result) => {
    if (result.kind === 'admitted') {
      show(exchange, both, ofKey === undefined ? result.windows : [ofKey, ...result.windows], services)
      return
    }
    // A retry must pass the key's own window too, in which this request is counted: only both together tell when it
    // can.
    return after(ask({ ...admission, windows: both.list }, exchange), (again) => {
      show(exchange, both, again.windows, services)
      if (again.kind === 'refused') throw usedUp(policy, again.windows)
    })
  })
}

function unavailable (cause: unknown): never {
  throw new GatewayError('auth_unavailable', {
    cause,
    message: 'The limits of keys cannot be checked at this moment. Your key may be fine: try again in {wait}.'
  })
}

/**
 * The requests that a key's clients leave before their answers begin. The store counts them. This process remembers
 * when the window opens again, so that a request asks the store nothing.
 */
class Abandons {
  readonly #window: WindowLimit
  readonly #closed: Map<string, number>
  readonly #now: () => number

  /** @param closed by the name of the window, when it opens again */
  constructor (window: WindowLimit, closed: Map<string, number>, now: () => number) {
    this.#window = window
    this.#closed = closed
    this.#now = now
  }

  /** @throws {GatewayError} rate_limited: too many were abandoned */
  check (): void {
    const until = this.#closed.size === 0 ? undefined : this.#closed.get(this.#window.name)
    if (until === undefined) return
    const ms = until - this.#now()
    // No window stays closed for longer than it is wide, so the clock was put back.
    if (ms <= 0 || ms > WIDTH_MS) { this.#closed.delete(this.#window.name); return }
    throw new GatewayError('rate_limited', {
      message: `This key has abandoned ${count(this.#window.limit, 'request')} within 60 seconds before their answers ` +
        `began, and may abandon no more. Try again in ${count(Math.ceil(ms / 1000), 'second')}, and wait for answers.`,
      retryAfter: ms / 1000,
      headers: { 'retry-after-ms': String(Math.ceil(ms)) }
    })
  }

  /** Counts a request that was abandoned. To be called at its end. */
  end (outcome: Outcome, exchange: Exchange): Awaitable<void> {
    return isAbandoned(outcome, exchange) ? this.#count(exchange) : undefined
  }

  /** Under an id of its own: the request was admitted under its own id. */
  #count (exchange: Exchange): Awaitable<void> {
    const { account } = exchange.get(ApiKey)
    const admission = { request_id: `${exchange.id} abandoned`, account: account.id, windows: [this.#window] }
    return after(exchange.ledger.admit(admission), ({ windows: [state] }) => {
      if (state?.remaining === 0) this.#closed.set(this.#window.name, this.#now() + state.next_ms)
    })
  }
}

/** An upstream may be executing it, and nobody is charged (src/README.md#abandoned). */
function isAbandoned (outcome: Outcome, { mayBeExecuting }: Exchange): boolean {
  return mayBeExecuting && outcome.kind === 'failed' && outcome.error.row === 'client_closed'
}

type Judge = (result: AdmissionResult, exchange: Exchange) => void

/** The slot of one exchange. */
class Slot {
  readonly #exchange: Exchange
  readonly #judge: Judge
  readonly #abandons: Abandons | undefined
  #asked: Promise<void> | undefined
  /** undefined: not known yet; after a failure of the store it is unknown whether the slot was taken */
  #result: AdmissionResult | undefined

  /** @param judge throws where the slot, or a window, is refused */
  constructor (exchange: Exchange, judge: Judge, abandons: Abandons | undefined) {
    this.#exchange = exchange
    this.#judge = judge
    this.#abandons = abandons
  }

  /** The release is registered before it is taken: it is given back once on every path (src/README.md#settle-once). */
  take (admission: Admission): Awaitable<void> {
    this.#exchange.onFinish((outcome, exchange) => after(this.#end(), () => this.#abandons?.end(outcome, exchange)))
    const told = ask(admission, this.#exchange)
    if (told instanceof Promise) return this.#asked = this.#hearLater(told)
    this.#hear(told)
  }

  #hearLater (told: Promise<AdmissionResult>): Promise<void> {
    return told.then((there) => { this.#hear(there) })
  }

  #hear (told: AdmissionResult): void {
    this.#result = told
    this.#judge(told, this.#exchange)
  }

  #end (): Awaitable<void> {
    return this.#result === undefined && this.#asked !== undefined ? this.#leaveBehind(this.#asked) : this.#leave()
  }

  #leave (): Awaitable<void> {
    return this.#result?.kind === 'refused' ? undefined : this.#exchange.ledger.leave(this.#exchange.id)
  }

  /** The request ended while its slot was being taken: a release now could come first. Runs in the background. */
  #leaveBehind (asked: Promise<void>): void {
    const leave = (): Awaitable<void> => this.#leave()
    asked.then(leave, leave).catch((err: unknown) => {
      const { id, snapshot: { services: { log } } } = this.#exchange
      log.error({ request_id: id, err }, 'a slot could not be given back')
    })
  }
}

/** The refusal of a full window, with the time until a retry passes all windows, if no other request is counted. */
function usedUp ({ code, what }: Policy, windows: readonly WindowState[]): GatewayError {
  const ms = Math.ceil(Math.max(...windows.map(({ remaining, next_ms }) => remaining === 0 ? next_ms : 0)))
  return new GatewayError(code, {
    message: `${what}, and they are used up. Try again in ${count(Math.ceil(ms / 1000), 'second')}.`,
    retryAfter: ms / 1000,
    headers: { 'retry-after-ms': String(ms) }
  })
}

/** The refusal without a free slot: when one becomes free is unknown, so the table's Retry-After stands. */
function full (taken: number, limit: number): GatewayError {
  return new GatewayError('org_queue_full', {
    message: `This key has ${count(taken, 'request')} running, and may have ${limit} at a time. ` +
      'Try again when one of them has ended.'
  })
}

function count (number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`
}

function tell ({ windows }: AdmissionResult, policies: Policies, exchange: Exchange, services: Services): void {
  // The limits are decided by this process alone, as `on_outage` says, and the client is told.
  if (exchange.ledger.health?.isUp === false) exchange.answerHeaders['x-gateway-degraded'] = 'limits'
  show(exchange, policies, windows, services)
}

/** Sets the headers: the vendor's for the window that is nearest to its limit, the draft's for all. */
function show (
  { answerHeaders, route }: Exchange, { list, header }: Policies, windows: readonly WindowState[], { now }: Services
): void {
  let [nearest] = windows
  if (nearest === undefined) return
  let states = ''
  for (let i = 0; i < list.length; i++) {
    const window = windows[i]!
    states += `${i === 0 ? '' : ', '}${list[i]!.title};r=${window.remaining};t=${Math.ceil(window.next_ms / 1000)}`
    if (isNarrower(window, nearest)) nearest = window
  }
  answerHeaders['ratelimit-policy'] = header
  answerHeaders['ratelimit'] = states
  route.style.addRateHeaders(answerHeaders, nearest, now())
}

function isNarrower (one: WindowState, other: WindowState): boolean {
  return one.remaining < other.remaining || (one.remaining === other.remaining && one.next_ms > other.next_ms)
}
