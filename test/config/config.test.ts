// gateway.yaml that is valid: what becomes of it. The first is loaded as the gateway loads it, in a thread.
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { check } from '../../src/commands/check.ts'
import { loadConfig, type ValidLoad } from '../../src/config/load/load.ts'
import { formatProblem } from '../../src/config/problem.ts'
import { redact } from '../../src/config/redact.ts'
import { pluginsUrl, print, read } from '../fixtures/config/mistakes.ts'
import { plugins } from '../fixtures/config/plugins.ts'
import { loadHere } from '../support/load-here.ts'

const KEY = 'sk-gw-' + 'k'.repeat(32)

async function valid (
  t: Test,
  folder: string,
  env: Readonly<Record<string, string>> = {},
  load = loadHere
): Promise<ValidLoad> {
  const result = await load(join(folder, 'gateway.yaml'), { pluginsUrl, env })
  if (result.kind === 'invalid') throw new Error(result.problems.map(formatProblem).join('\n'))
  t.equal(result.kind, 'valid')
  return result
}

t.test('what is not written has its default', async (t) => {
  const folder = t.testdir({
    'gateway.yaml': 'pipeline: [auth]\nupstreams: { a: { url: "https://api.example.com" } }\nmodels:\nkeys:\n'
  })
  const { config } = await valid(t, folder, {}, loadConfig)
  t.strictSame(JSON.parse(JSON.stringify(config)), {
    server: {
      workers: 1,
      api: { listen: '127.0.0.1:8080',
        timeouts: { headers: 10_000, body_idle: 15_000, write_stall: 60_000, hold_head: 10_000, ping: 15_000 } },
      public: { listen: '127.0.0.1:8081', docs: false, link_life: 86_400_000, link_space: 10_737_418_240 },
      admin: { listen: '127.0.0.1:9090', token: '', hosts: [] },
      seal_secrets: [],
      trusted_proxies: [],
      body_limit: 33_554_432,
      body_memory: 536_870_912,
      body_disk: 4_294_967_296,
      body_rate: 512,
      fast_lane: 'on',
      overload: { event_loop_delay: 500, memory: 90 },
      drain_delay: 0,
      drain_timeout: 30_000
    },
    store: { driver: 'embedded', path: './data', fsync_interval: 100, windows: 'full', prefix: 'gateway', timeout: 250,
      verify_interval: 86_400_000,
      on_outage: { auth: 'deny', limits: 'deny', money: 'deny', lease_usd: '1' } },
    log: { level: 'info', format: 'auto',
      requests: { keep: 100_000, max_age: 604_800_000, max_size: 268_435_456 } },
    videos: { poll_interval: 5000, poll_concurrency: 20, max_age: 86_400_000, lost_after: 600_000,
      file_life: 86_400_000, keep: 1_728_000_000 },
    hook_timeout: 5000,
    pipeline: [{ use: 'auth', with: { prefix: 'sk-gw-' } }],
    upstreams: {
      a: {
        url: 'https://api.example.com',
        dialect: 'messages',
        count_tokens: false,
        links: 'pass',
        headers: {},
        timeouts: { connect: 3000, first_byte: 60_000, idle: 60_000, total: 1_800_000, usage: 1000,
          websocket_idle: 300_000, connection_age: 300_000 },
        retries: { attempts: 2, backoff: 250, max_backoff: 2000, budget: 20 },
        breaker: { failures: 5, ratio: 50, window: 10_000, open: 5000, max_open: 60_000 },
        trace: false,
        maintenance: false,
        http2: 'off'
      }
    },
    models: [],
    aliases: [],
    routes: [],
    accounts: [],
    keys: []
  })
})

t.test('what degrade was called before is read, and said', async (t) => {
  const outage = async (words: string, env = {}): Promise<unknown[]> => {
    const folder = t.testdir({ 'gateway.yaml': `pipeline: [auth]\nstore: { on_outage: ${words} }\n` })
    const { config, warnings } = await valid(t, folder, env)
    const { auth, limits, money } = config.store.on_outage
    return [auth, limits, money,
      ...warnings.map(({ line, column, message, hint }) => `${line}:${column} ${message} (${hint!})`)]
  }
  const degraded = ['degrade', 'degrade', 'degrade']
  t.strictSame(await outage('{ auth: degrade, limits: degrade, money: degrade }'), degraded)
  t.strictSame(await outage('{ auth: cached, limits: local, money: "${MONEY}" }', { MONEY: 'leased' }), [
    ...degraded,
    '2:29 "cached" is called "degrade" (write "auth: degrade")',
    '2:45 "local" is called "degrade" (write "limits: degrade")',
    '2:59 "leased" is called "degrade" (write "money: degrade")'
  ])
  t.strictSame(await outage('{ limits: allow }'), [
    'deny',
    'degrade',
    'deny',
    '2:31 "allow" is called "degrade", and each process counts for itself (write "limits: degrade")'
  ])
})

