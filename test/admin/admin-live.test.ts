// What an operator sees of real traffic: the numbers of /metrics, the line of each request, the live configuration; and
// that no secret is in anything that the gateway says to anybody, whatever goes wrong.
import { readFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { ask, type Asking, type Got } from '../support/billing-client.ts'
import { gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { blockStart, blockStop, cut, errorEvent, errorReply, json, message, messageDelta, messageStart, messageStop,
  raw, refusing, stall, step, textDelta, upstream, wait, type Received, type Script } from '../support/upstream.ts'

const MODELS = 'POST /v1/messages'
const headers = { 'x-api-key': KEY }
const usage = { input_tokens: 10, cache_creation_input_tokens: 20, cache_read_input_tokens: 30, output_tokens: 50 }
/** 10 × 3000 + 20 × 3750 + 30 × 300 + 50 × 15000 nano-dollars */
const WHOLE = 864_000

const words = (
  ...pieces: readonly string[]
): Script => [messageStart({ usage: { ...usage, output_tokens: 1 } }), blockStart(0),
  pieces.map((piece) => textDelta(0, piece))]
const whole = (received: Received): Script =>
  received.body?.['stream'] === true
    ? [words('The', ' quick'), blockStop(0), messageDelta({ usage }), messageStop()]
    : json(message('The quick', { usage }))

/** The script is named in the prompt. */
const asked = ({ body }: Received): string => (body?.['messages'] as { content: string }[])[0]!.content
const say = (prompt: string, stream = false): object => ({
  ...messagesRequest,
  stream,
  messages: [{ role: 'user', content: prompt }]
})

/** The exposition as series and numbers. */
async function scrape ({ urls }: TestGateway): Promise<Map<string, number>> {
  const response = await fetch(urls.admin + '/metrics')
  const lines = (await response.text()).split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))])
  )
}

/** All series of one metric, by their labels. */
function family (series: ReadonlyMap<string, number>, name: string): Record<string, number> {
  return Object.fromEntries([...series]
    .filter(([key]) => key.startsWith(`${name}{`) || key === name)
    .map(([key, value]) => [key.slice(name.length).replace(/^\{|\}$/g, ''), value]))
}

/** Those that something has happened to. */
const counted = (series: ReadonlyMap<string, number>, name: string): Record<string, number> =>
  Object.fromEntries(Object.entries(family(series, name)).filter(([, value]) => value > 0))

const linesOf = (running: TestGateway): Record<string, unknown>[] =>
  running.logged.filter(({ msg }) => msg === 'request')

/**
 * Requests that the log tells of: of strangers the first of a kind has a line, and how many more there were in that
 * second another.
 */
const toldOf = (running: TestGateway): number => running.logged.reduce((told, { msg, route, count }) => {
  if (msg === 'request') return told + 1
  return msg === 'refused as well, within a second' && route !== undefined ? told + Number(count) : told
}, 0)

