// What each ending costs, in all styles, over the real server and the embedded store: the table of
// src/money/README.md. Prices and amounts are written out by hand; nothing of src/money computes what is expected.
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import type { Entry, Store } from '../../src/store/store.ts'
import { ask, type Got } from '../support/billing-client.ts'
import { clientStyles, codeOf, type Style, styles, toldError } from '../support/client-styles.ts'
import { newLog } from '../support/embedded-store.ts'
import { CALM, gateway, yaml } from '../support/gateway.ts'
import { folderFor, run } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'
import { throwing } from '../support/throwing.ts'
import { until } from '../support/until.ts'
import { blockStart, blockStop, cut, end, errorEvent, errorReply, eventBytes, json, message, messageDelta, messageStart,
  messageStop, raw, stall, step, textDelta, upstream, wait, type Received, type Script,
  type Upstream } from '../support/upstream.ts'

// What the upstream says. Four letters are estimated as a token: of the first so many words each is one.

const WORDS = ['The', ' quick', ' brown', ' fox'] as const
const INPUT = { input_tokens: 10, cache_creation_input_tokens: 20, cache_read_input_tokens: 30 }
const start: Script = messageStart({ usage: { ...INPUT, output_tokens: 1 } })
const words = (
  count: number
): Script => [start, blockStart(0), ...WORDS.slice(0, count).map((word) => textDelta(0, word))]
const report: Script = messageDelta({ usage: { ...INPUT, output_tokens: 50 } })
const reply = (text: string): Record<string, unknown> => message(text, { usage: { ...INPUT, output_tokens: 50 } })
const wholeJson: Script = json(reply(WORDS.join('')))
const wholeSse: Script = [words(4), blockStop(0), report, messageStop()]
const unused = { input_tokens: 0, output_tokens: 0 }
const empty = { JSON: json({ ...message('', { usage: unused }), content: [], stop_reason: null }),
  SSE: [messageStart({ usage: unused }), messageStop()] }
/** Only when the client has every word: so it gets them, however the bytes are cut. */
const endLater: Script = [words(4), blockStop(0), step(async ({ request }) => {
  await until(() => wordsAt(nameOf(request)) >= 4)
}), report, messageStop()]
/** In one piece, so that who has the last word knows that the gateway has read the usage. */
const endWithoutStop: Script = [words(3), raw(Buffer.concat([
  eventBytes('content_block_delta', { type: 'content_block_delta', index: 0,
    delta: { type: 'text_delta', text: WORDS[3] } }),
  eventBytes('content_block_stop', { type: 'content_block_stop', index: 0 }),
  eventBytes('message_delta', { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null },
    usage: { ...INPUT, output_tokens: 50 } })
])), stall()]
/** Half of an answer whose length says more. */
const half = step(({ response }) => {
  const text = JSON.stringify(reply(WORDS.join('')))
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': text.length })
  return new Promise<void>((resolve) => { response.write(text.slice(0, text.length / 2), () => { resolve() }) })
})
/** More than the sockets between them can hold. */
const huge: Script = json(reply('x'.repeat(24_000_000)))

// What it costs, at the prices of test/support/gateway.ts: 3, 15, 0.30 and 3.75 USD per 1M are 3000, 15000, 300 and
// 3750 nano-dollars a token.

interface Cost {
  /** of the one entry; undefined: there is none */
  readonly nanos?: bigint
  readonly source?: Entry['usage_source']
  /** instead: there may be an entry, of at most that: what was recorded before the kill */
  readonly atMost?: bigint
  /** then there must be one, of at least that */
  readonly atLeast?: bigint
}

/** 10 × 3000 + 20 × 3750 + 30 × 300 */
const READ = 114_000n
const NOTHING: Cost = {}
/** READ + 50 × 15000 */
const ALL: Cost = { nanos: 864_000n, source: 'provider' }
/** What was produced by a count, or by the one token that message_start reports. */
const produced = (count: number): Cost => ({
  nanos: BigInt(count) * 15_000n,
  source: count > 1 ? 'estimated' : 'provider'
})
const REPORTED: Cost = { nanos: 750_000n, source: 'provider' }
const readAnd = (count: number): Cost => ({ ...produced(count), nanos: READ + BigInt(count) * 15_000n })

