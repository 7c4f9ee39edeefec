// Backups of the embedded store as files: how they come to be while commits go on, and which are restored.
import { once } from 'node:events'
import { copyFileSync, existsSync, readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import http from 'node:http'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import fc from 'fast-check'
import t from 'tap'
import { begin, writeBytes } from '../../src/admin/byte-answer.ts'
import { copyIn, inspect } from '../../src/store/embedded/backup.ts'
import { findLoss } from '../../src/store/embedded/ledger-mark.ts'
import { restoreFolder } from '../../src/store/embedded/restore.ts'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import { backupFile, bytesOf, filled } from '../support/backups.ts'
import { newLog, open, request, settlement } from '../support/embedded-store.ts'
import { folderFor } from '../support/spawned.ts'
import { keptConformance } from '../support/store-kept-conformance.ts'
import { MADE, putFolder } from '../support/store-kept.ts'

const forever = new AbortController().signal

void t.test('whoever reads no more is not waited for for ever', async (t) => {
  const { promise: ended, resolve, reject } = Promise.withResolvers<void>()
  let isGivenBack = false
  const endless = async function* (): AsyncGenerator<Uint8Array> {
    try { for (;;) yield Buffer.alloc(65_536) } finally { isGivenBack = true }
  }
  const server = http.createServer((_req, res) => {
    void begin(endless()).then(async (bytes) => { await writeBytes(res, bytes, 20) }).then(resolve, reject)
  })
  t.teardown(() => { server.closeAllConnections(); server.close() })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as { readonly port: number }
  const asked = http.get({ port, host: '127.0.0.1', agent: false })
  asked.on('error', () => {})
  const [answer] = await once(asked, 'response') as [http.IncomingMessage]
  answer.on('error', () => {})
  await ended
  t.ok(isGivenBack)
})

void t.test('what is given up, and what a closing store is in the middle of, is taken back; each is as of its end', async (t) => {
  const folder = folderFor(t)
  await filled(folder, 20_000)
  const store = await openEmbedded({ folder, log: newLog() })
  await store.credit('acme', 'c', 1_000_000_000n)
  const giving = new AbortController()
  const given = bytesOf(store.backup!.read(giving.signal))
  setImmediate(() => { giving.abort() })
  await t.rejects(given)
  t.notOk(existsSync(copyIn(folder).folder))

  let settled = 0
  let isOver = false
  const working = (async () => {
    for (; !isOver; settled++) {
      store.hold(request(`r${settled}`, 3n))
      await store.settle(settlement(`r${settled}`, 3n))
    }
  })()
  const bytes = await bytesOf(store.backup!.read(forever))
  isOver = true
  await working
  t.ok(settled > 0)
  const file = join(folder, 'made.backup')
  writeFileSync(file, bytes)
  const { entries } = await inspect(file)
  t.ok(entries >= 20_002 && entries <= 20_002 + settled)

  // Whole or not at all: which of them, the disk decides.
  const [last] = await Promise.allSettled([bytesOf(store.backup!.read(forever)), store.close()])
  if (last.status === 'fulfilled') {
    writeFileSync(file, last.value)
    t.equal((await inspect(file)).entries, 20_002 + settled)
  }
  t.notOk(existsSync(copyIn(folder).folder))
  const after = await open(t, folder)
  t.match(await after.verify(), { entries: 20_002 + settled, differences: [] })
})

void t.test('a backup that was cut anywhere, or in which any byte is another one, is not restored, and the folder stays as it is', async (t) => {
  const made = folderFor(t)
  await filled(join(made, 'data'), 200)
  const file = await backupFile(made, join(made, 'data/gateway.db'))
  const whole = readFileSync(file)
  const broken = join(made, 'broken.backup')
  const tried = async (bytes: Uint8Array): Promise<void> => {
    writeFileSync(broken, bytes)
    const folder = folderFor(t)
    await t.rejects(restoreFolder(folder, broken, Date.now()), /it is no whole backup: it was cut or changed/)
    t.strictSame(readdirSync(folder), [])
  }
  const place = fc.nat(whole.length - 1)
  const cut = fc.asyncProperty(place, async (length) => { await tried(whole.subarray(0, length)) })
  await fc.assert(cut, { numRuns: 30 })
  await fc.assert(fc.asyncProperty(place, fc.integer({ min: 1, max: 255 }), async (at, by) => {
    await tried(whole.with(at, whole[at]! ^ by))
  }), { numRuns: 50 })
  await tried(Buffer.concat([whole, Buffer.from('more')]))
  const folder = folderFor(t)
  t.match(await restoreFolder(folder, file, Date.now()), { entries: 201, before: undefined })
})

void t.test('sums that are not those of the entries, a newer gateway\'s, another program\'s: not restored', async (t) => {
  const made = folderFor(t)
  await filled(join(made, 'data'), 20)
  const changes: readonly (readonly [sql: string, said: RegExp])[] = [
    ['UPDATE balances SET nanos = nanos + 1', /it does not add up: the account "old" has \d+ in its sum, and \d+ in/],
    ['UPDATE key_usage SET nanos = nanos + 1 WHERE key = \'k1\'', /it does not add up: the key "k1" has/],
    ['UPDATE usage_hours SET output = output + 1', /it does not add up: the rollup "/],
    ['PRAGMA user_version = 1000', /it was written by a newer gateway \(its tables are of version 1000, this gateway knows \d+\): start that one/],
    ['PRAGMA writable_schema = ON; DROP TABLE entries', /no such table: entries/]
  ]
  for (const [sql, said] of changes) {
    const database = join(made, 'changed.db')
    copyFileSync(join(made, 'data/gateway.db'), database)
    const db = new DatabaseSync(database)
    db.exec(sql)
    db.exec('PRAGMA journal_mode = DELETE')
    db.close()
    const folder = folderFor(t)
    await t.rejects(restoreFolder(folder, await backupFile(made, database), Date.now()), said)
    t.strictSame(readdirSync(folder), [], sql)
  }
  const lost = folderFor(t)
  await filled(lost, 5)
  truncateSync(join(lost, 'gateway.db'))
  const left = readdirSync(lost)
  await t.rejects(restoreFolder(lost, join(made, 'gateway.yaml'), Date.now()))
  t.strictSame(readdirSync(lost), left)
  t.ok(findLoss(lost))
})

void t.test('a backup of an older version is brought to the tables of this one', async (t) => {
  const made = folderFor(t)
  putFolder('0.1.0', made)
  const db = new DatabaseSync(join(made, 'gateway.db'))
  db.exec('PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE')
  db.close()
  const file = await backupFile(made, join(made, 'gateway.db'))
  const folder = folderFor(t)
  t.match(await restoreFolder(folder, file, MADE + 10_000), { before: undefined })
  const store = await open(t, folder, { now: () => MADE + 10_000 })
  await keptConformance(t, store, [['settle', 'running', -40n]])
})
