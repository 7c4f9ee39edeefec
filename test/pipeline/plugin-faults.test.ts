// A plugin of the user's own in the real gateway: all that it may do works, and nothing that it does wrong hangs a
// request, takes the process down, leaves money held or a client without a shaped answer.
import { once } from 'node:events'
import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import { formatUsd } from '../../src/money/nanos.ts'
import { client, errorOf, events, fate, namesOf, nextFate, said, type Client } from '../support/client.ts'
import { gateway, messagesRequest, withCase, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, blockStart, blockStop, errorReply, messageEnd, messageStart, ping, stall, step, textDelta, upstream,
  type Script } from '../support/upstream.ts'

/** Does wrong what the header x-fault says: "HOOK KIND", and for events which one, from 0. */
const faulty = `
import { definePlugin, GatewayError, SseEvent } from 'model-gateway'

const errors = { status: 400, headers: {}, body: {}, events: [] }
const kinds: Record<string, () => unknown> = {
  throw () { throw new Error('a secret of the plugin') },
  refuse () { throw new GatewayError('model_overloaded', { retryAfter: 9 }) },
  reject: () => Promise.reject(new Error('a secret of the plugin')),
  hang: () => new Promise(() => {}),
  promise: () => Promise.resolve(),
  junk: () => ({ kind: 'junk' }),
  speechless: () => SseEvent.of('note', undefined),
  bigint: () => ({ kind: 'json', status: 200, headers: {}, body: { n: 1n } }),
  nothing: () => ({ kind: 'json', status: 200, headers: {}, body: undefined }),
  header: () => ({ kind: 'json', status: 200, headers: { 'x-a': 'b\\r\\nx-c: d' }, body: {} }),
  status: () => ({ kind: 'json', status: 42, headers: {}, body: {} }),
  circular () { const body: Record<string, unknown> = {}; body.body = body; return { kind: 'json', status: 200, headers: {}, body } },
  shapeless: () => ({}),
  eventless: () => ({ ...errors, events: ['event: error'] }),
  unwritable: () => ({ ...errors, body: { n: 1n } })
}
let closing = 'throw'

export default definePlugin({
  name: 'faulty',
  create: () => {
    const at = (exchange: { received: { headers: Record<string, unknown> } }, hook: string, count = 0): unknown => {
      const [where, kind, k = '0'] = String(exchange.received.headers['x-fault'] ?? 'none').split(' ')
      return where === hook && Number(k) === count ? kinds[kind!]!() : undefined
    }
    return {
      onHead (exchange) {
        const [where, kind] = String(exchange.received.headers['x-fault'] ?? '').split(' ')
        if (where === 'close') closing = kind!
        if (where === 'onSettle') exchange.onSettle(() => at(exchange, 'onSettle') as void)
        if (where === 'onFinish') exchange.onFinish(() => at(exchange, 'onFinish') as void)
        return at(exchange, 'onHead') as void
      },
      onRequest: (exchange) => at(exchange, 'onRequest') as void,
      perAttempt (_attempt, exchange) {
        const made = at(exchange, 'perAttempt')
        if (made !== undefined) return made as never
        let count = 0
        return {
          onUpstreamRequest: () => at(exchange, 'onUpstreamRequest') as void,
          onUpstreamReply: () => at(exchange, 'onUpstreamReply') as void,
          onUpstreamEvent: () => at(exchange, 'onUpstreamEvent', count++) as void
        }
      },
      onReply: (_reply, exchange) => at(exchange, 'onReply') as void,
      onStream (exchange) {
        const made = at(exchange, 'onStream')
        if (made !== undefined) return made as never
        let count = 0
        return {
          event: (event) => (at(exchange, 'event', count++) ?? event) as SseEvent,
          end: () => (at(exchange, 'end') ?? []) as SseEvent[]
        }
      },
      onError: (_error, exchange) => at(exchange, 'onError') as void,
      onUpstreamFailure: (_failure, exchange) => at(exchange, 'onUpstreamFailure') as void,
      close: () => { (globalThis as Record<string, unknown>).closedFaulty = closing; return kinds[closing]!() as void }
    }
  }
})
`

/** message_start, ping, content_block_start, then content: events 3 and 4 */
const upstreamStream: Script = [messageStart(), ping(), blockStart(0), textDelta(0, 'one'), textDelta(0, ' two'),
  blockStop(0), messageEnd()]

interface Expected {
  readonly status: number
  /** of the error; absent: the answer is whole */
  readonly code?: string
  readonly outcome?: 'completed' | 'failed' | 'interrupted'
  /** the error is in the stream */
  readonly inBand?: true
}