// What else happens.

interface Twist {
  /**
   * the client leaves when it has so many events, by style; 0: when the upstream was asked; `unread`: it has the head,
   * and reads no more
   */
  readonly leaves?: readonly [messages: number, chat: number, responses: number] | 'unread'
  /** `NAME HOOK COUNT`: who throws (test/support/throwing.ts, and SETTLING below) */
  readonly throws?: string
  /** the upstream's patience is 150 ms */
  readonly hasty?: true
  /** what ends the gateway, when the upstream was asked and the client has so many deltas, or all of the answer */
  readonly stopped?: readonly ['drained' | 'killed', number | 'whole']
}

/** In the words of `read` below: what the client holds. */
type Reads = string
type Row = readonly [wire: 'JSON' | 'SSE', ending: string, upstream: Script, twist: Twist, reads: Reads, cost: Cost]

const table: readonly Row[] = [
  ['JSON', 'completed', wholeJson, {}, '200, 4 words, whole', ALL],
  ['SSE', 'completed', wholeSse, {}, '200, 4 words, whole', ALL],

  ['JSON', 'failed before the commit: an error status', errorReply(500, 'api_error', 'no'), {}, '502 server_error',
    NOTHING],
  ['SSE', 'failed before the commit: an error status', errorReply(529, 'overloaded_error', 'no'), {},
    '503 model_overloaded', NOTHING],
  ['JSON', 'failed before the commit: malformed', raw('{"type":"mess'), {}, '502 server_error', NOTHING],
  ['SSE', 'failed before the commit: malformed', [start, raw('event: content_block_start\ndata: {"type\n\n')], {},
    '502 server_error', NOTHING],
  ['JSON', 'failed before the commit: cut', [half, cut()], {}, '502 server_error', NOTHING],
  ['SSE', 'failed before the commit: cut', [start, blockStart(0), cut()], {}, '502 server_error', NOTHING],
  ['JSON', 'failed before the commit: refused', cut(), {}, '502 server_error', NOTHING],
  ['SSE', 'failed before the commit: refused', cut(), {}, '502 server_error', NOTHING],
  ['SSE', 'failed before the commit: an error event', [start, errorEvent()], {}, '503 model_overloaded', NOTHING],

  ['JSON', 'empty', empty.JSON, {}, '502 empty_response', NOTHING],
  ['SSE', 'empty', empty.SSE, {}, '502 empty_response', NOTHING],

  ['SSE', 'cut by the upstream at the first token', [words(1), cut()], {}, '200, 1 word, upstream_stream_interrupted',
    produced(1)],
  ['SSE', 'cut by the upstream at the third token', [words(3), cut()], {}, '200, 3 words, upstream_stream_interrupted',
    produced(3)],
  ['SSE', 'cut by the upstream behind its stop reason and usage', [words(4), blockStop(0), report, cut()], {},
    '200, 4 words, whole', ALL],
  ['SSE', 'ended by the upstream without its end', [words(2), end()], {}, '200, 2 words, stream_incomplete',
    produced(2)],
  ['SSE', 'an error event after the commit', [words(2), errorEvent('api_error', 'no')], {},
    '200, 2 words, upstream_stream_interrupted', produced(2)],
  ['SSE', 'malformed after the commit', [words(2), raw('event: content_block_delta\ndata: {"type\n\n')], {},
    '200, 2 words, upstream_stream_interrupted', produced(2)],

  ['JSON', 'the upstream stalls before its head', stall(), { hasty: true }, '502 server_error', NOTHING],
  ['SSE', 'the upstream stalls before its head', stall(), { hasty: true }, '502 server_error', NOTHING],
  ['JSON', 'the upstream stalls in the body', [half, stall()], { hasty: true }, '502 server_error', NOTHING],
  ['SSE', 'the upstream stalls before the commit', [start, blockStart(0), stall()], { hasty: true }, '502 server_error',
    NOTHING],
  ['SSE', 'the upstream stalls after the commit', [words(3), stall()], { hasty: true },
    '200, 3 words, upstream_stream_interrupted', produced(3)],

  ['JSON', 'the client left before the commit', stall(), { leaves: [0, 0, 0] }, 'left', NOTHING],
  ['SSE', 'the client left before the commit', [start, blockStart(0), stall()], { leaves: [0, 0, 0] }, 'left', NOTHING],
  ['JSON', 'the client left after the commit, while the body was written', huge, { leaves: 'unread' }, 'left', ALL],
  ['SSE', 'the client left after the first token', [words(1), stall()], { leaves: [3, 2, 5] }, 'left', readAnd(1)],
  ['SSE', 'the client left after the third token', [words(3), stall()], { leaves: [5, 4, 7] }, 'left', readAnd(3)],
  ['SSE', 'the client left after the last token, before the usage', [words(4), blockStop(0), stall()], {
    leaves: [7, 5, 8]
  }, 'left', readAnd(4)],
  ['SSE', 'the client left after the usage, before the terminal event', endWithoutStop, { leaves: [8, 5, 11] }, 'left',
    ALL],

  ['JSON', 'onHead throws', wholeJson, { throws: 'above onHead' }, '500 server_error', NOTHING],
  ['SSE', 'onHead throws', wholeSse, { throws: 'below onHead' }, '500 server_error', NOTHING],
  ['JSON', 'onRequest throws before the hold', wholeJson, { throws: 'above onRequest' }, '500 server_error', NOTHING],
  ['SSE', 'onRequest throws before the hold', wholeSse, { throws: 'above onRequest' }, '500 server_error', NOTHING],
  ['JSON', 'onRequest throws after the hold', wholeJson, { throws: 'below onRequest' }, '500 server_error', NOTHING],
  ['SSE', 'onRequest throws after the hold', wholeSse, { throws: 'below onRequest' }, '500 server_error', NOTHING],
  ['JSON', 'perAttempt throws', wholeJson, { throws: 'above perAttempt' }, '500 server_error', NOTHING],
  ['SSE', 'perAttempt throws', wholeSse, { throws: 'below perAttempt' }, '500 server_error', NOTHING],
  ['JSON', 'onUpstreamRequest throws', wholeJson, { throws: 'above onUpstreamRequest' }, '500 server_error', NOTHING],
  ['SSE', 'onUpstreamRequest throws', wholeSse, { throws: 'below onUpstreamRequest' }, '500 server_error', NOTHING],
  ['JSON', 'onUpstreamReply throws before it is counted', wholeJson, { throws: 'below onUpstreamReply' },
    '500 server_error', NOTHING],
  ['JSON', 'onUpstreamReply throws after it was counted', wholeJson, { throws: 'above onUpstreamReply' },
    '500 server_error', NOTHING],
  ['SSE', 'onUpstreamEvent throws before the commit', wholeSse, { throws: 'below onUpstreamEvent 2' },
    '500 server_error', NOTHING],
  ['SSE', 'onUpstreamEvent throws after the commit', [words(3), stall()], { throws: 'below onUpstreamEvent 5' },
    '200, 2 words, server_error', produced(2)],
  ['JSON', 'onReply throws before it is priced', wholeJson, { throws: 'below onReply' }, '500 server_error', NOTHING],
  ['JSON', 'onReply throws after it was priced', wholeJson, { throws: 'above onReply' }, '500 server_error', NOTHING],
  ['SSE', 'onStream throws', wholeSse, { throws: 'above onStream' }, '500 server_error', NOTHING],
  ['SSE', 'onStream throws below the meter', wholeSse, { throws: 'below onStream' }, '500 server_error', NOTHING],
  ['SSE', 'onStream\'s event throws below the meter', [words(3), stall()], { throws: 'below event 5' },
    '200, 2 words, server_error', produced(2)],
  // The meter has seen the word that the plugin above it lost: it was produced.
  ['SSE', 'onStream\'s event throws above the meter', [words(3), stall()], { throws: 'above event 5' },
    '200, 2 words, server_error', produced(3)],
  ['SSE', 'onStream\'s end throws', wholeSse, { throws: 'above end' }, '200, 4 words, server_error', REPORTED],
  ['SSE', 'onStream\'s end throws below the meter', wholeSse, { throws: 'below end' }, '200, 4 words, server_error',
    REPORTED],
  ['JSON', 'onError throws', errorReply(500, 'api_error', 'no'), { throws: 'above onError' }, '502 server_error',
    NOTHING],
  ['SSE', 'onError throws before the commit', errorReply(500, 'api_error', 'no'), { throws: 'below onError' },
    '502 server_error', NOTHING],
  ['SSE', 'onError throws after the commit', [words(3), cut()], { throws: 'above onError' },
    '200, 3 words, upstream_stream_interrupted', produced(3)],
  ['JSON', 'onUpstreamFailure throws', errorReply(500, 'api_error', 'no'), { throws: 'above onUpstreamFailure' },
    '502 server_error', NOTHING],
  ['SSE', 'onUpstreamFailure throws', errorReply(500, 'api_error', 'no'), { throws: 'above onUpstreamFailure' },
    '502 server_error', NOTHING],
  ['JSON', 'onSettle throws before the charge', wholeJson, { throws: 'above onSettle' }, '500 server_error', NOTHING],
  ['SSE', 'onSettle throws before the charge', endLater, { throws: 'above onSettle' }, '200, 4 words, server_error',
    NOTHING],
  ['JSON', 'onSettle throws after the charge', wholeJson, { throws: 'below onSettle' }, '500 server_error', ALL],
  ['SSE', 'onSettle throws after the charge', endLater, { throws: 'below onSettle' }, '200, 4 words, server_error',
    ALL],
  // Told that it costs nothing, it costs nothing.
  ['SSE', 'onSettle throws before the charge of a cut answer', [words(3), cut()], { throws: 'above onSettle' },
    '200, 3 words, upstream_stream_interrupted', NOTHING],
  ['SSE', 'onSettle throws after the charge of a cut answer', [words(3), cut()], { throws: 'below onSettle' },
    '200, 3 words, upstream_stream_interrupted', produced(3)],
  ['SSE', 'onSettle throws after the client left', [words(3), stall()], { throws: 'above onSettle', leaves: [5, 4, 7] },
    'left', readAnd(3)],
  ['JSON', 'onFinish throws', wholeJson, { throws: 'below onFinish' }, '200, 4 words, whole', ALL],
  ['SSE', 'onFinish throws', wholeSse, { throws: 'above onFinish' }, '200, 4 words, whole', ALL],

  ['JSON', 'drained before the commit', stall(), { stopped: ['drained', 0] }, '503 service_unavailable', NOTHING],
  ['SSE', 'drained before the commit', [start, blockStart(0), stall()], { stopped: ['drained', 0] },
    '503 service_unavailable', NOTHING],
  ['SSE', 'drained after the commit', [words(3), stall()], { stopped: ['drained', 3] },
    '200, 3 words, stream_incomplete', produced(3)],
  ['JSON', 'drained after the end', wholeJson, { stopped: ['drained', 'whole'] }, '200, 4 words, whole', ALL],
  ['SSE', 'drained after the end', wholeSse, { stopped: ['drained', 'whole'] }, '200, 4 words, whole', ALL],

  ['JSON', 'killed before the commit', stall(), { stopped: ['killed', 0] }, 'cut', NOTHING],
  ['SSE', 'killed before the commit', [start, blockStart(0), stall()], { stopped: ['killed', 0] }, 'cut', NOTHING],
  ['SSE', 'killed after the commit', [words(3), stall()], { stopped: ['killed', 3] }, 'cut after 3 words', {
    atMost: 45_000n,
    source: 'estimated'
  }],
  // Progress is kept after two seconds, here with the second delta, with which there are 323 letters and 80 spaces, 82
  // tokens; the third shows that it was recorded.
  ['SSE', 'killed long after the commit', [words(1), wait(2200), textDelta(0, ' lynx'.repeat(80)), wait(500),
    textDelta(0, WORDS[2]), stall()], { stopped: ['killed', 3] }, 'cut after 82 words', { atLeast: 1_230_000n,
    atMost: 1_230_000n, source: 'estimated' }],
  ['JSON', 'killed after the end', wholeJson, { stopped: ['killed', 'whole'] }, '200, 4 words, whole', ALL],
  ['SSE', 'killed after the end', wholeSse, { stopped: ['killed', 'whole'] }, '200, 4 words, whole', ALL]
]

