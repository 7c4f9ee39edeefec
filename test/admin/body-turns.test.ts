// Large bodies of the admin API: one at a time, tokens in turns, and so many and no more.
import t from 'tap'
import { BodyTurns } from '../../src/admin/body-turns.ts'
import { gateway, yaml } from '../support/gateway.ts'

t.test('N16: one body at a time; tokens take turns, and of one token the smallest is first', async (t) => {
  const turns = new BodyTurns()
  const order: string[] = []
  const ends: (() => void)[] = []
  let running = 0
  const add = async (token: string, bytes: number): Promise<void> => {
    await turns.run(token, bytes, async () => {
      t.equal(++running, 1)
      order.push(`${token}${bytes}`)
      await new Promise<void>((resolve) => { ends.push(resolve) })
      running--
    })
  }
  const all = [add('a', 9), add('a', 8), add('a', 3), add('b', 7), add('b', 5), add('c', 9)]
  let isOver = false
  const over = Promise.all(all).then(() => { isOver = true })
  while (!isOver) {
    ends.pop()?.()
    await new Promise((resolve) => { setImmediate(resolve) })
  }
  await over
  t.strictSame(order, ['a9', 'b5', 'c9', 'a3', 'b7', 'a8'])
  await t.rejects(turns.run('a', 1, async () => { throw new Error('mine') }), /mine/)
  t.equal(await turns.run('a', 1, async () => 'next'), 'next', 'a failure gives its turn back')
})

t.test('N16: a token has 4 places, all have 16, and each is given back once', async (t) => {
  const turns = new BodyTurns()
  const leave = Array.from({ length: 16 }, (_, i) => {
    if (i === 4) t.throws(() => turns.enter('0'), { code: 'busy', message: /4 large bodies of this token/ })
    return turns.enter(String(Math.floor(i / 4)))
  })
  t.throws(() => turns.enter('other'), { code: 'busy', headers: { 'retry-after': '2' } })
  leave[0]!()
  turns.enter('other')()
  turns.enter('0')
})

t.test('N16: of 20 large explanations at a time 4 are answered; small ones and those of another token all are', async (t) => {
  const own = await gateway(t, yaml(['simulator:']))
  const made = await fetch(`${own.urls.admin}/admin/v1/tokens`, { method: 'POST',
    headers: { authorization: 'Bearer test-admin-token' }, body: JSON.stringify({ name: 'v', role: 'viewer' }) })
  const { secret } = await made.json() as { readonly secret: string }
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
