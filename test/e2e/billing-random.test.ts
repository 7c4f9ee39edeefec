// Random aborts, faults and throwing plugins over the real server: what is charged equals what the simulator's log and
// the client's own log say, to the nano-dollar, once per request. Own arithmetic: nothing of src/money is used. No
// answer is long enough to teach anything of its tokens. A failure prints its seed; repeat it with FC_SEED=… node
// test/e2e/billing-random.test.ts
import { strict as assert } from 'node:assert'
import fc from 'fast-check'
import t from 'tap'
import type { RequestRecord } from '../../src/simulator/request-log.ts'
import { type Habit, habits } from '../../src/simulator/habits.ts'
import { startSimulator, type Simulator } from '../../src/simulator/simulator.ts'
import type { Entry } from '../../src/store/store.ts'
import { ask, errorOf, textOf, type Got } from '../support/billing-client.ts'
import { CALM, gateway, KEY, type TestGateway } from '../support/gateway.ts'
import { isOwnRefusal, vendorsOf } from '../support/strict-vendors.ts'
import { throwing } from '../support/throwing.ts'
import { tokensOf } from '../support/tokens.ts'
import { until } from '../support/until.ts'

const RUNS = 150
const LIMIT_MS = 50_000
/** With more digits than a nano-dollar has per token, so that rounding is seen. */
const PRICE = { input: '3.0000007', output: '15.12345678', cache_read: '0.3000009', cache_write_5m: '3.7512345',
  cache_write_1h: '6.0000001' } as const

/** The first event that is content: message_start, ping, content_block_start come before it. */
const FIRST_CONTENT = 4

const settings = (faulty: string, healthy: string): string => `
server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: test-admin-token }
store: { driver: memory, path: ./data }
pipeline: [auth, { use: ./above.mjs }, channel-router, billing-meter, { use: ./below.mjs }, error-normalize]
upstreams:
  faulty: { url: "${faulty}", dialect: messages, ${CALM}, headers: { x-api-key: secret-0 }, timeouts: { usage: 0s } }
  hasty: { url: "${faulty}", dialect: messages, ${CALM}, headers: { x-api-key: secret-0 }, timeouts: { idle: 100ms, usage: 0s } }
  healthy: { url: "${healthy}", dialect: messages, ${CALM}, headers: { x-api-key: secret-1 }, timeouts: { usage: 0s } }
models:
${Object.entries({ alone: ['faulty'], backed: ['faulty', 'healthy'], hasty: ['hasty'] }).map(([id, upstreams]) => `
  - id: ${id}
    name: ${id}
    provider: acme
    kind: text
    created: 2025-09-29
    context: 200000
    max_output: 64000
    accepts: [text]
    channels:
      premium:
        price: { ${Object.entries(PRICE).map(([name, usd]) => `${name}: ${usd}`).join(', ')} }
        targets: [${upstreams.map((upstream) => `{ upstream: ${upstream}, model: vendor, weight: ${upstream === 'healthy' ? 0 : 1} }`).join(', ')}]`).join('')}
accounts:
  - { id: acme, name: Acme, opening_balance_usd: 1000000 }
keys:
  - { id: acme-dev, account: acme, secret: ${KEY} }
`

// What one request goes through.

type Trouble =
  | { readonly kind: 'fault', readonly directive: string }
  /** leaves with exactly so many events; the simulator stands still there */
  | { readonly kind: 'leave', readonly after: number }
  /** leaves before the head, while the simulator stands still after so many events; 0: before its head */
  | { readonly kind: 'leave early', readonly after: number }
  /** leaves with so many events, while more are on their way */
  | { readonly kind: 'race', readonly after: number }
  /** the simulator stands still until the gateway has waited enough */
  | { readonly kind: 'silence', readonly after: number }
  | { readonly kind: 'throw', readonly by: 'above' | 'below', readonly hook: string, readonly event: number }

interface Case {
  readonly stream: boolean
  readonly model: 'alone' | 'backed'
  readonly tokens: number
  readonly thinking: boolean
  readonly cache: 'none' | '5m' | '1h'
  readonly usage: '' | 'usage_zero' | 'usage_late' | 'usage_missing'
  readonly wire: string
  readonly trouble: Trouble
}

/** Habits of the simulator that change only how an answer is sent. */
const wireHabits = Object.entries<Habit>(habits)
  .filter(([, { of, instead, isOtherFraming, staysOpen }]) =>
    (of ?? instead ?? isOtherFraming ?? staysOpen) === undefined)
  .map(([name]) => `habit=${name}`)