// Each row is run in all styles, for an account and a key of its own.

interface Case {
  /** of its account, its key and its client */
  readonly name: string
  readonly style: Style
  readonly row: Row
}

const cases: readonly Case[] = styles.flatMap((style) =>
  table.map((row, i) => ({ name: `${style}-${i}`, style, row }))
)
const live = cases.filter(({ row: [, , , { stopped }] }) => stopped === undefined)
const stoppedBy = (how: 'drained' | 'killed'): readonly Case[] =>
  cases.filter(({ row: [, , , { stopped }] }) => stopped?.[0] === how)

const secretOf = (name: string): string => `sk-gw-${name.replace('-', '').padEnd(32, 'x')}`
const OPENING = 100_000_000_000n

/** throwing.ts has no end of an exchange. */
const SETTLING = (name: string): string => `
const check = (exchange, hook) => { if (exchange.received.headers['x-throw'] === '${name} ' + hook) throw new Error('a defect of the test\\'s own') }
export default {
  name: '${name}-settling',
  create: () => ({
    onRequest (exchange) {
      exchange.onSettle(() => { check(exchange, 'onSettle') })
      exchange.onFinish(() => { check(exchange, 'onFinish') })
    }
  })
}
`
const PLUGINS = Object.fromEntries(
  ['above', 'below'].flatMap((name) => [[`${name}.mjs`, throwing(name)], [`${name}-settling.mjs`, SETTLING(name)]])
)

