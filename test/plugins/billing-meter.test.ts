// What each ending of an exchange costs, and that whatever is held is given back: hooks driven by hand, in the order of
// the core.
import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import fc from 'fast-check'
import t from 'tap'
import { billingMeter } from '../../plugins/billing-meter/index.ts'
import type { Config, KeyConfig } from '../../src/config/config.ts'
import type { TokenPrice } from '../../src/money/price.ts'
import type { Snapshot } from '../../src/gateway/snapshot.ts'
import { GatewayError, isGatewayError } from '../../src/errors.ts'
import type { Routed as Exchange } from '../../src/core/endpoint.ts'
import type { Outcome } from '../../src/core/exchange.ts'
import { ApiKey, Charge, Plan, Variant, WorstCase, type Attempt } from '../../src/core/facts.ts'
import { boundInput as bound, estimateInput } from '../../src/tokens/bound.ts'
import { formatUsd, type Nanos } from '../../src/money/nanos.ts'
import type { AttemptHooks, StreamTransformer } from '../../src/core/plugin.ts'
import { json, type Reply } from '../../src/core/reply.ts'
import { SseEvent } from '../../src/core/sse.ts'
import { MemoryStore } from '../../src/store/local/memory.ts'
import type { AdmissionResult, Balance, Entry, HoldRequest, HoldResult, KeyUsage, Settlement, Store,
  Verification } from '../../src/store/store.ts'
import type { EntryPage, EntryQuery, Failure, Rollup, RollupQuery, Rollups } from '../../src/store/rollups.ts'
import { account, ask, asking, config, exchange, key, model, services, snapshot, type TestServices,
  upstreamConfig } from '../support/exchange.ts'
import { all } from '../support/store-conformance.ts'
import { counted, tokensOf } from '../support/tokens.ts'
import { until } from '../support/until.ts'

const boundInput = (...of: Parameters<typeof bound>): number => bound(...of).tokens

const MILLION = 1_000_000n
/** nano-dollars per token at 3 and 15 USD per 1M */
const [INPUT, OUTPUT] = [3000n, 15_000n]
const FORWARD = [
  { match: 'POST /v1/embeddings', forward: 'u1', price: { usd: '0.0001' } },
  { match: 'POST /v1/free', forward: 'u1', price: 'free' as const }
]
const upstreams: Config['upstreams'] = { u1: upstreamConfig() }
const textModel = model('m1', { premium: 'u1/a*1', cheap: 'u1/b*1' }, { context: 200_000, max_output: 64_000 })
const priced = (price: TokenPrice | 'free', channel: 'premium' | 'cheap' = 'premium'): typeof textModel =>
  ({ ...textModel, channels: { ...textModel.channels, [channel]: { ...textModel.channels[channel]!, price } } })

const question = { model: 'm1', max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }] }
const start = (usage: unknown): SseEvent =>
  SseEvent.of('message_start', { type: 'message_start', message: { id: 'msg_1', content: [], usage } })
const delta = (text: string): SseEvent =>
  SseEvent.of('content_block_delta', { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })
const end = (usage: unknown): SseEvent =>
  SseEvent.of('message_delta', { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage })
const TEXT = 'The quick brown fox jumps over the lazy dog.'

/** One gateway's billing: an account with a balance, and exchanges driven as src/pipeline/pipeline.ts drives them. */
class Desk {
  readonly services: TestServices
  readonly snapshot: Snapshot
  readonly owner: Partial<KeyConfig>

  constructor (
    of: { readonly balance?: Nanos, readonly model?: typeof textModel, readonly key?: Partial<KeyConfig>,
      readonly store?: TestServices['store'], readonly lowBalance?: string } = {}
  ) {
    const made = services()
    this.services = { ...made, store: of.store ?? made.store }
    this.owner = of.key ?? {}
    const pipeline = [{ use: 'billing-meter', with: { low_balance_usd: of.lowBalance ?? '0' } }]
    this.snapshot = snapshot(config({ pipeline, upstreams, models: [of.model ?? textModel], routes: FORWARD }), [
      billingMeter
    ], this.services)
    void this.services.store.credit('acme', 'opening:acme', of.balance ?? 10n * 10n ** 9n)
  }

  get store (): Store { return this.services.store }

  /** A request to a model that has passed the plugins above. */
  prepare (body: object = question, channels: readonly ('premium' | 'cheap')[] = ['premium']): Exchange {
    const made = asking(this.snapshot, 'm1', { key: this.owner })
    const whole = { ...question, ...body }
    made.request = { body: whole, stream: (whole as { stream?: unknown }).stream === true }
    const sold = this.snapshot.models.get('m1')!.channels
    made.set(Plan, {
      attempts: channels.map((channel): Attempt => ({ upstream: 'u1', model: channel, channel, sold: sold[channel]! }))
    })
    return made
  }

  forwarding (path = '/v1/embeddings'): Exchange {
    const made = exchange(this.snapshot, { path })
    made.set(ApiKey, { key: key(this.owner), account: account() })
    return made
  }

  async held (): Promise<Nanos> { return (await this.store.balance('acme')).held }

  /** All but the opening credit. */
  async entries (): Promise<readonly Entry[]> { return (await all(this.store)).slice(1) }

  async settledOnly (): Promise<Entry> {
    const entries = await this.entries()
    if (entries.length !== 1 || await this.held() !== 0n) {
      throw new Error(`${entries.length} entries, ${await this.held()} held`)
    }
    return entries[0]!
  }
}

const attemptOf = (of: Exchange, i = 0): Attempt => of.get(Plan).attempts[i]!
const begin = (of: Exchange, i = 0): AttemptHooks => of.route.hooks.perAttempt[0]!.call(attemptOf(of, i), of)

async function reply (of: Exchange, answer: Reply): Promise<Reply> {
  return await of.route.hooks.onReply[0]!.call(answer, of) ?? answer
}

/** Hands events up to the client, committed with the first content as the core commits. */
class Stream {
  readonly #hooks: AttemptHooks
  readonly #of: Exchange
  #transformer: StreamTransformer | undefined
  #held: SseEvent[] = []

  constructor (of: Exchange, attempt = 0) {
    this.#of = of
    this.#hooks = begin(of, attempt)
  }

  /** As the core does it: what must wait does. */
  async flow (...events: readonly SseEvent[]): Promise<void> {
    for (const event of events) {
      this.#hooks.onUpstreamEvent!(event)
      this.#transformer ??= this.#of.route.hooks.onStream[0]!.call(this.#of)!
      await this.#transformer.ready?.(event)
      this.#transformer.event(event)
    }
  }

