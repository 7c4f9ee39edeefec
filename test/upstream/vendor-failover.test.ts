// Failover between vendors with rules of their own (F2, T2 to T5): each attempt has the form that its target takes,
// whatever the target before it took, so no rule of one vendor ends failover. What a client gets is in its own words. A
// refusal that is left is the client's own (rule hidden-outage): it ends failover, unless a preferred target failed.
import t from 'tap'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { strictVendors, type VendorName } from '../../src/simulator/vendors.ts'
import { ask, type Got } from '../support/billing-client.ts'
import { clientStyles, type Style, styles } from '../support/client-styles.ts'
import { CALM, gateway, KEY } from '../support/gateway.ts'
import { bodyIn, type History } from '../support/random-histories.ts'
import { readAnswer } from '../support/read-answer.ts'
import { declarations, isOwnRefusal, modelFields, upstreamOptions, vendorNames } from '../support/strict-vendors.ts'

const pace = { firstDelayMs: 0, tokenDelayMs: 0, directives: false }
const down = await startSimulator({ ...pace, faults: 'status=503' })
const players = new Map(await Promise.all(vendorNames.map(async (name) =>
  [name, await startSimulator({ ...pace, faults: `vendor=${name} tool_calls tokens=2` })] as const)))
t.teardown(() => Promise.all([down, ...players.values()].map((simulator) => simulator.close())))

/** Each vendor behind three others, which have other dialects or other options. */
const pairs = vendorNames.flatMap((second, i) => [1, 5, 9].map((far): readonly [VendorName, VendorName] =>
  [vendorNames[(i + far) % vendorNames.length]!, second]))
/** Of the client's own style, and what stands behind it. */
const REFUSING: Readonly<Record<Style, readonly [refuses: VendorName, next: VendorName]>> = {
  chat: ['openai', 'anthropic'], messages: ['anthropic', 'openai'], responses: ['openai_responses', 'anthropic']
}

const target = (name: string, priority: number): string => `{ upstream: ${name}, priority: ${priority}, ` +
  `model: "${declarations[name.replace('down-', '') as VendorName].model}" }`
const model = (id: string, names: readonly string[], more = ''): string => `
  - { id: ${id}, provider: acme, created: 2026-01-01, context: 200000, max_output: 8192${more},
      channels: { premium: { price: { input: 1, output: 10 }, targets: [${names.map(target).join(', ')}] } } }`
const upstreamOf = (id: string, name: VendorName, url: string): string => `
  ${id}: { url: "${url}", dialect: ${strictVendors[name].api}, ${CALM}, headers: { x-api-key: secret }${
  upstreamOptions(name)} }`
/** The fields of the model are those of the vendor that answers. */
const gw = await gateway(t, `
server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: test-admin-token }
store: { driver: memory, path: ./data }
pipeline: [auth, schema-validate, responses-to-messages, chat-to-messages, channel-router, billing-meter,
  error-normalize]
upstreams:${vendorNames.map((name) => upstreamOf(name, name, players.get(name)!.url) +
  upstreamOf(`down-${name}`, name, down.url)).join('')}
models:${vendorNames.map((name) => model(name, [name], modelFields(name))).join('')}${
  pairs.map(([first, second]) => model(`${first}.${second}`, [`down-${first}`, second], modelFields(second))).join('')}${
  Object.values(REFUSING).map(([refuses, next]) => model(`refused.${refuses}`, [refuses, next]) +
    model(`hidden.${refuses}`, [`down-${next}`, refuses, next])).join('')}
accounts: [{ id: acme, opening_balance_usd: 1000 }]
keys: [{ id: acme-dev, account: acme, secret: ${KEY} }]
`, { isForgetful: true })

const NAMES = ['n'.repeat(100), 'server.look', '21st_magic']
const IDS = ['call_0', 'functions.look:0', 'y'.repeat(65)]
const DAY = { type: 'object', properties: { day: { type: 'string' } } }

/** A conversation that breaks rules of most vendors: ids, names, schemas, arguments, texts, the user's name. */
const history = (stream: boolean): History => ({
  user: 'u'.repeat(150), settings: { stream, temperature: 0.5 },
  tools: NAMES.map((name, i) => ({ name, schema: [DAY, { type: 'object' }, { anyOf: [DAY, DAY] }][i] })),
  steps: [
    { kind: 'user', text: 'When does it leave?', inParts: true },
    { kind: 'answer', text: '', inParts: false, calls: IDS.map((id, i) => ({ id, name: NAMES[i]!,
      input: i === 1 ? '{"day":' : '{"day":"monday"}' })) },
    { kind: 'results', texts: IDS.map((id) => [id, 'half \uD83D']), said: 'And back?' }]
})

const send = (id: string, style: Style, body: object): Promise<Got> =>
  ask(gw.url + clientStyles[style].path, { model: id, ...body }, { headers: { authorization: `Bearer ${KEY}` } })
const requestsOf = (name: VendorName) => players.get(name)!.requests

for (const style of styles) {
  t.test(`a client of ${style}: a vendor behind another one gets what it would get alone`, async (t) => {
    for (const [first, second] of pairs) {
      // A chat client's schemas are not changed for a vendor of chat (T4): it has the one that all take.
      const isOwn = strictVendors[second].api === style
      for (const stream of [false, true]) {
        const { tools, ...others } = history(stream)
        const body = bodyIn[style]({ ...others, tools: tools.map((tool) => isOwn ? { ...tool, schema: DAY } : tool) })
        const about = `${first}, then ${second}, ${stream ? 'a stream' : 'JSON'}`
        await send(second, style, body)
        const alone = requestsOf(second).at(-1)!
        const got = await send(`${first}.${second}`, style, body)
        const behind = requestsOf(second).at(-1)!
        t.equal(got.status, 200, `${about}: ${behind.refusal} ${JSON.stringify(got.body)?.slice(0, 500)}`)
        t.not(behind, alone, about)
        t.strictSame(behind.body, alone.body, about)
        const calls = readAnswer(style, stream, got)!.calls
        t.ok(calls.length > 0 && calls.every(({ name }) => NAMES.includes(String(name))),
          `${about}: the client's names: ${JSON.stringify(calls)}`)
      }
    }
  })

  t.test(`a client of ${style}: its own vendor's refusal is its own, but hides no outage`, async (t) => {
    const [refuses, next] = REFUSING[style]
    for (const stream of [false, true]) {
      const body = bodyIn[style]({ user: undefined, settings: { stream }, tools: [{ name: 'look', schema: {} }],
        steps: [{ kind: 'user', text: 'When?', inParts: false }] })
      const before = requestsOf(next).length
      const refused = await send(`refused.${refuses}`, style, body)
      t.equal(refused.status, 400)
      t.ok(isOwnRefusal(requestsOf(refuses).at(-1)!), `a rule of ${refuses}`)
      t.equal(requestsOf(next).length, before, 'the request is wrong in the client\'s own style: nobody else is tried')
      const hidden = await send(`hidden.${refuses}`, style, body)
      t.equal(requestsOf(next).length, before + 1)
      t.equal(hidden.status, 200, JSON.stringify(hidden.body))
    }
  })
}