const at = fc.integer({ min: 0, max: 24 })
const faults = fc.oneof(
  { weight: 4, arbitrary: fc.constant('') },
  { weight: 2,
    arbitrary: fc.constantFrom('refuse', 'unknown_event', 'no_terminal', 'empty', 'empty_body', 'cut', 'redirect',
      'html=502', 'content_policy', 'context', 'error_event_first', 'habit=other_framing', 'habit=error_in_200',
      'habit=error_other_shape') },
  // A 401 or 429 keeps those beside it away.
  { weight: 2, arbitrary: fc.constantFrom(400, 404, 500, 503, 529).map((status) => `status=${status}`) },
  { weight: 5,
    arbitrary: fc.tuple(fc.constantFrom('cut_after', 'cut_mid_event', 'end_after', 'malformed', 'error_event_after'),
      at).map(([name, event]) => `${name}=${event}`) }
)
const hooks = ['onHead', 'onRequest', 'perAttempt', 'onUpstreamRequest', 'onUpstreamReply', 'onUpstreamEvent',
  'onReply', 'onStream', 'event', 'end', 'onError', 'onUpstreamFailure']
const troubles = fc.oneof(
  { weight: 10, arbitrary: faults.map((directive): Trouble => ({ kind: 'fault', directive })) },
  { weight: 5,
    arbitrary: fc.integer({ min: FIRST_CONTENT, max: 24 }).map((after): Trouble => ({ kind: 'leave', after })) },
  { weight: 2,
    arbitrary: fc.integer({ min: 0, max: FIRST_CONTENT - 1 })
      .map((after): Trouble => ({ kind: 'leave early', after })) },
  { weight: 2, arbitrary: at.map((after): Trouble => ({ kind: 'race', after })) },
  { weight: 1, arbitrary: at.map((after): Trouble => ({ kind: 'silence', after })) },
  { weight: 5,
    arbitrary: fc.tuple(fc.constantFrom('above' as const, 'below' as const), fc.constantFrom(...hooks),
      fc.integer({ min: 1, max: 12 })).map(([by, hook, event]): Trouble => ({ kind: 'throw', by, hook, event })) }
)
const cases: fc.Arbitrary<Case> = fc.record({
  stream: fc.oneof({ weight: 2, arbitrary: fc.constant(true) }, { weight: 1, arbitrary: fc.constant(false) }),
  model: fc.constantFrom('alone' as const, 'backed' as const),
  tokens: fc.integer({ min: 1, max: 16 }),
  thinking: fc.boolean(),
  cache: fc.constantFrom('none' as const, '5m' as const, '1h' as const),
  usage: fc.oneof({ weight: 5, arbitrary: fc.constant('' as const) }, { weight: 1,
    arbitrary: fc.constantFrom('usage_zero' as const, 'usage_late' as const, 'usage_missing' as const) }),
  wire: fc.oneof({ weight: 6, arbitrary: fc.constantFrom('', 'crlf', 'burst') }, { weight: 2,
    arbitrary: fc.constantFrom('chunk=7', 'chunk=100 crlf') }, { weight: 1, arbitrary: fc.constant('chunk=1') },
  { weight: 3, arbitrary: fc.constantFrom(...wireHabits) }),
  trouble: troubles
}).map(makePossible)

/** Takes back what would make the moment of the trouble depend on chance, or never come. */
function makePossible (one: Case): Case {
  const { trouble } = one
  const hasMoment = trouble.kind !== 'fault' || /=\d/.test(trouble.directive)
  const wire = hasMoment && one.wire === 'burst' ? '' : one.wire
  // The number of thoughts is the simulator's own affair: where an event is counted, there are none.
  const thinking = one.thinking && !hasMoment
  // The event before message_stop. Where it says nothing of usage it waits for the next one, which may: then it is told
  // too late for a client that leaves, or a plugin that throws, at it.
  const last = one.tokens + (one.usage === 'usage_missing' ? 4 : 5)
  const limit = (event: number): number => Math.min(event, last)
  const common = { ...one, wire, thinking }
  switch (trouble.kind) {
    case 'leave': return { ...common, stream: true, trouble: { ...trouble, after: limit(trouble.after) } }
    case 'leave early': return { ...common, trouble: one.stream ? trouble : { ...trouble, after: 0 } }
    case 'race': return { ...common, trouble: { ...trouble, after: Math.max(FIRST_CONTENT, limit(trouble.after)) } }
    case 'silence': return { ...common, trouble: { ...trouble, after: limit(trouble.after) } }
    case 'throw': return { ...common, trouble: { ...trouble, event: limit(trouble.event) } }
    default: return common
  }
}

