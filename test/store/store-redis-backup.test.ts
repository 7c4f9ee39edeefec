// Backups of a Redis that gateways use: a file that adds up, whatever is charged meanwhile, and that an import reads.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { fillRedis } from '../../src/store/redis/import.ts'
import type { RedisStore } from '../../src/store/redis/store.ts'
import { Inventory, rowsOf, type Total } from '../../src/store/transfer.ts'
import { rowsIn } from '../../src/store/transfer-file.ts'
import { bytesOf } from '../support/backups.ts'
import { newLog, request, settlement } from '../support/embedded-store.ts'
import { freePort } from '../support/free-port.ts'
import { gateway as command, yaml } from '../support/gateway-command.ts'
import { redisServer } from '../support/redis-server.ts'
import { newPrefix, openRedis, redisConfig } from '../support/redis-store.ts'
import { folderFor, run } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'
import { until } from '../support/until.ts'

const KEY = 'sk-gw-' + 'k'.repeat(32)
const forever = new AbortController().signal

async function totalOf (store: RedisStore): Promise<Total> {
  const inventory = new Inventory()
  for await (const row of rowsOf(store)) inventory.add(row)
  return inventory.total
}

void t.test('two gateways that charge all the time: the file is whole, holds what Redis had before, and an empty Redis takes it', async (t) => {
  const server = await redisServer(t)
  const prefix = newPrefix()
  const stores = [await openRedis(t, server, { prefix }), await openRedis(t, server, { prefix })] as const
  const [first] = stores
  for (let i = 0; i < 5; i++) await first.credit(`a${i}`, `opening:a${i}`, 1_000_000n)
  const settled: string[] = []
  let isOver = false
  const working = Promise.all(stores.map(async (store, who) => {
    for (let i = 0; !isOver; i++) {
      const id = `r${who}-${i}`
      await store.hold(request(id, 5n, { account: `a${i % 5}`, key: `a${i % 5}-dev` }))
      await store.settle(settlement(id, BigInt(i % 7)))       // some are more than was held
      settled.push(id)
    }
  }))
  await first.hold(request('open', 50n, { account: 'a0', key: 'a0-dev' }))
  await first.hold(request('task', 90n, { account: 'a1', key: 'a1-dev' }))
  await first.openTask({ id: 'open-task', request_id: 'task', account: 'a1', key: 'a1-dev', created: 1, nanos: 90n,
    text: '{}' })
  await first.hold(request('done', 90n, { account: 'a1', key: 'a1-dev' }))
  await first.openTask({ id: 'closed-task', request_id: 'done', account: 'a1', key: 'a1-dev', created: 2, nanos: 90n,
    text: '{}' })
  await first.endTask('closed-task', '{"ok":1}', settlement('', 80n))
  await first.change({ record: { kind: 'account', id: 'a9', version: 1, text: '{}' }, audit: '{"made":"a9"}' })
  await until(() => settled.length > 1500)

  // What Redis has is known by reading it: a settlement answers from the outbox.
  const before = await all(first)
  const bytes = await bytesOf(first.backup.read(forever))
  t.ok((await all(first)).length > before.length + 1, 'charges went on')
  isOver = true
  await working
  const folder = folderFor(t)
  const file = join(folder, 'all.jsonl')
  writeFileSync(file, bytes)
  const inventory = new Inventory()
  const references = new Set<string>()
  for await (const row of rowsIn(file)) {
    inventory.add(row)
    if (row.of === 'entry') references.add(`${row.value.kind} ${row.value.reference}`)
    t.not(row.of === 'task' && row.value.is_open, true)
  }
  t.strictSame(before.map(({ kind, reference }) => `${kind} ${reference}`).filter((one) => !references.has(one)), [])
  t.notOk(references.has('settle open') || references.has('settle task'), 'what is held is not charged in it')

  const empty = newPrefix()
  await fillRedis(redisConfig(server, { prefix: empty }), newLog(), rowsIn(file))
  const restored = await openRedis(t, server, { prefix: empty })
  t.strictSame(await totalOf(restored), inventory.total)
  t.match(await restored.verify(), { entries: inventory.total.entries, differences: [] })
  t.equal(await restored.openHolds(), 0)
  t.equal(await restored.task('open-task'), undefined)
  t.match(await restored.task('closed-task'), { is_open: false, nanos: 80n })
  t.equal((await restored.records()).length, 1)
  await first.release('open')
})

void t.test('of a running gateway and without one; it is restored into an empty Redis, and not into one that is used', async (t) => {
  const server = await redisServer(t)
  const text = (port: number, prefix: string): string =>
    yaml(port, 'redis').replace('path: ./data', `path: ./${prefix}, timeout: 5s, prefix: ${prefix}, url: "${server.url}"`) +
    `accounts: [{ id: acme, opening_balance_usd: 10 }]
keys: [{ id: dev, account: acme, secret: ${KEY} }]
`
  const folder = folderFor(t, { 'gateway.yaml': text(await freePort(), 'one'),
    'other.yaml': text(await freePort(), 'other') })
  const { child, ended, urls } = run(t, folder, ['start'])
  const { api } = await urls()
  for (let i = 0; i < 3; i++) {
    const got = await fetch(`${api}/v1/messages`, {
      method: 'POST', headers: { 'x-api-key': KEY, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'm1', max_tokens: 5, messages: [{ role: 'user', content: 'Hello' }] })
    })
    t.equal(got.status, 200, await got.text())
  }
  t.match(await command(folder, ['store', 'backup', 'first.jsonl']), { code: 0, out: /^Backed up to .*: \d entries/ })
  child.kill('SIGTERM')
  await ended
  t.match(await command(folder, ['store', 'backup', 'second.jsonl']), { code: 0, out: /: 5 entries, the last one of/ })
  t.match(await command(folder, ['store', 'restore', 'second.jsonl']), { code: 1, err: /Nothing was imported: .*not empty/ })
  const other = ['--config', 'other.yaml']
  const whole = readFileSync(join(folder, 'second.jsonl'), 'utf8')
  writeFileSync(join(folder, 'cut.jsonl'), whole.slice(0, -100))
  t.match(await command(folder, ['store', 'restore', 'cut.jsonl', ...other]), { code: 1, err: /Nothing was imported: / })
  writeFileSync(join(folder, 'sqlite.backup'), 'SQLite format 3\0')
  t.match(await command(folder, ['store', 'restore', 'sqlite.backup', ...other]), { code: 1,
    err: /Nothing was restored from .*: it is a backup of the embedded store, and store\.driver is redis/ })
  t.match(await command(folder, ['store', 'restore', 'second.jsonl', ...other]), { code: 0,
    out: /entries +5 +5\n[^]*the same on both sides/ })
})
