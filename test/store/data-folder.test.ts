// The data folder of a gateway process: what it says and does while its disk takes nothing, and when its ledger is gone
// or was cut.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { fillFolder } from '../../src/store/embedded/import.ts'
import { explain } from '../../src/store/embedded/ledger.ts'
import { readMark } from '../../src/store/embedded/ledger-mark.ts'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import type { StoreConfig } from '../../src/config/config.ts'
import { acceptLoss } from '../../src/store/open.ts'
import type { Row } from '../../src/store/transfer.ts'
import { copied, newLog, open } from '../support/embedded-store.ts'
import { freePort } from '../support/free-port.ts'
import { gateway as command, yaml } from '../support/gateway-command.ts'
import { newcomersEnvironment, untapped } from '../support/newcomer.ts'
import { redisServer } from '../support/redis-server.ts'
import { folderFor } from '../support/spawned.ts'
import { until } from '../support/until.ts'

const KEY = 'sk-gw-' + 'k'.repeat(32)
const RICH = `accounts: [{ id: acme, opening_balance_usd: 10 }]
keys: [{ id: dev, account: acme, secret: ${KEY}, rate_limit: 100000 }]
`

/** Its log goes nowhere: files are what it has trouble with. */
async function gateway (
  t: Test,
  folder: string
): Promise<{ readonly pid: number, readonly api: string, readonly admin: string, kill(): Promise<void> }> {
  const child = spawn(...untapped(process.execPath, [join(packageRoot, 'src/launcher.js'), 'start']), { cwd: folder,
    env: newcomersEnvironment(), stdio: ['ignore', 'ignore', 'pipe'] })
  const ended = once(child, 'exit')
  t.teardown(async () => { child.kill('SIGKILL'); await ended })
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => { said += text })
  const [, api, admin] = await until(() => /API +(http:\S+?)\/v1\n[^]*admin +(http:\S+)/.exec(said) ?? undefined)
  return { pid: child.pid!, api: api!, admin: admin!, async kill () { child.kill('SIGKILL'); await ended } }
}

