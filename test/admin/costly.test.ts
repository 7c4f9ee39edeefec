// Costly operations of the admin API: of a token so many are taken and fewer run, large bodies one at a time, and
// tokens take turns.
import t from 'tap'
import { Costly } from '../../src/admin/costly.ts'
import { gateway, type TestGateway, yaml } from '../support/gateway.ts'
import { until } from '../support/until.ts'

t.test('N16: one large body at a time; tokens take turns, and of one token the smallest is first', async (t) => {
  const costly = new Costly()
  const order: string[] = []
  const ends: (() => void)[] = []
  let running = 0
  const add = async (token: string, bytes: number): Promise<void> => {
    await costly.run(token, async () => {
      t.equal(++running, 1)
      order.push(`${token}${bytes}`)
      await new Promise<void>((resolve) => { ends.push(resolve) })
      running--
    }, bytes)
  }
  const all = [add('a', 9), add('a', 8), add('a', 3), add('b', 7), add('b', 5), add('c', 9)]
  let isOver = false
  const over = Promise.all(all).then(() => { isOver = true })
  while (!isOver) {
    ends.pop()?.()
    await new Promise((resolve) => { setImmediate(resolve) })
  }
  await over
  t.strictSame(order, ['a9', 'a3', 'b5', 'c9', 'a8', 'b7'])
  await t.rejects(costly.run('a', async () => { throw new Error('mine') }, 1), /mine/)
  t.equal(await costly.run('a', async () => 'next', 1), 'next', 'a failure gives its turn back')
})

t.test('N16: of one token 4 reads run at a time, and others do not wait for them', async (t) => {
  const costly = new Costly()
  const gate = Promise.withResolvers<void>()
  const begun: string[] = []
  const add = async (token: string): Promise<void> => {
    await costly.run(token, async () => {
      begun.push(token)
      await gate.promise
    })
  }
  const all = [...Array.from({ length: 6 }, () => add('a')), add('b')]
  await costly.run('c', async () => {}, 1)
  t.strictSame(begun, ['a', 'a', 'a', 'a', 'b'])
  gate.resolve()
  await Promise.all(all)
  t.equal(begun.length, 7)
})

t.test('N16: places for large bodies and for reads, of a token and of all, and each is given back once', async (t) => {
  const costly = new Costly()
  for (const [kind, ofToken, all] of [['body', 4, 16], ['read', 32, 128]] as const) {
    const leave = Array.from({ length: all }, (_, i) => {
      if (i === ofToken) t.throws(() => costly.enter('0', kind), { code: 'busy', message: /of this token/ })
      return costly.enter(String(Math.floor(i / ofToken)), kind)
    })
    t.throws(() => costly.enter('other', kind), { code: 'busy', message: /all tokens/, headers: { 'retry-after': '2' } })
    leave[0]!()
    costly.enter('other', kind)()
    costly.enter('0', kind)
    t.throws(() => costly.enter('other', kind), { code: 'busy' })
  }
})

async function viewerOf (gw: TestGateway): Promise<string> {
  const made = await fetch(`${gw.urls.admin}/admin/v1/tokens`, { method: 'POST',
    headers: { authorization: 'Bearer test-admin-token' }, body: JSON.stringify({ name: 'v', role: 'viewer' }) })
  const { secret } = await made.json() as { readonly secret: string }
  return secret
}

t.test('N16: of 100 costly reads of a viewer 32 are answered, 4 at a time; others and cheap ones all are', async (t) => {
  const gw = await gateway(t, yaml(['simulator:']))
  const viewer = await viewerOf(gw)
  const get = async (path: string, token: string): Promise<Response> => await fetch(
    `${gw.urls.admin}/admin/v1${path}`, { headers: { authorization: `Bearer ${token}` } })
  const { store } = gw.services
  const gate = Promise.withResolvers<void>()
  const newest = store.newest.bind(store)
  let running = 0
  store.newest = async (query) => {
    running++
    await gate.promise
    return await newest(query)
  }
  const flood = Array.from({ length: 100 }, async () => {
    const response = await get('/ledger?order=newest', viewer)
    await response.text()
    return [response.status, response.headers.get('retry-after')] as const
  })
  // What is refused is answered at once.
  let refused = 0
  for (const one of flood) void one.then(() => { refused++ })
  await until(() => refused === 68)
  t.equal(running, 4)
  for (const [path, token] of [['/me', viewer], ['/summary', 'test-admin-token']] as const) {
    t.equal((await get(path, token)).status, 200, path)
  }
  gate.resolve()
  const answers = await Promise.all(flood)
  t.equal(answers.filter(([status]) => status === 200).length, 32)
  t.ok(answers.every(([status, wait]) => status === 200 || (status === 429 && wait === '2')))
  t.equal((await get('/ledger?order=newest', viewer)).status, 200, 'the places are free again')
})

t.test('N16: of 20 large explanations at a time 4 are answered; small ones and those of another token all are', async (t) => {
  const own = await gateway(t, yaml(['simulator:']))
  const secret = await viewerOf(own)
  const explain = async (bytes: number, token = secret): Promise<Response> =>
    await fetch(`${own.urls.admin}/admin/v1/explain`, { method: 'POST', headers: { authorization: `Bearer ${token}` },
      body: JSON.stringify({ key: 'acme-dev', body: { model: 'claude-sonnet', max_tokens: 10,
        messages: [{ role: 'user', content: 'x '.repeat(bytes / 2) }] } }) })
  const large = Array.from({ length: 20 }, async () => await explain(3_300_000).catch(() => undefined))
  const others = [explain(1000), explain(3_300_000, 'test-admin-token')]
  for (const response of await Promise.all(others)) t.equal(response.status, 200)
  const statuses = (await Promise.all(large)).map((response) => response?.status ?? 429)
  t.ok(statuses.every((status) => status === 200 || status === 429), String(statuses))
  t.ok(statuses.filter((status) => status === 200).length >= 4, String(statuses))
  t.equal((await explain(3_300_000)).status, 200, 'the places are free again')
})