const whole = `
server: { body_limit: 1KB, body_memory: 2GB, drain_timeout: 1.5s, trusted_proxies: ["10.0.0.0/8", "2001:db8::/32"] }
hook_timeout: 2m
pipeline:
  - auth
  - rate-limit: { default_rpm: 10, window: 1h, price: 0.10 }
  - use: channel-router
  - use: billing-meter
    with: {}
upstreams: { a: { url: "simulator:", headers: { x-api-key: k } } }
models:
  - id: vendor/m-1:free
    provider: p
    created: 2024-02-29
    channels:
      premium:
        price: { input: 3, output: 15.50, cache_read: 0.30, cache_write: 1.000000000001, extras: { web_search: "0.01" } }
        targets: [{ upstream: a, model: x }, { upstream: a, model: y, weight: 0 }]
      cheap: { enabled: false, price: free, targets: [{ upstream: a, model: x }] }
accounts:
  - { id: acme, opening_balance_usd: 1234567890.000000001 }
keys:
  - { id: k, account: acme, secret: ${KEY}, usage_limit_usd: 0.1 }
routes:
  - { match: "GET,POST /v1/files/*", forward: a, price: { usd: 0.0001 }, pipeline: [auth, rate-limit, billing-meter] }
  - { match: POST /v1/messages, serve: none }
  - { match: POST /v1/chat/completions, serve: none }
`

t.test('durations, sizes and prices become what the code wants; prices never see a float', async (t) => {
  const { config } = await valid(t, t.testdir({ 'gateway.yaml': whole }))
  t.match(config.server, { body_limit: 1024, body_memory: 2 * 1024 ** 3, drain_timeout: 1500 })
  t.equal(config.hook_timeout, 120_000)
  t.strictSame(JSON.parse(JSON.stringify(config.models[0]!.channels.premium)), {
    enabled: true,
    maintenance: false,
    sticky: false,
    price: { input: '3', output: '15.50', cache_read: '0.30', cache_write: '1.000000000001',
      extras: { web_search: '0.01' } },
    targets: [{ upstream: 'a', model: 'x', weight: 1, priority: 0 }, { upstream: 'a', model: 'y', weight: 0,
      priority: 0 }]
  })
  t.equal(config.models[0]!.channels.cheap!.price, 'free')
  t.equal(config.models[0]!.name, 'vendor/m-1:free')
  t.equal(config.accounts[0]!.opening_balance_usd, '1234567890.000000001')
  t.match(config.keys[0], { usage_limit_usd: '0.1', routing_mode: 'premium', channels: ['premium', 'cheap'] })
  t.strictSame(JSON.parse(JSON.stringify(config.routes[0]!.price)), { usd: '0.0001' })
})

t.test('the three spellings of a plugin are one', async (t) => {
  const { config } = await valid(t, t.testdir({ 'gateway.yaml': whole }))
  t.strictSame(config.pipeline.map(({ use }) => use), ['auth', 'rate-limit', 'channel-router', 'billing-meter'])
  t.match(config.pipeline[1]!.with, { default_rpm: 10, window: 3_600_000, price: '0.10', memory: 1024 ** 2 })
})

t.test('it is frozen to the bottom', async (t) => {
  const { config } = await valid(t, t.testdir({ 'gateway.yaml': whole }))
  const open: string[] = []
  const walk = (value: unknown, path: string): void => {
    if (typeof value !== 'object' || value === null) return
    if (!Object.isFrozen(value)) open.push(path)
    for (const [key, child] of Object.entries(value)) walk(child, `${path}/${key}`)
  }
  walk(config, '')
  t.strictSame(open, [])
})

