// Names that an alias catches by their beginning, and those that default_model catches: which model answers, who may
// use it, and what is told of it (rule names).
import t from 'tap'
import { allKinds, askFor, kindsYaml, secretOf, send } from '../support/all-kinds.ts'
import { fate } from '../support/client.ts'
import { gateway } from '../support/gateway.ts'
import { explain, quote } from '../support/rehearsals.ts'
import { upstream } from '../support/upstream.ts'

const SWITCH = Date.parse('2099-12-01T00:00:00Z')
const allowed = (id: string, models: string): string =>
  `  - { id: ${id}, account: acme, secret: ${secretOf(id)}, allowed_models: [${models}] }\n`
const KEYS = allowed('by-name', '"claude-*"') + allowed('by-any', '"zz*", "claude-opus-4-5"') +
  allowed('by-model', 'sonnet') + allowed('by-opus', 'opus')
const ALIASES = `aliases:
  - { id: "claude-*", model: sonnet }
  - { id: "claude-opus-*", model: opus }
  - { id: claude-opus-4-5, model: both }
  - { id: "o*", model: sonnet }
  - { id: "dall-e-*", model: nano }
  - { id: "next-*", model: [{ model: sonnet }, { from: 2099-12-01, model: opus }] }
`
const DEFAULT = 'default_model: both\n'

const up = await upstream(t, allKinds)
let now = SWITCH - 1
const gw = await gateway(t, kindsYaml(up.url, KEYS + ALIASES + DEFAULT), { now: () => now })
const strict = await gateway(t, kindsYaml(up.url, KEYS + ALIASES))
const hello = { max_tokens: 10, messages: [{ role: 'user', content: 'Hello' }] }
const TEXTS = ['/v1/messages', '/v1/chat/completions', '/v1/responses']

t.test('an id, then a whole alias, then the longest beginning, then the default', async (t) => {
  const meant = {
    sonnet: 'sonnet', opus: 'opus',                           // though "o*" is a beginning of it
    'claude-opus-4-5': 'both', 'claude-opus-4-5-20251101': 'opus', 'claude-opus-': 'opus',
    'claude-opus': 'sonnet', 'claude-': 'sonnet', 'claude-sonnet-4-5': 'sonnet', o3: 'sonnet',
    claude: 'both', Opus: 'both', 'gpt-5.4-nano': 'both', '*': 'both', 'sonnet ': 'both', __proto__: 'both'
  }
  for (const [name, model] of Object.entries({ ...meant, ['__proto__']: 'both' })) {
    for (const path of TEXTS) {
      const told = await askFor(gw, path, name)
      t.match(told, { status: 200, body: { model } }, `${path}: ${name}`)
      const { line, entries } = await fate(gw, told.id)
      t.match(line, { model, outcome: 'completed' })
      t.equal(line['asked'], name === model ? undefined : name, 'the log says what was asked')
      t.match(entries, [{ model }])
    }
  }
  const metrics =
    await (await fetch(`${gw.urls.admin}/metrics`, { headers: { authorization: 'Bearer test-admin-token' } })).text()
  t.notMatch(metrics, /gpt-5|claude-opus/, 'clients can add no series')
})

t.test('counts, quotes and explanations mean the same model', async (t) => {
  for (const [name, model] of [['claude-opus-4-1', 'opus'], ['unheard-of', 'both']] as const) {
    t.equal((await askFor(gw, '/v1/messages/count_tokens', name)).status, 200)
    t.match((await quote(gw, { path: '/v1/messages', body: { model: name, ...hello } })).body, { model, allowed: true })
    t.match((await explain(gw, { key: 'acme-dev', body: { model: name, ...hello } })).body,
      { model, alias: name, allowed: true })
  }
})

t.test('without a default what is not caught is refused', async (t) => {
  t.match(await askFor(strict, '/v1/messages', 'gpt-5'), { status: 400, code: 'model_not_found' })
  t.match(await askFor(strict, '/v1/messages', 'claude'), { status: 400, code: 'model_not_found' })
  t.match(await askFor(strict, '/v1/messages', 'claude-x'), { status: 200, body: { model: 'sonnet' } })
})

