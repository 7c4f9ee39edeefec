// A reload while the gateway works: what runs ends on the configuration that it began with, what comes gets the new
// one, and a configuration that is wrong changes nothing (rule one-snapshot).
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import type { ReloadResult } from '../../src/config/state.ts'
import { gateway, KEY, messagesRequest, type TestGateway, yaml } from '../support/gateway.ts'
import { answer, blockStart, blockStop, messageEnd, messageStart, textDelta, upstream,
  wait } from '../support/upstream.ts'

/** As the product does it; the others load in the test's own thread. */
const THREADED = { load: 'thread' } as const

/** Writes files beside gateway.yaml and waits until they are live, or refused. */
async function edit (running: TestGateway, files: Readonly<Record<string, string>>): Promise<ReloadResult> {
  const reloaded = running.live.reloaded()
  for (const [name, text] of Object.entries(files)) writeFileSync(path.join(path.dirname(running.file), name), text)
  return await reloaded
}

function admin (running: TestGateway): Promise<Response> {
  return fetch(running.urls.admin + '/admin/v1/config', { headers: { authorization: 'Bearer test-admin-token' } })
}

t.test('a configuration that is wrong changes nothing and says why in the log, in a metric and at /admin/v1/config; a good one heals it', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const good = yaml([vendor.url])
  const running = await gateway(t, good, THREADED)
  const metric = async (): Promise<string | undefined> =>
    /^gateway_config_last_reload_success (\d)$/m.exec(await (await fetch(running.urls.admin + '/metrics')).text())?.[1]
  t.equal(await metric(), '1')
  const before = await (await admin(running)).json() as { readonly config: unknown }

  await edit(running, {
    'gateway.yaml': good.replace('output: 15', 'output: fifteen').replace('upstream: u0', 'upstream: u9')
  })
  const places = [
    '/models/0/channels/premium/price/output must be a plain decimal of US dollars such as 0.0125, found "fifteen"',
    '/models/0/channels/premium/targets/0/upstream there is no upstream "u9" (did you mean "u0"?)'
  ]
  const problems = running.logged.findLast(({ msg }) => msg === `${running.file} was refused; generation 1 stays live`)
    ?.['problems']
  t.match(problems, places, 'the log')
  t.equal(await metric(), '0')
  const status = await (await admin(running)).json() as { readonly config: unknown,
    readonly problems: readonly { readonly line: number, readonly column: number }[] }
  t.match(status, { generation: 1, last_reload: { ok: false, reason: 'file' },
    problems: [{ file: running.file, path: '/models/0/channels/premium/price/output' }, {
      path: '/models/0/channels/premium/targets/0/upstream'
    }] })
  const lines = readFileSync(running.file, 'utf8').split('\n')
  for (const [i, wrong] of ['fifteen', 'u9'].entries()) {
    t.ok(lines[status.problems[i]!.line - 1]!.slice(status.problems[i]!.column - 1).startsWith(wrong),
      'line and column lead to the word that is wrong')
  }
  t.strictSame(status.config, before.config)
  const served = await running.messages(messagesRequest)
  t.strictSame([served.status, served.headers.get('x-gateway-config-generation')], [200, '1'])

  await edit(running, { 'gateway.yaml': good.replace('output: 15', 'output: 16') })
  t.equal(await metric(), '1')
  t.match(await (await admin(running)).json(), { generation: 2, last_reload: { ok: true }, problems: [] })
  const healed = await running.messages(messagesRequest)
  t.equal(healed.headers.get('x-gateway-config-generation'), '2')
})

t.test('a change of server: or store: is said to need a restart, and the rest of the edit is live', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const running = await gateway(t, yaml([vendor.url]))
  const { urls } = running
  const { ok, warnings } = await edit(running, {
    'gateway.yaml': yaml([vendor.url], 'routes: [{ match: GET /extra, serve: models }]').replace(
      'token: test-admin-token',
      'token: other-admin-token'
    ).replace('./data', './elsewhere')
  })
  t.ok(ok)
  t.strictSame(warnings.map(({ path: where, message }) => `${where} ${message}`),
    ['/server/admin/token', '/store/path'].map((where) =>
      `${where} has changed: it needs a restart, and keeps its old value until then`
    ))
  t.equal(running.logged.filter(({ level, msg }) => level === 40 && /needs a restart/.test(String(msg))).length, 2)
  t.match(await (await admin(running)).json(), { generation: 2,
    warnings: [{ path: '/server/admin/token' }, { path: '/store/path' }] }, 'the old token opens the door')
  t.equal((await fetch(urls.api + '/extra', { headers: { 'x-api-key': KEY } })).status, 200, 'the new route is there')
})