const refused: Expected = { status: 500, code: 'server_error', outcome: 'failed' }
const cutInBand: Expected = { status: 200, code: 'server_error', outcome: 'interrupted', inBand: true }
const unsettled: Expected = { status: 200, code: 'server_error', outcome: 'failed', inBand: true }
const fine: Expected = { status: 200, outcome: 'completed' }
const overloaded: Expected = { status: 503, code: 'model_overloaded', outcome: 'failed' }
const upstreamFailed: Expected = { status: 502, code: 'server_error', outcome: 'failed' }

const waiting = ['throw', 'reject', 'hang'] as const
const each = (hook: string, kinds: readonly string[], expected: Expected): [string, Expected][] =>
  kinds.map((kind) => [`${hook} ${kind}`, expected])

const always = [
  ...each('onHead', waiting, refused),
  ...each('onHead', ['junk', 'bigint', 'nothing', 'header', 'status', 'circular'], refused),
  ...each('onHead', ['refuse'], overloaded),
  ...each('onRequest', waiting, refused),
  ...each('onRequest', ['junk', 'bigint', 'circular'], refused),
  ...each('onRequest', ['refuse'], overloaded),
  ...each('perAttempt', ['throw'], refused),
  ...each('perAttempt', ['reject'], fine),
  ...each('onUpstreamRequest', waiting, refused),
  ...each('onFinish', [...waiting, 'junk'], fine),
  ...each('onSettle', ['junk'], fine)
]
const cases: Readonly<Record<'JSON' | 'SSE', readonly [string, Expected][]>> = {
  JSON: [
    ...always,
    ...each('onUpstreamReply', ['throw'], refused),
    ...each('onUpstreamReply', ['reject'], fine),
    ...each('onReply', [...waiting, 'junk', 'bigint', 'header', 'status', 'circular'], refused),
    ...each('onReply', ['refuse'], overloaded),
    ...each('onSettle', waiting, refused)
  ],
  SSE: [
    ...always,
    ...each('onUpstreamEvent', ['throw', 'throw 1', 'throw 3'], refused),
    ...each('onUpstreamEvent', ['throw 4', 'throw 5', 'throw 7'], cutInBand),
    ...each('onUpstreamEvent', ['reject', 'reject 4'], fine),
    ...each('onStream', ['throw'], refused),
    ...each('onStream', ['promise', 'reject'], cutInBand),
    ...each('event', ['throw', 'throw 3', 'throw 4', 'throw 6', 'throw 7', 'promise', 'promise 7', 'reject', 'reject 4',
      'junk 4', 'speechless 4'], cutInBand),
    ...each('end', ['throw', 'promise', 'reject'], cutInBand),
    ...each('onSettle', waiting, unsettled)
  ]
}
/** With an upstream that fails. */
const whenUpstreamFails: readonly [string, Expected][] = [
  ...each('onError', ['throw', 'promise', 'reject', 'shapeless', 'eventless', 'unwritable', 'hang'], upstreamFailed),
  ...each('onUpstreamFailure', ['throw', 'promise', 'reject', 'junk'], refused),
  ...each('onUpstreamFailure', ['refuse'], overloaded)
]

const setup = async (t: Test, place: (pipeline: string) => string): Promise<TestGateway> => {
  const up = await upstream(t, ({ body }) =>
    body?.['case'] === 'fails'
      ? errorReply(500, 'api_error', 'x')
      : body?.['stream'] === true
      ? upstreamStream
      : answer('one two'))
  return await gateway(t,
    withCase(yaml([up.url], 'hook_timeout: 100ms\n')).replace(/\[auth, .*, error-normalize\]/, (list) => place(list)), {
    files: { 'faulty.ts': faulty }
  })
}

