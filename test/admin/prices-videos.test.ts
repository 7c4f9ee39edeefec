// Prices and videos in the admin API: what is sold, now and as announced, and the tasks of all accounts.
import t from 'tap'
import type { Movable, Tasks } from '../../src/store/tasks.ts'
import type { Store } from '../../src/store/store.ts'
import { gateway, yaml, type TestGateway } from '../support/gateway.ts'

const NOW = Date.parse('2027-01-15T12:00:00Z')

type Row = Readonly<Record<string, unknown>>

interface Answer {
  readonly status: number
  readonly data: readonly Row[]
  readonly next: string | null
  readonly error: Row
}

async function ask (own: TestGateway, path: string): Promise<Answer> {
  const headers = { authorization: 'Bearer test-admin-token' }
  const got = await fetch(`${own.urls.admin}/admin/v1${path}`, { headers })
  return { status: got.status, ...await got.json() as { data: Row[], next: string | null, error: Row } }
}

/** Every row, however many pages there are. */
async function all (own: TestGateway, path: string, limit: number): Promise<readonly Row[]> {
  const rows: Row[] = []
  for (let after = ''; ;) {
    const query = new URLSearchParams({ limit: String(limit), ...(after !== '' && { after }) })
    const { data, next } = await ask(own, `${path}?${query}`)
    rows.push(...data)
    if (next === null) return rows
    after = next
  }
}

const VIDEO = { status: 'in_progress', progress: 40, model: 'clip', prompt: 'a secret wish', seconds: '4',
  size: '720x1280', channel: 'premium', upstream: 'u0', url: 'http://127.0.0.1:1', upstream_id: 'up' }
const TARGETS = 'targets: [{ upstream: u0, model: x }]'
const MODELS = `  - id: staged
    provider: acme
    created: 2025-09-29
    max_output: 1000
    channels:
      cheap: { enabled: false, ${TARGETS}, price: free }
      premium:
        ${TARGETS}
        price:
          - { input: 3, output: 15 }
          - { from: 2027-01-01, input: 4, output: 16, cache_read: 0.4 }
          - { from: 2027-02-01, input: 5, output: 17 }
          - { from: "2027-03-01T18:00:00+01:00", input: 6, output: 18, extras: { web_search: 0.01 } }
  - id: drawn
    provider: acme
    kind: image
    created: 2025-09-29
    maintenance: true
    parameters: { resolution: { values: [1K, 2K], default: 1K } }
    channels: { premium: { targets: [{ upstream: img, model: x }],
      price: [{ when: { resolution: 1K }, usd: 0.04 }, { usd: 0.08 }] } }
accounts:`
const TEXT = yaml(['http://127.0.0.1:1']).replace('accounts:', MODELS)
  .replace('models:', '  img: { url: "http://127.0.0.1:1", dialect: images }\nmodels:')

t.test('prices by model and channel, with the day of those that are announced', async (t) => {
  const own = await gateway(t, TEXT, { now: () => NOW })
  const rows = await all(own, '/prices', 2)
  t.strictSame(rows.map(({ id }) => id), ['drawn premium', 'm1 premium', 'staged cheap', 'staged premium'])
  t.strictSame(rows[3], {
    id: 'staged premium', model: 'staged', name: 'staged', provider: 'acme', kind: 'text', channel: 'premium',
    enabled: true, maintenance: false,
    price: { input: '4', output: '16', cache_read: '0.4' }, since: '2027-01-01T00:00:00.000Z',
    until: '2027-02-01T00:00:00.000Z',
    announced: [{ from: '2027-02-01T00:00:00.000Z', price: { input: '5', output: '17' } },
      { from: '2027-03-01T17:00:00.000Z', price: { input: '6', output: '18', extras: { web_search: '0.01' } } }]
  })
  t.match(rows[0], { kind: 'image', maintenance: true, since: null, until: null, announced: [],
    price: [{ when: { resolution: '1K' }, usd: '0.04' }, { usd: '0.08' }] })
  t.match(rows[2], { enabled: false, price: 'free', since: null, until: null })
  t.match((await ask(own, '/prices?model=staged&channel=premium')).data, [{ id: 'staged premium' }])
  t.strictSame((await ask(own, '/prices?model=nobody')).data, [])
  t.match(await ask(own, '/prices?modle=m1'), { status: 400, error: { message: /did you mean "model"/ } })
})

for (const driver of ['memory', 'embedded']) {
  void t.test(`${driver}: videos of all accounts, the newest first, with what they hold and were charged`, async (t) => {
    const text = yaml(['simulator:']).replace('driver: memory', `driver: ${driver}`)
    const own = await gateway(t, text, { now: () => NOW })
    const store = own.services.store as unknown as Store & Tasks & Movable
    t.strictSame(await ask(own, '/videos'), { status: 200, data: [], next: null })
    for (let i = 0; i < 5; i++) {
      await store.hold({ request_id: `req_${i}`, account: 'acme', key: 'acme-dev', nanos: 1_000_000_000n })
      await store.openTask({ id: `video_${i}`, request_id: `req_${i}`, account: 'acme', key: 'acme-dev',
        created: NOW - 60_000 * (5 - i), nanos: 500_000_000n,
        text: JSON.stringify({ ...VIDEO, upstream_id: `up_${i}` }) })
    }
    await store.endTask('video_1', JSON.stringify({ ...VIDEO, status: 'failed', ended: NOW,
      error: { code: 'server_error', message: 'It failed.' } }))
    await store.endTask('video_2', JSON.stringify({ ...VIDEO, status: 'completed', ended: NOW }),
      { nanos: 400_000_000n, model: 'clip', channel: 'premium', usage_source: 'provider',
        usage: { input: 0, cache_read: 0, cache_write_5m: 0, cache_write_1h: 0, output: 0, extras: {} } })
    const rows = await all(own, '/videos', 2)
    t.strictSame(rows.map(({ id }) => id), [4, 3, 2, 1, 0].map((i) => `video_${i}`))
    t.strictSame(rows[0], {
      id: 'video_4', request_id: 'req_4', account: 'acme', key: 'acme-dev', model: 'clip', channel: 'premium',
      upstream: 'u0', upstream_id: 'up_4', credential: null, status: 'in_progress', progress: 40, seconds: '4',
      size: '720x1280', created_at: '2027-01-15T11:59:00.000Z', age_s: 60, ended_at: null, is_open: true,
      held_usd: '0.5', charged_usd: '0', error: null
    })
    t.match(rows[2], { id: 'video_2', status: 'completed', is_open: false, ended_at: '2027-01-15T12:00:00.000Z' })
    t.match(rows[3], { status: 'failed', error: { code: 'server_error' } })
    t.strictSame(rows.map(({ held_usd: held, charged_usd: charged }) => [held, charged]),
      [['0.5', '0'], ['0.5', '0'], ['0', '0.4'], ['0', '0'], ['0.5', '0']])
    t.notMatch(JSON.stringify(rows), /secret wish/)
    t.match((await ask(own, '/videos?state=failed')).data, [{ id: 'video_1' }])
    t.strictSame((await ask(own, '/videos?account=nobody')).data, [])
    t.equal((await ask(own, '/videos?account=acme')).data.length, 5)
    t.match(await ask(own, '/videos?state=gone'), { status: 400, error: { message: /queued, in_progress/ } })
    t.match(await ask(own, '/videos?after=x'), { status: 400 })
  })
}