t.test('the environment and secret files fill in values, and plain ones take the type that they look like', async (t) => {
  const folder = t.testdir({
    secrets: { token: 'from-the-file\n', key: KEY + '\r\n' },
    'gateway.yaml': `
server:
  admin: { token: "\${file:secrets/token}" }
  body_limit: \${LIMIT:-2MB}
pipeline:
  - auth
  - rate-limit:
      default_rpm: \${RPM}
      token: \${DIGITS}
      note: "\${RPM} of $\${RPM}"
upstreams:
  a: { url: "\${HOST:-https://}\${NAME}/v1" }
accounts: [{ id: acme, name: "\${EMPTY:-Acme}" }]
keys: [{ id: k, account: acme, secret: "\${file:./secrets/key}" }]
`
  })
  const { config, files, secrets } = await valid(t, folder, { RPM: '12', DIGITS: '0123456789', NAME: 'api.example.com',
    EMPTY: '' })
  t.equal(config.server.admin.token, 'from-the-file')
  t.equal(config.server.body_limit, 2 * 1024 ** 2)
  t.match(config.pipeline[1]!.with, { default_rpm: 12, token: '0123456789', note: '12 of ${RPM}' })
  t.equal(config.upstreams.a!.url, 'https://api.example.com/v1')
  t.equal(config.accounts[0]!.name, 'Acme')
  t.equal(config.keys[0]!.secret, KEY)
  t.strictSame(files.toSorted(), ['gateway.yaml', 'secrets/key', 'secrets/token'].map((name) => join(folder, name)))
  t.strictSame(redact(config, secrets).pipeline[1]!.with, { default_rpm: '***', token: '***', note: '***',
    window: 60_000, memory: 1024 ** 2, price: '0' })
})

t.test('a quoted ${NAME} stays a text', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': 'pipeline:\n  - auth\n  - rate-limit: { default_rpm: "${RPM}" }\n' })
  const lines = print(await read(folder, { RPM: '12' }), folder)
  t.strictSame(lines, [
    'gateway.yaml:3:32 /pipeline/1/with/default_rpm must be a whole number, found the value of ${RPM} (write it without quotes)'
  ])
})

t.test('included files are parts of one whole', async (t) => {
  const folder = t.testdir({
    'gateway.yaml':
      'include: [config/models.yaml, config/teams.yaml]\npipeline: [auth]\nlog: { level: warn }\nupstreams: { a: { url: "simulator:" } }\naccounts: [{ id: first }]\n',
    config: {
      'models.yaml':
        'upstreams: { b: { url: "simulator:" } }\nmodels:\n  - &base\n    id: m1\n    provider: p\n    created: 2025-01-01\n    channels: { premium: { price: free, targets: [{ upstream: b, model: x }] } }\n  - <<: *base\n    id: m2\n',
      'teams.yaml': 'include: [more.yaml]\naccounts: [{ id: second }]\n',
      'more.yaml': 'accounts: [{ id: third, name: "${file:third.txt}" }]\n',
      'third.txt': 'The third'
    }
  })
  const { config, files } = await valid(t, folder)
  t.strictSame(Object.keys(config.upstreams), ['a', 'b'])
  t.strictSame(config.models.map(({ id, provider }) => [id, provider]), [['m1', 'p'], ['m2', 'p']])
  t.strictSame(config.accounts.map(({ id }) => id), ['first', 'second', 'third'])
  t.equal(config.accounts[2]!.name, 'The third')
  t.equal(files.length, 5)
})

t.test('a digest knows what a reload applies, and nothing else', async (t) => {
  const digest = async (yaml: string): Promise<string> => (await valid(t, t.testdir({ 'gateway.yaml': yaml }))).digest
  const first = await digest(whole)
  t.equal(await digest('# a comment\n' + whole.replace('hook_timeout: 2m', 'hook_timeout: 120s')), first)
  t.equal(await digest(whole.replace('body_limit: 1KB', 'body_limit: 2KB')), first, 'server: needs a restart')
  t.not(await digest(whole.replace('hook_timeout: 2m', 'hook_timeout: 3m')), first)
})