/** Whatever happened: told, settled at most once, nothing held, and the next request is none the worse. */
async function isHandled (
  t: Test,
  own: TestGateway,
  { post }: Client,
  body: object,
  fault: string,
  expected: Expected
): Promise<void> {
  const got = await post(body, { 'x-fault': fault }).whole()
  const { line, entries, charged, openHolds } = await fate(own, got.id)
  t.ok(got.isWhole, 'the answer ends properly')
  t.match({ status: got.status, outcome: line['outcome'] }, { status: expected.status, outcome: expected.outcome })
  t.notMatch(got.text, /secret of the plugin|faulty/)
  if (expected.code === undefined) t.equal(line['code'], 'ok')
  else {
    const error = errorOf(got)
    t.match(error, { code: expected.code, id: got.id, message: new RegExp(` Request ID: ${got.id}$`) })
    t.equal(line['code'], expected.code)
    t.equal(error.charged, formatUsd(charged), 'the error says what the ledger says')
    t.equal(got.json === undefined, expected.inBand === true)
    if (expected.inBand === true) t.notMatch(got.text, 'message_stop')
  }
  t.ok(entries.length <= 1, `${entries.length} entries`)
  if (expected.outcome === 'completed') t.equal(charged, 10n * 3000n + 5n * 15000n)
  t.equal(openHolds, 0)
  const next = await post(body).whole()
  t.equal(next.status, expected === upstreamFailed || 'case' in body ? 502 : 200)
}

for (const [where, place] of Object.entries({
  'at the top of the list': (list: string) => list.replace('[', '[{ use: ./faulty.ts }, '),
  'at its bottom': (list: string) => list.replace(']', ', { use: ./faulty.ts }]')
})) {
  t.test(`a plugin that fails, ${where}`, async (t) => {
    const own = await setup(t, place)
    const one = client(t, own)
    for (const [style, stream] of [['JSON', false], ['SSE', true]] as const) {
      for (const [fault, expected] of cases[style]) {
        await t.test(`${style}: ${fault}`, (t) =>
          isHandled(t, own, one, { ...messagesRequest, stream }, fault, expected))
      }
      for (const [fault, expected] of whenUpstreamFails) {
        // error-normalize names and shapes it before a plugin that stands on the other side of it is asked.
        const isAsked = where === 'at the top of the list'
          ? !fault.startsWith('onUpstreamFailure')
          : !fault.startsWith('onError')
        await t.test(`${style}, and the upstream too: ${fault}`, (t) =>
          isHandled(t, own, one, { ...messagesRequest, stream, case: 'fails' }, fault,
            isAsked ? expected : upstreamFailed))
      }
    }
    t.match(await own.services.store.balance('acme'), { held: 0n, open_holds: 0 })
    t.equal(own.server.inFlight, 0)
    t.match(await metric(own), /gateway_\w*hook_timeout\w*\{[^}]*faulty[^}]*\} \d+/)
  })
}

t.test('events before the one that a transformer throws at are the client\'s, however they came', async (t) => {
  const own = await setup(t, (list) => list.replace('[', '[{ use: ./faulty.ts }, '))
  const got = await client(t, own).post({ ...messagesRequest, stream: true }, { 'x-fault': 'event throw 4' }).whole()
  t.equal(namesOf(got.text), 'message_start ping content_block_start content_block_delta error')
  t.equal(said(got.text), 'one')
})

t.test('a plugin whose header can\'t be sent: the answer goes out without it; and one that throws when its client leaves', async (t) => {
  let isStalling = true
  const up = await upstream(t, () => isStalling ? stall() : answer('paid'))
  const own = await gateway(t,
    yaml([up.url]).replace('hold_head: 10s', 'hold_head: 20ms').replace('[auth,', '[{ use: ./bad.ts }, auth,'), {
    files: { 'bad.ts': `
import { setTimeout } from 'node:timers/promises'
import { definePlugin } from 'model-gateway'
export default definePlugin({
  name: 'bad',
  create: () => ({
    onHead (exchange) {
      if (exchange.received.headers['x-bad'] === 'head') exchange.answerHeaders['x-bad'] = 'two\\r\\nlines'
      else {
        exchange.onAbort(() => { throw new Error('a defect of a listener') })
        exchange.onAbort(async () => { throw new Error('a defect of an async listener') })
        const { signal } = exchange
        signal.onabort = () => { throw new Error('a defect of onabort') }
        signal.addEventListener('abort', () => { throw new Error('a defect behind the signal') }, { once: true })
        signal.addEventListener('abort', { handleEvent: async () => { throw new Error('an async defect behind it') } })
        const removed = () => { throw new Error('it was removed') }
        signal.addEventListener('abort', removed)
        signal.removeEventListener('abort', removed)
        void setTimeout(60_000, undefined, { signal: AbortSignal.any([signal]), ref: false })
          .catch(({ name }) => { Object.assign(globalThis, { heardBySignal: name }) })
      }
    }
  })
})` } })
  const next = nextFate(own)
  const call = client(t, own).post(messagesRequest)
  const asked = await up.nextRequest()
  call.leave()
  t.equal(await asked.closed, 'left', 'those behind it hear of it all the same')
  t.match(await next(), { line: { outcome: 'failed', code: 'client_closed' }, entries: [], openHolds: 0 })
  const defects = own.logged.filter(({ msg }) => msg === 'a listener for the end of an exchange failed')
    .map(({ err }) => (err as Error).message).sort()
  t.strictSame(defects, ['a defect behind the signal', 'a defect of a listener', 'a defect of an async listener',
    'a defect of onabort', 'an async defect behind it'])
  t.equal((globalThis as Record<string, unknown>)['heardBySignal'], 'AbortError', 'it is a signal like any other')
  isStalling = false
  for (const stream of [false, true]) {
    const heard = nextFate(own)
    const got = await client(t, own).post({ ...messagesRequest, stream }, { 'x-bad': 'head' }).whole()
    t.equal(got.status, 200)
    t.match(got.text, /paid/)
    t.equal(got.headers['x-bad'], undefined)
    t.match(await heard(), { line: { outcome: 'completed' }, entries: [{ kind: 'settle' }], openHolds: 0 })
  }
  const about = own.logged.filter(({ msg }) => /headers that cannot be sent/.test(String(msg)))
  t.match(about, [{ level: 50, headers: ['x-bad'] }, { headers: ['x-bad'] }])
})