  see (...events: readonly SseEvent[]): this {
    for (const event of events) {
      this.#hooks.onUpstreamEvent!(event)
      this.#held.push(event)
      if (event.event === 'content_block_delta') {
        this.#transformer ??= this.#of.route.hooks.onStream[0]!.call(this.#of)!
      }
      if (this.#transformer === undefined) continue
      for (const held of this.#held) {
        const made = this.#transformer.event(held)
        if (held.event === 'content_block_delta' && made !== held) throw new Error('the event was changed')
      }
      this.#held = []
    }
    return this
  }
}

const completed = (of: Exchange, attempt = 0): Outcome => ({ kind: 'completed', served: attemptOf(of, attempt) })
const cut = (of: Exchange, by: 'client' | 'upstream' | 'gateway'): Outcome => ({
  kind: 'interrupted',
  served: attemptOf(of),
  by,
  error: new GatewayError(by === 'client' ? 'client_closed' : 'stream_incomplete')
})
const failed = (error = new GatewayError('upstream_error')): Outcome => ({ kind: 'failed', error })

async function finish (of: Exchange, outcome: Outcome): Promise<void> {
  await of.settle(outcome)
  await of.finish(outcome)
}

const code = (thrown: unknown): string => isGatewayError(thrown) ? thrown.code : String(thrown)
async function refusal (of: Exchange): Promise<GatewayError> {
  try {
    await ask(of)
  } catch (thrown) {
    if (isGatewayError(thrown)) return thrown
    throw thrown
  }
  throw new Error('it was let through')
}

void t.test('the truth table of a stream: what each ending costs (rule charge-delivered)', async (t) => {
  const produced = tokensOf(TEXT)
  t.ok(produced > 3)
  const first = start({ input_tokens: 50, cache_read_input_tokens: 1000, output_tokens: 1 })
  const input = 50n * INPUT + 1000n * 300n
  const rows:
    readonly (readonly [string, readonly SseEvent[], (of: Exchange) => Outcome, Nanos | undefined, string?])[] = [
      ['completed', [first, delta(TEXT), end({ output_tokens: 40 })], completed, input + 40n * OUTPUT, 'provider'],
      ['failed before anything came', [], () => failed(), undefined],
      ['failed before the commit, though the upstream reported input', [first], () => failed(), undefined],
      ['client left before the commit', [first], () => failed(new GatewayError('client_closed')), undefined],
      ['head and pings were out, nothing else', [first], () => failed(new GatewayError('stream_incomplete')),
        undefined],
      ['cut by the upstream', [first, delta(TEXT)], (of) => cut(of, 'upstream'), BigInt(produced) * OUTPUT,
        'estimated'],
      ['cut by the gateway: drained', [first, delta(TEXT)], (of) => cut(of, 'gateway'), BigInt(produced) * OUTPUT,
        'estimated'],
      ['cut after the upstream had reported more than was delivered', [first, delta(TEXT), end({ output_tokens: 40 })],
        (of) => cut(of, 'upstream'), 40n * OUTPUT, 'provider'],
      ['client left after some tokens', [first, delta(TEXT)], (of) => cut(of, 'client'),
        input + BigInt(produced) * OUTPUT, 'estimated'],
      ['client left after the last token, before message_stop', [first, delta(TEXT), end({ output_tokens: 40 })],
        (of) => cut(of, 'client'), input + 40n * OUTPUT, 'provider'],
      ['client left, and nobody had reported its input', [start(null), delta(TEXT)], (of) => cut(of, 'client'),
        BigInt(estimateInput({ ...question, stream: true })) * INPUT + BigInt(produced) * OUTPUT, 'estimated']
    ]
  for (const [name, events, outcome, wanted, source] of rows) {
    const desk = new Desk({ model: priced({ input: '3', output: '15', cache_read: '0.30' }) })
    const of = desk.prepare({ stream: true })
    await ask(of)
    t.ok(await desk.held() > 0n, `${name}: held`)
    new Stream(of).see(...events)
    const ending = outcome(of)
    await of.settle(ending)
    t.equal(of.find(Charge)?.nanos, wanted, `${name}: known before the end is written`)
    await of.finish(ending)
    t.equal(await desk.held(), 0n, `${name}: nothing stays held`)
    const entries = await desk.entries()
    t.strictSame(entries.map(({ nanos, usage_source: from }) => [-nanos, from]),
      wanted === undefined ? [] : [[wanted, source]], name)
  }
})

void t.test('the truth table of a JSON answer', async (t) => {
  const body = { content: [{ type: 'text', text: TEXT }], usage: { input_tokens: 50, output_tokens: 40 } }
  const charge = 50n * INPUT + 40n * OUTPUT
  const serve = async (
    outcomes: readonly ((of: Exchange) => Outcome)[],
    answer: object | undefined
  ): Promise<readonly [Desk, Exchange, Reply | undefined]> => {
    const desk = new Desk()
    const of = desk.prepare()
    await ask(of)
    const hooks = begin(of)
    let told: Reply | undefined
    if (answer !== undefined) {
      hooks.onUpstreamReply!(json(answer))
      told = await reply(of, json(answer, { 'x-kept': '1' }))
      t.equal(of.find(Charge), undefined, 'the header is told before it is settled')
    }
    await of.settle(outcomes[0]!(of))
    await of.finish(outcomes.at(-1)!(of))
    return [desk, of, told]
  }

  const [desk, of, told] = await serve([completed], body)
  t.strictSame(told!.headers, { 'x-kept': '1', 'x-gateway-cost-usd': formatUsd(charge) })
  t.match(await desk.settledOnly(), { kind: 'settle', reference: of.id, account: 'acme', key: 'acme-dev',
    nanos: -charge, model: 'm1', channel: 'premium', usage: { input: 50, output: 40 }, usage_source: 'provider' })
  t.match(of.get(Charge), { nanos: charge, source: 'provider' })

  const [left] = await serve([completed, (of) => cut(of, 'client')], body)
  t.equal((await left.settledOnly()).nanos, -charge, 'the client left while it was written: settled before, and once')
  const [gone] = await serve([() => failed(new GatewayError('client_closed'))], body)
  t.strictSame([await gone.entries(), await gone.held()], [[], 0n], 'the client left before it: nothing')
  const [dead] = await serve([() => failed()], undefined)
  t.strictSame([await dead.entries(), await dead.held()], [[], 0n], 'failed: nothing')
})

void t.test('what a failed attempt used is never charged, and billing follows the channel that answered', async (t) => {
  const desk = new Desk({ model: priced({ input: '1', output: '2' }, 'cheap') })
  const of = desk.prepare({ stream: true }, ['premium', 'cheap'])
  await ask(of)
  new Stream(of, 0).see(start({ input_tokens: 9999, output_tokens: 9999, cache_read_input_tokens: 777 }))
  new Stream(of, 1).see(start({ output_tokens: 1 }), delta('Hi'), end({ input_tokens: 10, output_tokens: 20 }))
  await finish(of, completed(of, 1))
  t.match(await desk.settledOnly(), { nanos: -(10n * 1000n + 20n * 2000n), channel: 'cheap',
    usage: { input: 10, output: 20, cache_read: 0 } })
})

void t.test('the dearest attempt is held for, by its dearest class of input', async (t) => {
  const desk = new Desk({ model: priced({ input: '1', output: '20', cache_write_1h: '7' }, 'cheap') })
  const of = desk.prepare({}, ['premium', 'cheap'])
  await ask(of)
  t.equal(await desk.held(), BigInt(boundInput(of.request.body, 200_000)) * 7000n + 100n * 20_000n)
})

void t.test('output is held up to max_tokens, and up to what the model can where that is no number', async (t) => {
  const heldFor = async (max_tokens: unknown): Promise<Nanos> => {
    const desk = new Desk()
    const of = desk.prepare({ max_tokens })
    await ask(of)
    return (await desk.held() - BigInt(boundInput(of.request.body)) * INPUT) / OUTPUT
  }
  const told: Nanos[] = []
  for (const max of [0, 1, 100, 1e300, -5, null, '100', undefined]) told.push(await heldFor(max))
  t.strictSame(told, [0n, 1n, 100n, 64_000n, 64_000n, 64_000n, 64_000n, 64_000n])
})

void t.test('usage is overwritten field by field, one zero is a zero, and only the last word counts (rules zero-is-zero, last-usage-wins, drain-to-end)', async (t) => {
  const charged = async (...events: readonly SseEvent[]): Promise<Entry> => {
    const desk = new Desk()
    const of = desk.prepare({ stream: true })
    await ask(of)
    new Stream(of).see(...events)
    await finish(of, completed(of))
    return await desk.settledOnly()
  }
  t.match(
    await charged(start({ input_tokens: 43, output_tokens: 1 }), delta(TEXT),
      end({ input_tokens: 61, output_tokens: 9 })),
    { usage: { input: 61, output: 9 }, usage_source: 'provider' }
  )
  t.match(await charged(start({ input_tokens: 0, output_tokens: 0 }), delta(TEXT), end({ output_tokens: 9 })),
    { usage: { input: 0, output: 9 }, usage_source: 'provider' })
  t.match(await charged(start({ input_tokens: 5, output_tokens: 0 }), delta(TEXT), end({ output_tokens: 0 })),
    { usage: { input: 5, output: tokensOf(TEXT) }, usage_source: 'estimated' })
  for (const output of [0, 1]) {
    const { usage, usage_source: source } = await charged(start({ input_tokens: 0, output_tokens: output }),
      delta(TEXT), end({ output_tokens: 0 }))
    t.ok(usage!.input > 0, 'zeros alone, and a number from before the content, are no report')
    t.strictSame([usage!.output, source], [tokensOf(TEXT), 'estimated'])
  }
  t.match(
    await charged(start({ input_tokens: 5, output_tokens: 1 }), delta(TEXT), end(null), end({ output_tokens: 9 })),
    { usage: { input: 5, output: 9 }, usage_source: 'provider' },
    'two finish events, usage on the second'
  )
  t.match(
    await charged(
      start({ input_tokens: 5, cache_creation_input_tokens: 9, cache_creation: { ephemeral_1h_input_tokens: 4 } }),
      delta(TEXT),
      end({ output_tokens: 9 })
    ),
    { usage: { input: 5, cache_write_5m: 5, cache_write_1h: 4, output: 9 } }
  )
})

void t.test('an answer whose provider counted nothing is estimated, and says so', async (t) => {
  const desk = new Desk()
  const of = desk.prepare({ stream: true, messages: [{ role: 'user', content: 'x'.repeat(4000) }] })
  await ask(of)
  new Stream(of).see(start(undefined), delta('The quick brown '), delta('fox'), end(undefined))
  await finish(of, completed(of))
  const { usage, usage_source: source } = await desk.settledOnly()
  t.equal(source, 'estimated')
  t.equal(usage!.input, estimateInput(of.request.body, 200_000))
  t.ok(usage!.input >= 1000 && usage!.input < 1100)
  t.equal(usage!.output, tokensOf('The quick brown fox'))

  const whole = desk.prepare()
  await ask(whole)
  begin(whole).onUpstreamReply!(
    json({
      content: [{ type: 'thinking', thinking: 'Hm. ' }, { type: 'text', text: TEXT }, { type: 'tool_use', name: 'f',
        input: { city: 'Oslo' } }],
      usage: { input_tokens: 7 }
    })
  )
  await finish(whole, completed(whole))
  t.match((await desk.entries()).at(-1), { usage: { input: 7, output: tokensOf(`Hm. ${TEXT}{"city":"Oslo"}`) },
    usage_source: 'estimated' })
})

void t.test('what providers report of whole answers is what a cut one is charged by: of that model, and not of a cut one or a false one; hidden thoughts are charged by their share', async (t) => {
  const desk = new Desk()
  const text = `${TEXT}\n`.repeat(40)
  const truth = Math.round(tokensOf(text) * 1.5)
  const outputOf = async (model: 'premium' | 'cheap'): Promise<number> => {
    const of = desk.prepare({ stream: true, max_tokens: 2000 }, [model])
    await ask(of)
    await new Stream(of).flow(start({ input_tokens: 5 }), delta(text))
    await finish(of, cut(of, 'client'))
    const { usage, usage_source: source } = (await desk.entries()).at(-1)!
    t.equal(source, 'estimated')
    return usage!.output
  }
  t.equal(await outputOf('premium'), tokensOf(text))
  const answer = async (
    stream: boolean,
    events: readonly SseEvent[],
    output: number,
    outcome: (of: Exchange) => Outcome,
    details: object = {}
  ): Promise<void> => {
    const of = desk.prepare({ stream, max_tokens: 2000 })
    await ask(of)
    const usage = { output_tokens: output, ...details }
    if (stream) await new Stream(of).flow(start({ input_tokens: 5 }), ...events, end(usage))
    else begin(of).onUpstreamReply!(json({ content: [{ type: 'text', text }], usage: { input_tokens: 5, ...usage } }))
    await finish(of, outcome(of))
  }
  const thought = SseEvent.of('content_block_delta', { type: 'content_block_delta', index: 0,
    delta: { type: 'thinking_delta', thinking: 'Hm' } })
  await answer(true, [delta(text)], truth, (of) => cut(of, 'upstream'))
  await answer(true, [delta(text)], truth * 10, completed)
  t.equal(await outputOf('premium'), tokensOf(text), 'those teach nothing')
  await answer(true, [delta(text)], truth, completed, { output_tokens_details: { thinking_tokens: 1 } })
  await answer(true, [thought, delta(text)], truth, completed)
  const withThoughts = await outputOf('premium')
  t.ok(withThoughts > tokensOf(text) && withThoughts < truth, `${withThoughts}: thoughts are charged beside the text`)
  for (let i = 0; i < 60; i++) {
    const details = { output_tokens_details: { thinking_tokens: 0 } }
    await answer(i % 2 === 0, [delta(text.slice(0, 900)), delta(text.slice(900))], truth, completed, details)
  }
  const learned = await outputOf('premium')
  t.ok(Math.abs(learned - truth) <= 1, `${learned}, not ${truth}`)
  t.equal(await outputOf('cheap'), tokensOf(text), 'another model')
})

void t.test('a stream that goes beyond twice its max_tokens is ended in-band, what came until there is charged, and the log says whose fault it is', async (t) => {
  const hundred = delta('lynx'.repeat(100))
  const rows: readonly (readonly [string, unknown, readonly SseEvent[], number])[] = [
    ['a thousand tokens more, where max_tokens is small', 100, Array(50).fill(hundred), 1100],
    ['twice as many', 2000, Array(50).fill(hundred), 4000],
    ['nothing of a piece that is too long', 100, [hundred, delta('lynx'.repeat(5000))], 100],
    ['what the model can have, where max_tokens is no number', null, [delta('lynx'.repeat(127_950)), hundred], 127_950],
    ['as the provider counts, behind some of it', 100, [start({ output_tokens: 9000 }), hundred,
      end({ output_tokens: 90 }), hundred, end({ output_tokens: 1125 }), hundred], 1125]
  ]
  for (const [name, max_tokens, events, output] of rows) {
    const desk = new Desk({ balance: 100n * 10n ** 9n })
    const of = desk.prepare({ stream: true, max_tokens })
    await ask(of)
    const stream = new Stream(of)
    await stream.flow(start({ input_tokens: 5 }))
    const most = max_tokens === null ? 64_000 : max_tokens as number
    const ceiling = Math.max(2 * most, most + 1024)
    await t.rejects(stream.flow(...events), {
      code: 'stream_incomplete',
      message:
        `The answer is unfinished: it may have ${most} tokens, its provider did not end it there, and it was cut before it had more than ${ceiling}. Only the tokens that came are charged. Send the request again.`
    }, name)
    await finish(of, cut(of, 'gateway'))
    t.match(await desk.settledOnly(), { nanos: -BigInt(output) * OUTPUT, usage: { input: 0, output } }, name)
    t.match(desk.services.lines, [{ request_id: of.id, upstream: 'u1', model: 'premium', max_tokens: most, ceiling,
      msg: 'an upstream went on far beyond max_tokens: its answer was cut' }])
  }
  const desk = new Desk()
  const whole = desk.prepare({ stream: true })
  await ask(whole)
  await new Stream(whole).flow(start({ input_tokens: 5 }), ...Array<SseEvent>(11).fill(hundred),
    end({ output_tokens: 1100 }))
  await finish(whole, completed(whole))
  t.match(await desk.settledOnly(), { nanos: -(5n * INPUT + 1100n * OUTPUT), usage_source: 'provider' },
    'until there it is whole, and charged as reported')
})

void t.test('what counts as produced is text, thinking and the input of tools; not signatures, and not what was never sent on', async (t) => {
  const desk = new Desk()
  const of = desk.prepare({ stream: true })
  await ask(of)
  const block = (kind: string, field: string, text: string): SseEvent =>
    SseEvent.of('content_block_delta', { type: 'content_block_delta', index: 0, delta: { type: kind, [field]: text } })
  new Stream(of).see(start({ input_tokens: 5, output_tokens: 0 }),
    block('thinking_delta', 'thinking', 'Let me think. '),
    block('signature_delta', 'signature', 'c2lnbmF0dXJl'.repeat(50)), delta('It rains. '),
    block('input_json_delta', 'partial_json', '{"city":"Oslo"}'))
  await finish(of, cut(of, 'upstream'))
  t.equal((await desk.settledOnly()).usage!.output, tokensOf('Let me think. It rains. {"city":"Oslo"}'))

  const held = desk.prepare({ stream: true })
  await ask(held)
  const hooks = begin(held)
  const transformer = held.route.hooks.onStream[0]!.call(held)!
  for (const event of [start({ input_tokens: 5 }), delta('sent'),
    delta('from the upstream, but not to the client')]) { hooks.onUpstreamEvent!(event) }
  transformer.event(delta('sent'))
  await finish(held, cut(held, 'upstream'))
  t.equal((await desk.entries()).at(-1)!.usage!.output, tokensOf('sent'))
})

void t.test('events without a name are read by their type; a broken one is the upstream\'s fault', async (t) => {
  const desk = new Desk()
  const of = desk.prepare({ stream: true })
  await ask(of)
  const hooks = begin(of)
  const transformer = of.route.hooks.onStream[0]!.call(of)!
  hooks.onUpstreamEvent!(new SseEvent('', start({ input_tokens: 8 }).data))
  transformer.event(new SseEvent('', delta('Hi').data))
  hooks.onUpstreamEvent!(new SseEvent('', end({ output_tokens: 3 }).data))
  t.throws(() => hooks.onUpstreamEvent!(new SseEvent('message_delta', '{"usage":')), { code: 'server_error',
    status: 502, retryable: true })
  t.throws(() => transformer.event(new SseEvent('content_block_delta', '{')), { code: 'upstream_stream_interrupted' })
  t.doesNotThrow(() => hooks.onUpstreamEvent!(new SseEvent('message_start', 'null')))
  t.doesNotThrow(() => transformer.event(new SseEvent('content_block_delta', '{"delta":null}')))
  await finish(of, completed(of))
  t.match(await desk.settledOnly(), { usage: { input: 8, output: 3 } })
})

void t.test('what was used beyond the hold is charged where the account has the money, as JSON and as a stream', async (t) => {
  const usage = { input_tokens: 2000, output_tokens: 900 }
  const charge = 2000n * INPUT + 900n * OUTPUT
  for (const stream of [false, true]) {
    const desk = new Desk({ key: { usage_limit_usd: '1' } })
    for (let i = 0; i < 2; i++) {
      const of = desk.prepare({ stream })
      await ask(of)
      t.ok(await desk.held() < charge, 'one report raises no hold')
      if (stream) await new Stream(of).flow(start({ input_tokens: 2000 }), delta(TEXT), end(usage))
      else {
        begin(of).onUpstreamReply!(json({ content: [], usage }))
        t.equal((await reply(of, json({}))).headers['x-gateway-cost-usd'], formatUsd(charge), 'and the header says so')
        t.equal(await desk.held(), charge, 'held is what was missing, and no more')
      }
      await finish(of, completed(of))
      t.match((await desk.entries()).slice(i), [{ kind: 'settle', nanos: -charge, usage_source: 'provider' }])
    }
    t.strictSame(desk.services.lines, [])

    // The next hold fits: 2000 tokens and not one less for a request of the same words.
    const next = desk.prepare({ stream })
    await ask(next)
    t.equal(await desk.held(), 2000n * INPUT + 100n * OUTPUT, 'the bound has learned')
  }
})

void t.test('numbers that no model can have are not charged: they are as good as absent, and the log says so', async (t) => {
  const rows: readonly (readonly [object, object])[] = [
    [{ input_tokens: 400_001, output_tokens: 7 }, { input: estimateInput(question, 200_000), output: 7 }],
    [{ input_tokens: 400_000, output_tokens: 7 }, { input: 400_000, output: 7 }],
    [{ input_tokens: 5, output_tokens: 128_001 }, { input: 5, output: tokensOf(TEXT) }],
    [{ input_tokens: 5, output_tokens: 128_000 }, { input: 5, output: 128_000 }],
    [{ input_tokens: 5, output_tokens: 7, server_tool_use: { web_search_requests: 1001 } }, { input: 5, output: 7,
      extras: {} }]
  ]
  for (const [usage, wanted] of rows) {
    const desk = new Desk({ model: priced({ input: '3', output: '15', extras: { web_search: '0.01' } }),
      balance: 100n * 10n ** 9n })
    const of = desk.prepare()
    await ask(of)
    begin(of).onUpstreamReply!(json({ content: [{ type: 'text', text: TEXT }], usage }))
    await finish(of, completed(of))
    const isBelieved = JSON.stringify(usage).includes('400000') || JSON.stringify(usage).includes('128000')
    t.match(await desk.settledOnly(), { usage: wanted,
      usage_source: isBelieved || 'server_tool_use' in usage ? 'provider' : 'estimated' })
    t.match(desk.services.lines,
      isBelieved ? [] : [{ request_id: of.id, upstream: 'u1', msg: /more than its model can have/ }])
  }
})

void t.test('an answer is learned from once, though its price is asked for before it ends', async (t) => {
  const desk = new Desk({ balance: 100n * 10n ** 9n })
  const of = desk.prepare()
  await ask(of)
  const answer = json({ content: [{ type: 'text', text: TEXT }], usage: { input_tokens: 5, output_tokens: 128_001 } })
  begin(of).onUpstreamReply!(answer)
  await reply(of, answer)
  await finish(of, cut(of, 'client'))
  t.match(desk.services.lines, [{ request_id: of.id, msg: /more than its model can have/ }])
  t.equal(desk.services.lines.length, 1)
})

void t.test('a price whose bill could not be written down refuses the request before an upstream is asked', async (t) => {
  const desk = new Desk({ model: priced({ input: '9999999999', output: '1' }), balance: 2n ** 63n - 1n })
  const error = await refusal(desk.prepare())
  t.match(error, { status: 402, code: 'insufficient_quota',
    message: /^This request may cost up to \$[\d.]+, and amounts are counted up to \$9223372036\.854775807/ })
  t.strictSame([await desk.held(), await desk.entries()], [0n, []])
  await t.resolves(ask(new Desk({ model: priced({ input: '999', output: '999' }), balance: 2n ** 63n - 1n }).prepare()))
  const dear = priced({ input: '3', output: '15', extras: { web_search: '10000000' } })
  t.equal((await refusal(new Desk({ model: dear }).prepare())).code, 'insufficient_quota', 'a thousand uses of a tool')
})

void t.test('what an answer costs beyond all that could be held is the operator\'s: told in the ledger, a metric and the log', async (t) => {
  const desk = new Desk({ balance: 10n * MILLION })
  const of = desk.prepare()
  await ask(of)
  const other = desk.prepare()
  await ask(other)
  const held = 10n * MILLION - await desk.held() / 2n
  begin(of).onUpstreamReply!(json({ content: [], usage: { input_tokens: 50_000, output_tokens: 40 } }))
  t.equal((await reply(of, json({}))).headers['x-gateway-cost-usd'], formatUsd(held))
  await finish(of, completed(of))
  const short = 50_000n * INPUT + 40n * OUTPUT - held
  t.match(await desk.entries(), [{ kind: 'settle', nanos: -held }, { kind: 'shortfall', nanos: 0n, shortfall: short }])
  t.equal(of.get(Charge).nanos, held)
  t.match(await desk.services.metrics.print(), new RegExp(`gateway_shortfall_nanodollars_total ${short}`))
  t.match(desk.services.lines, [{ request_id: of.id, model: 'm1', shortfall_usd: formatUsd(short) }])
  await finish(other, failed())
  t.strictSame(await desk.store.balance('acme'), { balance: 10n * MILLION - held, held: 0n, open_holds: 0 },
    'what the other held was never touched')
})

void t.test('extras are charged by their price; one without a price is an alarm (rule no-unpriced)', async (t) => {
  const desk = new Desk({ model: priced({ input: '3', output: '15', extras: { web_search: '0.0001' } }) })
  const of = desk.prepare()
  await ask(of)
  begin(of).onUpstreamReply!(
    json({ content: [],
      usage: { input_tokens: 1, output_tokens: 1,
        server_tool_use: { web_search_requests: 2, web_fetch_requests: 3 } } })
  )
  await finish(of, completed(of))
  t.match(await desk.settledOnly(), { nanos: -(INPUT + OUTPUT + 200_000n),
    usage: { extras: { web_search: 2, web_fetch: 3 } } })
  t.match(desk.services.lines, [{ request_id: of.id, extras: ['web_fetch'] }])
})

const SEARCH = 10_000_000n
const searching = priced({ input: '3', output: '15', extras: { web_search: '0.01', web_fetch: '0' } })
const search = (max_uses?: unknown): object => ({ type: 'web_search_20250305', name: 'web_search', max_uses })

void t.test('tools that are charged per use are held for, as often as they may be used', async (t) => {
  const desk = new Desk({ model: searching })
  const of = desk.prepare({ tools: [search(3), search(2), { type: 'web_fetch_20250910', name: 'web_fetch' }] })
  await ask(of)
  const input = 200_000n * INPUT // nobody knows what they read: it counts as the whole context
  t.equal(await desk.held(), input + 100n * OUTPUT + 5n * SEARCH)
  begin(of).onUpstreamReply!(
    json({ content: [],
      usage: { input_tokens: 200_000, output_tokens: 100, server_tool_use: { web_search_requests: 5 } } })
  )
  await finish(of, completed(of))
  t.match(await desk.settledOnly(), { nanos: -(input + 100n * OUTPUT + 5n * SEARCH) }, 'all of it, and no shortfall')

  const either = new Desk({
    model: { ...searching,
      channels: { ...searching.channels,
        cheap: { ...searching.channels.cheap!, price: { input: '3', output: '15', extras: { web_search: '0.02' } } } } }
  })
  await ask(either.prepare({ tools: [search(3)] }, ['premium', 'cheap']))
  t.equal(await either.held(), input + 100n * OUTPUT + 6n * SEARCH, 'for the dearest attempt')
})

void t.test('a stream is not paid from what is held for its searches', async (t) => {
  const desk = new Desk({ model: searching, balance: 200_000n * INPUT + 100n * OUTPUT + 3n * SEARCH })
  const of = desk.prepare({ stream: true, max_tokens: 10_000, tools: [search(3)] })
  await ask(of)
  const stream = new Stream(of)
  await stream.flow(start({ input_tokens: 200_000 }), delta(TEXT))
  await t.rejects(stream.flow(delta((TEXT + ' ').repeat(30))), { code: 'insufficient_quota' })
  await finish(of, cut(of, 'gateway'))
  t.match(await desk.settledOnly(), { nanos: -BigInt(tokensOf(TEXT)) * OUTPUT })
})

void t.test('until a provider tells its input, a stream is not paid from what is held for that of the dearest attempt', async (t) => {
  const asked = { stream: true, max_tokens: 2000 }
  const shown = bound(new Desk().prepare(asked).request.body)
  const desk = new Desk({ balance: BigInt(shown.tokens + 1000) * INPUT + 100n * OUTPUT })
  for (const account of ['a', 'b']) {
    desk.services.overheads.learn({ upstream: 'u1', model: 'premium' }, shown, shown.tokens + 1000, undefined, account)
  }
  const of = desk.prepare(asked, ['premium', 'cheap'])
  await ask(of)
  const stream = new Stream(of, 1)
  await stream.flow(start(null), delta('lynx'.repeat(100)))
  await t.rejects(stream.flow(delta('lynx')), { code: 'insufficient_quota' })
  await finish(of, cut(of, 'gateway'))
  t.match(await desk.settledOnly(), { nanos: -100n * OUTPUT })
})

void t.test('a tool that is charged per use must say how often it may be used at most', async (t) => {
  for (const odd of [undefined, null, -1, 1.5, '3', 2 ** 60, NaN]) {
    const desk = new Desk({ model: searching })
    const error = await refusal(desk.prepare({ tools: [{ type: 'bash_20250124', name: 'bash' }, search(odd)] }))
    t.match(error, { status: 400, code: 'invalid_request', param: 'tools[1].max_uses',
      message: /Each use of the tool "web_search" is charged: set its "max_uses", a whole number/ })
    t.equal(await desk.held(), 0n)
  }
  const added = { type: 'tool_addition', tool: { type: 'tool_definition', definition: search(1) } }
  t.match(await refusal(new Desk({ model: searching }).prepare({ messages: [{ role: 'user', content: [added] }] })), {
    status: 400, code: 'invalid_request', param: 'messages[0].content[0].tool.definition.type'
  })
  const none = new Desk({ model: searching })
  await ask(none.prepare({ tools: [search(0)] }))
  t.equal(await none.held(), 200_000n * INPUT + 100n * OUTPUT)
  await t.resolves(ask(new Desk({ model: priced('free') }).prepare({ tools: [search()] })),
    'what costs nothing has no bound to name')
})

void t.test('V26: a search without max_uses has the operator\'s bound, which the provider gets and the hold covers', async (t) => {
  const bound = fc.option(fc.integer({ min: 1, max: 300 }), { nil: undefined })
  let bounded = 0
  await fc.assert(fc.asyncProperty(
    fc.array(fc.oneof(bound, fc.constantFrom<number | null>(0, null)), { minLength: 1, maxLength: 3 }), bound, bound,
    fc.integer({ min: 1, max: 1_000_000 }), fc.nat(900),
    async (asked, premium, cheap, millionths, made) => {
      const usd = (millionths / 1e6).toFixed(6)
      const price = (most: number | undefined): TokenPrice =>
        ({ input: '3', output: '15', extras: { web_search: most === undefined ? usd : { usd, most } } })
      const { channels } = textModel
      const desk = new Desk({ balance: 10n ** 13n, model: { ...textModel,
        channels: { premium: { ...channels.premium!, price: price(premium) },
          cheap: { ...channels.cheap!, price: price(cheap) } } } })
      const of = desk.prepare({ tools: asked.map((most) => search(most)) }, ['premium', 'cheap'])
      const bounds = [premium, cheap].filter((most) => most !== undefined)
      const least = bounds.length === 0 ? undefined : Math.min(...bounds)
      const first = asked.findIndex((most) => (most ?? least) === undefined)
      if (first !== -1) {
        assert.match(String((await refusal(of)).param), new RegExp(`^tools\\[${first}\\]\\.max_uses$`))
        assert.equal(await desk.held(), 0n)
        return
      }
      bounded++
      await ask(of)
      const limits = asked.map((most) => most ?? least!)
      assert.deepEqual((of.request.body['tools'] as { max_uses: number }[]).map(({ max_uses: most }) => most), limits)
      const most = limits.reduce((sum, one) => sum + one, 0)
      const each = BigInt(millionths) * 1000n
      const tokens = 200_000n * INPUT + 100n * OUTPUT
      assert.equal(await desk.held(), tokens + BigInt(most) * each)
      const searches = Math.min(made, most)
      begin(of).onUpstreamReply!(json({ content: [], usage: { input_tokens: 200_000, output_tokens: 100,
        server_tool_use: { web_search_requests: searches } } }))
      await finish(of, completed(of))
      const entry = await desk.settledOnly()
      assert.equal(entry.nanos, -(tokens + BigInt(searches) * each))
      assert.equal('shortfall' in entry ? entry.shortfall ?? 0n : 0n, 0n)
    }), { numRuns: 200 })
  t.ok(bounded > 0)
})

void t.test('a client that leaves pays for the searches that it saw begin, or as reported; a cut that is not its doing costs none', async (t) => {
  const use = (name: string): SseEvent =>
    SseEvent.of('content_block_start', { type: 'content_block_start', index: 0,
      content_block: { type: 'server_tool_use', id: 's', name, input: {} } })
  const seen = [start({ input_tokens: 5, output_tokens: 9 }), delta('Hi'), use('web_search'), use('web_search'),
    use('web_fetch'), use('bash_code_execution')]
  const reported = SseEvent.of('message_delta', { type: 'message_delta', delta: {},
    usage: { output_tokens: 9, server_tool_use: { web_search_requests: 1 } } })
  const rows:
    readonly (readonly [string, readonly SseEvent[], 'client' | 'upstream' | 'gateway', Nanos, string, object])[] = [
      ['left', seen, 'client', 5n * INPUT + 9n * OUTPUT + 2n * SEARCH, 'estimated', { web_search: 2, web_fetch: 1 }],
      ['left after the report', [...seen, reported], 'client', 5n * INPUT + 9n * OUTPUT + SEARCH, 'provider', {
        web_search: 1
      }],
      ['cut by the upstream', [...seen, reported], 'upstream', 9n * OUTPUT, 'provider', {}],
      ['cut by the gateway', seen, 'gateway', 9n * OUTPUT, 'provider', {}]
    ]
  for (const [name, events, by, wanted, source, extras] of rows) {
    const desk = new Desk({ model: searching })
    const of = desk.prepare({ stream: true, tools: [search(3)] })
    await ask(of)
    new Stream(of).see(...events)
    await finish(of, cut(of, by))
    const entry = await desk.settledOnly()
    t.strictSame([-entry.nanos, entry.usage_source, entry.usage!.extras], [wanted, source, extras], name)
  }
})

void t.test('too little is 402, and says which limit and both numbers (rule say-numbers)', async (t) => {
  const poor = new Desk({ balance: MILLION })
  const needed = formatUsd(BigInt(boundInput(poor.prepare().request.body)) * INPUT + 100n * OUTPUT)
  const noMoney = await refusal(poor.prepare())
  t.match(noMoney, { status: 402, code: 'insufficient_quota', type: 'billing_error' })
  t.ok(
    noMoney.message.includes(`$${needed}`) && noMoney.message.includes('$0.001 left') &&
      noMoney.message.includes('balance of the account'),
    noMoney.message
  )

  const limited = new Desk({ key: { usage_limit_usd: '0.0005' } })
  const noLimit = await refusal(limited.prepare())
  t.match(noLimit, { status: 402, code: 'insufficient_quota' })
  t.ok(
    noLimit.message.includes(`$${needed}`) && noLimit.message.includes('$0.0005 left') &&
      noLimit.message.includes('usage limit of the key'),
    noLimit.message
  )
  for (const desk of [poor, limited]) { t.strictSame([await desk.held(), await desk.entries()], [0n, []]) }
})

void t.test('what only running requests stand in the way of is 429, and passes when they end', async (t) => {
  for (const [limit, code] of [[{ balance: 3n * MILLION }, 'low_balance'], [{ key: { usage_limit_usd: '0.003' } },
    'rate_limited']] as const) {
    const desk = new Desk(limit)
    const [one, two] = [desk.prepare(), desk.prepare()]
    await ask(one)
    const held = await desk.held()
    const busy = await refusal(two)
    t.match(busy, { status: 429, code, retryAfter: 1 })
    t.ok(busy.message.includes(`hold $${formatUsd(held)} of the $0.003`), busy.message)
    await finish(two, failed(busy))
    t.equal(await desk.held(), held, 'the refused one gives nothing back that it never had')
    await finish(one, failed())
    await t.resolves(ask(desk.prepare()))
  }
})

void t.test('images: as many as were asked for are held for, the most where that is no number; none came, none is charged', async (t) => {
  const price = [{ usd: '0.04' }] as unknown as TokenPrice
  const channels = { premium: { ...textModel.channels['premium']!, price } }
  const desk = new Desk({ model: { ...textModel, kind: 'image', channels } })
  const asked = async (n: unknown): Promise<Exchange> => {
    const of = desk.prepare({ n })
    of.set(Variant, {})
    await ask(of)
    return of
  }
  const each = 40n * MILLION
  for (const [n, images] of [[undefined, 1n], [null, 1n], [3, 3n], ...[0, -1, 1.5, '2'].map((odd) => [odd, 10n])]) {
    const of = await asked(n)
    t.equal(await desk.held(), images as bigint * each, String(n))
    t.match(of.get(WorstCase), { input: 0, output: 0 }, 'no tokens')
    await finish(of, failed())
  }
  const of = await asked(3)
  begin(of)
  await finish(of, cut(of, 'client'))
  t.match(await desk.settledOnly(), { kind: 'settle', nanos: 0n })
})

void t.test('a plan with a channel that does not sell what was asked for is an error that names both', async (t) => {
  const price = [{ when: { size: '1K' }, usd: '0.04' }] as unknown as TokenPrice
  const channels = { premium: { ...textModel.channels['premium']!, price } }
  const of = new Desk({ model: { ...textModel, kind: 'image', channels } }).prepare()
  of.set(Variant, { size: '2K' })
  await t.rejects(ask(of), { message: 'the channel premium has no price for {"size":"2K"}' })
})

void t.test('a forward route: whole, or left by the client after its head, costs its price; anything else nothing', async (t) => {
  const served = { upstream: 'u1' }
  const interrupted = (by: 'client' | 'upstream' | 'gateway'): Outcome => ({
    kind: 'interrupted',
    served,
    by,
    error: new GatewayError('stream_incomplete')
  })
  const rows: readonly (readonly [string, number, Outcome, Nanos | undefined])[] = [
    ['completed', 200, { kind: 'completed', served }, 100_000n],
    ['left by the client', 200, interrupted('client'), 100_000n],
    ['cut by the upstream', 200, interrupted('upstream'), undefined],
    ['cut by the gateway', 200, interrupted('gateway'), undefined],
    ['failed', 0, failed(), undefined],
    ['an error, passed through whole', 429, { kind: 'completed', served }, undefined],
    ['an error, and the client left', 500, interrupted('client'), undefined]
  ]
  for (const [name, status, outcome, wanted] of rows) {
    const desk = new Desk()
    const of = desk.forwarding()
    await ask(of)
    t.equal(await desk.held(), 100_000n, name)
    if (status !== 0) {
      const bytes = { kind: 'bytes', status, headers: {}, bytes: undefined as never } as const
      t.equal(await reply(of, bytes), bytes, 'bytes pass as they are')
    }
    await finish(of, outcome)
    t.equal(await desk.held(), 0n, name)
    t.strictSame((await desk.entries()).map(({ nanos, model, usage_source: source }) => [-nanos, model, source]),
      wanted === undefined ? [] : [[wanted, 'POST /v1/embeddings', 'provider']], name)
    t.equal(of.find(Charge)?.nanos, wanted)
  }
})

void t.test('what is free needs no balance, and has its entry all the same (rule one-meter)', async (t) => {
  const desk = new Desk({ balance: 0n, model: priced('free') })
  const of = desk.prepare()
  await ask(of)
  begin(of).onUpstreamReply!(
    json({ content: [], usage: { input_tokens: 5, output_tokens: 6, server_tool_use: { web_search_requests: 1 } } })
  )
  t.equal((await reply(of, json({}))).headers['x-gateway-cost-usd'], '0')
  await finish(of, completed(of))
  t.match(await desk.settledOnly(), { nanos: 0n, usage: { input: 5, output: 6 } })
  t.strictSame(desk.services.lines, [])
  const forwarded = desk.forwarding('/v1/free')
  await ask(forwarded)
  await finish(forwarded, { kind: 'completed', served: { upstream: 'u1' } })
  t.equal((await desk.entries()).length, 2)
})

void t.test('an exchange that nobody pays for is left alone, unless it has a price', async (t) => {
  const desk = new Desk()
  const local = exchange(desk.snapshot, { method: 'GET', path: '/v1/models' })
  await ask(local)
  const answer = json({})
  t.equal(await reply(local, answer), answer)
  const free = exchange(desk.snapshot, { path: '/v1/free' })
  await ask(free)
  for (const unpaid of [local, free]) { await finish(unpaid, { kind: 'completed' }) }
  await t.rejects(ask(exchange(desk.snapshot, { path: '/v1/embeddings' })),
    /nobody to charge: put auth into its pipeline/)
  t.strictSame([await desk.entries(), await desk.held()], [[], 0n])
})

void t.test('an answer that a plugin gave costs nothing', async (t) => {
  const desk = new Desk()
  const of = desk.prepare()
  await ask(of)
  t.equal((await reply(of, json({ cached: true }))).headers['x-gateway-cost-usd'], '0')
  await finish(of, { kind: 'completed' })
  t.strictSame([await desk.entries(), await desk.held(), of.find(Charge)], [[], 0n, undefined])
})

void t.test('a price or a limit that cannot be read refuses the configuration, not a request', async (t) => {
  const create = (of: Partial<Config>): unknown => billingMeter.create({ low_balance_usd: '0' }, config(of), services())
  t.throws(() => create({ models: [priced({ input: '3', output: 'fifteen' })] }), /fifteen/)
  t.throws(() => create({ keys: [key({ usage_limit_usd: '0.0000000001' })] }), /finer than a nano-dollar/)
  t.doesNotThrow(() => create({ models: [textModel] }))
})

/** Answers later, when its gate opens, and may fail first: what a store over a network does. */
class RemoteStore implements Store, Rollups {
  readonly #inner = new MemoryStore()
  readonly failures: { hold?: 'before' | 'after', settle?: number, release?: number } = {}
  gate: Promise<void> = Promise.resolve()
  onRelease = (): void => {}
  /** how often for an extension */
  asked = 0

