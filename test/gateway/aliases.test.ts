// Aliases over real sockets: whoever may use one gets the model behind it at that moment, and is told which one it was.
import t, { type Test } from 'tap'
import { allKinds, askFor, kindsYaml, secretOf, send } from '../support/all-kinds.ts'
import { events, fate } from '../support/client.ts'
import { gateway, type TestGateway } from '../support/gateway.ts'
import { explain, quote } from '../support/rehearsals.ts'
import { upstream, type Upstream } from '../support/upstream.ts'

const SWITCH = Date.parse('2099-12-01T00:00:00Z')
const ALIASES = `aliases:
  - { id: claude-latest, model: sonnet }
  - { id: claude-best, model: [{ model: sonnet }, { from: 2099-12-01, model: opus }] }
  - { id: picture, model: nano }
  - { id: film, model: clip }
`
const KEYS = `  - { id: by-alias, account: acme, secret: ${secretOf('by-alias')}, allowed_models: [claude-latest] }
  - { id: by-pattern, account: acme, secret: ${secretOf('by-pattern')}, allowed_models: ["claude-*"] }
  - { id: by-model, account: acme, secret: ${secretOf('by-model')}, allowed_models: [sonnet] }
  - { id: by-another, account: acme, secret: ${secretOf('by-another')}, allowed_models: [opus] }
`

async function aliased (
  t: Test,
  now: () => number = () => SWITCH - 1
): Promise<{ readonly gw: TestGateway, readonly up: Upstream, readonly url: string }> {
  const up = await upstream(t, allKinds)
  return { up, url: up.url, gw: await gateway(t, kindsYaml(up.url, KEYS + ALIASES), { now }) }
}

t.test('the answer names the model, whatever was asked, in both formats', async (t) => {
  const { gw, up } = await aliased(t)
  for (const [path, stream] of [['/v1/messages', false], ['/v1/messages', true], ['/v1/chat/completions', false], [
    '/v1/chat/completions',
    true
  ]] as const) {
    const told = await askFor(gw, path, 'claude-latest', { stream })
    t.equal(told.status, 200, path)
    const models = !stream ? [told.body['model']]
      : path === '/v1/messages' ? [(events(told.text)[0]!.data['message'] as { model: string }).model]
        : told.text.split('\n\n')
          .filter((line) => line.startsWith('data: {'))
          .map((line) => (JSON.parse(line.slice(6)) as { model: string }).model)
    t.strictSame([...new Set(models)], ['sonnet'], path)
    t.equal(up.requests.at(-1)!.body!['model'], 'vendor-sonnet')
    const { line, entries } = await fate(gw, told.id)
    t.match(line, { model: 'sonnet', asked: 'claude-latest' })
    t.match(entries, [{ kind: 'settle', model: 'sonnet' }])
  }
  const { line } = await fate(gw, (await askFor(gw, '/v1/messages', 'sonnet')).id)
  t.equal(line['model'], 'sonnet')
  t.notOk('asked' in line, 'who names the model has asked for nothing else')
  const metrics =
    await (await fetch(`${gw.urls.admin}/metrics`, { headers: { authorization: 'Bearer test-admin-token' } })).text()
  t.match(metrics, /gateway_requests_total\{[^}]*model="sonnet"/)
  t.notMatch(metrics, 'claude-latest', 'no series for a name that is no model')
})

t.test('images, videos, counts and quotes take aliases too', async (t) => {
  const { gw, up } = await aliased(t)
  t.equal((await askFor(gw, '/v1/images/generations', 'picture')).status, 200)
  t.equal(up.requests.at(-1)!.body!['model'], 'vendor-nano')
  const video = await askFor(gw, '/v1/videos', 'film')
  t.match(video, { status: 200, body: { model: 'clip' } })
  t.match(await askFor(gw, '/v1/messages/count_tokens', 'claude-latest'), { status: 200, body: { input_tokens: 4242 } })
  t.match(
    (await quote(gw, { path: '/v1/messages',
      body: { model: 'claude-latest', max_tokens: 10, messages: [{ role: 'user', content: 'Hello' }] } })).body,
    { model: 'sonnet', allowed: true }
  )
  t.match(
    (await explain(gw, { key: 'acme-dev',
      body: { model: 'claude-latest', max_tokens: 10, messages: [{ role: 'user', content: 'Hello' }] } })).body,
    { model: 'sonnet', alias: 'claude-latest', allowed: true, targets: [{ model: 'vendor-sonnet' }] }
  )
  t.match(
    (await explain(gw, { key: 'acme-dev',
      body: { model: 'sonnet', max_tokens: 10, messages: [{ role: 'user', content: 'Hello' }] } })).body,
    { model: 'sonnet', alias: null }
  )
  t.match(await askFor(gw, '/v1/images/generations', 'claude-latest'), { status: 400, code: 'invalid_request',
    message: /^"claude-latest" is a text model, and this address takes an image model/ })
})