t.test('a client that leaves while a long answer is settled', async (t) => {
  const up = await upstream(t, answer('x'.repeat(2_000_000)))
  const own = await gateway(t, yaml([up.url]).replace('[auth,', '[{ use: ./slow.ts }, auth,'), { files: { 'slow.ts': `
import { definePlugin } from 'model-gateway'
export default definePlugin({
  name: 'slow',
  create: () => ({
    onHead (exchange) {
      exchange.onSettle(() => new Promise((resolve) => {
        exchange.signal.addEventListener('abort', () => { resolve() })
        Object.assign(globalThis, { isSettling: true })
      }))
    }
  })
})` } })
  const next = nextFate(own)
  const call = client(t, own).post(messagesRequest)
  await until(() => (globalThis as Record<string, unknown>)['isSettling'] === true)
  call.leave()
  t.match(await next(), { line: { outcome: 'interrupted', by: 'client', code: 'client_closed' }, openHolds: 0 })
})

t.test('a plugin that fails to close does not keep what its configuration used', async (t) => {
  for (const kind of waiting) {
    await t.test(kind, async (t) => {
      const sockets: Socket[] = []
      const before = await upstream(t, [step(({ response }) => { sockets.push(response.socket!) }), answer('before')])
      const after = await upstream(t, answer('after'))
      const config = (url: string): string =>
        yaml([url], 'hook_timeout: 100ms\n').replace('[auth', '[{ use: ./faulty.ts }, auth')
      const own = await gateway(t, config(before.url), { files: { 'faulty.ts': faulty } })
      const { post } = client(t, own)
      t.equal((await post(messagesRequest, { 'x-fault': `close ${kind}` }).whole()).status, 200)
      const closed = once(sockets[0]!, 'close')
      await own.rewrite(config(after.url))
      await closed
      t.equal((globalThis as Record<string, unknown>)['closedFaulty'], kind)
      t.match(await until(() => own.logged.find(({ msg }) => msg === 'a plugin failed to close')), { plugin: 'faulty' })
      t.match((await post(messagesRequest).whole()).json, { content: [{ text: 'after' }] })
    })
  }
})

/** Does what the header x-do says: all that the contract promises. */
const able = `
import { ApiKey, definePlugin, fact, json, Model, Plan, SseEvent } from 'model-gateway'
const Greeting = fact<string>('greeting')
export default definePlugin({
  name: 'able',
  reads: [ApiKey, Model, Plan],
  writes: [Greeting],
  create: () => ({
    onHead (exchange) {
      if (exchange.received.headers['x-do'] === 'answer in onHead') return json({ by: 'onHead' }, { 'x-own': '1' }, 203)
    },
    onRequest (exchange) {
      exchange.set(Greeting, 'hello ' + exchange.get(ApiKey).key.id)
      switch (exchange.received.headers['x-do']) {
        case 'answer in onRequest': return json({ by: 'onRequest', model: exchange.get(Model).id, targets: exchange.get(Plan).attempts.length, secret: exchange.get(ApiKey).key.secret })
        case 'rewrite': exchange.request = { ...exchange.request, body: { ...exchange.request.body, system: 'be brief', max_tokens: 5 } }; break
        case 'write twice': exchange.set(Greeting, 'again'); break
        case 'read too early': exchange.get(fact('not-written')); break
      }
    },
    perAttempt: (_attempt, exchange) => ({
      async onUpstreamRequest (request) { await null; request.headers['x-greeting'] = exchange.get(Greeting) }
    }),
    onReply (reply, exchange) {
      if (exchange.received.headers['x-do'] === 'replace' && reply.kind === 'json') return { ...reply, headers: { ...reply.headers, 'x-own': '2' }, body: { ...reply.body as object, replaced: true } }
    },
    onStream (exchange) {
      if (exchange.received.headers['x-do'] !== 'transform') return
      return {
        event (event) {
          if (event.event === 'ping') return
          if (event.event === 'content_block_start') return [event, SseEvent.of('note', { type: 'note', n: 1 }), SseEvent.of('note', { type: 'note', n: 2 })]
          if (event.event !== 'content_block_delta') return event
          const data = event.json as { delta: { text: string } }
          return SseEvent.of(event.event, { ...data, delta: { ...data.delta, text: data.delta.text.toUpperCase() } })
        },
        end: () => [SseEvent.of('bye', { type: 'bye' })]
      }
    }
  })
})
`

