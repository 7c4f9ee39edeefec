// The difference between two configurations: found wherever it is, told by names, and never with a secret.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import type { Config } from '../../src/config/config.ts'
import { diffConfigs } from '../../src/config/diff.ts'
import { isMap } from '../../src/config/yaml/position.ts'
import { loadHere } from '../support/load-here.ts'
import { yaml } from '../support/gateway.ts'

const SEEDED = process.env['FC_SEED'] !== undefined && { seed: Number(process.env['FC_SEED']) }
const pluginsUrl = new URL('../../plugins/index.ts', import.meta.url).href

/** A checked configuration. */
async function config (text: string): Promise<Config> {
  const loaded = await loadHere(path.join(packageRoot, 'gateway.yaml'), { pluginsUrl, env: {},
    sent: { text, includes: [path.join(packageRoot, 'config/models.yaml')], plugins: [] } })
  if (loaded.kind === 'invalid') throw new Error(JSON.stringify(loaded.problems))
  return loaded.config
}

const shown = (one: Config): { readonly config: Config, readonly secrets: readonly string[] } =>
  ({ config: one, secrets: [] })

const SMALL = await config(yaml(['http://127.0.0.1:1', 'http://127.0.0.1:2']))
const SHIPPED = await config(readFileSync(path.join(packageRoot, 'gateway.yaml'), 'utf8'))

/** Every place in a value, as steps. */
function * places (value: unknown, at: readonly (string | number)[] = []): Generator<readonly (string | number)[]> {
  yield at
  const entries = Array.isArray(value) ? [...value.entries()] : isMap(value) ? Object.entries(value) : []
  for (const [step, child] of entries) yield * places(child, [...at, step])
}

/** A copy with another value at a place. */
function changed (value: unknown, [step, ...rest]: readonly (string | number)[], to: unknown): unknown {
  if (step === undefined) return to
  const copy = (Array.isArray(value) ? [...value] : { ...value as object }) as Record<string | number, unknown>
  copy[step] = changed(copy[step], rest, to)
  return copy
}

t.test('a configuration has no difference from itself; one value that is another is one difference', async (t) => {
  t.strictSame(await diffConfigs(shown(SHIPPED), shown(SHIPPED)), { changes: [], more_changes: 0 })
  t.strictSame(await diffConfigs(shown(SHIPPED), shown(JSON.parse(JSON.stringify(SHIPPED)) as Config)),
    { changes: [], more_changes: 0 })
  for (const one of [SMALL, SHIPPED]) {
    const leaves = [...places(one)].filter((at) => {
      const value = at.reduce<unknown>((here, step) => (here as Record<string | number, unknown>)[step], one)
      return at.length > 1 && (typeof value !== 'object' || value === null)
    })
    await fc.assert(fc.asyncProperty(fc.constantFrom(...leaves), fc.boolean(), async (at, isBack) => {
      const other = changed(one, at, 'quite another value') as Config
      const { changes } = await diffConfigs(shown(isBack ? other : one), shown(isBack ? one : other))
      // Another name is another item: one is gone, and one has come.
      const isName = ['id', 'use', 'match'].includes(String(at.at(-1)))
      if (changes.length !== (isName ? 2 : 1)) throw new Error(`${at.join('/')}: ${JSON.stringify(changes)}`)
      if (!changes.every((change) => change.path.startsWith(`/${at[0]}`))) throw new Error(JSON.stringify(changes))
    }), { numRuns: 200, ...SEEDED })
  }
})