await t.test('after traffic of all kinds the metrics have the right numbers, and each request its line', async (t) => {
  const hold = Promise.withResolvers<void>()
  const first = await upstream(t, (received): Script => {
    switch (asked(received)) {
      case 'failover':
      case 'overloaded': return errorReply(529, 'overloaded_error', 'no')
      case 'cut': return [words('The', ' quick', ' brown'), cut()]
      case 'leave': return [words('The', ' quick', ' brown'), stall()]
      case 'hold': return [step(() => hold.promise), whole(received)]
      default: return whole(received)
    }
  })
  const second = await upstream(t,
    (received) => asked(received) === 'overloaded' ? errorReply(500, 'api_error', 'no') : whole(received))
  const running = await gateway(t, yaml([first.url, second.url]))
  const { url } = running
  const send = (body: object, asking: Asking = {}): Promise<Got> =>
    ask(url + '/v1/messages', body, { ...asking,
      headers: { ...headers, 'user-agent': 'tester/1.0', ...asking.headers } })

  await send(say('whole'))
  await send(say('whole'))
  await send(say('whole', true))
  await send(say('failover'))
  await send(say('overloaded'))
  await send(say('cut', true))
  await send(say('leave', true), { leaveAfter: 5 })
  // Nobody waits for its end but the log: what it produced is counted on another thread.
  await until(() => linesOf(running).length === 7)
  await send(say('x'), { headers: { 'x-api-key': 'none' } })
  await send({ ...messagesRequest, model: 'nobody-has-it' })
  await (await fetch(url + '/v1/models', { headers })).text()
  await (await fetch(url + '/nowhere')).text()
  await (await fetch(url + '/v1/messages')).text()
  await until(() => linesOf(running).length === 10)

  await t.test('requests by route, model, channel, status and code', async (t) => {
    const label = (model: string, channel: string, status: number, code: string, route = MODELS): string =>
      `route="${route}",model="${model}",channel="${channel}",status="${status}",code="${code}"`
    t.strictSame(family(await scrape(running), 'gateway_requests_total'), {
      [label('m1', 'premium', 200, 'ok')]: 4,
      [label('m1', 'premium', 502, 'server_error')]: 1,
      [label('m1', 'premium', 200, 'upstream_stream_interrupted')]: 1,
      [label('m1', 'premium', 200, 'client_closed')]: 1,
      [label('unknown', 'unknown', 401, 'authentication_error')]: 1,
      [label('unknown', 'unknown', 400, 'model_not_found')]: 1,
      [label('unknown', 'unknown', 200, 'ok', 'GET /v1/models')]: 1
    })
    t.strictSame(counted(await scrape(running), 'gateway_rejected_total'), { 'reason="not_found"': 1,
      'reason="method_not_allowed"': 1 })
  })

  await t.test('tokens and money: as the ledger has them', async (t) => {
    const series = await scrape(running)
    // Four whole ones; the cut one its output alone; the client who left its input and three tokens.
    const model = (name: string, value: string): string => `model="m1",${name}="${value}"`
    t.strictSame(family(series, 'gateway_tokens_total'), {
      [model('class', 'input')]: 50,
      [model('class', 'cache_read')]: 150,
      [model('class', 'cache_write_5m')]: 100,
      [model('class', 'cache_write_1h')]: 0,
      [model('class', 'output')]: 206
    })
    const charged = 4 * WHOLE + 45_000 + (114_000 + 45_000)
    t.strictSame(family(series, 'gateway_charged_nanodollars_total'), { 'model="m1",channel="premium"': charged })
    let spent = 0n
    for await (const { kind, nanos } of running.services.store.entries()) if (kind === 'settle') spent -= nanos
    t.equal(Number(spent), charged)
    const genAi = 'gen_ai_provider_name="acme",gen_ai_request_model="m1",gen_ai_operation_name="chat"'
    t.equal(series.get(`gen_ai_client_token_usage_count{${genAi},gen_ai_token_type="input"}`), 6)
    t.equal(series.get(`gen_ai_client_token_usage_sum{${genAi},gen_ai_token_type="input"}`), 5 * 60)
    t.equal(series.get(`gen_ai_client_token_usage_sum{${genAi},gen_ai_token_type="output"}`), 206)
    t.equal(series.get('gateway_shortfall_nanodollars_total'), 0)
  })

  await t.test('attempts by upstream and outcome', async (t) => {
    t.strictSame(counted(await scrape(running), 'gateway_upstream_attempts_total'), {
      'upstream="u0",outcome="ok"': 3,
      'upstream="u0",outcome="model_overloaded"': 2,
      'upstream="u0",outcome="upstream_stream_interrupted"': 1,
      'upstream="u0",outcome="client_closed"': 1,
      'upstream="u1",outcome="ok"': 1,
      'upstream="u1",outcome="upstream_error"': 1
    })
  })

  await t.test('times: all requests, our own part of them, and the first byte of each stream', async (t) => {
    const series = await scrape(running)
    t.equal(series.get(`gateway_own_overhead_seconds_count{route="${MODELS}"}`), 9)
    t.equal(series.get('gateway_own_overhead_seconds_count{route="GET /v1/models"}'), 1)
    const genAi = 'gen_ai_provider_name="acme",gen_ai_request_model="m1",gen_ai_operation_name="chat"'
    t.equal(series.get(`gen_ai_server_time_to_first_token_seconds_count{${genAi}}`), 3)
    t.equal(series.get(`gen_ai_server_request_duration_seconds_count{${genAi}}`), 4)
    t.equal(
      series.get(`gen_ai_server_request_duration_seconds_count{${genAi},error_type="upstream_stream_interrupted"}`),
      1
    )
    const own = series.get(`gateway_own_overhead_seconds_sum{route="${MODELS}"}`)!
    t.ok(own > 0)
    const total = linesOf(running).filter(({ route }) => route === MODELS).reduce(
      (sum, { own_ms: ms }) => sum + (ms as number),
      0
    )
    t.ok(Math.abs(own * 1000 - total) < 0.1, 'the sum of the lines is the sum of the metric')
    for (const line of linesOf(running)) {
      t.ok((line['own_ms'] as number) >= 0 && (line['own_ms'] as number) <= (line['duration_ms'] as number),
        JSON.stringify(line))
    }
  })

  await t.test('what is open now: holds, bodies, requests', async (t) => {
    const gauges = async (): Promise<(number | undefined)[]> => {
      const series = await scrape(running)
      return ['gateway_holds_open', 'gateway_body_memory_bytes', 'gateway_requests_in_flight'].map((name) =>
        series.get(name)
      )
    }
    t.strictSame(await gauges(), [0, 0, 0])
    const body = say('hold')
    const held = [send(body), send(body)]
    await until(() => first.requests.filter((received) => asked(received) === 'hold').length === 2)
    t.strictSame(await gauges(), [2, 2 * JSON.stringify(body).length, 2])
    hold.resolve()
    await Promise.all(held)
    await until(() => linesOf(running).length === 12)
    t.strictSame(await gauges(), [0, 0, 0])
  })

  await t.test('the generation, and how the last reload went', async (t) => {
    const state = async (): Promise<(number | undefined)[]> => {
      const series = await scrape(running)
      return ['gateway_config_generation', 'gateway_config_last_reload_success',
        'gateway_config_reloads_total{result="live"}', 'gateway_config_reloads_total{result="refused"}'].map((name) =>
          series.get(name)
        )
    }
    t.strictSame(await state(), [1, 1, 0, 0])
    const good = yaml([first.url, second.url])
    await running.rewrite(good.replace('Model One', 'Model Two'))
    t.strictSame(await state(), [2, 1, 1, 0])
    await running.rewrite(good.replace('kind: text', 'kind: texts'))
    t.strictSame(await state(), [2, 0, 1, 1])
  })

  await t.test('the line of a request: what happened, to whom, at what price; no more', (t) => {
    const [plain, , stream, failover, overloaded, broken, left, stranger] = linesOf(running) as [
      Record<string, unknown>,
      ...Record<string, unknown>[]
    ]
    // The process and the machine are added by the test's own logger.
    t.strictSame(Object.keys(plain).filter((name) => name !== 'pid' && name !== 'hostname').toSorted(), [
      'account',
      'attempts',
      'channel',
      'client',
      'code',
      'config_generation',
      'duration_ms',
      'first_byte_ms',
      'ip',
      'key_id',
      'level',
      'model',
      'msg',
      'nanos',
      'outcome',
      'own_ms',
      'request_id',
      'route',
      'span_id',
      'status',
      'stream',
      'time',
      'trace_id',
      'upstream',
      'usage',
      'usage_source'
    ])
    t.match(plain, {
      account: 'acme',
      key_id: 'acme-dev',
      route: MODELS,
      model: 'm1',
      channel: 'premium',
      upstream: 'u0',
      attempts: 1,
      stream: false,
      status: 200,
      code: 'ok',
      outcome: 'completed',
      nanos: String(WHOLE),
      usage: { input: 10, cache_read: 30, cache_write_5m: 20, cache_write_1h: 0, output: 50 },
      usage_source: 'provider',
      config_generation: 1,
      client: 'tester/1.0'
    })
    t.match(stream, { stream: true, outcome: 'completed', nanos: String(WHOLE) })
    t.match(failover, { attempts: 2, upstream: 'u1', outcome: 'completed' })
    t.match(overloaded, { attempts: 2, upstream: 'u1', status: 502, outcome: 'failed', code: 'server_error',
      cause: 'status 500', nanos: undefined, usage: undefined })
    t.match(broken, { status: 200, outcome: 'interrupted', by: 'upstream', code: 'upstream_stream_interrupted',
      nanos: '45000', usage_source: 'estimated' })
    t.match(left, { status: 200, outcome: 'interrupted', by: 'client', code: 'client_closed', nanos: '159000' })
    t.match(stranger, { status: 401, outcome: 'failed', code: 'authentication_error',
      reason: /^No API key was sent|not an API key|wrong, frozen/, ip: '127.0.0.1', stream: undefined,
      key_id: undefined, account: undefined, model: undefined })
    t.end()
  })
})