  book (...call: Parameters<Store['book']>): ReturnType<Store['book']> { return this.#inner.book(...call) }
  credit (...call: Parameters<Store['credit']>): ReturnType<Store['credit']> { return this.#inner.credit(...call) }
  amountOf (...call: Parameters<Store['amountOf']>): ReturnType<Store['amountOf']> {
    return this.#inner.amountOf(...call)
  }
  credited (account: string): bigint { return this.#inner.credited(account) }
  admit (...call: Parameters<Store['admit']>): AdmissionResult { return this.#inner.admit(...call) }
  wouldAdmit (...call: Parameters<Store['admit']>): AdmissionResult { return this.#inner.wouldAdmit(...call) }
  wouldHold (request: HoldRequest): HoldResult { return this.#inner.wouldHold(request) }
  leave (id: string): void { this.#inner.leave(id) }
  balance (of: string): Balance { return this.#inner.balance(of) }
  keyUsage (of: string): KeyUsage { return this.#inner.keyUsage(of) }
  openHolds (): number { return this.#inner.openHolds() }
  entries (): AsyncIterable<Entry> { return this.#inner.entries() }
  progress (): void {}
  failed (failure: Failure): void { this.#inner.failed(failure) }
  async rollups (query: RollupQuery): Promise<readonly Rollup[]> { return await this.#inner.rollups(query) }
  async newest (query: EntryQuery): Promise<EntryPage> { return await this.#inner.newest(query) }
  async verify (): Promise<Verification> { return await this.#inner.verify() }
  close (): void {}

  async hold (request: HoldRequest): Promise<HoldResult> {
    await this.gate
    if (this.failures.hold === 'before') throw new Error('hold: the store is away')
    const result = this.#inner.hold(request)
    if (this.failures.hold === 'after') throw new Error('hold: the answer of the store was lost')
    return result
  }

  async extend (...call: Parameters<Store['extend']>): Promise<HoldResult> {
    this.asked++
    await this.gate
    return this.#inner.extend(...call)
  }

  async settle (settlement: Settlement): Promise<Nanos> {
    await this.gate
    this.#fail('settle')
    return this.#inner.settle(settlement)
  }

  async release (requestId: string): Promise<void> {
    await this.gate
    this.#fail('release')
    this.#inner.release(requestId)
    this.onRelease()
  }

  async refund (requestId: string): Promise<void> {
    await this.gate
    this.#inner.refund(requestId)
  }

  #fail (call: 'settle' | 'release'): void {
    const left = this.failures[call] ?? 0
    if (left === 0) return
    this.failures[call] = left - 1
    throw new Error(`${call}: the store is away`)
  }
}

const LONG = (TEXT + ' ').repeat(1000)

void t.test('who is told what was used by its provider waits for nothing: no promise, and nothing is counted', async (t) => {
  const desk = new Desk()
  const of = desk.prepare({ stream: true, max_tokens: 4000 })
  await ask(of)
  new Stream(of).see(start({ input_tokens: 5, output_tokens: 1 }), delta(LONG.slice(0, 12_000)),
    end({ output_tokens: 40 }))
  t.equal(of.settle(completed(of)), undefined)
  const whole = desk.prepare()
  await ask(whole)
  const answer = json({ content: [{ type: 'text', text: LONG }], usage: { input_tokens: 5, output_tokens: 6 } })
  begin(whole).onUpstreamReply!(answer)
  t.notOk(whole.route.hooks.onReply[0]!.call(answer, whole) instanceof Promise)
  t.equal(whole.settle(completed(whole)), undefined)
  const dead = desk.prepare()
  await ask(dead)
  t.equal(dead.settle(failed()), undefined)
})

void t.test('what was given back while more was held for it is not charged any more', async (t) => {
  const store = new RemoteStore()
  const desk = new Desk({ store })
  const of = desk.prepare()
  await ask(of)
  begin(of).onUpstreamReply!(json({ content: [], usage: { input_tokens: 2000, output_tokens: 900 } }))
  const { promise, resolve } = Promise.withResolvers<void>()
  store.gate = promise
  const settled = of.settle(completed(of))
  const finished = of.finish(failed(new GatewayError('server_error')))  // hook_timeout: it does not wait for the store
  resolve()
  await settled
  await finished
  t.strictSame([await desk.entries(), await desk.held()], [[], 0n])
})

void t.test('what took too long to record is not charged, though its store answers before the answer ends in an error', async (t) => {
  const store = new RemoteStore()
  const desk = new Desk({ store })
  const of = desk.prepare()
  await ask(of)
  begin(of).onUpstreamReply!(json({ content: [], usage: { input_tokens: 2000, output_tokens: 900 } }))
  const { promise, resolve } = Promise.withResolvers<void>()
  store.gate = promise
  const settled = of.settle(completed(of))
  of.hasSettleFailed = true                                             // hook_timeout
  resolve()
  await settled
  await of.finish(failed(new GatewayError('server_error')))
  t.strictSame([await desk.entries(), await desk.held()], [[], 0n])
})

void t.test('a store that answers later is waited for', async (t) => {
  const store = new RemoteStore()
  const desk = new Desk({ store })
  const of = desk.prepare()
  await ask(of)
  begin(of).onUpstreamReply!(json({ content: [], usage: { input_tokens: 5, output_tokens: 6 } }))
  await of.settle(completed(of))
  t.equal(of.get(Charge).nanos, 5n * INPUT + 6n * OUTPUT)
  await of.finish(completed(of))
  t.equal((await desk.settledOnly()).nanos, -(5n * INPUT + 6n * OUTPUT))
  t.equal(code(await refusal(new Desk({ store: new RemoteStore(), balance: 0n }).prepare())), 'insufficient_quota')
})

void t.test('a hold whose answer was lost, or that lands after the request was given up, is given back (rule settle-once)', async (t) => {
  for (const when of ['before', 'after'] as const) {
    const store = new RemoteStore()
    store.failures.hold = when
    const desk = new Desk({ store })
    const of = desk.prepare()
    await t.rejects(ask(of), /store/)
    await finish(of, failed())
    t.equal(await desk.held(), 0n, `lost ${when} it was taken`)
  }

  const store = new RemoteStore()
  const desk = new Desk({ store })
  const of = desk.prepare()
  const { promise, resolve } = Promise.withResolvers<void>()
  store.gate = promise
  const asked = ask(of)
  let releases = 0
  const released = new Promise<void>((done) => { store.onRelease = () => { releases++; done() } })
  await finish(of, failed(new GatewayError('server_error')))          // hook_timeout: it does not wait for the store
  t.equal(await store.openHolds(), 0)
  resolve()
  await asked
  await released
  t.equal(await desk.held(), 0n)
  await setImmediate()
  t.equal(releases, 1, 'though it was told of its end twice')
})

void t.test('a stream asks for the next 4096 tokens when fewer than 2048 are left, and for none when all is held', async (t) => {
  const store = new RemoteStore()
  const desk = new Desk({ store })
  const asked = { stream: true, max_tokens: 6000 }
  const of = desk.prepare(asked)
  await ask(of)
  const stream = new Stream(of)
  await stream.flow(start({ input_tokens: boundInput(of.request.body) }))
  const told: number[] = []
  for (let tokens = 64; tokens <= 6016; tokens += 64) {
    await stream.flow(delta('lynx'.repeat(64)))
    await setImmediate()
    if (store.asked > told.length) told.push(tokens)
  }
  t.strictSame(told, [2112])
  await finish(of, failed())
})

void t.test('a stream that is faster than its store waits for it, and is not cut where there is money', async (t) => {
  const store = new RemoteStore()
  const desk = new Desk({ store })
  const of = desk.prepare({ stream: true, max_tokens: 20_000 })
  await ask(of)
  const { promise, resolve } = Promise.withResolvers<void>()
  store.gate = promise
  const stream = new Stream(of)
  await stream.flow(start({ input_tokens: 5 }))
  let isThrough = false
  const through = stream.flow(delta(LONG)).then(() => { isThrough = true })
  await until(() => store.asked > 0)
  t.notOk(isThrough, 'what is not held for does not go out')
  resolve()
  await through
  await stream.flow(end({ output_tokens: 10_000 }))
  await finish(of, completed(of))
  t.match(await desk.settledOnly(), { nanos: -(5n * INPUT + 10_000n * OUTPUT) })
})

void t.test('what a kill would be charged is recorded once a second of a stream, not before the first is over, and is held for', async (t) => {
  const recorded: (readonly [at: number, output: number])[] = []
  let now = 0
  class RecordingStore extends MemoryStore {
    override progress ({ usage }: Settlement): void { recorded.push([now, usage.output]) }
  }
  t.intercept(performance, 'now', { value: () => now })
  const desk = new Desk({ store: new RecordingStore() })
  const of = desk.prepare({ stream: true, max_tokens: 2000 })
  await ask(of)
  const stream = new Stream(of)
  await stream.flow(start({ input_tokens: 5 }))
  for (now of [0, 999, 1000, 1001, 1999, 2000]) {
    await stream.flow(delta('lynx'.repeat(64)))
    await setImmediate()
  }
  t.strictSame(recorded, [[1000, 3 * 64], [2000, 6 * 64]])
  now = 3000
  await stream.flow(end({ output_tokens: 3000 }), delta('lynx'))
  await setImmediate()
  t.strictSame(recorded.slice(2), [[3000, 3000]])
  t.equal(await desk.held(), 3000n * OUTPUT, 'more than max_tokens was reported')
  await finish(of, failed())
})

void t.test('a settlement that failed is tried again at the end; an answer that ended in an error for it is not charged', async (t) => {
  for (const ending of ['completed', 'cut'] as const) {
    const store = new RemoteStore()
    store.failures.settle = 1
    const desk = new Desk({ store })
    const of = desk.prepare({ stream: true })
    await ask(of)
    new Stream(of).see(start({ input_tokens: 5, output_tokens: 1 }), delta('Hi'))
    const outcome = ending === 'completed' ? completed(of) : cut(of, 'upstream')
    await t.rejects(async () => { await of.settle(outcome) }, /settle: the store is away/)
    await of.finish(ending === 'completed' ? failed() : outcome)
    t.equal(await desk.held(), 0n)
    t.equal((await desk.entries()).length, ending === 'completed' ? 0 : 1)
  }
})

void t.test('what was given back is given back once, though it is told of its end twice', async (t) => {
  const store = new RemoteStore()
  let releases = 0
  store.onRelease = () => { releases++ }
  const desk = new Desk({ store })
  const of = desk.prepare()
  await ask(of)
  await finish(of, failed())
  t.equal(releases, 1)
})

void t.test('a release that failed is tried again at the end', async (t) => {
  const store = new RemoteStore()
  store.failures.release = 1
  const desk = new Desk({ store })
  const of = desk.prepare()
  await ask(of)
  await t.rejects(async () => { await of.settle(failed()) }, /release: the store is away/)
  await of.finish(failed())
  t.equal(await desk.held(), 0n)
})

/** A shortfall is what could not be held: when it was asked for, the account had nothing that was free, or the key. */
class WatchedStore extends MemoryStore {
  readonly #limit: Nanos
  readonly #used = new Set<string>()

  constructor (limit: Nanos) {
    super()
    this.#limit = limit
  }

  override extend (id: string, nanos: Nanos, least?: Nanos): HoldResult {
    const before = this.balance('acme').held
    const result = super.extend(id, nanos, least)
    const { balance, held } = this.balance('acme')
    const usage = this.keyUsage('acme-dev')
    if (held - before < nanos) {
      if (balance > held && this.#limit > usage.spent + usage.held) {
        throw new Error(`${balance - held} were there, and were not held`)
      }
      this.#used.add(id)
    }
    return result
  }

  override settle (settlement: Settlement): Nanos {
    const charged = super.settle(settlement) as Nanos // at once
    if (charged < settlement.nanos && !this.#used.has(settlement.request_id)) {
      throw new Error(`${settlement.nanos - charged} were not charged, and nobody had asked for them`)
    }
    return charged
  }
}

void t.test('whatever runs in parallel and however it ends: amounts equal an oracle, once each, and no limit is passed (rules hold-first, no-negative)', async (t) => {
  const request = fc.record({
    max: fc.integer({ min: 1, max: 300 }), input: fc.nat(400),
    // None that teaches what these texts are.
    output: fc.oneof(fc.nat(31), fc.integer({ min: 300, max: 600 })),
    texts: fc.array(fc.lorem({ maxCount: 5 }), { minLength: 1, maxLength: 4 }),
    ending: fc.constantFrom('completed', 'failed', 'client', 'upstream', 'gateway'),
    retried: fc.boolean(),
    twice: fc.boolean()
  })
  await t.resolves(
    fc.assert(
      fc.asyncProperty(fc.array(request, { maxLength: 15 }), fc.bigInt(0n, 40n * MILLION),
        fc.integer({ min: 0, max: 30 }), fc.double({ min: 0.5, max: 2, noNaN: true }),
        async (requests, balance, limit, ratio) => {
          const most = BigInt(limit) * MILLION
          const desk = new Desk({ balance, key: { usage_limit_usd: `0.0${String(limit).padStart(2, '0')}` },
            store: new WatchedStore(most) })
          const { tokenRates } = desk.services
          const lesson = counted(LONG)
          for (let i = 0; i < 20; i++) {
            tokenRates.learn({ upstream: 'u1', model: 'premium' }, lesson, Math.round(tokensOf(LONG) * ratio))
          }
          const rates = tokenRates.of({ upstream: 'u1', model: 'premium' })
          /** by request */
          const wanted = new Map<string, Nanos>()
          const all = requests.map(async (request) => {
            const of = desk.prepare({ max_tokens: request.max }, ['premium', 'premium'])
            const refused = await refusalOrNone(of)
            if (refused !== undefined) {
              await finish(of, failed(refused))
              return
            }
            if (request.retried) new Stream(of, 0).see(start({ input_tokens: 99_999, output_tokens: 99_999 }))
            const stream = new Stream(of, 1)
            const sent: string[] = []
            let { ending } = request
            try {
              await stream.flow(start({ input_tokens: request.input, output_tokens: 0 }))
              for (const text of request.texts) {
                await stream.flow(delta(text))
                sent.push(text)
              }
            } catch (thrown) {
              if (code(thrown) !== 'insufficient_quota') throw thrown
              ending = 'gateway'
            }
            const produced = BigInt(counted(...sent).tokens(rates))
            // Zeros alone are no report, and a zero is none beside words.
            const isNone = request.input === 0 && (request.output === 0 || ending === 'client')
            const input = BigInt(isNone ? estimateInput(of.request.body) : request.input) * INPUT
            if (ending === 'completed') {
              await stream.flow(end({ output_tokens: request.output }))
              wanted.set(of.id, input + (request.output === 0 ? produced : BigInt(request.output)) * OUTPUT)
            } else if (ending === 'client') { wanted.set(of.id, input + produced * OUTPUT) }
            else if (ending !== 'failed') { wanted.set(of.id, produced * OUTPUT) }
            const outcome = ending === 'completed' ? completed(of) : ending === 'failed' ? failed() : cut(of, ending)
            await of.settle(outcome)
            await of.finish(request.twice && outcome.kind === 'completed' ? cut(of, 'client') : outcome)
          })
          await Promise.all(all)
          const state = await desk.store.balance('acme')
          const { spent, held } = await desk.store.keyUsage('acme-dev')
          const entries = await desk.entries()
          for (const [id, cost] of wanted) {
            const [settled, short] = ['settle', 'shortfall'].map((kind) =>
              entries.find((entry) => entry.reference === id && entry.kind === kind)
            )
            if (-settled!.nanos + (short?.shortfall ?? 0n) !== cost) {
              throw new Error(`${-settled!.nanos} charged and ${short?.shortfall} not, of ${cost}`)
            }
          }
          if (state.held !== 0n || held !== 0n || await desk.store.openHolds() !== 0) {
            throw new Error('something stays held')
          }
          if (state.balance < 0n || spent !== balance - state.balance || spent > most) {
            throw new Error('a limit was passed')
          }
          const settled = entries.filter(({ kind }) => kind === 'settle')
          if (
            settled.length !== wanted.size || new Set(settled.map(({ reference }) => reference)).size !== settled.length
          ) throw new Error('a request was settled twice')
        }),
      { numRuns: 150 }
    )
  )
})

async function refusalOrNone (of: Exchange): Promise<GatewayError | undefined> {
  try {
    await ask(of)
    return undefined
  } catch (thrown) {
    if (isGatewayError(thrown)) return thrown
    throw thrown
  }
}