/** What the simulator is told. */
function directivesOf ({ stream, tokens, usage, wire, trouble }: Case): string {
  const told = [`tokens=${tokens}`, usage, wire]
  if (trouble.kind === 'fault') told.push(trouble.directive)
  if (trouble.kind === 'leave' || trouble.kind === 'silence') told.push(`stall_after=${trouble.after}`)
  if (trouble.kind === 'leave early') told.push(trouble.after === 0 ? 'stall' : `stall_after=${trouble.after}`)
  if (trouble.kind === 'throw') {
    // Nothing more is on its way when the plugin throws, so what was delivered until then is known.
    if (stream && trouble.hook === 'event') told.push(`stall_after=${Math.max(FIRST_CONTENT, trouble.event)}`)
    if (stream && trouble.hook === 'onUpstreamEvent') told.push(`stall_after=${trouble.event}`)
    if (trouble.hook === 'onError' || trouble.hook === 'onUpstreamFailure') told.push('status=500')
  }
  return `[[sim: ${told.filter((word) => word !== '').join(' ')}]]`
}

/** How it must end. `race`: one of two ways, and chance decides. */
type Ending = 'whole' | 'cut' | 'failed' | 'refused' | 'left' | 'left early' | 'race' | 'silence'

function endingOf ({ stream, model, tokens, trouble }: Case): Ending {
  const retried: Ending = model === 'backed' ? 'whole' : 'failed'
  switch (trouble.kind) {
    case 'leave': return 'left'
    case 'leave early': return 'left early'
    case 'race': return 'race'
    case 'silence': return 'silence'
    case 'throw': {
      const { hook, event } = trouble
      // error-normalize is asked before them, and answers; and a shape that throws is replaced by the next one's.
      if (hook === 'onUpstreamFailure' || hook === 'onError') return retried
      if (hook === 'onReply' || hook === 'onUpstreamReply') return stream ? 'whole' : 'failed'
      if (hook === 'onUpstreamEvent') return !stream ? 'whole' : event <= FIRST_CONTENT ? 'failed' : 'cut'
      if (hook === 'event' || hook === 'end') return stream ? 'cut' : 'whole'
      if (hook === 'onStream') return stream ? 'failed' : 'whole'
      return 'failed'
    }
    case 'fault': {
      const [name, value] = trouble.directive.split('=') as [string, string | undefined]
      const event = Number(value)
      if (['', 'refuse', 'unknown_event', 'empty', 'no_terminal'].includes(name) || value === 'other_framing') return 'whole'
      if (name === 'content_policy' || name === 'context' || trouble.directive === 'status=400') return 'refused'
      if (!['cut_after', 'cut_mid_event', 'end_after', 'malformed', 'error_event_after'].includes(name)) return retried
      if (!stream) return name === 'end_after' ? 'whole' : retried
      // With the stop reason the answer is whole, however it breaks off behind that.
      const isBroken = name === 'malformed' || name === 'error_event_after'
      return event < FIRST_CONTENT ? retried : event < tokens + (isBroken ? 6 : 5) ? 'cut' : 'whole'
    }
  }
}

// The oracle.

interface Money {
  readonly input: number
  readonly read: number
  readonly written5m: number
  readonly written1h: number
  readonly output: number
}
const nothing: Money = { input: 0, read: 0, written5m: 0, written1h: 0, output: 0 }

/**
 * USD per 1M tokens are milli-dollars per 1,000: tokens × price × 1000 nano-dollars. One rounding, half up, over the
 * sum.
 */
function nanosOf ({ input, read, written5m, written1h, output }: Money): bigint {
  const terms: [number, string][] = [[input, PRICE.input], [read, PRICE.cache_read], [written5m, PRICE.cache_write_5m],
    [written1h, PRICE.cache_write_1h], [output, PRICE.output]]
  const DECIMALS = 10
  const sum = terms.reduce((total, [tokens, price]) => {
    const [whole = '', fraction = ''] = price.split('.')
    return total + BigInt(tokens) * BigInt(whole + fraction.padEnd(DECIMALS, '0'))
  }, 0n) * 1000n
  const unit = 10n ** BigInt(DECIMALS)
  return sum / unit + (2n * (sum % unit) >= unit ? 1n : 0n)
}