await t.test('no secret is in anything that is said: lines, metrics, configuration, answers, whatever goes wrong', async (t) => {
  // What must never be seen; each is said to the gateway, or by an upstream that quotes it.
  const secrets = { upstream: 'vendor-credential-7Qx', second: 'Other0Credential1Of2The3Operator', client: KEY,
    stranger: 'sk-gw-' + 'z'.repeat(32), admin: 'admin-token-of-the-operator', broken: 'sk-gw-' + 'q'.repeat(31) }
  const quoting = `invalid x-api-key: ${secrets.upstream} of org_4fJ2kd83kfLsl39x at https://vendor.example.com`
  const scripts: Readonly<Record<string, Script>> = {
    ...Object.fromEntries([400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 502, 503, 529].map((status) => [
      `status ${status}`,
      errorReply(status, 'invalid_request_error', quoting, { 'x-organization': quoting })
    ])),
    html: {
      run: ({ response }) => { response.writeHead(500, { 'content-type': 'text/html' }).end(`<html>${quoting}</html>`) }
    },
    text: { run: ({ response }) => { response.writeHead(400).end(quoting) } },
    malformed: json(undefined),
    'half quoted': raw(`{"type":"message","content":"${quoting}`),
    'error event first': [messageStart(), errorEvent('api_error', quoting)],
    'error event after the commit': [words('The'), errorEvent('api_error', quoting)],
    'refused by an event': errorEvent('invalid_request_error', quoting),
    cut: cut(),
    'cut after the commit': [words('The'), cut()],
    stall: [words('The'), stall()],
    wait: [words('The'), wait(new Promise(() => {}))]
  }
  const up = await upstream(t, (received) => scripts[asked(received)] ?? json(message('fine', { usage })))
  const config = (text: string): string =>
    text
      .replace('upstream-secret-0', secrets.upstream)
      .replace('upstream-secret-1', '${SECOND_SECRET}')
      .replace('token: test-admin-token', 'token: "${ADMIN_TOKEN}"')
      .replaceAll('dialect: messages,', 'dialect: messages, timeouts: { idle: 100ms },')
      // One target each: the last error is what the client reads.
      .replace(', { upstream: u1, model: vendor-m1, priority: 1 }', '')
      .replace('accounts:',
        `  - { id: m2, name: M2, provider: acme, kind: text, created: 2025-09-29, channels: { premium: { price: { input: 3, output: 15 }, targets: [{ upstream: u1, model: vendor-m1 }] } } }
accounts:`)
  const text = config(yaml([up.url, await refusing()]))
  const running = await gateway(t, text, { env: { SECOND_SECRET: secrets.second, ADMIN_TOKEN: secrets.admin },
    isForgetful: true })
  const { url, urls } = running
  const heard: [string, string][] = []
  const hear = async (about: string, path: string, init: RequestInit = {}): Promise<void> => {
    const response = await fetch(path, init)
    heard.push([about, `${response.status} ${JSON.stringify([...response.headers])} ${await response.text()}`])
  }
  const post = (body: unknown, more: Record<string, string> = headers): RequestInit => ({
    method: 'POST',
    body: typeof body === 'string' ? body : JSON.stringify(body),
    headers: { 'content-type': 'application/json', ...more }
  })

  for (const name of [...Object.keys(scripts), 'fine']) {
    for (const stream of [false, true]) {
      // Silent for ever is a matter of streams: a JSON answer that never ends is the same to a client.
      await hear(`${name}, ${stream ? 'SSE' : 'JSON'}`, url + '/v1/messages', post(say(name, stream)))
    }
  }
  await hear('a refused connection', url + '/v1/messages', post({ ...say('fine'), model: 'm2' }))
  await hear('a bearer', url + '/v1/messages', post(say('fine'), { authorization: `Bearer ${KEY}` }))
  await hear('a stranger', url + '/v1/messages', post(say('fine'), { 'x-api-key': secrets.stranger }))
  await hear('a stranger as bearer', url + '/v1/messages',
    post(say('fine'), { authorization: `Bearer ${secrets.stranger}` }))
  await hear('broken JSON with a key in it', url + '/v1/messages', post(`{"key": "${KEY}", oops`))
  await hear('a wrong content type', url + '/v1/messages',
    post(say('fine'), { ...headers, 'content-type': 'text/plain' }))
  await hear('a key in the query', url + `/v1/messages?api_key=${KEY}`, post(say('status 500')))
  await hear('a key in the path', url + `/v1/${KEY}`)
  await hear('a key in a cookie', url + '/v1/models', { headers: { cookie: `key=${KEY}` } })
  await hear('the models', url + '/v1/models', { headers })
  await hear('the admin listener, without a token', urls.admin + '/admin/v1/config')
  await hear('the admin listener, with the key of a client', urls.admin + '/admin/v1/config', {
    headers: { authorization: `Bearer ${KEY}` }
  })
  const asAdmin = { headers: { authorization: `Bearer ${secrets.admin}` } }
  await hear('the configuration', urls.admin + '/admin/v1/config', asAdmin)
  // Mistakes on the very lines that hold secrets.
  for (const mistake of [text.replace(KEY, secrets.broken), text.replace(`secret: ${KEY}`, `secret: "${KEY}`),
    text.replace(`secret: ${KEY}`, `secrets: ${KEY}`), text.replace(`"${secrets.upstream}"`, `[${secrets.upstream}]`),
    text.replace('token: "${ADMIN_TOKEN}"', `token: ${secrets.admin}x, tokens: ${secrets.admin}`)]) {
    if (mistake === text) throw new Error('a mistake that is none')
    await running.rewrite(mistake)
    await hear('the configuration, after a mistake', urls.admin + '/admin/v1/config', asAdmin)
  }
  await hear('metrics', urls.admin + '/metrics')

  const answers = heard.map(([, said]) => said.slice(0, 3))
  for (const status of ['200', '400', '401', '404', '502', '503']) {
    t.ok(answers.includes(status), `an answer with ${status} was among them`)
  }
  const requests = heard.filter(([about]) => !/admin|configuration|metrics|in the path/.test(about)).length
  await until(() => toldOf(running) >= requests)
  t.equal(toldOf(running), requests, 'each request is in the log')
  isSilent(t, heard, secrets, 'said')
  isSilent(t, running.logged.map((line) => [String(line['msg']), JSON.stringify(line)]), secrets, 'logged')
  for (const [about, said] of heard.filter(([about]) => !about.startsWith('the configuration'))) {
    // The metrics are the operator's: they name targets.
    if (
      said.includes(new URL(up.url).host) ||
      (about === 'metrics' ? /org_4f|vendor\.example/ : /org_4f|vendor\.example|vendor-m1/).test(said)
    ) t.fail(`${about} tells about the upstream: ${said}`)
  }
})

