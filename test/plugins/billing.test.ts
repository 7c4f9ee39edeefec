// What each ending costs, over the real server: the table of src/money/README.md, and the rules about money that need a
// wire. Prices and amounts here are written out by hand; nothing of src/money computes what is expected.
import { readFileSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { Entry } from '../../src/store/store.ts'
import { ask, errorOf, textOf, type Asking, type Got } from '../support/billing-client.ts'
import { gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { throwing } from '../support/throwing.ts'
import { until } from '../support/until.ts'
import {
  answer,
  blockStart,
  blockStop,
  cut,
  end,
  errorEvent,
  errorReply,
  json,
  message,
  messageDelta,
  messageEnd,
  messageStart,
  messageStop,
  raw,
  sse,
  stall,
  textDelta,
  step,
  upstream,
  wait,
  type Script,
  type Upstream
} from '../support/upstream.ts'

/** nano-dollars: `opening_balance_usd: 100` of test/support/gateway.ts */
const OPENING = 100_000_000_000n

// Prices of test/support/gateway.ts: input 3, output 15, cache_read 0.30, cache_write 3.75 USD per 1M; so 3000, 15000,
// 300 and 3750 nano-dollars each.
const INPUT = { input_tokens: 10, cache_creation_input_tokens: 20, cache_read_input_tokens: 30 }
const READ = { input: 10, cache_read: 30, cache_write_5m: 20, cache_write_1h: 0, extras: {} }
const NO_USAGE = { input_tokens: 0, output_tokens: 0 }
const NOTHING_READ = { input: 0, cache_read: 0, cache_write_5m: 0, cache_write_1h: 0, extras: {} }
/** 10 × 3000 + 30 × 300 + 20 × 3750 */
const READ_COST = 114_000n
/** READ_COST + 50 × 15000 */
const WHOLE_COST = 864_000n
const WHOLE = { charge: WHOLE_COST, usage: { ...READ, output: 50 }, source: 'provider' as const }

// Four letters are estimated as a token: of the first so many words each is one.
const WORDS = ['The', ' quick', ' brown', ' fox'] as const
const start: Script = messageStart({ usage: { ...INPUT, output_tokens: 1 } })
const words = (
  count: number
): Script => [start, blockStart(0), ...WORDS.slice(0, count).map((word) => textDelta(0, word))]
const delta: Script = messageDelta({ usage: { ...INPUT, output_tokens: 50 } })
/** Usage so far: no stop reason says that the answer is whole. */
const report: Script = sse('message_delta', { type: 'message_delta', delta: {},
  usage: { ...INPUT, output_tokens: 50 } })
const whole: Script = [words(4), blockStop(0), delta, messageStop()]
const reply = (text: string): Record<string, unknown> => message(text, { usage: { ...INPUT, output_tokens: 50 } })
/** The names of the events of `words(count)`. */
const framesOf = (
  count: number
): string[] => ['message_start', 'content_block_start', ...WORDS.slice(0, count).map(() => 'content_block_delta')]

/** Half of a JSON answer whose length says more. */
const halfReply: Script = {
  run ({ response }) {
    const text = JSON.stringify(reply('The quick brown fox'))
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': text.length })
    return new Promise((resolve) => { response.write(text.slice(0, text.length / 2), resolve) })
  }
}

interface Expected {
  /** what the client reads; absent: it did not stay to read it */
  readonly status?: number
  readonly frames?: readonly string[]
  /** of the error, as JSON or as the last frame */
  readonly code?: string
  /** absent: there is no entry */
  readonly charge?: bigint
  readonly usage?: Entry['usage']
  readonly source?: Entry['usage_source']
  readonly outcome: 'completed' | 'interrupted' | 'failed'
}

interface Row extends Expected {
  readonly ending: string
  readonly stream: boolean
  /** a function gets a promise that resolves when the test is over */
  readonly script: Script | ((over: Promise<void>) => Script)
  readonly asking?: Asking
  /** while the request runs */
  readonly meanwhile?: Meanwhile
}

type Meanwhile = (
  running: { readonly gateway: TestGateway, readonly upstream: Upstream,
    readonly got: { status: number, events: number }, readonly leave: () => void }
) => Promise<void>

const asks = async ({ upstream }: { readonly upstream: Upstream }): Promise<void> => { await upstream.nextRequest() }
const leavesUnanswered: Meanwhile = async ({ upstream, leave }) => {
  const request = await upstream.nextRequest()
  leave()
  if (await request.closed !== 'left') throw new Error('the upstream was not left at once (rule charge-delivered)')
}
const holding = (script: Script, then: Script = []) => (over: Promise<void>): Script => [script, wait(over), then]
const hasEvents = (count: number): Meanwhile => async ({ gateway, got }) => {
  await until(() => got.events === count)
  await gateway.stop()
}
const FREE = { outcome: 'failed' } as const
const produced = (output: number, source: 'provider' | 'estimated' = 'estimated') =>
  ({ charge: BigInt(output) * 15_000n, usage: { ...NOTHING_READ, output }, source, outcome: 'interrupted' } as const)

const table: readonly Row[] = [
  { ending: 'completed', stream: false, script: json(reply('The quick brown fox')), status: 200, ...WHOLE,
    outcome: 'completed' },
  { ending: 'completed', stream: true, script: whole, status: 200,
    frames: [...framesOf(4), 'content_block_stop', 'message_delta', 'message_stop'], ...WHOLE, outcome: 'completed' },

  { ending: 'failed before the commit: an error status', stream: false, script: errorReply(500, 'api_error', 'no'),
    status: 502, code: 'server_error', ...FREE },
  { ending: 'failed before the commit: an error status', stream: true,
    script: errorReply(529, 'overloaded_error', 'no'), status: 503, code: 'model_overloaded', ...FREE },
  { ending: 'failed before the commit: malformed', stream: false, script: raw('{"type":"mess'), status: 502,
    code: 'server_error', ...FREE },
  { ending: 'failed before the commit: malformed', stream: true,
    script: [start, raw('event: content_block_start\ndata: {"type\n\n')], status: 502, code: 'server_error', ...FREE },
  { ending: 'failed before the commit: an error event opens the stream', stream: true, script: [start, errorEvent()],
    status: 503, code: 'model_overloaded', ...FREE },
  { ending: 'failed before the commit: cut', stream: true, script: [start, blockStart(0), cut()], status: 502,
    code: 'server_error', ...FREE },
  { ending: 'failed before the commit: silent', stream: true, script: [start, blockStart(0), stall()], status: 502,
    code: 'server_error', ...FREE },
  { ending: 'V14: empty, with a stop reason', stream: false, script: json({ ...reply(''), content: [] }), status: 200,
    ...WHOLE, outcome: 'completed' },
  { ending: 'V14: empty, with a stop reason', stream: true, script: [start, delta, messageStop()], status: 200,
    frames: ['message_start', 'message_delta', 'message_stop'], ...WHOLE, outcome: 'completed' },
  { ending: 'empty, without a reason and usage', stream: false,
    script: json({ ...message('', { usage: NO_USAGE }), content: [], stop_reason: null }), status: 502,
    code: 'empty_response', ...FREE },
  { ending: 'empty, without a reason and usage', stream: true,
    script: [messageStart({ usage: NO_USAGE }), messageStop()], status: 502, code: 'empty_response', ...FREE },

  { ending: 'cut by the upstream in the middle of the body', stream: false, script: [halfReply, cut()], status: 502,
    code: 'server_error', ...FREE },
  { ending: 'cut by the upstream after the commit (rules charge-delivered, commit)', stream: true,
    script: [words(3), cut()], status: 200, frames: [...framesOf(3), 'error'], code: 'upstream_stream_interrupted',
    ...produced(3) },
  { ending: 'cut by the upstream at the first token', stream: true, script: [words(1), cut()], status: 200,
    frames: [...framesOf(1), 'error'], code: 'upstream_stream_interrupted', ...produced(1, 'provider') },
  {
    ending: 'cut by the upstream after it reported more than it delivered',
    stream: true,
    script: [words(4), report, cut()],
    status: 200,
    frames: [...framesOf(4), 'error'],
    code: 'upstream_stream_interrupted',
    ...produced(50, 'provider')
  },
  { ending: 'cut by the upstream behind its stop reason and usage', stream: true, script: [words(4), delta, cut()],
    status: 200, frames: [...framesOf(4), 'content_block_stop', 'message_delta', 'message_stop'], ...WHOLE,
    outcome: 'completed' },
  { ending: 'ended cleanly by the upstream without its end', stream: true, script: [words(2), end()], status: 200,
    frames: [...framesOf(2), 'error'], code: 'stream_incomplete', ...produced(2) },
  { ending: 'silent in the middle of the body', stream: false, script: [halfReply, stall()], status: 502,
    code: 'server_error', ...FREE },
  { ending: 'silent after the commit', stream: true, script: [words(3), stall()], status: 200,
    frames: [...framesOf(3), 'error'], code: 'upstream_stream_interrupted', ...produced(3) },
  { ending: 'an error event after the commit', stream: true, script: [words(2), errorEvent()], status: 200,
    frames: [...framesOf(2), 'error'], code: 'upstream_stream_interrupted', ...produced(2) },
  { ending: 'malformed after the commit', stream: true,
    script: [words(2), raw('event: message_delta\ndata: {"type\n\n')], status: 200, frames: [...framesOf(2), 'error'],
    code: 'upstream_stream_interrupted', ...produced(2) },

  { ending: 'the client left before the commit (rule charge-delivered)', stream: false, script: stall(),
    meanwhile: leavesUnanswered, ...FREE },
  { ending: 'the client left before the commit (rule charge-delivered)', stream: true,
    script: [start, blockStart(0), stall()], meanwhile: leavesUnanswered, ...FREE },
  {
    ending: 'the client left after the commit, while the body was written',
    stream: false,
    script: json(reply('x'.repeat(24_000_000))),
    // More than the sockets between them can hold, and never read.
    asking: { onHead: () => new Promise(() => {}) },
    meanwhile: async ({ got, leave }) => { await until(() => got.status === 200); leave() },
    ...WHOLE, outcome: 'interrupted'
  },
  { ending: 'the client left after the first token (rule charge-delivered)', stream: true, script: holding(words(1)),
    asking: { leaveAfter: 3 }, charge: READ_COST + 15_000n, usage: { ...READ, output: 1 }, source: 'provider',
    outcome: 'interrupted' },
  { ending: 'the client left after the third token (rule charge-delivered)', stream: true, script: holding(words(3)),
    asking: { leaveAfter: 5 }, charge: READ_COST + 45_000n, usage: { ...READ, output: 3 }, source: 'estimated',
    outcome: 'interrupted' },
  {
    ending: 'the client left after the last token, before the count of the provider (rule charge-delivered)',
    stream: true,
    script: holding([words(4), blockStop(0)], [delta, messageStop()]),
    asking: { leaveAfter: 7 },
    charge: READ_COST + 60_000n,
    usage: { ...READ, output: 4 },
    source: 'estimated',
    outcome: 'interrupted'
  },
  { ending: 'the client left after the last token, before the terminal event (rule charge-delivered)', stream: true,
    script: holding([words(4), blockStop(0), delta], messageStop()), asking: { leaveAfter: 8 }, ...WHOLE,
    outcome: 'interrupted' },

  { ending: 'drained before the answer', stream: false, script: stall(), meanwhile: async (running) => {
    await asks(running)
    await running.gateway.stop()
  }, status: 503, code: 'service_unavailable', ...FREE },
  { ending: 'drained before the commit', stream: true, script: [start, stall()], meanwhile: async (running) => {
    await asks(running)
    await running.gateway.stop()
  }, status: 503, code: 'service_unavailable', ...FREE },
  { ending: 'drained mid-stream', stream: true, script: [words(3), stall()], meanwhile: hasEvents(5), status: 200,
    frames: [...framesOf(3), 'error'], code: 'stream_incomplete', ...produced(3) },

  { ending: 'a plugin throws on the reply', stream: false, script: json(reply('The quick brown fox')),
    asking: { headers: { 'x-throw': 'below onReply' } }, status: 500, code: 'server_error', ...FREE },
  { ending: 'a plugin throws on the reply, after it was priced', stream: false,
    script: json(reply('The quick brown fox')), asking: { headers: { 'x-throw': 'above onReply' } }, status: 500,
    code: 'server_error', ...FREE },
  { ending: 'a plugin throws before the commit', stream: true, script: whole,
    asking: { headers: { 'x-throw': 'below onUpstreamEvent 2' } }, status: 500, code: 'server_error', ...FREE },
  { ending: 'a plugin throws when the stream begins', stream: true, script: whole,
    asking: { headers: { 'x-throw': 'above onStream' } }, status: 500, code: 'server_error', ...FREE },
  { ending: 'a plugin throws on the upstream\'s fifth event', stream: true, script: [words(3), stall()],
    asking: { headers: { 'x-throw': 'below onUpstreamEvent 5' } }, status: 200, frames: [...framesOf(2), 'error'],
    code: 'server_error', ...produced(2) },
  { ending: 'a plugin below the meter throws on the fifth event of the stream', stream: true,
    script: [words(3), stall()], asking: { headers: { 'x-throw': 'below event 5' } }, status: 200,
    frames: [...framesOf(2), 'error'], code: 'server_error', ...produced(2) },
  // The meter has seen the event that the plugin above it lost: it was produced.
  { ending: 'a plugin above the meter throws on the fifth event of the stream', stream: true,
    script: [words(3), stall()], asking: { headers: { 'x-throw': 'above event 5' } }, status: 200,
    frames: [...framesOf(2), 'error'], code: 'server_error', ...produced(3) },
  { ending: 'a plugin throws at the end of the stream', stream: true, script: whole,
    asking: { headers: { 'x-throw': 'above end' } }, status: 200,
    frames: [...framesOf(4), 'content_block_stop', 'message_delta', 'error'], code: 'server_error',
    ...produced(50, 'provider') }
]

/** One above billing-meter, one below it. */
const PIPELINE =
  'pipeline: [auth, { use: ./above.mjs }, channel-router, billing-meter, { use: ./below.mjs }, error-normalize]'

async function boot (
  t: Test,
  targets: readonly string[],
  change: (text: string) => string = (text) => text
): Promise<TestGateway> {
  const text = yaml(targets).replace(/^pipeline: .*$/m, PIPELINE).replaceAll('dialect: messages,',
    'dialect: messages, timeouts: { idle: 1s },')
  return await gateway(t, change(text), { files: { 'above.mjs': throwing('above'), 'below.mjs': throwing('below') } })
}

const yamlOf = (running: TestGateway): string => readFileSync(running.file, 'utf8')

async function entriesOf (running: TestGateway): Promise<Entry[]> {
  const entries: Entry[] = []
  for await (const entry of running.services.store.entries()) if (entry.kind !== 'credit') entries.push(entry)
  return entries
}

const lineOf = (running: TestGateway, count = 1): Promise<Record<string, unknown>> =>
  until(() => running.logged.filter(({ msg }) => msg === 'request')[count - 1])

/** The ledger, the log, the balance, and what the client was told agree with each other and with what is expected. */
async function isSettled (t: Test, running: TestGateway, got: Got, expected: Expected): Promise<void> {
  const { charge = 0n } = expected
  const line = await lineOf(running)
  const entries = await entriesOf(running)
  t.equal(entries.length, expected.charge === undefined ? 0 : 1, 'exactly one settlement, or none')
  if (expected.charge !== undefined) {
    t.match(entries[0], { kind: 'settle', account: 'acme', key: 'acme-dev', reference: line['request_id'],
      nanos: -charge, model: 'm1', channel: 'premium', usage_source: expected.source })
    t.strictSame(entries[0]!.usage, expected.usage)
    t.strictSame(line['usage'], expected.usage)
    t.equal(line['usage_source'], expected.source)
  }
  t.equal(line['nanos'], expected.charge?.toString())
  t.equal(line['outcome'], expected.outcome)
  t.strictSame(await running.services.store.balance('acme'), { balance: OPENING - charge, held: 0n, open_holds: 0 })
  t.strictSame(await running.services.store.keyUsage('acme-dev'), { spent: charge, held: 0n })
  t.equal(await running.services.store.openHolds(), 0)

  if (expected.status !== undefined) t.equal(got.status, expected.status)
  if (expected.frames !== undefined) t.strictSame(got.events.map(({ event }) => event), expected.frames)
  const error = errorOf(got)
  t.equal(error?.code, expected.code)
  if (error !== undefined) {
    t.equal(error.charged_usd, usd(charge), 'the client is told what the ledger says')
    t.equal(error.request_id, line['request_id'])
  }
  if (expected.outcome === 'completed' && got.events.length === 0) {
    t.equal(got.headers['x-gateway-cost-usd'], usd(charge))
  }
}

/** Nano-dollars as a decimal of dollars. */
function usd (nanos: bigint): string {
  const text = String(nanos).padStart(10, '0')
  return `${text.slice(0, -9)}.${text.slice(-9)}`.replace(/\.?0+$/, '')
}

for (const row of table) {
  await t.test(`${row.stream ? 'SSE' : 'JSON'}: ${row.ending}`, async (t) => {
    const over = Promise.withResolvers<void>()
    t.teardown(() => { over.resolve() })
    const up = await upstream(t, typeof row.script === 'function' ? row.script(over.promise) : row.script)
    const running = await boot(t, [up.url])
    const leaving = new AbortController()
    const seen = { status: 0, events: 0 }
    const [got] = await Promise.all([
      ask(running.url + '/v1/messages', { ...messagesRequest, stream: row.stream }, {
        ...row.asking,
        headers: { 'x-api-key': KEY, ...row.asking?.headers },
        leave: leaving.signal,
        onHead: (status) => { seen.status = status; return row.asking?.onHead?.(status) },
        onEvent: (count) => { seen.events = count }
      }),
      row.meanwhile?.({ gateway: running, upstream: up, got: seen, leave: () => { leaving.abort() } })
    ])
    await isSettled(t, running, got, row)
  })
}

await t.test('zeros alone are no usage beside words: it is estimated', async (t) => {
  const zero = { input_tokens: 0, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 0 }
  for (const stream of [false, true]) {
    const running = await boot(t, [(await upstream(t, answer('The quick brown fox', { usage: zero }))).url])
    const got = await ask(running.url + '/v1/messages', { ...messagesRequest, stream }, {
      headers: { 'x-api-key': KEY }
    })
    t.equal(got.status, 200)
    await lineOf(running)
    const [entry] = await entriesOf(running)
    t.equal(entry!.usage_source, 'estimated')
    t.ok(entry!.usage!.input > 0)
    t.equal(entry!.usage!.output, 4)
  }
})

await t.test('a provider that says nothing is estimated, and the entry says so', async (t) => {
  const { usage: _, ...mute } = reply('The quick brown fox')
  const running = await boot(t, [(await upstream(t, json(mute))).url])
  await ask(running.url + '/v1/messages', messagesRequest, { headers: { 'x-api-key': KEY } })
  await lineOf(running)
  const [entry] = await entriesOf(running)
  t.equal(entry!.usage_source, 'estimated')
  t.equal(entry!.usage!.output, 4)
  const bytes = JSON.stringify(messagesRequest).length
  t.ok(entry!.usage!.input > 0 && entry!.usage!.input <= bytes, `${entry!.usage!.input} input tokens of ${bytes} bytes`)
  t.equal(entry!.nanos, -(BigInt(entry!.usage!.input) * 3000n + 4n * 15_000n))
})

await t.test('input that grows between message_start and message_delta is charged as last reported', async (t) => {
  const early = messageStart({ usage: { input_tokens: 43, output_tokens: 1 } })
  const up = await upstream(
    t,
    [
      early,
      blockStart(0),
      textDelta(0, 'The'),
      blockStop(0),
      messageEnd({ usage: { input_tokens: 61, output_tokens: 7 } })
    ]
  )
  const running = await boot(t, [up.url])
  const got = await ask(running.url + '/v1/messages', { ...messagesRequest, stream: true }, {
    headers: { 'x-api-key': KEY }
  })
  await isSettled(t, running, got, { status: 200, charge: 61n * 3000n + 7n * 15_000n,
    usage: { ...NOTHING_READ, input: 61, output: 7 }, source: 'provider', outcome: 'completed' })
})

await t.test('after the commit nothing is tried again, and no text comes twice', async (t) => {
  const first = await upstream(t, [words(3), cut()])
  const second = await upstream(t, whole)
  const running = await boot(t, [first.url, second.url])
  const got = await ask(running.url + '/v1/messages', { ...messagesRequest, stream: true }, {
    headers: { 'x-api-key': KEY }
  })
  t.equal(textOf(got.events), 'The quick brown')
  t.equal(second.requests.length, 0)
  await isSettled(t, running, got, { status: 200, code: 'upstream_stream_interrupted', ...produced(3) })
})

await t.test('a failed attempt costs nothing: the second target\'s usage alone is charged', async (t) => {
  for (const [name, failing] of Object.entries({ refused: cut(), '5xx': errorReply(500, 'api_error', 'no'),
    empty: [messageStart({ usage: NO_USAGE }), messageStop()], malformed: raw('event: message_start\ndata: {\n\n'),
    'error event first': errorEvent(), stall: [start, blockStart(0), stall()] })) {
    const running = await boot(t, [(await upstream(t, failing)).url, (await upstream(t, whole)).url])
    const got = await ask(running.url + '/v1/messages', { ...messagesRequest, stream: true }, {
      headers: { 'x-api-key': KEY }
    })
    t.equal(textOf(got.events), WORDS.join(''), name)
    await isSettled(t, running, got, { status: 200, ...WHOLE, outcome: 'completed' })
    t.match(running.logged.find(({ msg }) => msg === 'request'), { attempts: 2, upstream: 'u1' })
  }
})

await t.test('what a failed attempt reported is forgotten, also where the next one reports less', async (t) => {
  const first = await upstream(t, [start, blockStart(0), cut()])
  const second = await upstream(t, [
    sse('message_start', { type: 'message_start',
      message: { type: 'message', role: 'assistant', model: 'm', content: [], usage: { input_tokens: 7 } } }),
    blockStart(0),
    textDelta(0, 'The'),
    blockStop(0),
    sse('message_delta', { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 2 } }),
    messageStop()
  ])
  const running = await boot(t, [first.url, second.url])
  const got = await ask(running.url + '/v1/messages', { ...messagesRequest, stream: true }, {
    headers: { 'x-api-key': KEY }
  })
  await isSettled(t, running, got, { status: 200, charge: 7n * 3000n + 2n * 15_000n,
    usage: { ...NOTHING_READ, input: 7, output: 2 }, source: 'provider', outcome: 'completed' })
})

await t.test('usage above the hold is charged where the account has the money: all of it, and the next hold fits', async (t) => {
  for (const stream of [false, true]) {
    const up = await upstream(t, answer('The', { usage: { input_tokens: 2000, output_tokens: 900 } }))
    const running = await boot(t, [up.url])
    const got = await ask(running.url + '/v1/messages', { ...messagesRequest, stream }, {
      headers: { 'x-api-key': KEY }
    })
    const charge = 2000n * 3000n + 900n * 15_000n
    await isSettled(t, running, got, { status: 200, charge, usage: { ...NOTHING_READ, input: 2000, output: 900 },
      source: 'provider', outcome: 'completed' })
    await ask(running.url + '/v1/messages', { ...messagesRequest, stream }, { headers: { 'x-api-key': KEY } })
    await lineOf(running, 2)
    const held = Promise.withResolvers<bigint>()
    const next = await upstream(t, [step(async () => {
      held.resolve((await running.services.store.balance('acme')).held)
    }), answer('The', { usage: { input_tokens: 2000, output_tokens: 9 } })])
    await running.rewrite(yamlOf(running).replace(up.url, next.url))
    await ask(running.url + '/v1/messages', { ...messagesRequest, stream }, { headers: { 'x-api-key': KEY } })
    t.equal(await held.promise, 2000n * 3750n + 100n * 15_000n,
      'learned of two reports, also over a reload, and held for at the dearest class of input')
  }
})

await t.test('a provider that counts more than can be held makes a shortfall of the operator, and no balance negative', async (t) => {
  // 0.01 USD pays some 600 output tokens; the provider ignores max_tokens and reports 100,000.
  for (const stream of [false, true]) {
    const up = await upstream(t, answer('The', { usage: { output_tokens: 100_000 } }))
    const running = await boot(t, [up.url], (text) =>
      text.replace('opening_balance_usd: 100', 'opening_balance_usd: 0.01'))
    const got = await ask(running.url + '/v1/messages', { ...messagesRequest, max_tokens: 200, stream }, {
      headers: { 'x-api-key': KEY }
    })
    t.equal(got.status, 200)
    await lineOf(running)
    const [settled, shortfall, ...more] = await entriesOf(running)
    t.strictSame([settled!.kind, shortfall!.kind, more.length], ['settle', 'shortfall', 0])
    const cost = 10n * 3000n + 100_000n * 15_000n
    t.equal(-settled!.nanos + shortfall!.shortfall!, cost, 'what the client did not pay is what the operator bears')
    t.equal(shortfall!.nanos, 0n, 'and it is no change of the balance')
    t.equal(-settled!.nanos, 10_000_000n, 'all that the account had')
    const { balance, held: open } = await running.services.store.balance('acme')
    t.equal(balance, 10_000_000n + settled!.nanos)
    t.ok(balance >= 0n)
    t.equal(open, 0n)
    if (!stream) t.equal(got.headers['x-gateway-cost-usd'], usd(-settled!.nanos))
    t.match(await running.services.metrics.print(),
      new RegExp(`^gateway_shortfall_nanodollars_total ${shortfall!.shortfall}$`, 'm'))
  }
})

await t.test('whatever throws, wherever: no hold stays open, nothing is charged before the answer', async (t) => {
  const up = await upstream(t, (request) =>
    request.body?.['fail'] === true
      ? errorReply(500, 'api_error', 'no')
      : answer('hi', { usage: { output_tokens: 1 } }))
  const running = await boot(t, [up.url])
  const hooks = ['onHead', 'onRequest', 'perAttempt', 'onUpstreamRequest', 'onUpstreamReply', 'onUpstreamEvent 1',
    'onReply', 'onStream', 'event 1', 'end', 'onError', 'onUpstreamFailure']
  let count = 0
  for (const name of ['above', 'below']) {
    for (const hook of hooks) {
      for (const stream of [false, true]) {
        const isFailing = hook === 'onError' || hook === 'onUpstreamFailure'
        const got = await ask(running.url + '/v1/messages', { ...messagesRequest, stream, fail: isFailing }, {
          headers: { 'x-api-key': KEY, 'x-throw': `${name} ${hook}` }
        })
        const line = await lineOf(running, ++count)
        const error = errorOf(got)
        t.equal(await running.services.store.openHolds(), 0,
          `${name} ${hook}, ${stream ? 'SSE' : 'JSON'}: ${got.status} ${error?.code}`)
        if (error !== undefined) t.equal(error.charged_usd, usd(BigInt((line['nanos'] as string | undefined) ?? 0)))
        if (got.status !== 200) t.equal(line['nanos'], undefined, 'an answer that did not begin is free')
      }
    }
  }
  t.match(await (await fetch(running.urls.admin + '/metrics')).text(), /^gateway_holds_open 0$/m)
  const entries = await entriesOf(running)
  t.equal(new Set(entries.map(({ reference, kind }) => `${kind} ${reference}`)).size, entries.length,
    'one entry of a kind for each request')
  t.equal((await running.services.store.balance('acme')).balance,
    entries.reduce((sum, { nanos }) => sum + nanos, OPENING))
})

await t.test('a refusal says the numbers that it compared, and they are those of the ledger', async (t) => {
  const running = await boot(t, [
    (await upstream(t, answer('hi', { usage: { input_tokens: 10, output_tokens: 10 } }))).url
  ], (text) =>
    text
      .replace('opening_balance_usd: 100', 'opening_balance_usd: 0.004')
      .replace('account: acme, secret', 'account: acme, usage_limit_usd: 0.003, secret'))
  const headers = { 'x-api-key': KEY }
  t.equal((await ask(running.url + '/v1/messages', messagesRequest, { headers })).status, 200)
  await lineOf(running)
  // Spent: 10 × 3000 + 10 × 15000 = 180,000 nano-dollars; left of the limit 0.00282, of the balance 0.00382.
  const numbers = async (max_tokens: number): Promise<[number, string | undefined, string[]]> => {
    const got = await ask(running.url + '/v1/messages', { ...messagesRequest, max_tokens }, { headers })
    const error = errorOf(got)!
    t.equal(error.charged_usd, '0')
    return [got.status, error.code, error.message.match(/\$\d+(?:\.\d+)?/g) ?? []]
  }
  const [status, code, [needed, left]] = await numbers(200)
  t.strictSame([status, code, left], [402, 'insufficient_quota', '$0.00282'], 'the limit of the key')
  t.ok(Number(needed!.slice(1)) > 0.003, `needs ${needed}`)
  const [, , [neededFirst, leftFirst]] = await numbers(1000)
  t.equal(leftFirst, '$0.00382', 'where both refuse, the balance is named')
  t.ok(Number(neededFirst!.slice(1)) > 0.015, `needs ${neededFirst}`)
  t.strictSame(await numbers(200), [status, code, [needed!, left!]],
    'asked again, it says the same: nothing heals by itself')
})

void t.test('an error is written when its hold is given back, not before: a client may ask again at once', async (t) => {
  const up = await upstream(t, errorReply(500, 'api_error', 'no'))
  const running = await gateway(t, yaml([up.url]))
  const { store } = running.services
  const [asked, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const release = store.release.bind(store)
  store.release = async (id) => {
    asked.resolve()
    await gate.promise
    await release(id)
  }
  let isAnswered = false
  const answered = running.messages(messagesRequest).finally(() => { isAnswered = true })
  await asked.promise
  await setTimeout(100)
  t.equal(isAnswered, false)
  gate.resolve()
  t.equal((await answered).status, 502)
  t.equal(await store.openHolds(), 0)
})