t.test('the level of the log is a thing of the reload', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const running = await gateway(t, yaml([vendor.url]))
  await edit(running, { 'gateway.yaml': yaml([vendor.url], 'log: { level: error }') })
  const { length } = running.logged
  await (await running.messages(messagesRequest)).text()
  t.equal(running.logged.length, length)
  await edit(running, { 'gateway.yaml': yaml([vendor.url], 'log: { level: info }') })
  await (await running.messages(messagesRequest)).text()
  t.ok(running.logged.some(({ msg, config_generation: generation }) => msg === 'request' && generation === 3))
})

t.test('two edits in quick succession end on the last', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const running = await gateway(t, yaml([vendor.url]), THREADED)
  const route = (name: string): string => yaml([vendor.url], `routes: [{ match: GET /${name}, serve: models }]`)
  const ask = async (name: string): Promise<number> =>
    (await fetch(`${running.url}/${name}`, { headers: { 'x-api-key': KEY } })).status
  writeFileSync(running.file, route('first'))
  await edit(running, { 'gateway.yaml': route('second') })
  t.strictSame([await ask('first'), await ask('second')], [404, 200])
  // The second of these comes while the first is being read.
  const between = running.live.reload('sighup')
  writeFileSync(running.file, route('third'))
  const last = running.live.reload('sighup')
  writeFileSync(running.file, route('fourth'))
  await Promise.all([between, last])
  while (await ask('fourth') !== 200) await running.live.reloaded()
  t.strictSame([await ask('second'), await ask('third')], [404, 404])
})

t.test('a request is charged at the price of the configuration that it began with', async (t) => {
  const { promise: released, resolve: release } = Promise.withResolvers<void>()
  const vendor = await upstream(t, ({ body }) =>
    body!['stream'] === true
      ? [wait(released), answer('fine', { usage: { input_tokens: 100, output_tokens: 10 } })]
      : answer('fine', { usage: { input_tokens: 100, output_tokens: 10 } }))
  const running = await gateway(t, yaml([vendor.url]))
  const charges = async (): Promise<string[]> => {
    const entries: string[] = []
    for await (const { kind, nanos } of running.services.store.entries()) {
      if (kind === 'settle') entries.push(String(-nanos))
    }
    return entries
  }
  const old = running.messages({ ...messagesRequest, stream: true })
  await vendor.nextRequest()
  await edit(running, { 'gateway.yaml': yaml([vendor.url]).replace('input: 3, output: 15', 'input: 30, output: 150') })
  const young = await running.messages(messagesRequest)
  t.equal(young.headers.get('x-gateway-cost-usd'), '0.0045')
  release()
  t.match(await (await old).text(), /message_stop/)
  t.strictSame(await charges(), ['4500000', '450000'],
    'dollars per million tokens are 1,000 nano-dollars per token: 100 × 30,000 + 10 × 150,000, then a tenth of it')
})

t.test('an opening balance is credited once, that of a new account when it comes, and none by what is refused', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const accounts = (...usd: readonly number[]): string =>
    yaml([vendor.url])
      .replace('{ id: acme, name: Acme, opening_balance_usd: 100 }',
        usd.map((opening, i) => `{ id: ${['acme', 'new'][i]!}, opening_balance_usd: ${opening} }`).join('\n  - '))
  const running = await gateway(t, accounts(100), {
    files: { 'throws.ts': 'export default { name: \'throws\', create () { throw new Error(\'not today\') } }\n' }
  })
  const balance = async (id: string): Promise<bigint> => (await running.services.store.balance(id)).balance
  const refused = await edit(running, {
    'gateway.yaml': accounts(100, 50000).replace('pipeline: [auth,', 'pipeline: [auth, { use: ./throws.ts },')
  })
  t.match(refused, { ok: false, problems: [{ message: /not today/ }] })
  t.equal(await balance('new'), 0n, 'a typing error in a configuration that is refused is not kept for ever')
  const { warnings } = await edit(running, { 'gateway.yaml': accounts(500, 5) })
  t.strictSame([await balance('acme'), await balance('new')], [100_000_000_000n, 5_000_000_000n])
  t.match(warnings, [{ path: '/accounts/0/opening_balance_usd',
    message: 'has changed from 100 to 500, which does nothing: it was credited once, when the account was new' }])
  t.equal(warnings.length, 1)
  await edit(running, { 'gateway.yaml': accounts(500) })
  await edit(running, { 'gateway.yaml': accounts(500, 5) })
  t.strictSame([await balance('acme'), await balance('new')], [100_000_000_000n, 5_000_000_000n],
    'an account that comes back is not new')
})

