// The answers of vendors as they were recorded (test/fixtures/vendors), for clients of every style, as streams and as
// JSON: each gets the whole answer, from one upstream request, and pays what the vendor counts.
import t, { type Test } from 'tap'
import { noUsage } from '../../src/money/usage.ts'
import { tools, type VendorAnswer, vendorAnswers } from '../fixtures/vendors/answers.ts'
import { Chance } from '../fuzz/chance.ts'
import { ask, type Got } from '../support/billing-client.ts'
import { clientStyles, type Style, styles } from '../support/client-styles.ts'
import { gateway, type GatewayTestOptions, KEY, type TestGateway } from '../support/gateway.ts'
import { readAnswer } from '../support/read-answer.ts'
import { json, raw, type Received, type Script, step, upstream } from '../support/upstream.ts'

const STOPS: Readonly<Record<Style, Readonly<Record<VendorAnswer['stop'], string>>>> = {
  messages: { end_turn: 'end_turn', tool_use: 'tool_use', max_tokens: 'max_tokens' },
  chat: { end_turn: 'stop', tool_use: 'tool_calls', max_tokens: 'length' },
  responses: { end_turn: 'completed', tool_use: 'completed', max_tokens: 'incomplete' }
}

function eventText (event: VendorAnswer['stream'][number]): string {
  return typeof event === 'string' ? event
    : `${typeof event.type === 'string' ? `event: ${event.type}\n` : ''}data: ${JSON.stringify(event)}\n\n`
}

function script ({ stream, reply }: VendorAnswer, { body }: Received): Script {
  return body?.stream === true ? stream.map((event) => raw(eventText(event))) : json(reply)
}

type Answering = (one: VendorAnswer, received: Received) => Script

async function start (
  test: Test, answering: Answering = script, options: GatewayTestOptions = {}, server = ''
): Promise<{ readonly gw: TestGateway, requests (): number }> {
  const vendor = await upstream(test, (received) =>
    answering(vendorAnswers[Number(received.path.split('/')[1])]!, received))
  const price = '{ input: 1, output: 10, cache_read: 0.1, cache_write: 1.25 }'
  const models = vendorAnswers.map((_, at) => `  - id: m${at}
    provider: acme
    created: 2026-01-01
    context: 200000
    max_output: 64000
    channels: { premium: { price: ${price}, targets: [{ upstream: u${at}, model: vendor-model }] } }`)
  const gw = await gateway(test, `
server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: test-admin-token }
${server}store: { driver: memory, path: ./data }
pipeline: [auth, chat-to-messages, channel-router, billing-meter, error-normalize]
upstreams:
${vendorAnswers.map(({ dialect }, at) => `  u${at}: { url: "${vendor.url}/${at}", dialect: ${dialect} }`).join('\n')}
models:
${models.join('\n')}
accounts: [{ id: acme, opening_balance_usd: 100 }]
keys: [{ id: acme-dev, account: acme, secret: ${KEY} }]
`, options)
  return { gw, requests: () => vendor.requests.length }
}

async function entryOf (gw: TestGateway, { headers }: Got): Promise<object | undefined> {
  for await (const entry of gw.services.store.entries()) {
    if (entry.reference === headers['x-request-id']) return { usage: entry.usage, source: entry.usage_source }
  }
  return undefined
}

interface Case {
  readonly gw: TestGateway
  requests (): number
  readonly at: number
  readonly one: VendorAnswer
  readonly style: Style
  readonly stream: boolean
  readonly how?: string
}

/** The client gets the whole answer, from one upstream request, and pays what the vendor counts. */
async function check (t: Test, { gw, requests, at, one, style, stream, how = '' }: Case): Promise<void> {
  const { path, asking } = clientStyles[style]
  const name = `${one.vendor}, for a ${style} client, ${stream ? 'a stream' : 'JSON'}${how}`
  const before = requests()
  const got = await ask(gw.url + path, { ...asking({ model: `m${at}`, max_tokens: 2000, stream,
    messages: [{ role: 'user', content: 'When does the ferry leave?' }] }), tools: tools[style] },
  { headers: { authorization: `Bearer ${KEY}` } })
  t.equal(got.status, 200, `${name}: ${JSON.stringify(got.body ?? {}).slice(0, 300)}`)
  t.match(readAnswer(style, stream, got), { text: one.text, stop: STOPS[style][one.stop] }, name)
  t.strictSame(readAnswer(style, stream, got)?.calls, one.call === undefined ? [] : [one.call], `${name}: calls`)
  t.equal(requests() - before, 1, `${name}: one upstream request`)
  t.match(await entryOf(gw, got), { source: 'provider', usage: { ...noUsage, ...one.charged } },
    `${name}: the charge`)
}

t.test('a client of each style gets the whole answer of each vendor, and pays what it counts', async (t) => {
  const { gw, requests } = await start(t)
  for (const [at, one] of vendorAnswers.entries()) {
    for (const style of styles) {
      for (const stream of [true, false]) await check(t, { gw, requests, at, one, style, stream })
    }
  }
})

const labels = [undefined, 'application/json', 'text/event-stream', 'text/plain; charset=utf-8',
  'application/octet-stream', ''] as const
/** Vendors send blank lines while they work, and some tools a byte order mark. */
const beginnings = ['', '\n\n \r\n', '\uFEFF'] as const
const endings = ['ends', 'is cut', 'stays open', 'has a mark behind it'] as const

interface Wire {
  readonly isStream: boolean
  readonly label: string | undefined
  readonly beginning: string
  readonly ending: typeof endings[number]
  /** bytes of a chunk */
  readonly chunk: number
}

function wired (one: VendorAnswer, { isStream, label, beginning, ending, chunk }: Wire): Script {
  const mark = ending === 'has a mark behind it' ? '\n\ndata: [DONE]\n\n' : ''
  const text = isStream ? one.stream.map(eventText).join('') : JSON.stringify(one.reply) + mark
  const body = Buffer.from(beginning + text)
  return [
    step(({ response }) => { response.writeHead(200, label === undefined ? {} : { 'content-type': label }) }),
    ...Array.from({ length: Math.ceil(body.length / chunk) }, (_, i) => raw(body.subarray(i * chunk, (i + 1) * chunk))),
    step(async ({ response, gone }) => {
      if (ending === 'is cut') response.destroy()
      else if (ending === 'stays open') await new Promise((resolve) => { gone.addEventListener('abort', resolve) })
      else response.end()
    })
  ]
}

for (const [name, options, server] of [
  ['on the loop', {}, ''],
  ['in threads', { largeBody: 1 }, ''],
  ['without the fast lanes', {}, '  fast_lane: off\n']
] as const) {
  t.test(`A0, A1, V8: the bytes decide and not the label, and an answer that is here is not requested again, ${name}`,
    async (t) => {
      let wire: Wire | undefined
      const { gw, requests } = await start(t, (one) => wired(one, wire!), options, server)
      const chance = new Chance(17)
      for (const [at, one] of vendorAnswers.entries()) {
        for (const style of styles) {
          for (const stream of [true, false]) {
            for (const isStream of [true, false]) {
              wire = { isStream, label: chance.of(labels), beginning: chance.of(beginnings),
                ending: chance.of(endings), chunk: chance.of([1, 7, 64, 100_000]) }
              const { ending, ...others } = wire
              if (ending === 'stays open' && !(isStream && stream)) wire = { ...others, ending: 'ends' }
              await check(t, { gw, requests, at, one, style, stream, how: ` ${JSON.stringify(wire)}` })
            }
          }
        }
      }
    })
}