async function say (api: string): Promise<number> {
  const got = await fetch(`${api}/v1/messages`, {
    method: 'POST', headers: { 'x-api-key': KEY, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm1', max_tokens: 5, messages: [{ role: 'user', content: 'Hello' }] })
  })
  await got.text()
  return got.status
}

async function readyz (admin: string): Promise<unknown> {
  const got = await fetch(`${admin}/readyz`)
  return [got.status, await got.json()]
}

for (const driver of ['embedded', 'redis'] as const) {
  await t.test(`${driver}: while what is charged can't be written down the gateway is not ready, and ready again when it can`, async (t) => {
    const url = driver === 'redis' ? `, timeout: 5s, url: "${(await redisServer(t)).url}"` : ''
    const folder = folderFor(t, {
      'gateway.yaml': yaml(await freePort(), driver).replace('path: ./data', `path: ./data${url}`) + RICH
    })
    const { pid, api, admin } = await gateway(t, folder)
    t.equal(await say(api), 200)
    await until(async () => (await fetch(`${admin}/readyz`)).status === 200)
    t.strictSame(await readyz(admin), [200, { ready: true, reasons: [] }])
    // No file grows beyond a byte: what a full disk is.
    execFileSync('prlimit', ['--pid', `${pid}`, '--fsize=1:unlimited'])
    await until(async () => await say(api) === 503)
    t.strictSame(await readyz(admin), [503, { ready: false, reasons: ['ledger_unwritable'] }])
    t.match(await command(folder, ['status']), { code: 1, out: /^store +can't be written$/m, err: /No request is served/ })
    for (let i = 0; i < 10; i++) t.equal(await say(api), 503, 'which is what clients would get')
    t.equal((await fetch(`${admin}/healthz`)).status, 200, 'a restart would mend nothing')
    execFileSync('prlimit', ['--pid', `${pid}`, '--fsize=unlimited:unlimited'])
    await until(async () => (await fetch(`${admin}/readyz`)).status === 200)
    t.equal(await say(api), 200)
  })
}

await t.test('after kill -9 a limited key goes on with what is left of its limit: a crash is no outage of a minute', async (t) => {
  const folder = folderFor(t, {
    'gateway.yaml': yaml(await freePort()) + RICH.replace('rate_limit: 100000', 'rate_limit: 30')
  })
  const first = await gateway(t, folder)
  for (let i = 0; i < 10; i++) t.equal(await say(first.api), 200)
  await first.kill()
  const { api } = await gateway(t, folder)
  const told = await Promise.all(Array.from({ length: 30 }, async () => await say(api)))
  const served = told.filter((status) => status === 200).length
  t.ok(served <= 30 - 10, `${served} more: never above the limit`)
  t.ok(served >= 30 - 10 - 3, `${served} more: a tenth of the limit may have come in the last second`)
})

interface Lost { readonly what: string, readonly lose: (data: string) => void, readonly says: RegExp }

const LOST: readonly Lost[] = [
  { what: 'gateway.db is gone', lose: (data) => {
    for (const name of ['gateway.db', 'gateway.db-wal']) { rmSync(join(data, name), { force: true }) }
  }, says: /gateway\.db is not there, which had entries up to 20.*Z\. +A new one/ },
  { what: 'it is gone, and its log is there', lose: (data) => {
    rmSync(join(data, 'gateway.db'))
  }, says: /gateway\.db is not there.* write-ahead log is there \(gateway\.db-wal, \d{5,} bytes\)/ },
  { what: 'it is empty', lose: (data) => {
    truncateSync(join(data, 'gateway.db'))
  }, says: /gateway\.db is empty/ },
  { what: 'it is gone, in a folder of before there were marks', lose: (data) => {
    for (const name of ['gateway.db', 'ledger-mark']) { rmSync(join(data, name)) }
  }, says: /gateway\.db is not there\. Its write-ahead log/ }
]

await t.test('a ledger that is lost: no start, nothing is credited again, and what is left of it is not touched', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': yaml(await freePort()) + RICH })
  const running = await gateway(t, folder)
  for (let i = 0; i < 3; i++) { t.equal(await say(running.api), 200) }
  await until(() =>
    existsSync(join(folder, 'data/ledger-mark')) &&
    /up to number +[1-9]/.test(readFileSync(join(folder, 'data/ledger-mark'), 'utf8'))
  )
  await running.kill()
  for (const { what, lose, says } of LOST) {
    const data = join(folderFor(t), 'data')
    cpSync(join(folder, 'data'), data, { recursive: true })
    lose(data)
    const left = contentsOf(data)
    await t.rejects(openEmbedded({ folder: data, log: newLog() }), says, what)
    t.strictSame(contentsOf(data), left, 'as it was')
    for (const name of ['gateway.db', 'gateway.db-wal']) cpSync(join(folder, 'data', name), join(data, name))
    t.match((await (await open(t, data)).verify()), { differences: [], entries: 5 }, 'put back, all is as before')
  }

  const data = join(folder, 'data')
  LOST[1]!.lose(data)
  const left = contentsOf(data)
  for (const args of [['start'], ['ledger', 'export'], ['store', 'new']]) {
    const { code, err } = await command(folder, args)
    t.equal(code, args[0] === 'start' ? 78 : 1, args.join(' '))
    t.match(err, /gateway store new --accept-loss/)
    if (args[0] !== 'store') t.match(err, /ledger of the data folder .* is lost.*gateway store import FILE/)
  }
  t.strictSame(contentsOf(data), left, 'as it was')
  t.match(await command(folder, ['store', 'new', '--accept-loss']), { code: 0,
    out: /opening balances of gateway\.yaml again/ })
  const kept = new Set(contentsOf(data).map(([, bytes]) => bytes))
  for (const [name, bytes] of left) t.ok(kept.has(bytes), `${name} is kept under another name`)
  t.match(await command(folder, ['ledger', 'verify']), { code: 1, err: /There is no ledger in .*\/data/ })
  t.match(await command(folder, ['store', 'new', '--accept-loss']), { code: 1,
    err: /No ledger is lost.*nothing was changed/ })
})

await t.test('a lost ledger is filled with an export; one that can\'t be used leaves all as it was', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': yaml(await freePort()) + RICH })
  const running = await gateway(t, folder)
  t.equal(await say(running.api), 200)
  await running.kill()
  t.match(await command(folder, ['store', 'export', 'all.jsonl']), { code: 0 })
  truncateSync(join(folder, 'data/gateway.db'))
  const lines = readFileSync(join(folder, 'all.jsonl'), 'utf8').split('\n')
  const twice = lines.findIndex((line) => line.startsWith('{"entry"'))
  writeFileSync(join(folder, 'broken.jsonl'), lines.toSpliced(twice, 0, lines[twice]!).join('\n'))
  const left = contentsOf(join(folder, 'data'))
  t.match(await command(folder, ['store', 'import', 'broken.jsonl']), { code: 1, err: /Nothing was imported/ })
  t.strictSame(contentsOf(join(folder, 'data')), left)
  t.match(await command(folder, ['store', 'import', 'all.jsonl']), { code: 0, out: /the same on both sides/ })
  t.match(await command(folder, ['ledger', 'verify']), { code: 0, out: /right: 3 entries/ })
})

await t.test('while a lost ledger is filled the folder is one whose ledger is lost: a kill leaves it so', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder)
  await store.credit('acme', 'opening:acme', 7n)
  await store.close()
  truncateSync(join(folder, 'gateway.db'))
  const rows = async function* (): AsyncIterable<Row> {
    for (const reference of ['opening:acme', 'more']) {
      const at = '2026-11-21T00:00:00.000Z'
      yield { of: 'entry', value: { id: reference, kind: 'credit', account: 'acme', reference, nanos: 7n, at } }
      await t.rejects(openEmbedded({ folder, log: newLog() }), /is lost/)
    }
  }
  await fillFolder(folder, rows())
  t.equal(readMark(folder)?.time, Date.UTC(2026, 10, 21), 'the mark is that of the new ledger')
  const filled = await open(t, folder)
  t.equal(filled.balance('acme').balance, 14n)
  t.match(await filled.verify(), { entries: 2, differences: [] })
  t.strictSame(readdirSync(folder).filter((name) => /^import-/.test(name)), [])
  t.match(readdirSync(folder).filter((name) => /\.lost-/.test(name)), [/^gateway\.db\.lost-/])
})