function settings (url: string, of: readonly Case[]): string {
  const pipeline = ['auth', 'key-policy', 'schema-validate', 'chat-to-messages', 'responses-to-messages',
    '{ use: ./above.mjs }', '{ use: ./above-settling.mjs }', 'channel-router', 'billing-meter', '{ use: ./below.mjs }',
    '{ use: ./below-settling.mjs }', 'error-normalize']
  const text = yaml([url], '', pipeline.join(', '))
  const model = /^ {2}- id: m1[^]*?(?=^accounts:)/m.exec(text)![0]
  return text
    .replace('driver: memory, path: ./data', 'driver: embedded, path: ./data, windows: forget')
    .replace('upstreams:\n',
      `upstreams:\n  hasty: { url: "${url}", dialect: messages, ${CALM}, timeouts: { first_byte: 150ms, idle: 150ms } }\n`)
    .replace(model, model + model.replace('id: m1', 'id: hasty').replace('upstream: u0', 'upstream: hasty'))
    .replace(/^ {2}- \{ id: acme,.*$/m,
      of.map(({ name }) => `  - { id: ${name}, name: ${name}, opening_balance_usd: 100 }`).join('\n'))
    .replace(/^ {2}- \{ id: acme-dev,.*$/m,
      of.map(({ name }) => `  - { id: ${name}, account: ${name}, usage_limit_usd: 50, secret: ${secretOf(name)} }`)
        .join('\n'))
}

/** The case's name is all that its prompt says. */
function nameOf ({ body }: Received): string {
  const [{ content }] = body!['messages'] as [{ content: string | { text: string }[] }]
  return typeof content === 'string' ? content : content[0]!.text
}

interface Scripted {
  readonly up: Upstream
  /** the request of that case, once it is there */
  asked (name: string): Promise<Received>
}

async function scripted (t: Test, of: readonly Case[]): Promise<Scripted> {
  const scripts = new Map(of.map(({ name, row }) => [name, row[2]]))
  const up = await upstream(t, (request) => scripts.get(nameOf(request))!)
  return { up, asked: (name) => until(() => up.requests.find((request) => nameOf(request) === name)) }
}

interface Playing {
  readonly got: Promise<Got>
  readonly seen: { status: number, words: number }
  leave (): void
}

const playing = new Map<string, Playing>()
/** which that client holds by now */
const wordsAt = (name: string): number => playing.get(name)!.seen.words

function play ({ name, style, row: [wire, , , { leaves, throws, hasty }] }: Case, api: string): Playing {
  const leaving = new AbortController()
  const seen = { status: 0, words: 0 }
  const { path, opening, asking } = clientStyles[style]
  const leaveAfter = typeof leaves === 'object' ? leaves[styles.indexOf(style)]! : 0
  const got = ask(api + path, asking({
    model: hasty === true ? 'hasty' : 'm1',
    max_tokens: 100,
    stream: wire === 'SSE',
    messages: [{ role: 'user', content: name }]
  }), {
    headers: { authorization: `Bearer ${secretOf(name)}`, 'user-agent': name,
      ...(throws !== undefined && { 'x-throw': throws }) },
    leave: leaving.signal,
    ...(leaveAfter > 0 && { leaveAfter }),
    onHead: (status) => { seen.status = status; return leaves === 'unread' ? new Promise(() => {}) : undefined },
    onEvent: (count) => { seen.words = count - opening }
  })
  const playingNow = { got, seen, leave: () => { leaving.abort() } }
  playing.set(name, playingNow)
  return playingNow
}

// What a client holds, in words.

type Json = Readonly<Record<string, unknown>>

/** `STATUS CODE` of an error, `STATUS, COUNT words, whole or CODE` of an answer, `left` or `cut` of none. */
function read ({ style }: Case, got: Got): Reads {
  const { status, events, body, ended } = got
  if (ended === 'left') return 'left'
  const { textOf, wholeText, isEnded } = clientStyles[style]
  const said = (body === undefined ? events.map(textOf).join('') : wholeText(body)).match(/\S+/g)?.length ?? 0
  const count = `${said} word${said === 1 ? '' : 's'}`
  if (ended === 'cut') return said === 0 ? 'cut' : `cut after ${count}`
  const error = toldError(got)
  if (body !== undefined && error !== undefined) return `${status} ${codeOf(error)}`
  return `${status}, ${count}, ${error !== undefined ? codeOf(error) : body !== undefined || isEnded(events) ? 'whole' : 'no end'}`
}

/** Nano-dollars as a decimal of dollars. */
function usd (nanos: bigint): string {
  const text = String(nanos).padStart(10, '0')
  return `${text.slice(0, -9)}.${text.slice(-9)}`.replace(/\.?0+$/, '')
}

/** What the client holds, the ledger, the balance and the key agree with the row. */
async function isAsSaid (t: Test, one: Case, got: Got, store: Store, line?: Json): Promise<void> {
  const { name, row: [, , , , reads, cost] } = one
  t.equal(read(one, got), reads)
  const error = toldError(got)
  if (error !== undefined && got.body === undefined) {
    t.ok(clientStyles[one.style].isFailed(got.events), 'nothing comes after the error, but for [DONE]')
  }
  const entries = (await all(store)).filter(({ account, kind }) => account === name && kind !== 'credit')
  const [entry] = entries
  const charged = -(entry?.nanos ?? 0n)
  if (cost.atMost !== undefined) {
    t.ok(entries.length <= 1 && charged <= cost.atMost && charged >= (cost.atLeast ?? 0n),
      `${charged} nano-dollars, ${cost.atLeast ?? 0} to ${cost.atMost}`)
  } else {
    t.strictSame(
      entries.map(({ nanos }) => -nanos),
      cost.nanos === undefined ? [] : [cost.nanos],
      'exactly one settlement, or none'
    )
  }
  if (entry !== undefined) {
    t.match(entry, { kind: 'settle', key: name, channel: 'premium', usage_source: cost.source })
  }
  t.match(await store.balance(name), { balance: OPENING - charged, held: 0n, open_holds: 0 })
  t.match(await store.keyUsage(name), { spent: charged, held: 0n })

  if (error !== undefined) t.equal(error.charged_usd, usd(charged), 'the client is told what the ledger says')
  else if (got.body !== undefined) t.equal(got.headers['x-gateway-cost-usd'], usd(charged))
  if (entry !== undefined && typeof got.headers['x-request-id'] === 'string') {
    t.equal(entry.reference, got.headers['x-request-id'])
  }
  if (line !== undefined) {
    t.equal(line['nanos'], entry === undefined ? undefined : String(charged), 'the log says what the ledger says')
  }
}

const titleOf = ({ style, row: [wire, ending] }: Case): string => `${wire}, ${style}: ${ending}`

await t.test('the gateway lives on', async (t) => {
  const { up, asked } = await scripted(t, live)
  const running = await gateway(t, settings(up.url, live), { files: PLUGINS })
  const { store } = running.services
  for (const one of live) {
    await t.test(titleOf(one), async (t) => {
      const { leaves } = one.row[3]
      const { got, seen, leave } = play(one, running.url)
      if (leaves === 'unread') { await until(() => seen.status === 200); leave() }
      if (leaves?.[0] === 0) {
        const request = await asked(one.name)
        leave()
        t.equal(await request.closed, 'left', 'the upstream is left at once (rule charge-delivered)')
      }
      const line = (): Json | undefined =>
        running.logged.find(({ msg, client }) => msg === 'request' && client === one.name)
      await isAsSaid(t, one, await got, store, await until(line))
    })
  }
  t.equal(await store.openHolds(), 0)
  t.strictSame((await store.verify()).differences, [])
})

/** All of them at once; `stop` is called when each is as far as its row says. */
async function playUntil (
  some: readonly Case[],
  { asked }: Scripted,
  api: string,
  stop: () => Promise<unknown>
): Promise<Got[]> {
  const ends = some.map((one) => play(one, api).got)
  await Promise.all(some.map(async ({ name, row: [, , , { stopped }] }, i) => {
    await asked(name)
    const when = stopped![1]
    if (when === 'whole') await ends[i]
    else if (when > 0) await until(() => wordsAt(name) === when)
  }))
  const [got] = await Promise.all([Promise.all(ends), stop()])
  return got
}

/** The ledger as the next start finds it. */
async function areAsSaid (t: Test, some: readonly Case[], got: readonly Got[], folder: string): Promise<void> {
  const store = await openEmbedded({ folder, log: newLog(), windows: 'forget' })
  t.teardown(() => store.close())
  for (const [i, one] of some.entries()) await t.test(titleOf(one), (t) => isAsSaid(t, one, got[i]!, store))
  t.equal(store.openHolds(), 0)
  t.strictSame((await store.verify()).differences, [])
}

await t.test('the gateway is drained', async (t) => {
  const drained = stoppedBy('drained')
  const target = await scripted(t, drained)
  const running = await gateway(t, settings(target.up.url, drained), { files: PLUGINS })
  const got = await playUntil(drained, target, running.url, () => running.stop())
  await areAsSaid(t, drained, got, join(running.file, '../data'))
})

await t.test('the gateway is killed', async (t) => {
  const killed = stoppedBy('killed')
  const target = await scripted(t, killed)
  const folder = folderFor(t, { 'gateway.yaml': settings(target.up.url, killed), ...PLUGINS })
  const running = run(t, folder, ['start', '--config', 'gateway.yaml'])
  const { api } = await running.urls()
  const got = await playUntil(killed, target, api, async () => { running.child.kill('SIGKILL'); await running.ended })
  await areAsSaid(t, killed, got, join(folder, 'data'))
})
