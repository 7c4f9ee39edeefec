// N12: an account has half of the memory for request bodies. Its next large body waits unread, and others are served.
import t from 'tap'
import { BodyShares, SHARED_FROM } from '../../src/core/body-shares.ts'
import { GatewayError } from '../../src/errors.ts'
import { gateway, KEY, yaml } from '../support/gateway.ts'
import { json, step, upstream } from '../support/upstream.ts'
import { until } from '../support/until.ts'

function waiter (): { abortReason: GatewayError | undefined, abort (): void, onAbort (listener: () => void): void,
  offAbort (): void } {
  let listen = (): void => {}
  return { abortReason: undefined, onAbort (listener) { listen = listener }, offAbort () { listen = () => {} },
    abort () {
      this.abortReason = new GatewayError('client_closed')
      listen()
    } }
}

t.test('N12: an account\'s bodies wait in turn for its half, and a single one always fits', async (t) => {
  const alive = setInterval(() => {}, 1000)                   // a wait alone keeps no process alive
  t.teardown(() => { clearInterval(alive) })
  const shares = new BodyShares(10)
  const first = shares.take('a', 30)!
  t.equal(shares.take('a', 1), undefined)
  t.ok(shares.take('b', 10), 'another account has its own')
  const order: string[] = []
  const gone = waiter()
  const left = t.rejects(shares.wait('a', 10, 60_000, gone), { message: new GatewayError('client_closed').message })
  const waits = [['second', 6], ['third', 5]].map(async ([name, bytes]) => {
    const share = await shares.wait('a', bytes as number, 60_000, waiter())
    order.push(name as string)
    return share!
  })
  t.equal(shares.waiting, 3)
  gone.abort()
  await left
  first.end()
  first.end()
  const second = await waits[0]!
  t.strictSame(order, ['second'])
  t.equal(second.grow(10), true)
  t.equal(second.grow(11), true, 'it is alone')
  t.equal(await shares.wait('a', 1, 1, waiter()), undefined, 'it waits behind the third, and for a millisecond')
  second.end()
  const third = await waits[1]!
  const fourth = shares.take('a', 5)!
  t.equal(third.grow(6), false)
  third.end()
  t.equal(third.grow(6) && fourth.grow(11), true)
})

t.test('N12: the large bodies of one account wait for each other, and those of another do not', async (t) => {
  const { promise: gate, resolve: letGo } = Promise.withResolvers<void>()
  const answer = json({ id: 'msg_1', type: 'message', role: 'assistant', model: 'vendor', stop_reason: 'end_turn',
    content: [{ type: 'text', text: 'Hi' }], usage: { input_tokens: 9, output_tokens: 2 } })
  const held = step(async (visit) => {
    await gate
    for (const one of [answer].flat(5) as { run (of: unknown): unknown }[]) await one.run(visit)
  })
  const up = await upstream(t, ({ bytes }) => bytes.includes('HOLD') ? held : answer)
  const other = 'sk-gw-' + 'n'.repeat(32)
  const gw = await gateway(t, yaml([up.url]).replace('  drain_timeout', '  body_limit: 4MB\n  body_memory: 16MB\n$&')
    .replace('keys:\n', `keys:\n  - { id: other, account: other, secret: ${other} }\n`)
    .replace('accounts:\n', 'accounts:\n  - { id: other, name: Other, opening_balance_usd: 100 }\n'))
  const send = async (key: string, text: string): Promise<number> => {
    const { status } = await fetch(`${gw.url}/v1/messages`, { method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': key },
      body: JSON.stringify({ model: 'm1', max_tokens: 9, messages: [{ role: 'user', content: text }] }) })
    return status
  }
  const long = 'HOLD'.repeat(3 * SHARED_FROM / 4)
  const { bodyMemory } = gw.server
  const asked = Array.from({ length: 6 }, async () => await send(KEY, long))
  await until(() => bodyMemory.shares.waiting === 4 && up.requests.length === 2)
  t.ok(bodyMemory.used < 8 * SHARED_FROM)
  t.equal(await send(other, 'long'.repeat(3 * SHARED_FROM / 4)), 200)
  t.equal(await send(KEY, 'small'), 200)
  letGo()
  t.strictSame(await Promise.all(asked), [200, 200, 200, 200, 200, 200])
  t.equal(bodyMemory.shares.waiting, 0)
})
