// The metrics, as a real Prometheus reads them from gateways under load: every expression of every rule and every panel
// is answered, and each alert fires on the fault that it is for, made in the real processes. What no test can cause is
// left to promtool and config/prometheus/rules.test.yml, which has all of them.
import { globSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import { packageRoot } from '../../src/base/package.ts'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { GEN_AI_LABELS } from '../../src/telemetry/conventions.ts'
import { freePort } from '../support/free-port.ts'
import { anchorsOf, textOfPage } from '../support/pages.ts'
import { type Alert, hastenedRules, promtool, rulesFile, rulesIn, startPrometheus } from '../support/prometheus.ts'
import { newPrefix } from '../support/redis-store.ts'
import { redisServer } from '../support/redis-server.ts'
import { folderFor, run, type Spawned } from '../support/spawned.ts'
import { until } from '../support/until.ts'
import { answer, errorReply, json, upstream, type Upstream, wait } from '../support/upstream.ts'

t.setTimeout(1_200_000)

const TOKEN = 'test-admin-token'
const RICH = 'sk-gw-' + 'r'.repeat(32)
const POOR = 'sk-gw-' + 'p'.repeat(32)
/** No test here loses a ledger (store-redis-lost.test.ts does), lets a store fall behind, or takes all descriptors. */
const NOT_CAUSED = ['GatewayLedgerLost', 'GatewayStoreBehind', 'GatewayOutOfResources']
/** What a machine that is busy with other tests may do to a gateway with which all is well. */
const BUSY = ['GatewaySlowItself', 'GatewayFirstTokenSlow', 'GatewayOverloaded', 'GatewayDown', 'GatewayStoreAway',
  'GatewayEventLoopStalls', 'GatewayNotReady']

const rules = rulesIn(readFileSync(rulesFile, 'utf8'))
const alerts = rules.flatMap(({ alert }) => alert === undefined ? [] : [alert])

interface Panel {
  readonly title: string
  readonly type: string
  readonly targets: readonly { readonly expr: string, readonly datasource: { readonly uid: string } }[]
}
interface Dashboard {
  readonly title: string
  readonly templating: { readonly list: readonly { readonly name: string, readonly type: string }[] }
  readonly panels: readonly Panel[]
}
const dashboards = globSync('config/grafana/*.json', { cwd: packageRoot })
  .map((path) => ({ path, board: JSON.parse(textOfPage(path)) as Dashboard }))

void t.test('promtool has nothing to say of the rules, and each alert is tested by it and told of on the page', async (t) => {
  t.match(await promtool(['check', 'rules', rulesFile]), [0, /SUCCESS/])
  const [code, said] = await promtool(['test', 'rules', join(packageRoot, 'config/prometheus/rules.test.yml')])
  t.equal(code, 0, said)
  const { tests } = parse(textOfPage('config/prometheus/rules.test.yml')) as { readonly tests: readonly {
    readonly name: string, readonly promql_expr_test: readonly { readonly exp_samples: readonly { labels: string }[] }[]
  }[] }
  const fired = tests.map(({ name, promql_expr_test: asked }) => {
    t.strictSame(asked.map(({ exp_samples: samples }) => samples.map(({ labels }) => labels)),
      [[], [`{alertname="${name}"}`]], name)
    return name
  })
  t.strictSame([...new Set(fired)].toSorted(), alerts.toSorted())
  const anchors = anchorsOf(textOfPage('config/prometheus/README.md'))
  for (const { alert, labels, annotations } of rules) {
    if (alert === undefined) continue
    t.match(labels, { severity: /^(critical|warning|info)$/ }, alert)
    t.match(annotations, { summary: /./, description: /./, action: /./,
      runbook: `config/prometheus/README.md#${alert.toLowerCase()}` }, alert)
    t.ok(anchors.has(alert.toLowerCase()), alert)
  }
})

void t.test('dashboards are plain, without ids, and ask for their data source', async (t) => {
  t.strictSame(dashboards.map(({ path }) => path.replaceAll('\\', '/')).toSorted(),
    ['health', 'money', 'traffic', 'upstreams'].map((name) => `config/grafana/${name}.json`))
  for (const { path, board } of dashboards) {
    t.match(board.templating.list, [{ name: 'datasource', type: 'datasource' }, { name: 'job' }], path)
    t.notMatch(JSON.stringify(board), /"(?:id|uid)":(?!"\$\{datasource\}")/, path)
    const uids = board.panels.flatMap(({ targets }) => targets.map(({ datasource }) => datasource.uid))
    t.strictSame([...new Set(uids)], ['${datasource}'], path)
  }
})

/** Upstreams by what is wrong with them. */
interface Vendors {
  readonly good: Upstream
  readonly broken: Upstream
  readonly refusing: Upstream
  readonly limited: Upstream
  readonly greedy: Upstream
  readonly slow: Upstream
  readonly silent: Upstream
}

async function vendors (t: Test): Promise<Vendors> {
  return {
    good: await upstream(t, [wait(20), answer('Hello there', { usage: { output_tokens: 8, cache_read_input_tokens: 5 } })]),
    broken: await upstream(t, errorReply(500, 'api_error', 'broken')),
    refusing: await upstream(t, errorReply(401, 'authentication_error', 'no such key')),
    limited: await upstream(t, errorReply(429, 'rate_limit_error', 'too many', { 'retry-after': '300' })),
    greedy: await upstream(t, answer('Hi', { usage: { input_tokens: 50_000 } })),
    slow: await upstream(t, [wait(6000), answer('At last')]),
    // It takes a video, and never tells what becomes of it.
    silent: await upstream(t, ({ method }) => method === 'POST'
      ? json({ id: 'video_1', object: 'video', status: 'queued', model: 'sora' })
      : json({ error: { message: 'later' } }, 500))
  }
}

/** What a plugin of an operator's own may do wrong, when a header says so. */
const PLUGIN = `export default { name: 'own', create: () => ({ async onRequest (exchange) {
  const ms = Number(exchange.received.headers['x-slow'] ?? 0)
  if (ms > 0) await new Promise((resolve) => { setTimeout(resolve, ms) })
  const end = performance.now() + Number(exchange.received.headers['x-spin'] ?? 0)
  while (performance.now() < end) { /* stops the event loop */ }
  for (let i = 0; i < Number(exchange.received.headers['x-leak'] ?? 0); i++) {
    await exchange.ledger.hold({ request_id: 'req_leaked' + i, account: 'rich', key: 'rich-dev', nanos: 1n })
  }
} }) }
`

const LISTEN = 'api: { listen: "127.0.0.1:0" }, public: { listen: "127.0.0.1:0" }'
const KEYS = `accounts:
  - { id: rich, opening_balance_usd: 1000 }
  - { id: poor, opening_balance_usd: 5 }
keys:
  - { id: rich-dev, account: rich, secret: ${RICH} }
  - { id: poor-dev, account: poor, secret: ${POOR} }
`

function sold (id: string, targets: string, price = '{ input: 3, output: 15, cache_read: 0.3 }'): string {
  return `  - { id: ${id}, provider: acme, created: 2026-01-01, context: 200000, max_output: 4000, channels: { premium: { price: ${price}, targets: [${targets}] } } }\n`
}

function mainYaml (up: Vendors, simulator: string, admin: number): string {
  const calm = 'retries: { attempts: 0 }, breaker: { failures: 1000000 }'
  return `
server: { ${LISTEN}, admin: { listen: "127.0.0.1:${admin}", token: ${TOKEN} } }
store: { path: ./data, verify_interval: 1s }
hook_timeout: 4s
videos: { poll_interval: 100ms, max_age: 25s }
pipeline: [auth, key-policy, rate-limit: { default_rpm: 0, default_concurrency: 0 }, schema-validate, chat-to-messages, use: ./own.ts, channel-router, billing-meter, error-normalize]
upstreams:
  good: { url: "${up.good.url}", limits: { concurrency: 2 } }
  broken: { url: "${up.broken.url}", retries: { attempts: 0 } }
  shaky: { url: "${up.broken.url}", ${calm} }
  refusing: { url: "${up.refusing.url}", headers: { x-api-key: old } }
  limited: { url: "${up.limited.url}", headers: { x-api-key: small } }
  greedy: { url: "${up.greedy.url}" }
  slow: { url: "${up.slow.url}" }
  narrow: { url: "${up.slow.url}", limits: { concurrency: 1, queue: 0 }, ${calm} }
  pictures: { url: "${simulator}", dialect: images, headers: { authorization: Bearer x } }
  films: { url: "${simulator}", dialect: videos, headers: { authorization: Bearer x } }
  silent: { url: "${up.silent.url}", dialect: videos }
models:
${sold('good', '{ upstream: good, model: vendor-good, cost: { input: 2, output: 10 } }')}${
  sold('dear', '{ upstream: good, model: vendor-dear, cost: { input: 30, output: 150 } }')}${
  sold('broken', '{ upstream: broken, model: vendor-broken }')}${
  sold('shaky', '{ upstream: shaky, model: vendor-shaky }, { upstream: good, model: vendor-good, priority: 1 }')}${
  sold('refusing', '{ upstream: refusing, model: vendor-refusing }')}${
  sold('limited', '{ upstream: limited, model: vendor-limited }')}${
  sold('greedy', '{ upstream: greedy, model: vendor-greedy }', '{ input: 1000, output: 1000 }')}${
  sold('slow', '{ upstream: slow, model: vendor-slow }')}${
  sold('narrow', '{ upstream: narrow, model: vendor-narrow }')}
  - id: picture
    provider: acme
    kind: image
    created: 2026-01-01
    parameters: { resolution: { values: [1K], default: 1K } }
    channels: { premium: { price: [{ usd: 0.04 }], targets: [{ upstream: pictures, model: nano, cost: [{ usd: 0.03 }] }] } }
  - id: film
    provider: acme
    kind: video
    created: 2026-01-01
    parameters: { seconds: { values: [4], default: 4 } }
    channels: { premium: { price: [{ usd_per_second: 0.1 }], targets: [{ upstream: films, model: sora, cost: [{ usd_per_second: 0.08 }] }] } }
  - id: lost-film
    provider: acme
    kind: video
    created: 2026-01-01
    parameters: { seconds: { values: [4], default: 4 } }
    channels: { premium: { price: [{ usd_per_second: 0.1 }], targets: [{ upstream: silent, model: sora }] } }
routes:
  - { match: POST /v1/raw/messages, forward: good, price: { usd: 0.001 } }
${KEYS}`
}

function fleetYaml (up: Vendors, url: string, prefix: string, path: string, admin: number, workers: number): string {
  return `
server: { ${LISTEN}, admin: { listen: "127.0.0.1:${admin}", token: ${TOKEN} }, workers: ${workers}, drain_timeout: 1s }
store: { driver: redis, path: ./${path}, url: "${url}", prefix: ${prefix}, timeout: 5s }
pipeline: [auth, key-policy, rate-limit: { default_rpm: 0, default_concurrency: 0 }, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize]
upstreams:
  good: { url: "${up.good.url}" }
  slow: { url: "${up.slow.url}" }
models:
${sold('good', '{ upstream: good, model: vendor-good }')}${sold('slow', '{ upstream: slow, model: vendor-slow }')}${KEYS}`
}

/** Everything is too much for it, and its disk is full. */
function tiredYaml (up: Vendors, admin: number): string {
  return `
server: { ${LISTEN}, admin: { listen: "127.0.0.1:${admin}", token: ${TOKEN} }, overload: { memory: 10, memory_limit: 64MB }, body_memory: 8MB, body_limit: 1MB }
store: { driver: memory }
pipeline: [auth, channel-router, billing-meter, error-normalize]
upstreams: { slow: { url: "${up.slow.url}" } }
models:
${sold('slow', '{ upstream: slow, model: vendor-slow }')}${KEYS}`
}

interface Client {
  readonly api: string
  readonly admin: string
  /** @returns the status, once the answer is over */
  post (path: string, body: unknown, headers?: Readonly<Record<string, string>>): Promise<number>
  message (model: string, more?: object, headers?: Readonly<Record<string, string>>): Promise<number>
}

async function clientOf (gw: Spawned): Promise<Client> {
  const { api, admin } = await gw.urls()
  const post: Client['post'] = async (path, body, headers = {}) => {
    const response = await fetch(`${api}${path}`, { method: 'POST', body: JSON.stringify(body),
      headers: { 'content-type': 'application/json', authorization: `Bearer ${RICH}`, ...headers } })
    await response.text()
    return response.status
  }
  return { api, admin, post, message: async (model, more = {}, headers = {}) => await post('/v1/messages',
    { model, max_tokens: 20, messages: [{ role: 'user', content: 'Hello' }], ...more }, headers) }
}

/** Does it again and again until the end of the test, so many times at a time; what fails is a part of it. */
function drive (t: Test, work: () => Promise<unknown>, atOnce = 1): void {
  let isOver = false
  const loops = Array.from({ length: atOnce }, async () => {
    while (!isOver) {
      await work().catch(() => {})
      await pause(200)
    }
  })
  t.teardown(async () => {
    isOver = true
    await Promise.all(loops)
  })
}

/** All of a healthy gateway's work. */
async function work ({ post, message }: Client): Promise<void> {
  await Promise.all([
    message('good', { stream: true }), message('good'),
    post('/v1/chat/completions', { model: 'good', messages: [{ role: 'user', content: 'Hello' }], stream: true })
  ])
}

function names (expression: string): readonly string[] {
  const labels: readonly string[] = Object.values(GEN_AI_LABELS)
  return [...expression.matchAll(/\b(?:gateway|gen_ai|process|nodejs)_[a-z_]+|\bgateway:[a-z0-9_:]+/g)]
    .map(([name]) => name).filter((name) => !labels.includes(name))
}

/** As Grafana fills it in. */
function filled (expression: string): string {
  return expression.replaceAll('$job', '.*').replaceAll('$__rate_interval', '20s').replaceAll('$__range', '120s')
}

void t.test('a Prometheus reads gateways under load', async (t) => {
  const up = await vendors(t)
  const simulator = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0 })
  t.teardown(() => simulator.close())
  const redis = await redisServer(t)
  const prefix = newPrefix()
  const [mainPort, onePort, otherPort, tiredPort] = [await freePort(), await freePort(), await freePort(),
    await freePort()]
  const otherYaml = fleetYaml(up, redis.url, prefix, 'other', otherPort, 1)
  const folder = folderFor(t, { 'own.ts': PLUGIN, 'gateway.yaml': mainYaml(up, simulator.url, mainPort),
    'one.yaml': fleetYaml(up, redis.url, prefix, 'one', onePort, 2), 'other.yaml': otherYaml })
  const start = (file: string): Spawned => run(t, folder, ['start', '--config', file])
  const main = await clientOf(start('gateway.yaml'))
  const one = await clientOf(start('one.yaml'))
  const otherProcess = start('other.yaml')
  const other = await clientOf(otherProcess)
  const prometheus = await startPrometheus(t, { gateway: [`127.0.0.1:${mainPort}`],
    fleet: [`127.0.0.1:${onePort}`, `127.0.0.1:${otherPort}`], tired: [`127.0.0.1:${tiredPort}`] }, hastenedRules())

  for (const gateway of [main, one, other]) drive(t, () => work(gateway))
  t.equal(await main.post('/v1/images/generations', { model: 'picture', prompt: 'A cat' }), 200)
  t.equal(await main.post('/v1/videos', { model: 'film', prompt: 'A cat', seconds: '4' }), 200)
  t.equal(await main.post('/v1/raw/messages', { model: 'vendor', messages: [] }), 200)

  await t.test('nothing is wrong with the text itself', async (t) => {
    for (const { admin } of [main, one, other]) {
      t.strictSame(await promtool(['check', 'metrics'], await (await fetch(`${admin}/metrics`)).text()), [0, ''])
    }
  })

  await t.test('each recording and each panel has an answer', async (t) => {
    const hastened = rulesIn(hastenedRules())
    const asked = new Map([
      ...hastened.map(({ record, alert, expr }) =>
        [record ?? alert!, { expr, mayBeEmpty: alert !== undefined }] as const),
      ...dashboards.flatMap(({ board }) => board.panels.flatMap(({ title, targets }) => targets.map(({ expr }, i) =>
        [`${board.title}, ${title}, ${i}`, { expr: filled(expr), mayBeEmpty: expr.endsWith(' > 0') }] as const)))
    ])
    let silent: string[] = []
    for (const since = performance.now(); performance.now() - since < 120_000; await pause(1000)) {
      silent = []
      for (const [name, { expr, mayBeEmpty }] of asked) {
        const found = await prometheus.query(expr)
        if (found.length === 0 && !mayBeEmpty) silent.push(name)
      }
      if (silent.length === 0) break
    }
    t.strictSame(silent, [])
    const firing = (await prometheus.firing()).map(({ labels }) => labels['alertname']!)
    t.strictSame(firing.filter((name) => !BUSY.includes(name)), [], 'all is well')
  })

  await t.test('what a request makes is told by its name, a 503 by its channel, forwarded bytes by their route', async (t) => {
    const operations = await prometheus.query('count by (gen_ai_operation_name) (gen_ai_server_request_duration_seconds_count)')
    t.strictSame(operations.map(({ metric }) => metric['gen_ai_operation_name']).toSorted(),
      ['chat', 'image_generation', 'video_generation'])
    const charged = await prometheus.query('gateway_charged_nanodollars_total{model="POST /v1/raw/messages"}')
    t.strictSame(charged.map(({ value }) => value), [1_000_000])
    for (const [model, cost] of [['picture', 30_000_000], ['film', 320_000_000]] as const) {
      const found = await until(async () => {
        await pause(500)
        const samples = await prometheus.query(`gateway_cost_nanodollars_total{model="${model}"}`)
        return samples.length > 0 && samples
      })
      t.strictSame(found.map(({ value }) => value), [cost], model)
    }
    const timeouts = await prometheus.query('gateway_hook_timeouts_total{plugin="own"}')
    t.strictSame(timeouts.map(({ value }) => value), [0], 'a plugin of an operator\'s own begins at 0 too')
    const unmoved = await prometheus.query('{__name__=~"gen_ai_.*token.*", gen_ai_operation_name!="chat"}')
    t.strictSame(unmoved, [])
  })

  await t.test('each alert fires on its fault', async (t) => {
    const admin = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' }
    const tired = await clientOf(run(t, folderFor(t, { 'gateway.yaml': tiredYaml(up, tiredPort) }),
      ['start', '--config', 'gateway.yaml'], { output: openSync('/dev/full', 'w') }))
    const seen = new Map<string, Alert>()
    const look = async (): Promise<void> => {
      for (const alert of await prometheus.firing()) {
        seen.set(`${alert.labels['alertname']!} ${alert.labels['job']!}`, alert)
      }
    }
    const fired = async (...expected: readonly string[]): Promise<void> => {
      const missing = (): string[] => expected.filter((name) => !seen.has(name))
      for (const since = performance.now(); missing().length > 0 && performance.now() - since < 300_000;) {
        await look()
        await pause(500)
      }
      t.strictSame(missing(), [], expected.join(', '))
    }

    drive(t, () => main.message('broken'), 2)
    drive(t, () => main.message('shaky'))
    drive(t, () => main.message('refusing'))
    drive(t, () => main.message('limited'))
    drive(t, () => main.message('dear'))
    drive(t, () => main.message('slow', { stream: true }), 6)
    drive(t, () => main.message('narrow'), 3)
    drive(t, () => main.message('good', {}, { 'x-slow': '300' }), 6)
    drive(t, () => main.message('good', {}, { 'x-slow': '60000' }))
    drive(t, async () => {
      await main.message('good', {}, { 'x-spin': '400' })
      await pause(1500)
    })
    drive(t, () => main.message('greedy', {}, { authorization: `Bearer ${POOR}` }))
    // Sixteen of them wait longer each time, the others are answered at once.
    drive(t, () => fetch(`${main.admin}/admin/v1/config`,
      { headers: { authorization: 'Bearer no-such-token' }, signal: AbortSignal.timeout(5000) }), 24)
    drive(t, () => tired.message('slow'), 3)
    t.equal(await main.post('/v1/videos', { model: 'lost-film', prompt: 'A cat', seconds: '4' }), 200)
    await main.message('good', {}, { 'x-leak': '30' })
    await redis.ask('HINCRBY', `{${prefix}:rich}:account`, 'balance', '1')
    t.match(await (await fetch(`${other.admin}/admin/v1/ledger/verify`, { method: 'POST', headers: admin })).json(),
      { ok: false })
    writeFileSync(join(folder, 'gateway.yaml'), 'pipeline: nonsense\n')
    writeFileSync(join(folder, 'other.yaml'), otherYaml.replace('output: 15', 'output: 16'))
    let killed = 0
    drive(t, async () => {
      if (killed === 4) return
      const { data } = await (await fetch(`${one.admin}/admin/v1/fleet`, { headers: admin })).json() as {
        readonly data: readonly { readonly worker?: number, readonly pid: number }[]
      }
      const worker = data.find((process) => process.worker === 1)
      if (worker === undefined) return
      process.kill(worker.pid, 'SIGKILL')
      killed++
    })
    await fired(...['Shortfall', 'HoldsLeak', 'VideoUnknown', 'SoldBelowCost', 'LowBalances', 'RequestsFail',
      'FirstTokenSlow', 'QueueFull', 'SignInFailures', 'TargetOut', 'TargetFails', 'CredentialRefused',
      'CredentialLimited', 'ConfigRefused', 'SlowItself', 'HookTimeouts',
      'EventLoopStalls'].map((name) => `Gateway${name} gateway`),
    'GatewayLedgerDiffers fleet', 'GatewayConfigDiffers fleet', 'GatewayRestarts fleet', 'GatewayOverloaded tired',
    'GatewayLogDropped tired')
    t.match(seen.get('GatewayTargetOut gateway')?.labels, { upstream: 'broken', model: 'vendor-broken' })
    t.match(seen.get('GatewayCredentialRefused gateway')?.labels, { upstream: 'refusing', credential: 'headers',
      reason: 'bad_key' })
    t.match(seen.get('GatewayCredentialLimited gateway')?.labels, { upstream: 'limited', credential: 'headers' })
    t.match(seen.get('GatewayFirstTokenSlow gateway')?.labels, { gen_ai_request_model: 'slow' })
    t.match(seen.get('GatewayVideoUnknown gateway')?.labels, { model: 'lost-film' })
    t.match(seen.get('GatewaySoldBelowCost gateway')?.labels, { model: 'dear', upstream: 'good' })
    t.match(seen.get('GatewayHookTimeouts gateway')?.labels, { plugin: 'own' })
    t.match(seen.get('GatewayQueueFull gateway')?.labels, { upstream: 'narrow' })

    // What these streams cost is settled when nobody is there who could hear of it.
    const before = up.slow.requests.length
    for (let i = 0; i < 40; i++) void other.message('slow', { stream: true }).catch(() => {})
    await until(async () => { await pause(100); return up.slow.requests.length >= before + 40 })
    await redis.kill()
    await fired('GatewayStoreAway fleet', 'GatewayOutboxWaits fleet')
    otherProcess.child.kill('SIGKILL')
    await fired('GatewayDown fleet')

    t.strictSame(alerts.filter((name) => ![...seen.keys()].some((key) => key.startsWith(`${name} `))), NOT_CAUSED)
    for (const [name, { annotations }] of seen) {
      t.notMatch(JSON.stringify(annotations), /\{\{|<no value>|error (?:expanding|executing)/, name)
    }
    const known = new Set(rulesIn(hastenedRules()).flatMap(({ expr }) => names(expr)))
    const unknown: string[] = []
    for (const name of known) {
      if ((await prometheus.query(`count(last_over_time(${name}[1h]))`)).length === 0) unknown.push(name)
    }
    t.strictSame(unknown, [], 'an alert on what is not there never fires')
  })
})