t.test('what the contract promises a plugin', async (t) => {
  const up = await upstream(t, ({ body }) => body?.['stream'] === true ? upstreamStream : answer('one two'))
  const own = await gateway(t, yaml([up.url]).replace('error-normalize]', 'error-normalize, { use: ./able.ts }]'), {
    files: { 'able.ts': able }
  })
  const { post } = client(t, own)
  const asked = async (what: string, more: object = {}): ReturnType<ReturnType<typeof post>['whole']> =>
    await post({ ...messagesRequest, ...more }, { 'x-do': what }).whole()

  await t.test('a reply in onHead answers, with its status and headers; nothing is charged', async (t) => {
    const got = await asked('answer in onHead')
    t.equal(got.status, 203)
    t.strictSame(got.json, { by: 'onHead' })
    t.match(got.headers, { 'x-own': '1', 'content-type': 'application/json', 'x-request-id': /^req_/ })
    t.match(await fate(own, got.id), { line: { outcome: 'completed', attempts: 0 }, entries: [], openHolds: 0 })
  })
  await t.test('a reply in onRequest answers, also behind the hold; facts are there, secrets are not', async (t) => {
    const got = await asked('answer in onRequest', { stream: true })
    t.strictSame(got.json, { by: 'onRequest', model: 'm1', targets: 1, secret: '***' })
    t.match(await fate(own, got.id), { line: { outcome: 'completed', attempts: 0 }, entries: [], openHolds: 0 })
  })
  t.equal(up.requests.length, 0)

  await t.test('a request that was replaced goes to the upstream, with the headers of onUpstreamRequest', async (t) => {
    const got = await asked('rewrite')
    t.match(got.json, { model: 'm1' })
    t.match(up.requests.at(-1), { body: { system: 'be brief', max_tokens: 5, model: 'vendor-m1' },
      headers: { 'x-greeting': 'hello acme-dev' } })
  })
  await t.test('a reply can be replaced', async (t) => {
    const got = await asked('replace')
    t.match(got.json, { replaced: true, content: [{ text: 'one two' }] })
    t.equal(got.headers['x-own'], '2')
    t.match(await fate(own, got.id), { charged: 10n * 3000n + 5n * 15000n })
  })
  await t.test('events can be dropped, added, replaced, and said at the end', async (t) => {
    const got = await asked('transform', { stream: true })
    t.equal(namesOf(got.text),
      'message_start content_block_start note note content_block_delta content_block_delta content_block_stop message_delta message_stop bye')
    t.equal(said(got.text), 'ONE TWO')
    t.strictSame(events(got.text).filter(({ event }) => event === 'note').map(({ data }) => data['n']), [1, 2])
    t.match(await fate(own, got.id), { line: { outcome: 'completed' }, charged: 10n * 3000n + 5n * 15000n })
  })
  for (const [what, message] of [['write twice', 'the fact "greeting" was written twice'], ['read too early',
    'the fact "not-written" was read before it was written']] as const) {
    await t.test(`${what}: an error that names the fact, in the log alone`, async (t) => {
      const got = await asked(what)
      t.equal(got.status, 500)
      t.notMatch(got.text, /fact/)
      const { line } = await fate(own, got.id)
      t.match(line, { code: 'server_error', err: { message } })
    })
  }
})

async function metric (own: TestGateway): Promise<string> {
  return await (await fetch(own.urls.admin + '/metrics', { headers: { authorization: 'Bearer test-admin-token' } }))
    .text()
}