t.test('an opening balance that is not what the ledger knows is a warning at the start, and at every reload', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const data = t.testdir()
  const text = (opening: number, more = ''): string =>
    yaml([vendor.url], more)
      .replace('driver: memory, path: ./data', `driver: embedded, path: ${JSON.stringify(data)}`).replace(
        'opening_balance_usd: 100',
        `opening_balance_usd: ${opening}`
      )
  await (await gateway(t, text(100))).stop()
  const running = await gateway(t, text(500.5))
  const place = { path: '/accounts/0/opening_balance_usd',
    message: 'has changed from 100 to 500.5, which does nothing: it was credited once, when the account was new' }
  const warnings = (): unknown => running.live.status().warnings
  t.match(warnings(), [place])
  t.ok(running.logged.some(({ level, msg }) => level === 40 && String(msg).endsWith(`${place.path} ${place.message}`)))
  t.equal((await running.services.store.balance('acme')).balance, 100_000_000_000n)
  await running.rewrite(text(500.5, '# nothing to apply'))
  t.match(warnings(), [place], 'where nothing else has changed, too')
  await running.rewrite(text(100))
  t.strictSame(warnings(), [])
  await running.rewrite(text(7))
  t.match(warnings(), [{ ...place, message: /from 100 to 7,/ }],
    'from what was credited, not from what stood there last')
})

t.test('a key that is removed is unknown to the next request, and what runs with it comes to its end', async (t) => {
  const { promise: released, resolve: release } = Promise.withResolvers<void>()
  const vendor = await upstream(
    t,
    [
      messageStart(), blockStart(0), textDelta(0, 'first'), wait(released), textDelta(0, ' last'), blockStop(0),
      messageEnd()
    ]
  )
  const running = await gateway(t, yaml([vendor.url]))
  const stream = await running.messages({ ...messagesRequest, stream: true })
  const other = 'sk-gw-' + 'o'.repeat(32)
  await edit(running, { 'gateway.yaml': yaml([vendor.url]).replace(KEY, other) })
  t.equal((await running.messages(messagesRequest)).status, 401)
  t.equal((await fetch(running.url + '/v1/models', { headers: { 'x-api-key': other } })).status, 200)
  release()
  t.match(await stream.text(), / last[^]*message_stop/)
  t.ok((await running.services.store.balance('acme')).balance < 100_000_000_000n, 'and is charged')
})

t.test('the demo key is off as soon as an upstream is a real one, and a gateway that nobody can use says so', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const simulated = yaml([vendor.url]).replace(vendor.url, 'simulator:').replace(/^accounts:[^]*/m, '')
  const running = await gateway(t, simulated)
  const demoKey = running.demoKey()!
  const ask = async (): Promise<number> =>
    (await running.messages(messagesRequest, { headers: { 'x-api-key': demoKey } })).status
  const why = async (key: string): Promise<string> =>
    (await (await running.messages(messagesRequest, { headers: { 'x-api-key': key } })).json() as {
      readonly error: { readonly message: string }
    }).error.message
  t.equal(await ask(), 200)
  const { warnings } = await edit(running, { 'gateway.yaml': simulated.replace('simulator:', vendor.url) })
  t.match(warnings, [{ path: '/upstreams/u0/url', message: /the demo key is off; and no keys are declared/ }])
  t.equal(await ask(), 401)
  t.match(await why(demoKey),
    /^This is the demo key, which is off because not every upstream is the built-in simulator\. Use a key of your own\./)
  t.notMatch(await why('sk-gw-' + 'x'.repeat(32)), /demo/, 'who does not hold it is told nothing')
  t.equal(vendor.requests.length, 0)
  await edit(running, { 'gateway.yaml': simulated })
  t.equal(await ask(), 200)

  const withKeys = yaml([vendor.url])
  const line = withKeys.split('\n').findIndex((text) => text.includes('u0: {')) + 1
  const off = await edit(running, { 'gateway.yaml': withKeys })
  t.match(off.warnings, [{ line, column: 14, path: '/upstreams/u0/url',
    message: 'the demo key is off now, because not every upstream is the built-in simulator',
    hint: 'use keys of your own' }])
  t.equal(off.warnings.length, 1)
  t.ok(
    running.logged.some(({ level, msg }) =>
      level === 40 && String(msg).includes(`gateway.yaml:${line}:14 /upstreams/u0/url the demo key is off now`)
    )
  )
  t.match(await why(demoKey), /^This is the demo key/)
  t.strictSame((await edit(running, { 'gateway.yaml': withKeys.replace('Model One', 'Model 1') })).warnings, [],
    'it is said once')

  await edit(running, { 'gateway.yaml': withKeys.replace(vendor.url, 'simulator:') })
  t.equal(await ask(), 200)
  const taken = await edit(running, {
    'gateway.yaml': withKeys.replace(vendor.url, 'simulator:').replace('acme-dev', 'demo')
  })
  t.match(taken.warnings, [{ path: '', message: /because another account or key is called "demo"/ }])
  t.match(await why(demoKey), /off because another account or key is called "demo"/)
})