t.test('a name without end is not caught, since it would stand in logs', async (t) => {
  const long = 'claude-' + 'x'.repeat(249)
  t.equal((await askFor(gw, '/v1/messages', long)).status, 200)
  for (const name of [long + 'x', 'y'.repeat(257), 'claude-' + 'x'.repeat(100_000)]) {
    t.match(await askFor(gw, '/v1/messages', name), { status: 400, code: 'model_not_found' })
  }
})

t.test('images and videos have no default; a beginning may mean one', async (t) => {
  for (const path of ['/v1/images/generations', '/v1/videos']) {
    t.match(await askFor(gw, path, 'unheard-of'), { status: 400, code: 'model_not_found' }, path)
    t.match(await askFor(gw, path, 'claude-x'), { status: 400, code: 'invalid_request', message: /is a text model/ })
  }
  t.equal((await askFor(gw, '/v1/images/generations', 'dall-e-3')).status, 200)
  t.match(await askFor(gw, '/v1/messages', 'dall-e-3'), { status: 400, message: /is an image model/ },
    'what has a meaning does not get the default')
  t.match(await askFor(gw, '/v1/messages', ''), { status: 400, code: 'model_required' })
})

t.test('a dated switch comes with the clock', async (t) => {
  t.match((await askFor(gw, '/v1/messages', 'next-x')).body, { model: 'sonnet' })
  now = SWITCH
  t.match((await askFor(gw, '/v1/messages', 'next-x')).body, { model: 'opus' })
  now = SWITCH - 1
})

t.test('a key gets by a name that it makes up only what it may call anyway', async (t) => {
  const table = {
    //          claude-x  claude-opus-x  claude-opus-4-5  zz-top
    'by-name': [403, 403, 200, 403],
    'by-any': [403, 403, 200, 403],
    'by-model': [200, 403, 403, 403],
    'by-opus': [403, 200, 403, 403]
  }
  const names = ['claude-x', 'claude-opus-x', 'claude-opus-4-5', 'zz-top']
  for (const [key, statuses] of Object.entries(table)) {
    for (const [i, name] of names.entries()) {
      for (const path of [...TEXTS, '/v1/messages/count_tokens']) {
        const told = await askFor(gw, path, name, {}, key)
        t.equal(told.status, statuses[i], `${key}: ${name} at ${path}`)
        if (told.status === 403) {
          t.match(told, { code: 'model_not_allowed', message: `This key may not use the model "${name}".` },
            'what would have answered is not told')
        }
      }
      t.equal((await send(gw, 'GET', `/v1/models/${name}`, undefined, key)).status,
        statuses[i] === 200 && name !== 'zz-top' ? 200 : 404, `${key}: ${name} is shown`)
    }
  }
})

t.test('a name that is caught can be asked for, and stands in no list', async (t) => {
  const { body } = await send(gw, 'GET', '/v1/models')
  t.strictSame((body['data'] as { id: string }[]).map(({ id }) => id),
    ['sonnet', 'opus', 'both', 'nano', 'clip', 'claude-opus-4-5'])
  t.match((await send(gw, 'GET', '/v1/models/claude-opus-4-1')).body, { id: 'claude-opus-4-1', display_name: 'opus',
    max_tokens: 32000 })
  t.match((await send(gw, 'GET', '/v1/models/dall-e-3')).body, { id: 'dall-e-3', display_name: 'nano' })
  for (const id of ['unheard-of', 'claude', 'claude-' + 'x'.repeat(300)]) {
    t.equal((await send(gw, 'GET', `/v1/models/${id}`)).status, 404, 'what only the default answers')
  }
})

t.test('the file may change them while it runs', async (t) => {
  const live = await gateway(t, kindsYaml(up.url, KEYS + ALIASES + DEFAULT))
  await live.rewrite(kindsYaml(up.url, KEYS + ALIASES.replace('"claude-*", model: sonnet', '"claude-*", model: opus') +
    DEFAULT.replace('both', 'opus')))
  t.match((await askFor(live, '/v1/messages', 'claude-x')).body, { model: 'opus' })
  t.match((await askFor(live, '/v1/messages', 'unheard-of')).body, { model: 'opus' })
  await live.rewrite(kindsYaml(up.url, KEYS + ALIASES + DEFAULT.replace('both', 'nothing')))
  t.match((await askFor(live, '/v1/messages', 'unheard-of')).body, { model: 'opus' }, 'a file that is wrong changes nothing')
})
