// What an upstream's failure does: to the client, to the other targets, to the target itself, and to the bill. One row
// for each failure, run as JSON and as a stream, with dialects of upstreams and styles of clients alike, with nobody
// else to ask, with a second target, and with a second channel.
import t, { type Test } from 'tap'
import { type DialectOf, dialectsOf } from '../../src/config/sections/dialects.ts'
import type { Entry } from '../../src/store/store.ts'
import { ask, type Got } from '../support/billing-client.ts'
import { clientStyles, codeOf, toldError } from '../support/client-styles.ts'
import { CALM, gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { authority, secure } from '../support/transport.ts'
import { answer, cut, end, errorReply, eventBytes, json, message, messageStart, messageStop, raw, refusing, stall,
  status, textDelta, blockStart, upstream, wait, type Received, type Script,
  type Upstream } from '../support/upstream.ts'

type Wire = 'JSON' | 'SSE'
type Dialect = DialectOf<'text'>
type Json = Readonly<Record<string, unknown>>

// What a failing target does. Each word is estimated as one token.

interface Side { readonly wire: Wire, readonly dialect: Dialect }
/** A script, or where nobody plays one. */
type Does = ((side: Side) => Script) | 'refuses' | 'has no address' | 'is somebody else'

const UNUSED = { input_tokens: 0, output_tokens: 0 }
const chunk = (delta: Json, finish_reason: string | null = null): Script =>
  raw(
    eventBytes('', { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'v',
      choices: [{ index: 0, delta, finish_reason }] })
  )
const event = (type: string, fields: Json): Script => raw(eventBytes(type, { type, ...fields }))
const opening: Readonly<Record<Dialect, Script>> = { messages: [messageStart(), blockStart(0)],
  chat: chunk({ role: 'assistant', content: '' }),
  responses: event('response.created', { response: { id: 'r', status: 'in_progress', output: [] } }) }
const word = (dialect: Dialect, text: string): Script =>
  dialect === 'messages'
    ? textDelta(0, text)
    : dialect === 'chat'
    ? chunk({ content: text })
    : event('response.output_text.delta', { item_id: 'm', output_index: 0, content_index: 0, delta: text })
/** Two of them: an answer that has begun. */
const words = (dialect: Dialect): Script => [opening[dialect], word(dialect, 'The'), word(dialect, ' quick')]

const STREAM = status(200, { 'content-type': 'text/event-stream' })
const WHOLE = status(200, { 'content-type': 'application/json' })
const half = (text: string): string => text.slice(0, text.length / 2)
const halfEvent = raw(
  half(
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lost"}}'
  )
)
const halfBody: Script = [status(200, { 'content-type': 'application/json', 'content-length': '1000' }),
  raw(half(JSON.stringify(message('lost'))))]
const brokenEvent = raw('data: {"type":"content_block_delta","ind\n\n')

const MEBIBYTE = Buffer.alloc(1024 * 1024, ' ')
const blanks = (mib: number): Script => Array.from({ length: mib }, () => raw(MEBIBYTE))
const hugeEvent: Script = [raw('data: '), blanks(18), raw('{}\n\n')]
/** Longer than anybody waits, and never silent. */
const trickle = (bytes: string): Script => Array.from({ length: 1000 }, () => [raw(bytes), wait(50)])

/** An error status, in the vendor's shape. */
const says = (code: number, headers: Readonly<Record<string, string>> = {}) => ({ dialect }: Side): Script =>
  dialect === 'messages'
    ? errorReply(code, 'api_error', 'no', headers)
    : json({ error: { message: 'no', type: 'server_error', code: null } }, code, headers)
const before = (script: Script) => ({ dialect }: Side): Script => [opening[dialect], script]
const behind = (script: Script) => ({ dialect }: Side): Script => [words(dialect), script]

// What becomes of it.

/** What the client reads where nobody else can be asked, in the words of `read` below. */
type Reads = string
/**
 * `left`: for how many seconds the target is left alone then. `tries`: how often it is asked with two retries, of which
 * none waits for what the target asks for.
 */
type Row = readonly [failure: string, wires: 'both' | Wire, does: Does, alone: Reads, left: number, tries: number]

/** As the breakers of this test stay open: one failure opens them, where it is the target's. */
const OPEN = 20
/** The first time that a credential is forbidden a model, or limited, where there is no other. */
const ASIDE = 1
/** A credential that is refused for everything. */
const REFUSED = 600
/** The request is to blame: nobody is left alone. */
const NOT = 0

const table: readonly Row[] = [
  ['refused', 'both', 'refuses', '502 server_error', OPEN, 3],
  ['DNS', 'both', 'has no address', '502 server_error', OPEN, 3],
  ['TLS', 'both', 'is somebody else', '502 server_error', OPEN, 3],

  ['401', 'both', says(401), '503 service_unavailable, retry after 60', REFUSED, 1],
  ['402', 'both', says(402), '503 service_unavailable, retry after 60', REFUSED, 1],
  ['403', 'both', says(403), '503 service_unavailable, retry after 1', ASIDE, 1],
  ['403 of a firewall', 'both', () => [status(403, { 'content-type': 'text/html' }), raw('<html><h1>403</h1></html>')],
    '502 server_error', NOT, 1],
  ['408', 'both', says(408), '502 server_error', OPEN, 3],
  ['429 with retry-after', 'both', says(429, { 'retry-after': '17' }), '503 model_overloaded, retry after 17', 17, 1],
  ['429 without retry-after', 'both', says(429), '503 model_overloaded, retry after 1', ASIDE, 1],
  ['500 HTML', 'both', () => [status(500, { 'content-type': 'text/html' }), raw('<html><h1>500</h1></html>')],
    '502 server_error', OPEN, 3],
  ['503', 'both', says(503), '503 model_overloaded, retry after 20', OPEN, 3],
  ['503 with retry-after', 'both', says(503, { 'retry-after': '33' }), '503 model_overloaded, retry after 33', 33, 1],
  ['529', 'both', says(529), '503 model_overloaded, retry after 20', OPEN, 3],
  ['400: the request is to blame', 'both', says(400), '400 invalid_request', NOT, 1],

  ['hang before the head', 'both', () => stall(), '502 server_error', OPEN, 1],
  ['stall in the body', 'JSON', () => [halfBody, stall()], '502 server_error', OPEN, 1],
  ['stall before content', 'SSE', before(stall()), '502 server_error', OPEN, 1],
  ['stall mid-stream', 'SSE', behind(stall()), '200, 2 words, upstream_stream_interrupted', OPEN, 1],
  ['trickle that never ends', 'JSON', () => [WHOLE, trickle(' ')], '502 server_error', OPEN, 1],
  ['trickle that never ends, mid-stream', 'SSE', behind(trickle(': still there\n\n')),
    '200, 2 words, upstream_stream_interrupted', OPEN, 1],

  ['cut in the body', 'JSON', () => [halfBody, cut()], '502 server_error', OPEN, 3],
  ['cut mid-event, before content', 'SSE', before([halfEvent, cut()]), '502 server_error', OPEN, 3],
  ['cut mid-event', 'SSE', behind([halfEvent, cut()]), '200, 2 words, upstream_stream_interrupted', OPEN, 1],
  ['clean end without terminal event, before content', 'SSE', before(end()), '502 stream_incomplete', OPEN, 3],
  ['clean end without terminal event', 'SSE', behind(end()), '200, 2 words, stream_incomplete', OPEN, 1],

  ['malformed JSON', 'JSON', () => [WHOLE, raw('{"type":"mess')], '502 server_error', OPEN, 3],
  ['malformed JSON, before content', 'SSE', before([brokenEvent, end()]), '502 server_error', OPEN, 3],
  ['malformed JSON, mid-stream', 'SSE', behind([brokenEvent, end()]), '200, 2 words, upstream_stream_interrupted', OPEN,
    1],
  ['empty body', 'JSON', () => WHOLE, '502 empty_response', OPEN, 3],
  ['empty body', 'SSE', () => STREAM, '502 empty_response', OPEN, 3],

  ['says nothing', 'JSON', ({ dialect }) =>
    json(
      dialect === 'messages'
        ? { type: 'message', role: 'assistant', content: [], stop_reason: null, usage: UNUSED }
        : dialect === 'chat'
        ? { id: 'c', object: 'chat.completion', created: 1, model: 'v',
          choices: [{ index: 0, message: { role: 'assistant', content: '' }, finish_reason: null }] }
        : { id: 'r', object: 'response', output: [] }
    ), '502 empty_response', NOT, 1],
  ['says nothing', 'SSE', ({ dialect }) =>
    dialect === 'messages'
      ? [messageStart({ usage: UNUSED }), messageStop()]
      : dialect === 'chat'
      ? [opening.chat, chunk({}), raw('data: [DONE]\n\n')]
      : [opening.responses, event('response.completed', { response: { output: [] } })], '502 empty_response', NOT, 1],

  ['oversize answer', 'JSON', () => [WHOLE, blanks(66)], '502 server_error', OPEN, 3],
  ['oversize event, before content', 'SSE', before(hugeEvent), '502 server_error', OPEN, 3],
  ['oversize event, mid-stream', 'SSE', behind(hugeEvent), '200, 2 words, upstream_stream_interrupted', OPEN, 1]
]

// Who else can be asked.

type Others = 'one target' | 'two targets' | 'two channels'
const others: readonly Others[] = ['one target', 'two targets', 'two channels']

/** What the other one says, and what that costs: 10 tokens of input and 7 of output. */
const good = answer('from the other', { usage: { input_tokens: 10, output_tokens: 7 } })
const GOOD = '200, 3 words, whole'
/** at 3 and 15 USD per 1M */
const PREMIUM = 10n * 3000n + 7n * 15_000n
/** at 1 and 5 */
const CHEAP = 10n * 1000n + 7n * 5000n
/** Two words of output, and no input. */
const PRODUCED = 2n * 15_000n
const OPENING = 1_000_000_000n

interface Case extends Side {
  /** of its model, its upstream, its account and its key */
  readonly name: string
  readonly others: Others
  readonly row: Row
}

const cases: readonly Case[] = table.flatMap((row, i) =>
  dialectsOf('text').flatMap((dialect) =>
    (['JSON', 'SSE'] as const).filter((wire) => row[1] === 'both' || row[1] === wire)
      .flatMap((wire) =>
        others.map((other, j) => ({
          name: `r${i}-${dialect}-${wire}-${j}`.toLowerCase(),
          wire,
          dialect,
          others: other,
          row
        }))
      )
  )
)

const secretOf = (name: string): string => `sk-gw-${name.replaceAll('-', '').padEnd(32, 'x')}`
/** Only time tells. */
const isSlow = ({ row: [failure] }: Case): boolean => /^(?:hang|stall|trickle)/.test(failure)
const isBehindCommit = ({ row: [, , , alone] }: Case): boolean => alone.startsWith('200')
/** Another target can help, and may. */
const isHelped = (one: Case): boolean =>
  one.others !== 'one target' && !isBehindCommit(one) && !one.row[3].startsWith('400')

/** A model, an upstream, an account and a key of its own for each case: none knows how another fared. */
function settings (
  of: readonly Case[], places: Readonly<Record<string, string>>, goodUrl: string, more: string
): string {
  const upstreams = of.map((one) => `bad-${one.name}: { url: "${places[typeof one.row[2] === 'string' ? one.row[2] : 'plays']}", dialect: ${one.dialect}, timeouts: ${isSlow(one) ? '{ first_byte: 3s, idle: 3s, total: 3s }' : '{}'}, ${more} }`)
  const models = of.map(({ name, others: other }) => {
    const second = `{ upstream: u0, model: vendor-${name}, priority: 1 }`
    const premium = `premium: { price: { input: 3, output: 15 }, targets: [{ upstream: bad-${name}, model: vendor-${name}, weight: 1000000 }${other === 'two targets' ? `, ${second}` : ''}] }`
    const cheap = other === 'two channels' ? `, cheap: { price: { input: 1, output: 5 }, targets: [${second}] }` : ''
    return `- { id: ${name}, provider: acme, created: 2025-09-29, context: 200000, max_output: 64000, channels: { ${premium}${cheap} } }`
  })
  const accounts = of.map(({ name }) => `- { id: ${name}, opening_balance_usd: 1 }`)
  const keys = of.map(({ name }) =>
    `- { id: ${name}, account: ${name}, secret: ${secretOf(name)}, routing_mode: auto_premium }`
  )
  const text = yaml([goodUrl], '',
    'auth, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize')
  const [, head, own] = /^([^]*\nupstreams:\n)([^]*\n)models:\n/.exec(text)!
  const list = (lines: readonly string[]): string => lines.map((line) => `  ${line}\n`).join('')
  return `${head}${own}${list(upstreams)}models:\n${list(models)}accounts:\n${list(accounts)}keys:\n${list(keys)}`
}

interface Running {
  readonly gw: TestGateway
  readonly bad: Upstream
  readonly good: Upstream
  /** of the ledger, as far as they were read */
  readonly entries: Entry[]
}

/**
 * The failing target knows its case by the model that it is asked for.
 * @param failures of each case; then it is well
 */
async function start (t: Test, of: readonly Case[], more: string, failures = Infinity): Promise<Running> {
  const named = new Map(of.map((one) => [`vendor-${one.name}`, one]))
  const bad: Upstream = await upstream(t, ({ body }) => {
    const one = named.get(String(body!['model']))!
    return askedAt(bad, one) > failures ? good : (one.row[2] as (side: Side) => Script)(one)
  })
  const other = await upstream(t, good)
  const places = {
    plays: bad.url,
    refuses: await refusing(),
    'has no address': `http://${'a'.repeat(64)}.test`, // a label of more than 63 bytes: no resolver asks the network for it (RFC 1035 2.3.4)
    'is somebody else': (await secure(t, authority.issue('127.0.0.1'))).url
  }
  const gw = await gateway(t, settings(of, places, other.url, more), { now: () => 1_800_000_000_000 })
  return { gw, bad, good: other, entries: [] }
}

function send ({ name, wire, dialect }: Case, { url }: TestGateway): Promise<Got> {
  const { path, asking } = clientStyles[dialect]
  return ask(url + path, asking({ model: name, max_tokens: 100, stream: wire === 'SSE',
    messages: [{ role: 'user', content: 'Hello' }] }), { headers: { authorization: `Bearer ${secretOf(name)}` } })
}

// What a client holds, in words. Its style is that which its upstream speaks.

/** `STATUS CODE, retry after S` of an error, `STATUS, COUNT words, whole or CODE` of an answer. */
function read ({ dialect }: Side, got: Got): Reads {
  const { status, headers, events, body, ended } = got
  if (ended !== 'whole') return ended
  const error = toldError(got)
  if (body !== undefined && error !== undefined) {
    return `${status} ${codeOf(error)}${headers['retry-after'] === undefined ? '' : `, retry after ${headers['retry-after']}`}`
  }
  const { textOf, wholeText, isEnded } = clientStyles[dialect]
  const said = (body === undefined ? events.map(textOf).join('') : wholeText(body)).match(/\S+/g)?.length ?? 0
  return `${status}, ${said} words, ${error !== undefined ? codeOf(error) : body !== undefined || isEnded(events) ? 'whole' : 'no end'}`
}

// The rows.

const askedAt = ({ requests }: Upstream, { name }: Case): number =>
  requests.filter(({ body }: Received) => body?.['model'] === `vendor-${name}`).length

/** @param costs of each answer; 0: there is no entry */
async function isPaid (
  t: Test,
  { gw, entries }: Running,
  one: Case,
  all: readonly Got[],
  ...costs: readonly bigint[]
): Promise<void> {
  const charged = costs.filter((nanos) => nanos > 0n)
  for await (const entry of gw.services.store.entries(entries.at(-1)?.id)) entries.push(entry)
  const own = entries.filter(({ account, kind }) => account === one.name && kind !== 'credit')
  t.strictSame(own.map((entry) => [entry.kind, -entry.nanos]), charged.map((nanos) => ['settle', nanos]),
    'one settlement, or none')
  t.strictSame(await gw.services.store.balance(one.name), {
    balance: OPENING - charged.reduce((sum, nanos) => sum + nanos, 0n),
    held: 0n,
    open_holds: 0
  })
  for (const [i, got] of all.entries()) {
    const error = toldError(got)
    if (error !== undefined) {
      t.equal(Number(error.charged_usd), Number(costs[i] ?? 0n) / 1e9, 'the client is told what it cost')
    }
  }
}

const title = ({ row: [failure], wire, dialect, others: other }: Case): string =>
  `${failure}; ${wire}, ${dialect}; ${other}`

/** Sends them all, the slow ones side by side: only time tells what becomes of those. */
async function each (
  t: Test,
  of: readonly Case[],
  { gw }: Running,
  look: (t: Test, one: Case, got: Got) => Promise<void>
): Promise<void> {
  const slow = new Map(of.filter(isSlow).map((one) => [one, send(one, gw)]))
  for (const one of of) {
    await t.test(title(one), async (t) => {
      await look(t, one, await (slow.get(one) ?? send(one, gw)))
    })
  }
  t.equal(await gw.services.store.openHolds(), 0)
  t.strictSame((await gw.services.store.verify()).differences, [])
}

const lineOf = ({ gw }: Running, got: Got): Promise<Json> =>
  until(() => gw.logged.find(({ msg, request_id: id }) => msg === 'request' && id === got.headers['x-request-id']))

const costOf = (one: Case): bigint =>
  isHelped(one) ? one.others === 'two channels' ? CHEAP : PREMIUM : isBehindCommit(one) ? PRODUCED : 0n

t.test('each target is asked once: what the client gets and pays, and for how long who failed is left alone', async (t) => {
  const running = await start(t, cases,
    `retries: { attempts: 0, backoff: 1ms, max_backoff: 1ms }, breaker: { failures: 1, ratio: 1, open: ${OPEN}s }`)
  const { gw, bad, good: other } = running
  await each(t, cases, running, async (t, one, got) => {
    const [, , does, alone, left] = one.row
    const helped = isHelped(one)
    t.equal(read(one, got), helped ? GOOD : alone)
    if (typeof does !== 'string') t.equal(askedAt(bad, one), 1)
    t.equal(askedAt(other, one), helped ? 1 : 0)
    t.match(await lineOf(running, got), { attempts: helped ? 2 : 1, upstream: helped ? 'u0' : `bad-${one.name}`,
      outcome: helped ? 'completed' : isBehindCommit(one) ? 'interrupted' : 'failed' })
    await isPaid(t, running, one, [got], costOf(one))

    const view = [...gw.services.upstreams.health.targets(gw.live.current())].find(({ upstream: name }) =>
      name === `bad-${one.name}`
    )
    t.match(view, { running: 0, wait: left * 1000, breaker: left >= OPEN && left < REFUSED ? 'open' : 'closed' })
    if (left === NOT) return
    // The next one goes where it is served at once, or hears when it will be.
    const next = await send(one, gw)
    const code = alone.includes('service_unavailable') ? 'service_unavailable' : 'model_overloaded'
    t.equal(read(one, next), one.others === 'one target' ? `503 ${code}, retry after ${Math.min(60, left)}` : GOOD)
    t.match(await lineOf(running, next), { attempts: one.others === 'one target' ? 0 : 1 })
    if (typeof does !== 'string') t.equal(askedAt(bad, one), 1)
    await isPaid(t, running, one, [got, next], costOf(one),
      ...one.others === 'one target' ? [] : [one.others === 'two channels' ? CHEAP : PREMIUM])
  })
})

t.test('with two retries and nobody else: how often the target is asked before the client hears of it', async (t) => {
  const alone = cases.filter(({ others: other, row: [failure] }) =>
    other === 'one target' && !failure.startsWith('oversize')
  )
  const running = await start(t, alone,
    'retries: { attempts: 2, backoff: 1ms, max_backoff: 2ms, budget: 100 }, breaker: { failures: 1000 }')
  await each(t, alone, running, async (t, one, got) => {
    const [, , does, reads, , tries] = one.row
    // Who is not left alone does not say when it will be well.
    t.equal(read(one, got), reads.replace(`retry after ${OPEN}`, 'retry after 2'))
    if (typeof does !== 'string') t.equal(askedAt(running.bad, one), tries)
    t.match(await lineOf(running, got), { attempts: tries })
    await isPaid(t, running, one, [got], costOf(one))
  })
})

t.test('a target that is well again a moment later: the client hears of nothing, and pays once', async (t) => {
  const passing = cases.filter(({ dialect, others: other, row: [, , does, , , tries] }) =>
    dialect === 'messages' && other === 'one target' && typeof does !== 'string' && tries > 1
  )
  const running = await start(t, passing,
    'retries: { attempts: 2, backoff: 1ms, max_backoff: 2ms, budget: 100 }, breaker: { failures: 1000 }', 1)
  await each(t, passing, running, async (t, one, got) => {
    t.equal(read(one, got), GOOD)
    t.equal(askedAt(running.bad, one), 2)
    t.match(await lineOf(running, got), { attempts: 2, outcome: 'completed' })
    await isPaid(t, running, one, [got], PREMIUM)
  })
})

const asked: Side & { readonly name: string } = { name: 'm1', wire: 'JSON', dialect: 'messages' }
const sendTo = ({ url }: TestGateway): Promise<Got> =>
  ask(`${url}/v1/messages`, messagesRequest, { headers: { 'x-api-key': KEY } })

t.test('two targets that fail, one after the other: Retry-After is of the one that recovers first', async (t) => {
  let plays: readonly Script[] = []
  const both = [await upstream(t, () => plays[0]!), await upstream(t, () => plays[1]!)] as const
  const gw = await gateway(t,
    yaml(both.map(({ url }) => url)).replaceAll(CALM,
      `retries: { attempts: 0, max_backoff: 1ms }, breaker: { failures: 1, ratio: 1, open: ${OPEN}s }`), {
    now: () => 1_800_000_000_000
  })
  const [limited, overloaded, broken] = [[429, '17'], [503, '33'], [500]].map(([code, seconds]) =>
    says(Number(code), seconds === undefined ? {} : { 'retry-after': String(seconds) })(asked)
  ) as [Script, Script, Script]
  for (const [name, scripts, first, next] of [
    ['limited, then overloaded', [limited, overloaded], 17, 17],
    ['overloaded, then limited', [overloaded, limited], 17, 17],
    ['broken, then overloaded', [broken, overloaded], OPEN, OPEN],
    ['limited, then broken', [limited, broken], undefined, 17],
    ['broken, then broken', [broken, broken], undefined, OPEN]
  ] as const) {
    await t.test(name, async (t) => {
      gw.heal()
      plays = scripts
      const before = both.map(({ requests }) => requests.length)
      t.equal(read(asked, await sendTo(gw)),
        first === undefined ? '502 server_error' : `503 model_overloaded, retry after ${first}`)
      t.equal(read(asked, await sendTo(gw)), `503 model_overloaded, retry after ${next}`)
      t.strictSame(both.map(({ requests }, i) => requests.length - before[i]!), [1, 1])
    })
  }
  t.strictSame(await gw.services.store.balance('acme'), { balance: 100n * OPENING, held: 0n, open_holds: 0 })
})

t.test('an outage is not multiplied: a hundred requests are a hundred and twenty attempts', async (t) => {
  const bad = await upstream(t, says(500)(asked))
  const gw = await gateway(t,
    yaml([bad.url]).replace(CALM,
      'retries: { attempts: 2, backoff: 1ms, max_backoff: 2ms, budget: 20 }, breaker: { failures: 1000000 }'), {
    now: () => 1_800_000_000_000
  })
  for (let i = 0; i < 100; i++) { t.equal(read(asked, await sendTo(gw)), '502 server_error') }
  t.equal(bad.requests.length, 120)
})