/** Success is one line, for there are hundreds of texts. */
function isSilent (
  t: Test,
  texts: readonly (readonly [string, string])[],
  secrets: Readonly<Record<string, string>>,
  verb: string
): void {
  let found = 0
  for (const [about, text] of texts) {
    for (const [name, secret] of Object.entries(secrets)) {
      for (const form of [secret, Buffer.from(secret).toString('base64').replace(/=+$/, ''),
        encodeURIComponent(JSON.stringify(secret).slice(1, -1))]) {
        if (!text.includes(form)) continue
        found++
        t.fail(`the secret of "${name}" was ${verb}: ${about}: ${text}`)
        break
      }
    }
  }
  t.equal(found, 0, `none of ${Object.keys(secrets).length} secrets in ${texts.length} texts`)
}

void t.test('a key and an account of gateway.yaml name their lines, also when those have moved without a change', async (t) => {
  const own = await gateway(t, yaml(['http://127.0.0.1:9']))
  const ask = async (path: string): Promise<Record<string, unknown>> => await (await fetch(
    `${own.urls.admin}/admin/v1${path}`, { headers: { authorization: 'Bearer test-admin-token' } }
  )).json() as Record<string, unknown>
  const lineOf = (text: string): number => readFileSync(own.file, 'utf8').split('\n').findIndex((line) =>
    line.includes(text)) + 1
  const check = async (): Promise<void> => {
    t.match(await ask('/keys/acme-dev'), { declared: true, declared_at: `gateway.yaml:${lineOf('id: acme-dev')}` })
    t.match(await ask('/accounts/acme'), { declared: true, declared_at: `gateway.yaml:${lineOf('id: acme,')}` })
  }
  await check()
  const before = lineOf('id: acme-dev')
  await own.rewrite(yaml(['http://127.0.0.1:9']).replace('\nkeys:', '\n# Three lines\n# that change\n# nothing\nkeys:'))
  t.equal(lineOf('id: acme-dev'), before + 3)
  await check()
  t.equal((await ask('/config'))['generation'], 1)
})
