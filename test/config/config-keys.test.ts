// The settings of keys, accounts and models from gateway.yaml to the snapshot that requests run on, with the shipped
// plugins: what is written is what is live, what is wrong is said all at once, and what only a plugin can see is seen
// before a start, too.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv } from 'ajv'
import t from 'tap'
import { parse } from 'yaml'
import { plugins } from '../../plugins/index.ts'
import { check } from '../../src/commands/check.ts'
import { editorSchema } from '../../src/config/schema.ts'
import { packageRoot } from '../../src/base/package.ts'
import { gateway, KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { answer, upstream } from '../support/upstream.ts'

const pluginsUrl = new URL('../../plugins/index.ts', import.meta.url).href
const PIPELINE = 'auth, key-policy, rate-limit, chat-to-messages, channel-router, billing-meter, error-normalize'
const OTHER = 'sk-gw-' + 'o'.repeat(32)

/** The lines that `gateway check` prints, with paths relative to the folder. */
async function lines (folder: string, env: Readonly<Record<string, string>> = {}): Promise<string[]> {
  const printed: string[] = []
  await check(join(folder, 'gateway.yaml'), { json: false, pluginsUrl, env, write: (text) => {
    printed.push(text.trimEnd().replaceAll(folder + '/', ''))
  } })
  return printed
}

const settings = `
  - id: \${NAME}-app
    account: acme
    secret: "\${file:key}"
    usage_limit_usd: \${LIMIT}
    usage_limit_day_usd: \${LIMIT}
    usage_limit_month_usd: 1.5
    time_zone: \${REGION}/Berlin
    rate_limit: \${RPM}
    concurrency: \${SLOTS:-3}
    allowed_models: [m1, "\${FAMILY}-*", "*"]
    allowed_clients: [claude-code, "\${AGENT}/*"]
    ip_whitelist: [127.0.0.1, "::1", "\${OFFICE}"]
    allowed_origins: ["https://\${HOST}", "null"]
    streaming: \${STREAMING:-false}
    frozen: \${FROZEN}
    routing_mode: auto_cheap
    channels: [\${CHANNEL}]
`.replaceAll('[${CHANNEL}]', '["${CHANNEL}"]')
const env = { NAME: 'web', LIMIT: '0.10', REGION: 'Europe', RPM: '12', FAMILY: 'm', AGENT: 'acme',
  OFFICE: '2001:db8::/32', HOST: 'app.example.com', FROZEN: 'false', CHANNEL: 'cheap' }

t.test('every setting of a key is in the snapshot as it is written, whatever ${NAME} stands in it', async (t) => {
  const { live, file } = await gateway(t, yaml(['http://127.0.0.1:9'], settings, PIPELINE), { env,
    files: { key: OTHER + '\n' } })
  const [plain, full] = live.current().config.keys
  t.strictSame(JSON.parse(JSON.stringify(full)), {
    id: 'web-app',
    account: 'acme',
    secret: OTHER,
    usage_limit_usd: '0.10',
    usage_limit_day_usd: '0.10',
    usage_limit_month_usd: '1.5',
    time_zone: 'Europe/Berlin',
    rate_limit: 12,
    concurrency: 3,
    allowed_models: ['m1', 'm-*', '*'],
    allowed_clients: ['claude-code', 'acme/*'],
    ip_whitelist: ['127.0.0.1', '::1', '2001:db8::/32'],
    allowed_origins: ['https://app.example.com', 'null'],
    streaming: false,
    frozen: false,
    routing_mode: 'auto_cheap',
    channels: ['cheap']
  })
  t.strictSame(JSON.parse(JSON.stringify(plain)), {
    id: 'acme-dev',
    account: 'acme',
    secret: KEY,
    frozen: false,
    streaming: true,
    routing_mode: 'premium',
    channels: ['premium', 'cheap']
  }, 'what is not written restricts nothing, and has no default that could')
  const shown = live.status().config.keys[1]!
  t.equal(shown.secret, '***')
  t.match(shown, { ip_whitelist: full!.ip_whitelist!, rate_limit: 12 }, 'the operator sees the rest')
  const validate = new Ajv({ allErrors: true, strict: false }).compile(editorSchema(plugins))
  validate(parse(readFileSync(file, 'utf8')))
  t.strictSame(validate.errors, null, 'editors accept it')
})

t.test('what a model and an upstream can do is in the snapshot, too', async (t) => {
  const text = yaml(['http://127.0.0.1:9'], '', PIPELINE)
    .replace('dialect: messages,', 'dialect: messages, count_tokens: true,')
    .replace('    accepts:',
      '    default_max_tokens: 1000\n    sampling: false\n    thinking: ${THINKS}\n    structured_outputs: true\n    accepts:')
  const { live } = await gateway(t, text, { env: { THINKS: 'adaptive' } })
  const { upstreams, models: [model], accounts: [account] } = live.current().config
  t.equal(upstreams.u0!.count_tokens, true)
  t.match(model, { default_max_tokens: 1000, sampling: false, thinking: 'adaptive', structured_outputs: true })
  t.equal(account!.suspended, false)
})

t.test('an edit of a key decides about the next request', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const running = await gateway(t, yaml([vendor.url], '', PIPELINE))
  const edited = async (from: string, to: string): Promise<string> => {
    await running.rewrite(yaml([vendor.url], '', PIPELINE).replace(from, to))
    const answered = await running.messages(messagesRequest)
    return `${answered.status} ${(await answered.json() as { error?: { type: string } }).error?.type ?? 'answered'}`
  }
  const key = `secret: ${KEY}`
  t.equal(await edited(key, `${key}, frozen: true`), '401 authentication_error')
  t.equal(await edited(key, `${key}, ip_whitelist: [10.0.0.0/8]`), '403 permission_error')
  t.equal(await edited(key, `${key}, ip_whitelist: [127.0.0.0/8]`), '200 answered')
  t.equal(await edited('name: Acme,', 'name: Acme, suspended: true,'), '402 billing_error')
  t.equal(await edited(key, key), '200 answered')
})

