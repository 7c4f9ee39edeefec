// The warm-up before the gateway is ready: it goes the way of clients' requests, and leaves nothing behind.
import t from 'tap'
import { plugins } from '../../plugins/index.ts'
import type { Config } from '../../src/config/config.ts'
import { dialectsOf, standardDialect } from '../../src/config/sections/dialects.ts'
import type { Plugin } from '../../src/core/plugin.ts'
import { WarmUp } from '../../src/gateway/warm-up.ts'
import { styles } from '../support/client-styles.ts'
import { gateway, yaml, type TestGateway } from '../support/gateway.ts'
import { LIMIT_MS, until } from '../support/until.ts'
import { answer, upstream } from '../support/upstream.ts'

const PIPELINE = 'auth, key-policy, rate-limit: { default_rpm: 5, families: { few: { rpm: 2 } } }, schema-validate, chat-to-messages, ' +
  'responses-to-messages: { keep: 1h }, channel-router, billing-meter, error-normalize'

/** Beside that of `yaml`. */
const others = dialectsOf('text').filter((name) => name !== standardDialect)

/** One model for each dialect of text, with what a warm-up must neither send nor obey. */
function everyDialect (url: string): string {
  const upstreams = others.map((dialect) =>
    `  ${dialect}: { url: "${url}", dialect: ${dialect}, limits: { concurrency: 1, queue: 0 }, maintenance: true,
    credentials: [{ id: a, headers: { authorization: upstream-secret-${dialect} } }] }\n`)
  const models = others.map((dialect) =>
    `  - { id: ${dialect}, provider: acme, family: few, created: 2025-09-29, max_output: 5, channels: { cheap: { enabled: false,
      price: { input: 1, output: 2 }, targets: [{ upstream: ${dialect}, model: vendor-${dialect} }] } } }\n`)
  return yaml([url], '', PIPELINE).replace('models:\n', `${upstreams.join('')}models:\n`)
    .replace('accounts:\n', `${models.join('')}accounts:\n`)
}

async function isReady (gw: TestGateway): Promise<boolean> {
  return (await gw.reasons()).length === 0
}

const warmed = ({ logged }: TestGateway): Record<string, unknown> | undefined =>
  logged.find(({ msg }) => msg === 'warmed up')

t.test('until it is over the gateway is not ready, and then nothing tells of it but one line', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const gw = await gateway(t, everyDialect(up.url), { warmsUp: true })
  t.strictSame(await gw.reasons(), ['warming_up'])
  const before = gw.logged.length
  await until(async () => await isReady(gw))
  const lines = gw.logged.slice(before)
  t.match(lines, [{ msg: 'warmed up' }])
  t.equal(lines.length, 1)
  t.ok((warmed(gw)!.requests as number) > 0)

  t.equal(up.requests.length, 0, 'no upstream')
  const { store, upstreams } = gw.services
  const { entries, accounts } = await store.verify()
  t.strictSame([entries, accounts], [1, 1], 'the opening balance')
  t.equal(await store.openHolds(), 0)
  const admin = { headers: { authorization: 'Bearer test-admin-token' } }
  t.match(await (await fetch(`${gw.urls.admin}/admin/v1/requests`, admin)).json(), { data: [] })
  t.notMatch(JSON.stringify(upstreams.health.targets(gw.live.current())), 'warm-up')
  const metrics = await gw.services.metrics.print()
  t.notMatch(metrics, /warm-up/)
  t.match(metrics, /^gateway_requests_in_flight 0$/m)
  t.notMatch(metrics, /^gateway_requests_total\{/m)

  // A window of five a minute: all of them are there.
  const statuses: number[] = []
  for (let i = 0; i < 6; i++) {
    const { status } = await gw.messages({ model: 'm1', max_tokens: 10, messages: [{ role: 'user', content: 'Hi' }] })
    statuses.push(status)
  }
  t.strictSame(statuses, [200, 200, 200, 200, 200, 429])
  t.equal(up.requests.length, 5)
})

