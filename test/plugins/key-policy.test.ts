// key-policy: networks, origins, clients, models, streams. Who pretends to come from elsewhere: spoofing.test.ts.
import { request } from 'node:http'
import t, { type Test } from 'tap'
import { auth } from '../../plugins/auth.ts'
import { keyPolicy } from '../../plugins/key-policy/index.ts'
import { presets } from '../../plugins/key-policy/clients.ts'
import { compilePattern } from '../../plugins/key-policy/pattern.ts'
import { mayCall } from '../../src/accounts/allowed-models.ts'
import type { KeyConfig } from '../../src/config/config.ts'
import { isGatewayError } from '../../src/errors.ts'
import { Body, Model } from '../../src/core/facts.ts'
import { Call } from '../support/client.ts'
import { ask, config, exchange, key, model, SECRET, snapshot } from '../support/exchange.ts'
import { gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { answer, upstream } from '../support/upstream.ts'

type Headers = Readonly<Record<string, string | readonly string[] | undefined>>

const PIPELINE = 'auth, key-policy, chat-to-messages, channel-router, billing-meter, error-normalize'

/** A gateway whose keys are restricted in these ways, each with the secret that comes back. */
async function restrictedTo<Name extends string> (
  t: Test,
  keys: Readonly<Record<Name, Partial<KeyConfig>>>,
  more = ''
): Promise<TestGateway & { readonly secrets: Readonly<Record<Name, string>>, readonly asked: () => number }> {
  const up = await upstream(t, answer('Hello'))
  const secrets = Object.fromEntries(
    Object.keys(keys).map((name) => [name, 'sk-gw-' + name.replaceAll('-', '').padStart(32, '0')])
  ) as Record<Name, string>
  const lines = Object.entries<Partial<KeyConfig>>(keys).map(([name, restricted]) =>
    `  - ${JSON.stringify({ id: name, account: 'acme', secret: secrets[name as Name], ...restricted })}\n`
  )
  const own = await gateway(t, yaml([up.url], lines.join('') + more, PIPELINE))
  return Object.assign(own, { secrets, asked: () => up.requests.length })
}

/** The code of the refusal, or 'allowed'. */
async function judge (
  restricted: Partial<KeyConfig>,
  { headers = {}, address = '127.0.0.1', body }: { readonly headers?: Headers, readonly address?: string,
    readonly body?: Readonly<Record<string, unknown>> },
  options: Readonly<Record<string, unknown>> = {}
): Promise<string> {
  const pipeline = [{ use: 'auth', with: { prefix: 'sk-gw-' } }, { use: 'key-policy',
    with: { require_origin: false, clients: [], ...options } }]
  const on = snapshot(
    config({ keys: [key(restricted)], models: [model('claude-sonnet', { premium: 'u/m*1' })], pipeline }),
    [auth, keyPolicy]
  )
  const asked = exchange(on, { address, headers: { 'x-api-key': SECRET, ...headers } })
  if (body !== undefined) {
    asked.set(Body, body)
    asked.set(Model, on.models.get(String(body['model']))!)
    asked.request = { body, stream: body['stream'] === true }
  }
  try {
    await ask(asked)
    return 'allowed'
  } catch (thrown) {
    if (!isGatewayError(thrown)) throw thrown
    return thrown.code
  }
}

t.test('a key without restrictions goes everywhere', async (t) => {
  t.equal(
    await judge({}, { address: '203.0.113.9', headers: { origin: 'https://anywhere.example', 'user-agent': 'anything' },
      body: { model: 'claude-sonnet', stream: true } }),
    'allowed'
  )
})

t.test('the address is looked at first, then the origin, the client, the model, the stream', async (t) => {
  const all = { ip_whitelist: ['10.0.0.0/8'], allowed_origins: ['https://app.example.com'], allowed_clients: ['curl'],
    allowed_models: ['gpt-*'], streaming: false }
  const body = { model: 'claude-sonnet', stream: true }
  const bad = { origin: 'https://evil.example', 'user-agent': 'evil' }
  t.equal(await judge(all, { headers: bad, body }), 'ip_not_allowed')
  t.equal(await judge(all, { address: '10.0.0.9', headers: bad, body }), 'origin_not_allowed')
  t.equal(await judge(all, { address: '10.0.0.9', headers: { ...bad, origin: 'https://app.example.com' }, body }),
    'client_not_allowed')
  t.equal(await judge(all, { address: '10.0.0.9', headers: { 'user-agent': 'curl/8.14.1' }, body }),
    'model_not_allowed')
  t.equal(
    await judge({ ...all, allowed_models: ['claude-*'] }, { address: '10.0.0.9',
      headers: { 'user-agent': 'curl/8.14.1' }, body }),
    'invalid_request'
  )
  t.equal(
    await judge({ ...all, allowed_models: ['claude-*'] }, { address: '10.0.0.9',
      headers: { 'user-agent': 'curl/8.14.1' }, body: { model: 'claude-sonnet' } }),
    'allowed'
  )
})

t.test('a refusal says what was refused and what to do, in the format of its address, and what it holds is the client\'s own', async (t) => {
  const { url, messages, secrets, asked } = await restrictedTo(t, {
    address: { ip_whitelist: ['10.98.76.0/24'] },
    origin: { allowed_origins: ['https://secret-app.example.com'] },
    client: { allowed_clients: ['secret-agent/*'] },
    model: { allowed_models: ['secret-model'] },
    stream: { streaming: false }
  })
  const long = 'x'.repeat(20_000)
  const cases = [
    [
      'address',
      {},
      403,
      'ip_not_allowed',
      'This key may not be used from 127.0.0.1. Add the address to its ip_whitelist, or use another key.'
    ],
    [
      'origin',
      { origin: 'https://evil.example' },
      403,
      'origin_not_allowed',
      'This key may not be used from the origin "https://evil.example". Add it to the key\'s allowed_origins, or use another key.'
    ],
    [
      'client',
      { 'user-agent': 'curl/8.14.1' },
      403,
      'client_not_allowed',
      'This key may not be used with the client "curl/8.14.1". Add the client to the key\'s allowed_clients, or use another key.'
    ],
    [
      'client',
      { 'user-agent': long },
      403,
      'client_not_allowed',
      `This key may not be used with the client "${'x'.repeat(100)}…". Add the client to the key's allowed_clients, or use another key.`
    ],
    [
      'model',
      {},
      403,
      'model_not_allowed',
      'This key may not use the model "m1". Add it to the key\'s allowed_models, or use another key. GET /v1/models lists the models of this key.'
    ],
    [
      'stream',
      {},
      400,
      'invalid_request',
      'This key takes no streams: its setting "streaming" is false. Send "stream": false, or use another key.'
    ]
  ] as const
  for (const [name, headers, status, code, said] of cases) {
    const type = status === 403 ? 'permission_error' : 'invalid_request_error'
    const own = { ...headers, 'x-api-key': secrets[name] }
    const inMessages = await messages({ ...messagesRequest, stream: true }, { headers: own })
    const id = inMessages.headers.get('x-request-id')!
    const text = await inMessages.text()
    t.equal(inMessages.status, status)
    t.match(JSON.parse(text), { type: 'error',
      error: { type, message: `${said} Request ID: ${id}`, details: { error_code: code }, charged_usd: '0' },
      request_id: id }, name)
    t.notMatch(text, /secret|10\.98/, 'not what the key may do')
    const inChat = await fetch(url + '/v1/chat/completions', { method: 'POST',
      headers: { 'content-type': 'application/json', ...own },
      body: JSON.stringify({ ...messagesRequest, stream: true }) })
    t.equal(inChat.status, status)
    t.match(await inChat.json(), {
      error: { type, code, message: `${said} Request ID: ${inChat.headers.get('x-request-id')}` }
    }, name)
  }
  t.equal(asked(), 0, 'no upstream was asked')
  t.equal((await messages(messagesRequest, { headers: { 'x-api-key': secrets.stream } })).status, 200)
})

t.test('a client without a name is told so', async (t) => {
  const { url, secrets } = await restrictedTo(t, { client: { allowed_clients: ['curl'] } })
  const { json } = await new Call(request(url + '/v1/models', { headers: { 'x-api-key': secrets.client } }).end())
    .whole()
  t.match(json, {
    error: { code: 'client_not_allowed',
      message: /^This key may not be used with a client that has no User-Agent header\./ }
  })
})

t.test('nothing of the body is read for a key that may not be used from here', async (t) => {
  const { messages, secrets } = await restrictedTo(t, { address: { ip_whitelist: ['10.0.0.0/8'] } })
  t.equal((await messages('not an object', { headers: { 'x-api-key': secrets.address } })).status, 403)
})

t.test('a forwarded path is guarded too', async (t) => {
  const { url, secrets, asked } = await restrictedTo(t, { address: { ip_whitelist: ['10.0.0.0/8'] } },
    'routes:\n  - { match: "GET /v1/files/*", forward: u0, price: free }\n')
  t.equal((await fetch(url + '/v1/files/a', { headers: { 'x-api-key': secrets.address } })).status, 403)
  t.equal(asked(), 0)
  await (await fetch(url + '/v1/files/a', { headers: { 'x-api-key': KEY } })).text()
  t.equal(asked(), 1)
})

t.test('a restriction holds from the next request on', async (t) => {
  const own = await restrictedTo(t, {})
  t.equal((await own.messages(messagesRequest)).status, 200)
  await own.rewrite(
    yaml(['http://127.0.0.1:9'], '', PIPELINE).replace(`secret: ${KEY}`, `secret: ${KEY}, ip_whitelist: [10.0.0.0/8]`)
  )
  t.equal((await own.messages(messagesRequest)).status, 403)
})

t.test('models by id, or by the beginning of ids', async (t) => {
  for (const [allowed, id, may] of [
    [undefined, 'claude-sonnet', true],
    [['*'], 'claude-sonnet', true],
    [['claude-*'], 'claude-sonnet', true],
    [['gpt', 'claude-sonnet'], 'claude-sonnet', true],
    [['claude-sonnet*'], 'claude-sonnet', true],
    [['claude'], 'claude-sonnet', false],
    [['sonnet*'], 'claude-sonnet', false],
    [['Claude-*'], 'claude-sonnet', false],
    [['claude-sonnet-4'], 'claude-sonnet', false],
    [['c*t'], 'claude-sonnet', false],
    [['claude.sonnet'], 'claude-sonnet', false],
    [[], 'claude-sonnet', false]
  ] as const) {
    t.equal(mayCall({ id }, allowed === undefined ? {} : { allowed_models: allowed }), may, JSON.stringify(allowed))
  }
})

t.test('a pattern is matched whole, in any case, with "*" for any characters', async (t) => {
  for (const [pattern, text, fits] of [
    ['*', '', true],
    ['*', 'anything', true],
    ['', '', true],
    ['', 'a', false],
    ['curl/*', 'curl/8', true],
    ['curl/*', 'curl/', true],
    ['curl/*', 'curl', false],
    ['curl/*', 'libcurl/8', false],
    ['*curl*', 'libcurl/8', true],
    ['CURL/8', 'curl/8', true],
    ['curl/8', 'curl/8.1', false],
    ['a*a', 'a', false],
    ['a*a', 'aa', true],
    ['a*b*a', 'aba', true],
    ['a*b*a', 'ab', false],
    ['a*ba*a', 'aba', false],
    ['a*b*c', 'a-c-b', false],
    ['**', 'x', true],
    ['a**b', 'ab', true],
    ['*.js', 'node.js', true],
    ['*.js', 'nodexjs', false],
    ['(a+)+$', '(a+)+$', true],
    ['*a*a*', 'a', false],
    ['*ab*ab', 'abab', true],
    ['*ab*ab', 'ab', false]
  ] as const) { t.equal(compilePattern(pattern)(text.toLowerCase()), fits, `${pattern} on ${text}`) }
})

t.test('no user agent keeps a pattern busy: this would take years if it went back', async (t) => {
  const hostile = 'a'.repeat(65_000)
  t.notOk(compilePattern('*a'.repeat(40) + '*b')(hostile))
  t.notOk(compilePattern('*' + 'a'.repeat(50) + 'b*')(hostile))
  t.ok(compilePattern('*a'.repeat(40))(hostile))
  t.equal(
    await judge({ allowed_clients: ['*a*a*a*a*a*a*a*a*b', 'claude-code'] }, { headers: { 'user-agent': hostile } }),
    'client_not_allowed'
  )
})

t.test('well-known clients are told by what they send', async (t) => {
  const table: readonly (readonly [Headers, ...string[]])[] = [
    [{ 'user-agent': 'claude-cli/2.0.14 (external, cli)', 'x-app': 'cli' }, 'claude-code'],
    [{ 'user-agent': 'claude-cli/2.1.0 (external, claude-vscode, agent-sdk/0.1)' }, 'claude-code'],
    [{ 'user-agent': 'Dmi/JS 0.94.0', 'x-claude-code-session-id': '0b6e2a0e-90a5-4a39-8ea5-3a0d6ef8d2ab' },
      'claude-code'],
    [{ 'user-agent': 'codex_cli_rs/0.46.0 (Ubuntu 22.4.0; x86_64) xterm-256color', originator: 'codex_cli_rs' },
      'codex'],
    [{ 'user-agent': 'codex_exec/0.169.0 (Debian 12.0.0; x86_64) unknown (codex_exec; 0.169.0)' }, 'codex'],
    [{ 'user-agent': 'codex_vscode/0.5' }, 'codex'],
    [{ 'user-agent': 'Codex Desktop/1.0' }, 'codex'],
    [{ 'user-agent': 'something', originator: 'codex_vscode' }, 'codex'],
    [{ 'user-agent': 'Cline/3.18.0' }, 'cline'],
    [{ 'user-agent': 'OpenAI/JS 6.49.0', 'http-referer': 'https://cline.bot', 'x-title': 'Cline' }, 'cline',
      'openai-js'],
    [{ 'user-agent': 'RooCode/3.52.1', 'http-referer': 'https://github.com/RooVetGit/Roo-Cline',
      'x-title': 'Roo Code' }, 'roo-code'],
    [{ 'user-agent': 'Continue/1.2.0' }, 'continue'],
    [{ 'user-agent': 'OpenAI/JS 6.49.0', 'x-continue-provider': 'lmrouter' }, 'continue', 'openai-js'],
    [{ 'user-agent': 'Zed/0.199.4 (linux; x86_64)' }, 'zed'],
    [{ 'user-agent': 'opencode/1.0.2 ai-sdk/provider-utils/4.0.64 runtime/bun/1.3' }, 'opencode', 'ai-sdk'],
    [{ 'user-agent': 'OpenAI/JS 7.55.0' }, 'openai-js'],
    [{ 'user-agent': 'OpenAI/Python 2.3.0' }, 'openai-python'],
    [{ 'user-agent': 'AsyncOpenAI/Python 2.3.0' }, 'openai-python'],
    [{ 'user-agent': 'Anthropic/JS 1.11.0' }, 'anthropic-js'],
    [{ 'user-agent': 'AsyncAnthropic/Python 0.70.0' }, 'anthropic-python'],
    [{ 'user-agent': 'ai-sdk/anthropic/3.0.138 ai-sdk/provider-utils/4.0.64 runtime/node.js/v20' }, 'ai-sdk'],
    [{ 'user-agent': 'ai-sdk-anthropic/4.0.105 ai-sdk-provider-utils/5.0.81 node.js/v20' }, 'ai-sdk'],
    [{ 'user-agent': 'ai/7.0.173 ai-sdk-provider-utils/5.0.81 node.js/26' }, 'ai-sdk'],
    [{ 'user-agent': 'curl/8.14.1' }, 'curl'],
    [{ 'user-agent': 'python-httpx/0.28.1' }, 'python-httpx'],
    [{ 'user-agent': 'python-requests/2.32.3' }, 'python-requests'],
    [{ 'user-agent': 'node' }, 'node'],
    [{ 'user-agent': 'Go-http-client/1.1' }, 'go-http-client'],
    [{ 'user-agent': 'nodejs' }], [{ 'user-agent': 'my claude-cli/2' }], [{ 'user-agent': '' }], [{}],
    [{ 'user-agent': 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36' }],
    [{ 'user-agent': 'x', 'x-title': ['Cline', 'Roo Code'], originator: undefined }]
  ]
  for (const [headers, ...expected] of table) {
    const told: string[] = []
    for (const { id } of presets) if (await judge({ allowed_clients: [id] }, { headers }) === 'allowed') told.push(id)
    t.strictSame(told, expected, JSON.stringify(headers))
  }
  t.strictSame(presets.map(({ id }) => id).filter((id) => !table.some(([, ...expected]) => expected.includes(id))), [],
    'each has its row')
})

t.test('an operator\'s own clients stand beside the well-known ones, or in their place', async (t) => {
  const clients = [
    { id: 'our-ide', match: ['OurIDE/*', 'our-agent'], headers: [{ name: 'X-Our-IDE', match: '*' }] },
    { id: 'curl', match: ['curl/8.*'], headers: [] }
  ]
  const may = (id: string, headers: Headers): Promise<string> =>
    judge({ allowed_clients: [id] }, { headers }, { clients })
  t.equal(await may('our-ide', { 'user-agent': 'ouride/1' }), 'allowed')
  t.equal(await may('our-ide', { 'user-agent': 'our-agent' }), 'allowed')
  t.equal(await may('our-ide', { 'user-agent': 'x', 'x-our-ide': '' }), 'allowed',
    'it is enough that the header is there')
  t.equal(await may('our-ide', { 'user-agent': 'x' }), 'client_not_allowed')
  t.equal(await may('curl', { 'user-agent': 'curl/8.14.1' }), 'allowed')
  t.equal(await may('curl', { 'user-agent': 'curl/7.88.1' }), 'client_not_allowed')
  t.equal(await may('zed', { 'user-agent': 'Zed/1' }), 'allowed')
})

t.test('its options are those of gateway.yaml', async (t) => {
  const policy = '{ key-policy: { clients: [{ id: our-ide, headers: [{ name: x-our-ide }] }] } }'
  const { url } = await gateway(t,
    yaml(['http://127.0.0.1:9'], '', PIPELINE.replace('key-policy', policy)).replace(`secret: ${KEY}`,
      `secret: ${KEY}, allowed_clients: [our-ide]`))
  t.equal((await fetch(url + '/v1/models', { headers: { 'x-api-key': KEY } })).status, 403)
  t.equal((await fetch(url + '/v1/models', { headers: { 'x-api-key': KEY, 'x-our-ide': '1' } })).status, 200)
})

t.test('what would lock everybody out is refused, with its place', async (t) => {
  const start = async (restriction: string): Promise<string> => {
    try {
      await gateway(t,
        yaml(['http://127.0.0.1:9'], '', PIPELINE).replace(`secret: ${KEY} }`, `secret: ${KEY}, ${restriction} }`))
      return 'started'
    } catch (thrown) {
      return String(thrown)
    }
  }
  t.match(await start('allowed_clients: [curl, claude-cod]'),
    /gateway\.yaml:\d+:\d+ \/keys\/0\/allowed_clients\/1 .*there is no well-known client "claude-cod".*\(did you mean "claude-code"\?\)/)
  t.match(await start('allowed_clients: [jetbrains]'), /\(known: claude-code, .*go-http-client\)/, 'all of them')
  t.equal(await start('allowed_clients: [Cursor, "ours*", ours/1.0, our agent, Claude-Code]'), 'started',
    'patterns, and a name in capitals')
  t.match(await start('allowed_origins: ["https://*.example.com"]'),
    /gateway\.yaml:\d+:\d+ \/keys\/0\/allowed_origins\/0 must be an origin/)
  t.match(await start('ip_whitelist: [10.0.0.0/33]'), /gateway\.yaml:\d+:\d+ \/keys\/0\/ip_whitelist\/0 /)
})