interface Vendor {
  readonly input_tokens?: number
  readonly cache_read_input_tokens?: number
  readonly output_tokens?: number
  readonly cache_creation?: { readonly ephemeral_5m_input_tokens: number, readonly ephemeral_1h_input_tokens: number }
}

function inputOf (usage: Vendor): Money {
  return {
    input: usage.input_tokens ?? 0,
    read: usage.cache_read_input_tokens ?? 0,
    written5m: usage.cache_creation?.ephemeral_5m_input_tokens ?? 0,
    written1h: usage.cache_creation?.ephemeral_1h_input_tokens ?? 0,
    output: 0
  }
}


function isNothing (usage: Vendor | undefined): boolean {
  const { input, read, written5m, written1h } = inputOf(usage ?? {})
  return input + read + written5m + written1h + (usage?.output_tokens ?? 0) === 0
}

/** The usage that these events report, field by field the last one. */
function usageIn (got: Got): Vendor {
  return got.events.reduce<Vendor>((usage, { event, data }) => {
    const said = event === 'message_start'
      ? (data['message'] as { usage?: Vendor }).usage
      : event === 'message_delta'
      ? data['usage'] as Vendor | undefined
      : undefined
    return { ...usage, ...said }
  }, {})
}

/** The least and the most that it may cost. */
type Bounds = readonly [bigint, bigint]

/** @returns what it may cost; undefined: there may be no entry at all */
function expect (
  one: Case,
  got: Got,
  records: readonly RequestRecord[],
  bodyBytes: number,
  hasEntry: boolean
): Bounds | undefined {
  const exactly = (money: Money): Bounds => [nanosOf(money), nanosOf(money)]
  const ending = endingOf(one)
  const served = records.at(-1)
  // Zeros beside content are no report (src/README.md#zero-is-zero).
  const isZero = served?.usage !== undefined && served.text_sent !== '' && isNothing(served.usage)
  const sent = (isZero ? {} : served?.usage ?? {}) as Vendor
  const isError = got.events.at(-1)?.event === 'error'
  // Nobody said how long the prompt was: four bytes a token by our own documentation, here give or take the brackets.
  const estimated = (output: number): Bounds => [nanosOf({ ...nothing, input: Math.floor(bodyBytes / 8), output }),
    nanosOf({ ...nothing, input: Math.ceil(bodyBytes / 2), output })]
  const whole = (): Bounds => {
    const output = sent.output_tokens ?? tokensOf(served!.text_sent)
    return sent.input_tokens === undefined ? estimated(output) : exactly({ ...inputOf(sent), output })
  }
  // Where the vendor says nothing of the prompt, the client was told an estimate, and pays it.
  const prompt = (): Money => inputOf(sent.input_tokens === undefined ? usageIn(got) : sent)
  const afterCut = (text: string, reported: Vendor): Money => ({
    ...nothing,
    output: Math.max(reported.output_tokens ?? 0, tokensOf(text))
  })

  switch (ending) {
    case 'whole':
      assert.equal(got.status, 200)
      assert.equal(one.stream ? got.events.at(-1)?.event : got.ended, one.stream ? 'message_stop' : 'whole')
      if (one.stream) assert.equal(textOf(got.events), served!.text_sent)
      return whole()
    case 'failed':
    case 'refused':
      assert.equal(Math.trunc(got.status / 100), ending === 'failed' ? 5 : 4, `status ${got.status}`)
      assert.equal(errorOf(got)?.charged_usd, '0')
      return undefined
    case 'left early':
      assert.deepEqual([got.status, got.ended, records.length], [0, 'left', 1])
      return undefined
    case 'cut': {
      assert.ok(got.status === 200 && isError, `status ${got.status}, ${got.events.map(({ event }) => event).join()}`)
      const isPluginsFault = one.trouble.kind === 'throw'
      // A plugin above the meter lost an event that the meter had seen: it was produced. The simulator stopped right
      // behind it.
      const isAbove = isPluginsFault && one.trouble.by === 'above' && one.trouble.hook === 'event' &&
        one.trouble.event >= FIRST_CONTENT
      if (!isPluginsFault || isAbove) assert.ok(served!.text_sent.startsWith(textOf(got.events)))
      // What the upstream had reported by then. Where a plugin held the event back, the client can't know; one below
      // the meter that throws at it keeps it from the meter, too.
      const isUnmetered = isPluginsFault && one.trouble.by === 'below' && one.trouble.hook === 'onUpstreamEvent'
      const reported = isPluginsFault && !isUnmetered ? sent : usageIn(got)
      return exactly(afterCut(isAbove ? served!.text_sent : textOf(got.events), reported))
    }
    case 'left': {
      assert.deepEqual(
        [got.status, got.ended, got.events.length], [200, 'left', one.trouble.kind === 'leave' ? one.trouble.after : 0]
      )
      assert.equal(served!.text_sent, textOf(got.events))
      const { output } = afterCut(textOf(got.events), sent)
      return isZero ? estimated(output) : exactly({ ...prompt(), output })
    }
    case 'silence':
      // Timers may fire before the simulator got as far as it was told, on a machine that is busy: the client's log
      // says how far.
      if (got.status !== 200) { assert.equal(got.status, 502); return undefined }
      // Behind the stop reason and the usage nothing is missing but the words that say so.
      if (one.stream && !isError) {
        assert.deepEqual(got.events.slice(-2).map(({ event }) => event), ['message_delta', 'message_stop'])
        assert.equal(textOf(got.events), served!.text_sent)
        return whole()
      }
      assert.ok(one.stream && isError)
      return exactly(afterCut(textOf(got.events), usageIn(got)))
    case 'race': {
      // A JSON answer was either settled before the gateway heard that the client is gone, or not.
      if (!one.stream) return hasEntry ? whole() : undefined
      // What the client has is the least, what the simulator's socket took is the most that the gateway can have
      // relayed. Or all was relayed and settled before it heard that the client is gone: then the provider's own count
      // holds.
      const least = nanosOf({ ...inputOf(usageIn(got)), output: afterCut(textOf(got.events), usageIn(got)).output })
      const { output } = afterCut(served!.text_sent, sent)
      const most = isZero ? estimated(output)[1] : nanosOf({ ...prompt(), output })
      const [lowest, highest] = served!.ended === 'complete' ? whole() : [least, most]
      return [lowest < least ? lowest : least, highest > most ? highest : most]
    }
  }
}