t.test('what is odd but works is a warning with its place', async (t) => {
  const folder = t.testdir({
    'gateway.yaml': `pipeline: [auth]
upstreams: { a: { url: "simulator:" } }
models:
  - { id: m, provider: p, created: 2025-01-01, channels: { premium: { enabled: false, price: free, targets: [{ upstream: a, model: x }] } } }
accounts: [{ id: acme }]
keys:
  - { id: k, account: acme, secret: ${KEY}, channels: [cheap] }
`
  })
  const { warnings } = await valid(t, folder)
  t.strictSame(warnings.map((warning) => formatProblem(warning).replace(folder + '/', '')), [
    'gateway.yaml:4:48 /models/0/channels all channels are switched off: the model cannot be called',
    'gateway.yaml:7:5 /keys/0 routing_mode premium wants another channel than the only one of this key, cheap: models that both sell are refused (set routing_mode: cheap, or add the channel premium)'
  ])
})

t.test('secrets print as ***, and their absence as absence', async (t) => {
  const yaml = whole.replace('server: {', 'server: { admin: { token: top-secret },').replace('default_rpm: 10',
    'token: top-secret')
  const { config, secrets } = await valid(t, t.testdir({ 'gateway.yaml': yaml }))
  const shown = redact(config, secrets)
  t.notMatch(JSON.stringify(shown), /top-secret|k{32}/)
  t.equal(shown.server.admin.token, '***')
  t.strictSame(shown.upstreams.a!.headers, { 'x-api-key': '***' })
  t.equal(shown.keys[0]!.secret, '***')
  t.equal(shown.pipeline[1]!.with.token, '***')
  t.strictSame(shown.models, config.models, 'the rest is as it was')
  const bare = await valid(t, t.testdir({ 'gateway.yaml': 'pipeline: [auth]\n' }))
  t.equal(redact(bare.config).server.admin.token, '')
})

t.test('gateway check prints one line per problem, or JSON, and its exit code', async (t) => {
  const printed: string[] = []
  const options = { plugins, pluginsUrl, env: {}, write: (text: string) => { printed.push(text) } }
  const good = join(t.testdir({ 'gateway.yaml': whole }), 'gateway.yaml')
  t.equal(await check(good, { ...options, json: false }), 0)
  t.strictSame(printed.splice(0), [`${good} is valid: 1 model, 1 upstream, 3 routes, 1 key\n`])
  t.equal(await check(good, { ...options, json: true }), 0)
  t.strictSame(JSON.parse(printed.splice(0).join('')), { ok: true, problems: [], warnings: [] })
  const bad = join(t.testdir({ 'gateway.yaml': 'pipeline: [auth]\nlog: { level: loud }\nstor: {}\n' }), 'gateway.yaml')
  t.equal(await check(bad, { ...options, json: false }), 1)
  t.strictSame(printed.splice(0), [
    `${bad}:2:15 /log/level must be one of trace, debug, info, warn, error, fatal, silent, found "loud"\n`,
    `${bad}:3:1 /stor unknown key "stor" (did you mean "store"?)\n`
  ])
  t.equal(await check(bad, { ...options, json: true }), 1)
  t.match(JSON.parse(printed.splice(0).join('')), { ok: false,
    problems: [{ line: 2, column: 15, path: '/log/level' }, { line: 3, hint: 'did you mean "store"?' }], warnings: [] })
})

t.test('gateway check finds what a start would: a plugin that refuses its configuration', async (t) => {
  const folder = t.testdir({
    'gateway.yaml': 'pipeline:\n  - auth\n  - use: ./mine.ts\n',
    'mine.ts': 'export default { name: "mine", create () { throw new Error("no licence") } }\n'
  })
  const printed: string[] = []
  t.equal(await check(join(folder, 'gateway.yaml'), { pluginsUrl, env: {}, json: false, write: (text) => {
    printed.push(text.replaceAll(folder + '/', ''))
  } }), 1)
  t.strictSame(printed, [
    'gateway.yaml:3:10 /pipeline/1/use could not be put to use: the plugin mine refused its configuration: no licence (thrown at mine.ts:1:50)\n'
  ])
})

t.test('a list of shipped plugins that cannot be loaded is a problem, not a crash', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': 'pipeline: [auth]\n' })
  const result = await loadConfig(join(folder, 'gateway.yaml'), { env: {},
    pluginsUrl: new URL('../fixtures/config/none.ts', import.meta.url) })
  t.match(result, { kind: 'invalid', problems: [{ message: /^could not be checked: / }] })
})
