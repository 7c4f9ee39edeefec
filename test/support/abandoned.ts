// Requests that clients leave before their answers begin are free for them and not for the operator: so they are
// limited, and their cost is counted. For every driver of the store.
import { strict as assert } from 'node:assert'
import type { Test } from 'tap'
import { client } from './client.ts'
import { clientStyles, styles } from './client-styles.ts'
import { gateway, messagesRequest, yaml, type TestGateway } from './gateway.ts'
import { until } from './until.ts'
import { answer, messageStart, stall, textBlock, upstream } from './upstream.ts'

const LIMIT = 4
const KEYS = { limited: `abandon_limit: ${LIMIT}`, other: '', open: 'abandon_limit: 0' }
type Key = keyof typeof KEYS

/**
 * @param stores of the gateways, which share what they keep if they are several
 * @param clock of the stores, if it is ours
 */
export async function limitsAbandoned (t: Test, stores: readonly string[], clock?: { time: number }): Promise<void> {
  let script: 'answers' | 'stalls' | 'begins' = 'stalls'
  const up = await upstream(t, () => script === 'answers' ? answer('Hi')
    : script === 'stalls' ? stall() : [messageStart(), textBlock(0, 'Hello'), stall()])
  const secretOf = (key: Key): string => 'sk-gw-' + key.padStart(32, 'k')
  const keys = Object.entries(KEYS).map(([id, more]) =>
    `  - { id: ${id}, account: acme, secret: ${secretOf(id as Key)}${more === '' ? '' : `, ${more}`} }\n`).join('')
  const gateways: TestGateway[] = []
  for (const store of stores) {
    gateways.push(await gateway(t, yaml([up.url], keys, 'auth, rate-limit: { default_rpm: 0, default_concurrency: 0, ' +
      'default_abandons: 7 }, chat-to-messages, channel-router, billing-meter, error-normalize')
      .replaceAll('dialect: messages,', 'dialect: messages, timeouts: { usage: 0s },')
      .replace('store: { driver: memory, path: ./data }', `store: ${store}`),
    clock === undefined ? {} : { now: () => clock.time }))
  }
  const send = (key: Key, i: number, stream: boolean) => {
    const { path, asking } = clientStyles[styles[i % styles.length]!]
    return client(t, gateways[i % gateways.length]!, path)
      .post(asking({ ...messagesRequest, stream }), { 'x-api-key': secretOf(key) })
  }
  const lines = (): readonly Readonly<Record<string, unknown>>[] =>
    gateways.flatMap(({ logged }) => logged.filter(({ msg }) => msg === 'request'))
  /** @returns the line of the request, or the answer that refused it */
  const abandon = async (key: Key, i: number): Promise<'abandoned' | Awaited<ReturnType<typeof statusOf>>> => {
    const before = lines().length
    const requests = up.requests.length
    const call = send(key, i, script === 'begins' || i % 2 === 0)
    let isRefused = false
    call.whole().then(() => { isRefused = true }, () => {})
    await until(() => isRefused || up.requests.length > requests)
    if (isRefused) return await statusOf(call)
    if (script === 'begins') await call.sees('Hello')
    call.leave()
    await until(() => lines().length > before)
    return 'abandoned'
  }
  const statusOf = async (call: ReturnType<typeof send>) => {
    const { status, headers, text } = await call.whole()
    return { status, headers, text }
  }

  script = 'begins'
  for (let i = 0; i < LIMIT + 1; i++) {
    t.equal(await abandon('limited', 2 * i), 'abandoned', 'an answer that has begun is paid for, and does not count')
  }
  script = 'stalls'
  const first = lines().length
  for (let i = 0; i < LIMIT; i++) t.equal(await abandon('limited', i), 'abandoned')
  const all = lines().slice(first)
  for (const line of all) {
    t.match(line, { key_id: 'limited', code: 'client_closed', outcome: 'failed', abandoned_nanos: /^[1-9]\d*$/ })
    t.equal(line['nanos'], undefined, 'nobody is charged')
  }
  // Another gateway learns of a full window with its own next abandoned request.
  for (let i = 1; i < gateways.length; i++) await abandon('limited', LIMIT + i - 1)
  script = 'answers'
  for (let i = 0; i < gateways.length; i++) {
    const refused = await statusOf(send('limited', i, false))
    t.equal(refused.status, 429)
    t.match(refused.text, /rate_limit.*abandoned 4 requests within 60 seconds|abandoned 4 requests.*rate_limit/s)
    const wait = Number(refused.headers['retry-after'])
    t.ok(wait >= 1 && wait <= 60, `${wait} s`)
  }
  for (const key of ['other', 'open'] as const) {
    t.equal((await statusOf(send(key, 0, false))).status, 200, 'other keys of the account are not limited by it')
  }
  script = 'stalls'
  for (let i = 0; i < 9; i++) assert.equal(await abandon('open', i), 'abandoned')
  t.equal(await abandon('open', 0), 'abandoned', 'without a limit')
  const counted = await Promise.all(gateways.map(async ({ services: { metrics } }) =>
    Number(/^gateway_abandoned_cost_nanodollars_total\{model="m1",channel="premium"\} (\d+)$/m.exec(await metrics.print())![1])))
  const logged = lines().reduce((sum, { abandoned_nanos: nanos }) => sum + Number(nanos ?? 0), 0)
  t.equal(counted.reduce((sum, one) => sum + one), logged, 'the metric is the sum of the lines')
  t.equal(await gateways[0]!.services.store.openHolds(), 0)
  if (clock === undefined) return
  clock.time += 60_000
  script = 'answers'
  t.equal((await statusOf(send('limited', 0, false))).status, 200, 'a minute later')
}