// The run.

const SYSTEM = Array.from({ length: 40 }, (_, i) => `rule ${i}`).join(' ')

function bodyOf (one: Case, name: string): Record<string, unknown> {
  return {
    model: one.trouble.kind === 'silence' ? 'hasty' : one.model,
    max_tokens: 2000,
    stream: one.stream,
    ...(one.thinking && { thinking: { type: 'enabled', budget_tokens: 1024 } }),
    ...(one.cache !== 'none' &&
      { system: [{ type: 'text', text: SYSTEM, cache_control: { type: 'ephemeral', ttl: one.cache } }] }),
    messages: [{ role: 'user', content: `${name} ${directivesOf(one)} Hello!` }]
  }
}

interface Served {
  readonly one: Case
  readonly name: string
  readonly bodyBytes: number
  readonly got: Got
}

async function play (one: Case, name: string, { url }: TestGateway, faulty: Simulator): Promise<Served> {
  const body = bodyOf(one, name)
  const { trouble } = one
  const leaving = new AbortController()
  const headers: Record<string, string> = { 'x-api-key': KEY, 'user-agent': name }
  if (trouble.kind === 'throw') {
    headers['x-throw'] = `${trouble.by} ${trouble.hook}${['event', 'onUpstreamEvent'].includes(trouble.hook) ? ` ${trouble.event}` : ''}`
  }
  const asking = ask(url + '/v1/messages', body, {
    headers,
    leave: leaving.signal,
    ...((trouble.kind === 'leave' || (trouble.kind === 'race' && one.stream)) && { leaveAfter: trouble.after })
  })
  if (trouble.kind === 'leave early' || (trouble.kind === 'race' && !one.stream)) {
    const events = trouble.kind === 'race' ? 0 : trouble.after
    await faulty.until(() => faulty.requests.find((record) => isOf(record, name) && record.events_sent >= events))
    leaving.abort()
  }
  return { one, name, bodyBytes: JSON.stringify(body).length, got: await asking }
}

function isOf ({ body }: RequestRecord, name: string): boolean {
  const prompt = (body as { messages?: { content: string }[] } | undefined)?.messages?.[0]?.content
  return prompt?.startsWith(`${name} `) === true
}