/** A configuration as `gateway` has it live, and the plugins with one more at the end of its pipeline. */
async function withPlugin (
  t: Parameters<typeof gateway>[0], url: string, more: Plugin
): Promise<{ readonly config: Config, readonly shipped: ReadonlyMap<string, Plugin> }> {
  const gw = await gateway(t, everyDialect(url))
  const { config } = gw.live.current()
  return { config: { ...config, pipeline: [...config.pipeline, { use: more.name, with: {} }] },
    shipped: new Map([...plugins, more].map((plugin) => [plugin.name, plugin])) }
}

t.test('it takes every style, every dialect in use, JSON and streams, and no secret of an upstream', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const seen = new Set<string>()
  const sent: unknown[] = []
  const spy: Plugin = { name: 'spy', create: (_options, config) => {
    sent.push(config.upstreams)
    return { perAttempt: ({ upstream: name }, exchange) => {
      seen.add(`${exchange.route.style.name} to ${config.upstreams[name]!.dialect}, ${String(exchange.request.stream)}`)
      return { onUpstreamRequest (request) { sent.push(request.headers) } }
    } }
  } }
  const { config, shipped } = await withPlugin(t, up.url, spy)
  const logged: object[] = []
  const warmUp = new WarmUp({ config, shipped, log: { info (line: object) { logged.push(line) } },
    isWanted: () => seen.size < 2 * styles.length * dialectsOf('text').length, mostMs: LIMIT_MS })
  await until(() => warmUp.isOver)
  t.strictSame([...seen].toSorted(), styles.toSorted().flatMap((style) =>
    dialectsOf('text').toSorted().flatMap((dialect) => [false, true].map((stream) =>
      `${style} to ${dialect}, ${String(stream)}`))))
  t.notMatch(JSON.stringify(sent), 'upstream-secret')
  t.equal(up.requests.length, 0)
  t.equal(logged.length, 1)
  t.notMatch(logged, [{ err: Error }])
})

t.test('a client\'s request ends it', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const gw = await gateway(t, yaml([up.url]), { warmsUp: true })
  t.equal((await gw.messages({ model: 'm1', max_tokens: 10, messages: [{ role: 'user', content: 'Hi' }] })).status, 200)
  await until(async () => await isReady(gw))
  t.ok((warmed(gw)?.requests as number | undefined ?? 0) < 300)
  t.equal(up.requests.length, 1)
})

t.test('what is not wanted any more is not begun', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const gw = await gateway(t, yaml([up.url]))
  const done: number[] = []
  let asked = 0
  const warmUp = new WarmUp({ config: gw.live.current().config,
    shipped: new Map(plugins.map((plugin) => [plugin.name, plugin])), isWanted: () => asked++ < 20, mostMs: LIMIT_MS,
    log: { info (line: { readonly requests?: number }) { done.push(line.requests!) } } })
  await until(() => warmUp.isOver)
  t.strictSame(done, [20])
})

t.test('a stop ends it', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const gw = await gateway(t, yaml([up.url]), { warmsUp: true })
  await gw.stop()
  t.ok((warmed(gw)?.requests as number | undefined ?? 0) < 1000)
  t.strictSame(gw.logged.filter(({ level }) => level === 'warn' || level === 'error'), [])
})

t.test('where it fails, that is said, and the gateway is ready all the same', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const refusing: Plugin = { name: 'refusing', create: () => ({ onHead () { throw new Error('not me') } }) }
  const logged: unknown[] = []
  const warmUp = new WarmUp({ ...await withPlugin(t, up.url, refusing), isWanted: () => true,
    log: { info (line: object, text: string) { logged.push(line, text) } } })
  await until(() => warmUp.isOver)
  t.match(logged, [{ err: /server_error/ }, 'the warm-up failed: the first requests will take longer'])
})

t.test('an upstream that is no vendor of text is not warmed up for', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const gw = await gateway(t, yaml([up.url]).replaceAll('dialect: messages', 'dialect: images')
    .replace('kind: text', 'kind: image').replace(/ +(context|max_output|accepts): .*\n/g, '')
    .replace(/price: \{.*\}/, 'price: [{ usd: 0.04 }]'), { warmsUp: true })
  await until(async () => await isReady(gw))
  t.equal(warmed(gw), undefined)
})
