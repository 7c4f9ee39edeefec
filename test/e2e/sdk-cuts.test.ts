// Streams of upstreams that are cut, at every event and in the middle of any: whatever unmodified SDK reads what is
// left of one, it gets the whole answer or an error, never the half of one that looks like an end. And the ledger says
// what the log says. CUTS=1 tries every byte with every SDK, and both ways to end; CUTS=100 every hundredth.
import t, { type Test } from 'tap'
import { startSimulator } from '../../src/simulator/simulator.ts'
import type { Entry } from '../../src/store/store.ts'
import { gateway, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { cut, end, raw, upstream, type Script } from '../support/upstream.ts'
import { chatTool, heard, type Heard, messagesTool, responsesTool, TOLD_TWICE, ways } from './sdk-ways.ts'

const STRIDE = Number(process.env['CUTS'] ?? 0)
/** Bytes that are tried of each stream, spread over it; each with one SDK after the other. */
const SAMPLES = 128

const PROMPT = 'Look [[sim: tool_calls=1 burst]]'
// What vendors say: a thought, a text, a call.

type Dialect = 'messages' | 'chat' | 'responses'

const asked: Readonly<Record<Dialect, { readonly path: string, readonly body: object }>> = {
  messages: { path: '/v1/messages', body: { max_tokens: 3000, thinking: { type: 'enabled', budget_tokens: 1024 },
    tools: [messagesTool], messages: [{ role: 'user', content: PROMPT }] } },
  chat: { path: '/v1/chat/completions', body: { stream_options: { include_usage: true }, reasoning_effort: 'low',
    tools: [chatTool], messages: [{ role: 'user', content: PROMPT }] } },
  responses: { path: '/v1/responses', body: { store: false, include: ['reasoning.encrypted_content'],
    reasoning: { effort: 'low', summary: 'auto' }, tools: [responsesTool], input: [{ role: 'user', content: PROMPT }] } }
}

const simulator = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0 })
t.teardown(() => simulator.close())

/** The bytes of a whole stream. */
async function recorded (dialect: Dialect): Promise<Buffer> {
  const { path, body } = asked[dialect]
  const headers = { 'content-type': 'application/json', 'x-api-key': 'k', authorization: 'Bearer k',
    'anthropic-version': '2023-06-01' }
  const response = await fetch(simulator.url + path, { method: 'POST', headers,
    body: JSON.stringify({ model: 'v', stream: true, ...body }) })
  if (response.status !== 200) throw new Error(await response.text())
  return Buffer.from(await response.arrayBuffer())
}

// Where it is cut.

interface Cut {
  /** bytes that the gateway gets */
  readonly at: number
  readonly isClean: boolean
  readonly way: string
}

/** Behind every event with every SDK, and in the middle of any with one after the other. */
function cutsOf (stream: Buffer): readonly Cut[] {
  const names = Object.keys(ways)
  const everyWay = (at: number, i: number): readonly Cut[] =>
    names.flatMap((way, j) =>
      (STRIDE > 0 ? [false, true] : [(i + j) % 2 === 0]).map((isClean) => ({ at, isClean, way })))
  if (STRIDE > 0) {
    return [...Array.from({ length: Math.ceil(stream.length / STRIDE) }, (_, i) => i * STRIDE), stream.length]
      .flatMap(everyWay)
  }
  const ends = [0]
  for (let blank = stream.indexOf('\n\n'); blank !== -1; blank = stream.indexOf('\n\n', blank + 2)) ends.push(blank + 2)
  const step = stream.length / SAMPLES
  return [...ends.flatMap(everyWay), ...Array.from({ length: SAMPLES }, (_, i) =>
    ({ at: Math.floor(i * step + Math.random() * step), isClean: i % 2 === 0, way: names[i % names.length]! }))]
}

/** The entries of the ledger by their request. */
async function settled (t: Test, { services: { store } }: TestGateway): Promise<ReadonlyMap<string, Entry>> {
  const found = new Map<string, Entry>()
  for await (const entry of store.entries()) {
    if (entry.kind === 'credit') continue
    if (entry.kind !== 'settle' || found.has(entry.reference!)) t.fail(`not settled once: ${entry.reference}`)
    found.set(entry.reference!, entry)
  }
  t.equal(await store.openHolds(), 0)
  t.strictSame((await store.verify()).differences, [])
  return found
}

interface Case extends Cut {
  readonly got: Heard
  readonly id: string
}

for (const dialect of Object.keys(asked) as Dialect[]) {
  t.test(`an upstream that speaks ${dialect}`, async (t) => {
    const stream = await recorded(dialect)
    let script: Script = []
    const up = await upstream(t, () => script)
    const start = async (translators: string): Promise<TestGateway> =>
      await gateway(t, yaml([up.url], '', `auth, ${translators}, channel-router, billing-meter, error-normalize`)
        .replace('dialect: messages', `dialect: ${dialect}`).replace('balance_usd: 100', 'balance_usd: 100000'),
      { isForgetful: true })
    const gw = await start('chat-to-messages')
    const twice = await start('chat-to-messages, responses-to-messages: { error_event_after_failed: true }')
    const play = async (one: Cut): Promise<Case> => {
      script = [raw(stream.subarray(0, one.at)), one.isClean ? end() : cut()]
      let id = ''
      const got = await heard(ways[one.way]!, (one.way === TOLD_TWICE ? twice : gw).url, async (input, init) => {
        const response = await fetch(input, init)
        id = response.headers.get('x-request-id')!
        return response
      })
      return { ...one, got, id }
    }
    const wholes: Case[] = []
    for (const way of Object.keys(ways)) wholes.push(await play({ at: stream.length, isClean: true, way }))
    const expected = new Map(wholes.map(({ way, got }) => [way, JSON.stringify(got)]))
    const cases: Case[] = []
    for (const one of cutsOf(stream)) cases.push(await play(one))

    const requests = (): Readonly<Record<string, unknown>>[] =>
      [gw, twice].flatMap(({ logged }) => logged).filter(({ msg }) => msg === 'request')
    await until(() => requests().length === wholes.length + cases.length)
    const told = new Map(requests().map(({ request_id: id, nanos }) => [id, nanos]))
    const price = told.get(wholes[0]!.id)
    for (const { way, got } of wholes) {
      t.match(got, { text: /\w/, calls: [['weather', { city: 'Oslo' }]] }, `${way}: the whole answer`)
    }
    const entries = new Map([...await settled(t, gw), ...await settled(t, twice)])
    for (const { way, at, isClean, got, id } of [...wholes, ...cases]) {
      const about = `${way}, ${isClean ? 'ended' : 'cut'} at ${at} of ${stream.length}`
      const entry = entries.get(id)
      const charged = entry && String(-entry.nanos)
      if (charged !== told.get(id)) t.fail(`${about}: the ledger has ${charged}, the log ${told.get(id)}`)
      if (got === 'told') continue
      if (JSON.stringify(got) !== expected.get(way)) t.fail(`${about}: ${JSON.stringify(got) ?? 'silence'}`)
      // Chat style reports its usage behind the end of the answer.
      const isCounted = dialect !== 'chat' || entry?.usage_source === 'provider'
      if (charged === undefined || (isCounted && charged !== price)) t.fail(`${about}: whole for ${charged} of ${price}`)
    }
    const errors = cases.filter(({ got }) => got === 'told').length
    t.ok(errors > cases.length / 2 && errors < cases.length, `${errors} errors of ${cases.length}`)
  })
}