const wrong = `
  - id: acme-dev
    account: acm
    secret: "\${file:key}"
    usage_limit_usd: 1,50
    rate_limit: \${RPM}
    concurrency: "3"
    allowed_models: [m1, m2-*x]
    ip_whitelist: ["\${OFFICE}", 10.0.0.1/8]
    allowed_origins: ["https://\${HOST}/"]
    streaming: no
    alowed_clients: [claude-code]
    usage_limit_day_usd: -1
    time_zone: Europe/Berln
`

t.test('all mistakes are said at once, each with its place, in the files that they stand in', async (t) => {
  const folder = t.testdir({
    'gateway.yaml': 'include: [keys.yaml]\n' +
      yaml(['http://127.0.0.1:9'], '', PIPELINE).trimStart().replace(`secret: ${KEY}`,
        `secret: ${KEY}, concurrency: "\${SLOTS}"`),
    'keys.yaml': 'keys:' + wrong,
    key: KEY
  })
  t.strictSame(await lines(folder, { RPM: 'many', OFFICE: 'the office', HOST: 'app.example.com' }), [
    'gateway.yaml:27:97 /keys/0/concurrency the environment variable SLOTS is not set (set it, or write a default: ${SLOTS:-default})',
    'keys.yaml:2:9 /keys/1/id two keys have the id "acme-dev"; the other is at gateway.yaml:27:11',
    'keys.yaml:3:14 /keys/1/account there is no account "acm" (did you mean "acme"?)',
    'keys.yaml:4:13 /keys/1/secret two keys have the same secret; the other is at gateway.yaml:27:44',
    'keys.yaml:5:22 /keys/1/usage_limit_usd must be a plain decimal of US dollars such as 0.0125, found "1,50"',
    'keys.yaml:6:17 /keys/1/rate_limit must be a whole number, found the value of ${RPM}',
    'keys.yaml:7:18 /keys/1/concurrency must be a whole number, found "3" (write it without quotes)',
    'keys.yaml:8:26 /keys/1/allowed_models/1 must be an id of a model, or the beginning of one with "*" at the end, found "m2-*x"',
    'keys.yaml:9:20 /keys/1/ip_whitelist/0 must be an address or a network such as 10.0.0.0/8, found the value of ${OFFICE}',
    'keys.yaml:9:33 /keys/1/ip_whitelist/1 "10.0.0.1/8" names one host and a whole network (did you mean "10.0.0.0/8", or "10.0.0.1"?)',
    'keys.yaml:10:23 /keys/1/allowed_origins/0 must be an origin as browsers send it, such as https://app.example.com, found the value of ${HOST} (did you mean "https://app.example.com"?)',
    'keys.yaml:11:16 /keys/1/streaming must be true or false, found "no" (write true or false)',
    'keys.yaml:12:5 /keys/1/alowed_clients unknown key "alowed_clients" (did you mean "allowed_clients"?)',
    'keys.yaml:13:26 /keys/1/usage_limit_day_usd must not be negative, found -1',
    'keys.yaml:14:16 /keys/1/time_zone must be the name of a time zone such as Europe/Berlin, found "Europe/Berln" (did you mean "Europe/Berlin"?)'
  ])
})

t.test('a client that is neither known nor a pattern is refused with its place: by check, and by a reload that changes nothing', async (t) => {
  const text = (clients: string): string =>
    yaml(['http://127.0.0.1:9'], '', PIPELINE).replace(`secret: ${KEY}`,
      `secret: ${KEY}, allowed_clients: [${clients}]`)
  const expected =
    'gateway.yaml:27:109 /keys/0/allowed_clients/1 could not be put to use: there is no well-known client "claude-cod"'
  const folder = t.testdir({ 'gateway.yaml': text('codex, claude-cod') })
  const [line, ...more] = await lines(folder)
  t.strictSame(more, [])
  t.ok(line!.startsWith(expected), line!)
  t.match(line, /\(did you mean "claude-code"\?\)$/)
  const running = await gateway(t, text('codex'))
  await running.rewrite(text('codex, claude-cod'))
  const { generation, problems } = running.live.status()
  t.equal(generation, 1)
  t.match(problems, [{ line: 27, column: 109, path: '/keys/0/allowed_clients/1', hint: 'did you mean "claude-code"?' }])
})

t.test('the shipped configuration is valid, without a warning', async (t) => {
  const printed: string[] = []
  const file = join(packageRoot, 'gateway.yaml')
  t.equal(await check(file, { json: true, pluginsUrl, env: {}, write: (text) => { printed.push(text) } }), 0)
  t.strictSame(JSON.parse(printed.join('')), { ok: true, problems: [], warnings: [] })
})

t.test('its examples work when their # is taken away', async (t) => {
  const shipped = (name: string): string => readFileSync(join(packageRoot, name), 'utf8')
  const [head, tail] = shipped('gateway.yaml').split('\nupstreams:\n') as [string, string]
  const folder = t.testdir({
    'gateway.yaml': `${head}\nupstreams:\n${tail.replaceAll(/^( *)# /gm, '$1')}`,
    config: { 'models.yaml': shipped('config/models.yaml') },
    data: { 'anthropic-key': 'a', 'deepseek-key': 'd', 'openai-key': 'o', 'acme-key': KEY, 'acme-app-key': OTHER }
  })
  t.strictSame(await lines(folder), ['gateway.yaml is valid: 5 models, 6 upstreams, 1 route, 2 keys'])
})
