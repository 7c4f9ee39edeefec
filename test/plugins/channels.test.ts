// Channels over real sockets, in both formats, as JSON and as streams: who is refused with which code before an answer
// starts, who falls back, and that only the channel that answered is paid.
import t, { type Test } from 'tap'
import type { Entry } from '../../src/store/store.ts'
import { fate } from '../support/client.ts'
import { gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'
import { answer, cut, errorReply, json, message, messageStart, status, upstream, type Script,
  type Upstream } from '../support/upstream.ts'

const PIPELINE =
  'auth, key-policy, rate-limit, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize'

/** key: what its routing mode and its channels are, and whose it is */
const keys = {
  premium: 'routing_mode: premium',
  cheap: 'routing_mode: cheap',
  auto_cheap: 'routing_mode: auto_cheap',
  max: 'routing_mode: max',
  auto_premium: 'routing_mode: auto_premium',
  cheap_only: 'routing_mode: auto_cheap, channels: [cheap]',
  premium_only: 'routing_mode: auto_cheap, channels: [premium]',
  contradiction: 'routing_mode: cheap, channels: [premium]',
  strict_auto_cheap: 'routing_mode: auto_cheap, account: strict',
  strict_auto_premium: 'routing_mode: auto_premium, account: strict',
  strict_cheap: 'routing_mode: cheap, account: strict',
  strict_cheap_only: 'routing_mode: auto_cheap, channels: [cheap], account: strict'
} as const

type Key = keyof typeof keys

const secretOf = (key: Key): string => 'sk-gw-' + key.replaceAll('_', '').padEnd(32, '0')

interface Options {
  /** switched off */
  readonly off?: readonly ('premium' | 'cheap')[]
}

/**
 * m1 is sold in both channels, `p` in premium only, `c` in cheap only. Ten input and five output tokens cost 0.000105
 * or 0.0000105 dollars.
 */
function config (premium: string, cheap: string, { off = [] }: Options = {}): string {
  const channel = (name: 'premium' | 'cheap'): string => name === 'premium'
    ? `premium: { enabled: ${String(!off.includes('premium'))}, price: { input: 3, output: 15 }, targets: [{ upstream: u0, model: big }] }`
    : `cheap: { enabled: ${String(!off.includes('cheap'))}, price: { input: 0.3, output: 1.5 }, targets: [{ upstream: u1, model: small }] }`
  const entry = (id: string, ...names: readonly ('premium' | 'cheap')[]): string => `  - { id: ${id}, name: ${id}, provider: acme, kind: text, created: 2025-10-01, context: 1000, max_output: 1000, accepts: [text], channels: { ${names.map(channel).join(', ')} } }\n`
  const own = Object.entries(keys)
    .map(([key, of]) => `  - { id: ${key}, secret: ${secretOf(key as Key)}, ${of.includes('account:') ? of : `account: acme, ${of}`} }\n`)
    .join('')
  return yaml([premium, cheap], own, PIPELINE)
    .replace(/models:\n[^]*(?=accounts:)/,
      `models:\n${entry('m1', 'premium', 'cheap')}${entry('p', 'premium')}${entry('c', 'cheap')}`)
    .replace('accounts:\n',
      'accounts:\n  - { id: strict, name: Strict, opening_balance_usd: 100, allow_fallback: false }\n')
}

/** How one asks: the address, and what it does with the error. */
const ways = [
  { path: '/v1/messages', stream: false }, { path: '/v1/messages', stream: true },
  { path: '/v1/chat/completions', stream: false }, { path: '/v1/chat/completions', stream: true }
] as const

interface Told {
  readonly status: number
  /** undefined: an answer */
  readonly code: string | undefined
  readonly entries: readonly Entry[]
  readonly line: Readonly<Record<string, unknown>>
}

async function ask (
  t: Test,
  gw: TestGateway,
  { path, stream }: typeof ways[number],
  key: Key,
  model: string
): Promise<Told> {
  gw.heal()
  const response = await fetch(gw.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${secretOf(key)}` },
    body: JSON.stringify({ model, max_tokens: 50, stream, messages: [{ role: 'user', content: 'Hello' }] })
  })
  const text = await response.text()
  const id = response.headers.get('x-request-id')!
  const { line, entries, openHolds } = await fate(gw, id)
  t.equal(openHolds, 0)
  if (response.status === 200) {
    t.match(response.headers.get('content-type'), stream ? /^text\/event-stream/ : 'application/json')
    return { status: 200, code: undefined, entries, line }
  }
  // Before the answer starts an error is a status and JSON, for who asked for a stream too.
  t.equal(response.headers.get('content-type'), 'application/json')
  const body = JSON.parse(text) as { type?: string, request_id?: string,
    error: { type: string, code?: string, message: string, charged_usd: string, request_id?: string,
      details?: { error_code: string } } }
  const isMessages = path === '/v1/messages'
  t.equal(body.type, isMessages ? 'error' : undefined)
  t.equal(isMessages ? body.request_id : body.error.request_id, id)
  t.ok(body.error.message.endsWith(` Request ID: ${id}`))
  t.equal(body.error.charged_usd, '0')
  t.equal(body.error.type,
    response.status === 403 ? 'permission_error' : response.status === 400 ? 'invalid_request_error' : body.error.type)
  if (response.status === 429 || response.status === 503) {
    t.match(response.headers.get('retry-after'), /^([1-9]|[1-5]\d|60)$/)
  }
  return { status: response.status, code: isMessages ? body.error.details!.error_code : body.error.code!, entries,
    line }
}

async function vendors (t: Test, premium: Script, cheap: Script): Promise<readonly [Upstream, Upstream]> {
  return [await upstream(t, premium), await upstream(t, cheap)]
}

const fine = answer('Hi', { usage: { input_tokens: 10, output_tokens: 5 } })
const PREMIUM = -105_000n
const CHEAP = -10_500n

t.test('refused before anybody is asked', async (t) => {
  const table: readonly (readonly [Key, string, Options['off'], number, string])[] = [
    ['premium', 'c', [], 403, 'model_not_in_channel'],
    ['cheap_only', 'p', [], 403, 'model_not_in_channel'],
    ['premium_only', 'c', [], 403, 'model_not_in_channel'],
    ['contradiction', 'm1', [], 403, 'channel_not_allowed'],
    ['premium', 'm1', ['premium'], 503, 'channel_unavailable'],
    ['cheap', 'm1', ['cheap'], 503, 'channel_unavailable'],
    ['cheap', 'p', ['premium'], 503, 'channel_unavailable'],
    ['auto_cheap', 'm1', ['premium', 'cheap'], 503, 'channel_unavailable'],
    ['cheap_only', 'm1', ['cheap'], 503, 'channel_unavailable'],
    ['strict_auto_cheap', 'm1', ['cheap'], 403, 'fallback_not_allowed'],
    ['strict_auto_premium', 'm1', ['premium'], 403, 'fallback_not_allowed'],
    ['strict_auto_cheap', 'm1', ['premium', 'cheap'], 503, 'channel_unavailable']
  ]
  const [premium, cheap] = await vendors(t, fine, fine)
  const gw = await gateway(t, config(premium.url, cheap.url))
  let live = ''
  for (const [key, model, off = [], code, name] of table.toSorted((a, b) => String(a[2]).localeCompare(String(b[2])))) {
    if (live !== off.join()) await gw.rewrite(config(premium.url, cheap.url, { off }))
    live = off.join()
    for (const way of ways) {
      const told = await ask(t, gw, way, key, model)
      t.match(told, { status: code, code: name, entries: [], line: { attempts: 0, code: name } },
        `${key} ${model} without ${live}: ${way.path} ${way.stream}`)
    }
    const count = await fetch(`${gw.url}/v1/messages/count_tokens`, { method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': secretOf(key) },
      body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }] }) })
    t.match(await count.json(), { type: 'error', error: { details: { error_code: name } } },
      'and neither are its tokens counted')
    const listed = await fetch(`${gw.url}/v1/models/${model}`, { headers: { 'x-api-key': secretOf(key) } })
    t.strictSame([listed.status, (await listed.json() as { error: { code: string } }).error.code], [404, 'not_found'],
      'nor is it listed')
  }
  t.equal(premium.requests.length + cheap.requests.length, 0)
})

t.test('what is switched off is passed over where another channel may serve, and that one is paid', async (t) => {
  const [premium, cheap] = await vendors(t, fine, fine)
  const gw = await gateway(t, config(premium.url, cheap.url, { off: ['cheap'] }))
  for (const way of ways) {
    for (const key of ['premium', 'auto_cheap', 'max', 'auto_premium', 'strict_auto_premium'] as const) {
      const { status: code, entries, line } = await ask(t, gw, way, key, 'm1')
      t.strictSame([code, entries.map(({ nanos }) => nanos), line['channel']], [200, [PREMIUM], 'premium'], key)
    }
  }
  t.equal(cheap.requests.length, 0)
})

/** What an upstream can do before an answer starts that another channel may do better. */
const failures: Readonly<Record<string, Script>> = {
  'overloaded': errorReply(529, 'overloaded_error', 'Overloaded'),
  'rate limited': errorReply(429, 'rate_limit_error', 'Slow down'),
  'server error': errorReply(500, 'api_error', 'Internal server error'),
  'our key refused': errorReply(401, 'authentication_error', 'invalid x-api-key'),
  'gone': cut(),
  'cut after its head': [status(200, { 'content-type': 'text/event-stream' }),
    messageStart({ usage: { input_tokens: 10 } }), cut()],
  'empty': json({ ...message('', { usage: { input_tokens: 0, output_tokens: 0 } }), stop_reason: null })
}

t.test('the first channel fails: the second answers, its price is charged and the failed attempt costs nothing', async (t) => {
  let failure: Script = cut()
  const failing = await upstream(t, () => failure)
  const good = await upstream(t, fine)
  const cheapFails = await gateway(t, config(good.url, failing.url))
  const premiumFails = await gateway(t, config(failing.url, good.url))
  for (const [name, script] of Object.entries(failures)) {
    failure = script
    for (const way of ways) {
      for (const [gw, key, paid, served] of [[cheapFails, 'auto_cheap', PREMIUM, 'premium'], [cheapFails, 'max',
        PREMIUM, 'premium'], [premiumFails, 'auto_premium', CHEAP, 'cheap']] as const) {
        const { status: code, entries, line } = await ask(t, gw, way, key, 'm1')
        t.strictSame([code, entries.map(({ kind, nanos }) => [kind, nanos]), line['channel'], line['attempts']], [200, [
          ['settle', paid]
        ], served, 2], `${name}: ${key} ${way.path} ${way.stream}`)
      }
    }
  }
})

t.test('the account forbids a fallback: 403 after the failure, the other channel is not asked, nothing is charged', async (t) => {
  let failure: Script = cut()
  const failing = await upstream(t, () => failure)
  const good = await upstream(t, fine)
  const cheapFails = await gateway(t, config(good.url, failing.url))
  const premiumFails = await gateway(t, config(failing.url, good.url))
  for (const [name, script] of Object.entries(failures)) {
    failure = script
    for (const way of ways) {
      for (const [gw, key] of [[cheapFails, 'strict_auto_cheap'], [premiumFails, 'strict_auto_premium']] as const) {
        t.match(await ask(t, gw, way, key, 'm1'), { status: 403, code: 'fallback_not_allowed', entries: [],
          line: { attempts: 1 } }, `${name}: ${way.path} ${way.stream}`)
      }
    }
  }
  t.equal(good.requests.length, 0)
})

t.test('where no fallback was wanted, or none could have helped, the client hears what really happened', async (t) => {
  const [premium, cheap] = await vendors(t, errorReply(529, 'overloaded_error', 'Overloaded'),
    errorReply(529, 'overloaded_error', 'Overloaded'))
  const gw = await gateway(t, config(premium.url, cheap.url))
  for (const way of ways) {
    for (const key of ['premium', 'cheap', 'strict_cheap', 'cheap_only', 'strict_cheap_only', 'auto_cheap',
      'auto_premium'] as const) {
      t.match(await ask(t, gw, way, key, 'm1'), { status: 503, code: 'model_overloaded', entries: [] }, key)
    }
  }
  await gw.rewrite(config(premium.url, cheap.url, { off: ['premium'] }))
  for (const way of ways) {
    t.match(await ask(t, gw, way, 'strict_auto_cheap', 'm1'), { status: 503, code: 'model_overloaded', entries: [] },
      'what is switched off could not have helped')
  }
})

t.test('a request that is wrong is wrong in every channel: no fallback, and no word of one', async (t) => {
  const [premium, cheap] = await vendors(t, fine, errorReply(400, 'invalid_request_error', 'messages.0: not like this'))
  const gw = await gateway(t, config(premium.url, cheap.url))
  for (const way of ways) {
    for (const key of ['auto_cheap', 'strict_auto_cheap'] as const) {
      t.match(await ask(t, gw, way, key, 'm1'), { status: 400, code: 'invalid_request', entries: [],
        line: { attempts: 1 } }, key)
    }
  }
  t.equal(premium.requests.length, 0)
})

/**
 * m1 is sold in one channel, by a target at each of these.
 * @param more what else is said of each
 * @param channel what else is said of it
 */
function targets (urls: readonly string[], more: readonly string[], channel = ''): string {
  const list = urls.map((_, i) =>
    `{ upstream: u${i}, model: m${more[i] === undefined || more[i] === '' ? '' : `, ${more[i]}`} }`
  ).join(', ')
  return yaml(urls, '', PIPELINE.replace('rate-limit', 'rate-limit: { default_rpm: 0 }')).replace(/targets: \[.*\]/,
    `${channel}targets: [${list}]`)
}

t.test('a target of a higher number is asked when those of a lower one have failed', async (t) => {
  let first: Script = fine
  const vendors = [await upstream(t, () => first), await upstream(t, fine)]
  const gw = await gateway(t, targets(vendors.map(({ url }) => url), ['', 'priority: 1, weight: 1000']))
  for (const way of ways) t.equal((await speak(gw, way, ['Hello'])).status, 200)
  t.strictSame(vendors.map(({ requests }) => requests.length), [4, 0])
  first = errorReply(500, 'api_error', 'No')
  for (const way of ways) t.equal((await speak(gw, way, ['Hello'])).status, 200)
  t.strictSame(vendors.map(({ requests }) => requests.length).slice(1), [4])
})

t.test('sticky: each conversation stays at its target, and only those of one that leaves go elsewhere', async (t) => {
  const vendors = await Promise.all(Array.from({ length: 3 }, () => upstream(t, fine)))
  const urls = vendors.map(({ url }) => url)
  const text = targets(urls, [], 'sticky: true\n        ')
  const gw = await gateway(t, text)
  const talks = Array.from({ length: 24 }, (_, i) => ({ way: ways[i % ways.length]!, question: `Question ${i}` }))
  /** By conversation: where its next turn was answered. */
  const turn = async (words: readonly string[]): Promise<number[]> => {
    const places: number[] = []
    for (const { way, question } of talks) {
      const before = vendors.map(({ requests }) => requests.length)
      t.equal((await speak(gw, way, [question, ...words])).status, 200)
      places.push(vendors.findIndex(({ requests }, i) => requests.length > before[i]!))
    }
    return places
  }
  const first = await turn([])
  t.strictSame(await turn(['Hi', 'And then?']), first)
  t.equal(new Set(first).size, 3, 'all are used')
  await gw.rewrite(text.replace('  u1: { ', '  u1: { maintenance: true, '))
  const without = await turn(['Hi', 'And then?', 'So', 'Well?'])
  t.strictSame(without.filter((_, i) => first[i] !== 1), first.filter((place) => place !== 1))
  t.notOk(without.includes(1))
  await gw.rewrite(text)
  t.strictSame(await turn(['Hi', 'And then?', 'So', 'Well?', 'End', 'Yes?']), first)
})

/** What the two say in turns, the user first. */
async function speak (
  gw: TestGateway,
  { path, stream }: typeof ways[number],
  turns: readonly string[]
): Promise<Response> {
  const messages = turns.map((content, i) => ({ role: i % 2 === 0 ? 'user' : 'assistant', content }))
  const response = await fetch(gw.url + path, { method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
    body: JSON.stringify({ model: 'm1', max_tokens: 50, stream, messages }) })
  await response.text()
  return response
}