t.test('a dated switch comes with the clock, and needs no reload', async (t) => {
  let now = SWITCH - 1
  const { gw, up } = await aliased(t, () => now)
  const ask = async (): Promise<unknown[]> => {
    const told = await askFor(gw, '/v1/messages', 'claude-best')
    const { charged } = await fate(gw, told.id)
    return [told.body['model'], up.requests.at(-1)!.body!['model'], charged,
      told.headers.get('x-gateway-config-generation')]
  }
  t.strictSame(await ask(), ['sonnet', 'vendor-sonnet', 105_000n, '1'])
  t.match((await send(gw, 'GET', '/v1/models/claude-best')).body, { id: 'claude-best', max_tokens: 64000 })
  now = SWITCH
  t.strictSame(await ask(), ['opus', 'vendor-opus', 525_000n, '1'])
  t.match((await send(gw, 'GET', '/v1/models/claude-best')).body, { id: 'claude-best', max_tokens: 32000,
    display_name: 'opus' })
  now = 0
  t.strictSame((await ask()).slice(0, 1), ['sonnet'], 'a clock that was set back far is no reason to serve nobody')
})

t.test('a key may use an alias that it may use, or the model behind it', async (t) => {
  const { gw } = await aliased(t)
  const table = {
    //            claude-latest  claude-best  sonnet
    'by-alias': [200, 403, 403],
    'by-pattern': [200, 200, 403],
    'by-model': [200, 200, 200],
    'by-another': [403, 403, 403]
  }
  for (const [key, statuses] of Object.entries(table)) {
    const names = ['claude-latest', 'claude-best', 'sonnet']
    for (const [i, name] of names.entries()) {
      const told = await askFor(gw, '/v1/messages', name, {}, key)
      t.equal(told.status, statuses[i], `${key}: ${name}`)
      if (told.status === 403) {
        t.match(told, { code: 'model_not_allowed', message: `This key may not use the model "${name}".` },
          'what is behind an alias is not told')
      }
      t.equal((await send(gw, 'GET', `/v1/models/${name}`, undefined, key)).status, statuses[i] === 200 ? 200 : 404,
        `${key}: ${name} is shown`)
    }
    const { body } = await send(gw, 'GET', '/v1/models', undefined, key)
    const listed = (body['data'] as { id: string }[]).map(({ id }) => id).filter((id) => names.includes(id))
    t.strictSame(listed.toSorted(), names.filter((_, i) => statuses[i] === 200).toSorted(),
      `${key}: what is listed is what is let through`)
  }
})

t.test('aliases stand in the lists as models of their own', async (t) => {
  const { gw } = await aliased(t)
  const { body } = await send(gw, 'GET', '/v1/models')
  const data = body['data'] as { id: string }[]
  t.strictSame(
    data.map(({ id }) => id),
    ['sonnet', 'opus', 'both', 'nano', 'clip', 'claude-latest', 'claude-best', 'picture', 'film']
  )
  t.strictSame(data[5], { ...data[0], id: 'claude-latest' }, 'with all that is said of the model behind it')
  t.match((await send(gw, 'GET', '/v1/models?after_id=clip&limit=2')).body, { first_id: 'claude-latest',
    last_id: 'claude-best', has_more: true })
  t.match(await askFor(gw, '/v1/messages', 'claude-lates'), { status: 400, code: 'model_not_found',
    message: /Did you mean "claude-latest"\?/ })
  t.match(await askFor(gw, '/v1/messages', 'claude-latest-20251001'), { status: 400,
    message: /Did you mean "claude-latest"\?/ })
  const prices = await send(gw, 'GET', '/v1/models/info')
  t.strictSame((prices.body['data'] as { id: string }[]).map(({ id }) => id), ['sonnet', 'opus', 'both'],
    'prices are those of models')
})

t.test('an alias that is changed in the file is another model with the next request', async (t) => {
  const { gw, url } = await aliased(t)
  t.equal((await askFor(gw, '/v1/messages', 'claude-latest')).body['model'], 'sonnet')
  await gw.rewrite(kindsYaml(url, KEYS + ALIASES.replace('claude-latest, model: sonnet', 'claude-latest, model: opus')))
  t.equal((await askFor(gw, '/v1/messages', 'claude-latest')).body['model'], 'opus')
  await gw.rewrite(
    kindsYaml(url, KEYS + ALIASES.replace('claude-latest, model: sonnet', 'claude-latest, model: nothing'))
  )
  t.equal((await askFor(gw, '/v1/messages', 'claude-latest')).body['model'], 'opus',
    'a file that is wrong changes nothing')
  await gw.rewrite(kindsYaml(url, KEYS.replace(/.*by-alias.*\n/, '')))
  t.match(await askFor(gw, '/v1/messages', 'claude-latest'), { status: 400, code: 'model_not_found' })
})