await t.test('a log that was cut or deleted, and an older backup: no start until the loss is accepted', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder, { fsync_interval: 1 })
  await store.credit('acme', 'c0', 1n)
  const backup = copied(t, folder)
  const early = statSync(join(folder, 'gateway.db-wal')).size
  for (let i = 1; i <= 5; i++) { await store.credit('acme', `c${i}`, 1n) }
  await until(() =>
    existsSync(join(folder, 'ledger-mark')) &&
    /up to number +5,/.test(readFileSync(join(folder, 'ledger-mark'), 'utf8'))
  )
  const whole = copied(t, folder)
  const cut = copied(t, folder)
  truncateSync(join(cut, 'gateway.db-wal'), early)
  const config = { driver: 'embedded' } as StoreConfig
  for (const lost of [cut, backup]) {
    cpSync(join(folder, 'ledger-mark'), join(lost, 'ledger-mark'))
    for (let start = 0; start < 2; start++) {
      await t.rejects(openEmbedded({ folder: lost, log: newLog() }),
        /ends earlier than it did: 5 entries are missing.*belong to different times.*gateway store new --accept-loss/)
    }
    t.match(await acceptLoss(config, lost), /kept as .*ledger-mark\.lost-.*goes on with the entries/s)
    t.equal(await acceptLoss(config, lost), undefined, 'nothing is lost any more')
    const found = await open(t, lost)
    t.equal(found.balance('acme').balance, 1n)
    await found.close()
  }
  cpSync(join(folder, 'ledger-mark'), join(whole, 'ledger-mark'))
  t.equal((await open(t, whole)).balance('acme').balance, 6n, 'a kill loses nothing')
})

await t.test('a log put back after a refused start brings every entry back', async (t) => {
  const folder = folderFor(t)
  const first = await open(t, folder, { fsync_interval: 1 })
  await first.credit('acme', 'c0', 1n)
  await first.close()                                         // all of it is in gateway.db
  const store = await open(t, folder, { fsync_interval: 1 })
  await store.credit('acme', 'c1', 1n)
  await until(() => (readMark(folder)?.seq ?? -1) === 1)
  const copy = copied(t, folder)
  cpSync(join(folder, 'ledger-mark'), join(copy, 'ledger-mark'))
  const log = readFileSync(join(copy, 'gateway.db-wal'))
  rmSync(join(copy, 'gateway.db-wal'))
  await t.rejects(openEmbedded({ folder: copy, log: newLog() }), /ends earlier than it did: 1 entries are missing/)
  writeFileSync(join(copy, 'gateway.db-wal'), log)
  t.equal((await open(t, copy)).balance('acme').balance, 2n)
})

await t.test('pages of another time are called so', (t) => {
  const folder = folderFor(t)
  const thrown = Object.assign(new Error('database disk image is malformed'), { errcode: 11 })
  t.match(explain(thrown, folder), /two files that belong to different times/)
  t.notMatch(explain(thrown, folder), /malformed/)
  t.end()
})

/** Names and bytes, without what names a process. */
function contentsOf (folder: string): readonly (readonly [name: string, bytes: string])[] {
  return readdirSync(folder).filter((name) => name.startsWith('gateway.db') || name.startsWith('ledger-mark'))
    .toSorted().map((name) => [name, readFileSync(join(folder, name), 'base64')])
}