t.test('what has a name is found by it, wherever it stands; added, removed and moved items are told so', async (t) => {
  const [model] = SMALL.models as [Config['models'][number]]
  const second = { ...model, id: 'm2' }
  const two = { ...SMALL, models: [model, second] }
  const diff = async (before: Config, after: Config): Promise<unknown> =>
    (await diffConfigs(shown(before), shown(after))).changes
  t.match(await diff(SMALL, two), [{ path: '/models/m2', what: 'added', before: undefined, after: /^\{"id":"m2"/ }])
  t.match(await diff(two, SMALL), [{ path: '/models/m2', what: 'removed', before: /^\{"id":"m2"/, after: undefined }])
  t.strictSame(await diff(two, { ...two, models: [second, model] }),
    [{ path: '/models', what: 'reordered', before: '["m1","m2"]', after: '["m2","m1"]' }])
  const dearer = changed(second, ['channels', 'premium', 'price', 'input'], '4') as typeof second
  t.strictSame(await diff(two, { ...SMALL, models: [dearer, model] }), [
    { path: '/models/m2/channels/premium/price/input', what: 'changed', before: '"3"', after: '"4"' },
    { path: '/models', what: 'reordered', before: '["m1","m2"]', after: '["m2","m1"]' }
  ])
  t.strictSame(await diff(SMALL, { ...SMALL, default_model: 'm1' }),
    [{ path: '/default_model', what: 'added', after: '"m1"' }])
  const [auth, ...rest] = SMALL.pipeline
  t.match(await diff(SMALL, { ...SMALL, pipeline: [...rest, auth!] }), [{ path: '/pipeline', what: 'reordered' }])
})

t.test('values are cut, and so is their number', async (t) => {
  const long = await diffConfigs(shown(SMALL), shown({ ...SMALL, default_model: 'x'.repeat(1000) }))
  t.equal(long.changes[0]!.after!.length, 200)
  const [account] = SMALL.accounts as [Config['accounts'][number]]
  const accounts = Array.from({ length: 1000 }, (_, i) => ({ ...account, id: `a${i}` }))
  const many = await diffConfigs(shown(SMALL), shown({ ...SMALL, accounts }))
  t.equal(many.changes.length, 200)
  t.equal(many.more_changes, 1000 + 1 - 200)
})

t.test('a value that is not known is no difference', async (t) => {
  const other = changed(SMALL, ['upstreams', 'u0', 'url'], '${URL}') as Config
  t.match(await diffConfigs(shown(SMALL), shown(other)), { changes: [{ path: '/upstreams/u0/url' }] })
  t.strictSame(await diffConfigs(shown(SMALL), shown(other), ['/upstreams/u0/url']), { changes: [], more_changes: 0 })
  const [key] = SMALL.keys as [Config['keys'][number]]
  const two = { ...SMALL, keys: [{ ...key, id: 'new' }, { ...key, secret: '${file:secret}' }] }
  t.match((await diffConfigs(shown(SMALL), shown(two), ['/keys/1/secret'])).changes,
    [{ path: '/keys/new', what: 'added' }], 'by its position in the later one, wherever its like was before')
})

t.test('no secret is in a difference, wherever it is: it is told that it is another', async () => {
  const secret = fc.stringMatching(/^[A-Za-z0-9]{12,40}$/)
  const withSecrets = (one: string): Config => {
    const [key] = SMALL.keys as [Config['keys'][number]]
    const upstream = SMALL.upstreams['u0']!
    return {
      ...SMALL,
      server: { ...SMALL.server, seal_secrets: [one], admin: { ...SMALL.server.admin, token: one } },
      store: { ...SMALL.store, url: `redis://:${one}@host`, cluster: [one], sentinels: [one] },
      keys: [{ ...key, secret: one }],
      upstreams: { ...SMALL.upstreams, u0: { ...upstream, headers: { 'x-api-key': one },
        credentials: [{ id: 'a', headers: { authorization: one } }], tls: { key: one },
        proxy: `http://user:${one}@proxy.example.com` } },
      pipeline: [{ use: 'mine', with: { token: one, list: [one] } }, ...SMALL.pipeline]
    } as unknown as Config
  }
  const hidden = ['/pipeline/0/with/token', '/pipeline/0/with/list']
  await fc.assert(fc.asyncProperty(secret, secret, async (a, b) => {
    const [before, after] = [a, b].map((one) => ({ config: withSecrets(one), secrets: hidden })) as
      [{ config: Config, secrets: string[] }, { config: Config, secrets: string[] }]
    for (const diff of [await diffConfigs(before, after), await diffConfigs({ config: SMALL, secrets: [] }, after),
      await diffConfigs(before, { config: SMALL, secrets: [] })]) {
      const text = JSON.stringify(diff)
      if (text.includes(a) || text.includes(b)) throw new Error(text)
    }
    const { changes } = await diffConfigs(before, after)
    const paths = changes.map((change) => change.path)
    for (const place of a === b ? [] : ['/server/admin/token', '/server/seal_secrets', '/store/url', '/store/cluster',
      '/keys/acme-dev/secret', '/upstreams/u0/headers/x-api-key', '/upstreams/u0/credentials/a/headers/authorization',
      '/upstreams/u0/tls/key', '/upstreams/u0/proxy', '/pipeline/mine/with/token']) {
      if (!paths.includes(place)) throw new Error(`${place} is not told: ${paths.join(' ')}`)
    }
  }), { numRuns: 50, ...SEEDED })
})