await t.test('random aborts, faults and throwing plugins: what is charged is what the logs of both ends say', async (t) => {
  const pace = { firstDelayMs: 0, tokenDelayMs: 0, keepRequests: 1_000_000 }
  // Each request meets the rules of one of them.
  const faults = vendorsOf('messages').map((name) => `vendor=${name}`)
  const faulty = await startSimulator({ ...pace, faults })
  const healthy = await startSimulator({ ...pace, faults, directives: false })
  t.teardown(() => Promise.all([faulty.close(), healthy.close()]))
  const running = await gateway(t, settings(faulty.url, healthy.url), {
    files: { 'above.mjs': throwing('above'), 'below.mjs': throwing('below') }
  })
  const { store } = running.services
  const counts: Partial<Record<Ending, number>> = {}
  let count = 0
  let runs = 0

  const startedAt = performance.now()
  await fc.assert(fc.asyncProperty(fc.array(cases, { minLength: 6, maxLength: 14 }), async (batch) => {
    // Begins no more, instead of giving up the one that runs: a request that hangs must not pass for a slow machine.
    if (performance.now() - startedAt > LIMIT_MS) return
    const before = { balance: (await store.balance('acme')).balance, logged: running.logged.length,
      faulty: faulty.requests.length, healthy: healthy.requests.length }
    const served = await Promise.all(batch.map((one) => play(one, `case-${++count}`, running, faulty)))

    const lines = await until(() => {
      const lines = running.logged.slice(before.logged).filter(({ msg }) => msg === 'request')
      return lines.length >= batch.length && lines
    })
    const seen = [...faulty.requests.slice(before.faulty), ...healthy.requests.slice(before.healthy)]
    await until(() => seen.every(({ ended }) => ended !== undefined))
    const entries = new Map<string, Entry[]>()
    for await (const entry of store.entries()) {
      entries.set(entry.reference, [...entries.get(entry.reference) ?? [], entry])
    }

    let sum = 0n
    for (const { one, name, bodyBytes, got } of served) {
      const about = `${name} ${JSON.stringify(one)}, got ${got.status} ${got.ended} ${got.events.map(({ event }) => event).join()}`
      const own = lines.filter(({ client }) => client === name)
      assert.equal(own.length, 1, `one log line: ${about}`)
      const settled = entries.get(String(own[0]!['request_id'])) ?? []
      const charged = settled.reduce((total, { nanos }) => total - nanos, 0n)
      try {
        const bounds = expect(one, got, seen.filter((record) => isOf(record, name)), bodyBytes, settled.length > 0)
        assert.ok(settled.length <= 1 && settled.every(({ kind }) => kind === 'settle'),
          'at most one entry, and no shortfall')
        assert.equal(settled.length, bounds === undefined ? 0 : 1)
        const [least, most] = bounds ?? [0n, 0n]
        assert.ok(charged >= least && charged <= most,
          `charged ${charged} nano-dollars, not ${least === most ? least : `${least} to ${most}`}`)
        assert.equal(own[0]!['nanos'], settled.length === 0 ? undefined : String(charged),
          'the log says what the ledger says')
        const error = errorOf(got)
        if (error !== undefined) {
          assert.equal(Math.round(Number(error.charged_usd) * 1e9), Number(charged),
            'the client is told what the ledger says')
        }
      } catch (error) {
        throw new Error(
          `${(error as Error).message}: ${about}, upstream ${JSON.stringify(seen.filter((record) => isOf(record, name)).map(({ ended, events_sent, usage, text_sent }) => ({ ended, events_sent, usage, text_sent })))}, entries ${JSON.stringify(settled, (_, value: unknown) => typeof value === 'bigint' ? String(value) : value)}`,
          { cause: error }
        )
      }
      sum += charged
      counts[endingOf(one)] = (counts[endingOf(one)] ?? 0) + 1
    }
    const after = await store.balance('acme')
    assert.deepEqual(after, { balance: before.balance - sum, held: 0n, open_holds: 0 })
    assert.equal(await store.openHolds(), 0)
    assert.equal((await store.keyUsage('acme-dev')).held, 0n)
    runs++
  }), { numRuns: RUNS, ...(process.env['FC_SEED'] !== undefined && { seed: Number(process.env['FC_SEED']) }) })

  t.ok(runs >= 10, `${runs} batches, ${count} requests: ${JSON.stringify(counts)}`)
  t.strictSame(faulty.requests.filter(({ failure }) => failure !== undefined), [])
  t.strictSame([...faulty.requests, ...healthy.requests].filter(isOwnRefusal), [], 'no vendor refuses for a rule of its own')
  let balance = 0n
  for await (const { nanos } of store.entries()) balance += nanos
  t.equal((await store.balance('acme')).balance, balance, 'the balance is the sum of the entries')
})
