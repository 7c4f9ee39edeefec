// `gateway store backup` and `restore` of a gateway that works: a backup holds what was answered before it, and
// whatever is in its way leaves nothing behind.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import http from 'node:http'
import { hostname } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { copyIn } from '../../src/store/embedded/backup.ts'
import type { LocalStore } from '../../src/store/local/store.ts'
import { isLeft, Load, prepared } from '../support/backups.ts'
import { open } from '../support/embedded-store.ts'
import { freePort } from '../support/free-port.ts'
import { gateway as command } from '../support/gateway-command.ts'
import { newcomersEnvironment, untapped } from '../support/newcomer.ts'
import { run } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'
import { until } from '../support/until.ts'

/** References of what was charged. */
async function chargedIn (store: LocalStore): Promise<ReadonlySet<string>> {
  return new Set((await all(store)).filter(({ kind }) => kind === 'settle').map(({ reference }) => reference))
}

/** A client of the admin listener that reads nothing of the answer. */
async function reluctant (folder: string, admin: string): Promise<http.ClientRequest> {
  const asked = http.get(`${admin}/admin/v1/store/backup`, { agent: false,
    headers: { authorization: `Bearer ${readFileSync(join(folder, 'data/admin-token'), 'utf8').trim()}` } })
  asked.on('error', () => {})
  const [answer] = await once(asked, 'response') as [http.IncomingMessage]
  answer.on('error', () => {})
  return asked
}

void t.test('under load: each charge that was answered before is in it, and nothing stops meanwhile', async (t) => {
  const folder = await prepared(t, 20_000)
  const { api, admin } = await run(t, folder, ['start']).urls()
  const load = new Load(api)
  t.teardown(() => load.end())
  await until(() => load.answered.length > 50)
  const before = [...load.answered]
  const made = await command(folder, ['store', 'backup', 'first.backup'])
  t.match(made, { code: 0,
    out: /^Backed up to first\.backup: \d{5,} entries, the last one of 20.*Z\.\nNot in it: the secrets[^]*seal-secret/ })
  const during = load.answered.length - before.length
  t.ok(during > 0, `${during} were answered meanwhile`)
  t.equal(statSync(join(folder, 'first.backup')).mode & 0o777, 0o600)
  t.match(await command(folder, ['store', 'backup', 'first.backup']), { code: 1, err: /first\.backup is there already/ })
  t.match(await command(folder, ['store', 'restore', 'first.backup']), { code: 1, err: /A gateway runs at / })
  t.notOk(isLeft(folder, join(folder, 'none')))

  writeFileSync(join(folder, 'other.yaml'),
    readFileSync(join(folder, 'gateway.yaml'), 'utf8').replace('./data', './other').replace(/admin: .*/,
      `admin: { listen: "127.0.0.1:${await freePort()}" }`))
  const other = ['--config', 'other.yaml']
  t.match(await command(folder, ['store', 'restore', 'first.backup', ...other]), { code: 0,
    out: /^Restored from first\.backup: \d+ entries.*; the ledger is right\.\nWhat was charged after that is lost, if/ })
  const restored = await open(t, join(folder, 'other'))
  const charged = await chargedIn(restored)
  t.strictSame(before.filter((id) => !charged.has(id)), [])
  t.match(await restored.verify(), { differences: [] })
  await restored.close()

  t.match(await command(folder, ['store', 'backup', 'second.backup', '--url', admin], {
    GATEWAY_ADMIN_TOKEN: readFileSync(join(folder, 'data/admin-token'), 'utf8').trim()
  }), { code: 0 }, 'from elsewhere')
  const lines = async (where: readonly string[] = []): Promise<readonly object[]> =>
    JSON.parse((await command(folder, ['audit', '--json', ...where])).out) as readonly object[]
  t.match((await lines()).map((line) => ({ ...line, id: String((line as { readonly id: string }).id) })), [
    { what: 'store.backup', who: /^admin-token/, address: '127.0.0.1', id: `${hostname()}:${join(folder, 'second.backup')}` },
    { what: 'store.backup', who: /^admin-token/, id: `${hostname()}:${join(folder, 'first.backup')}` }
  ], 'who, from where, and where to')
  t.match(await lines(other), [{ what: 'store.backup', id: /first\.backup$/ }], 'the copy has the line of its own')
  await load.end()
  t.match(await command(folder, ['ledger', 'verify']), { code: 0 })
})

void t.test('of a folder without a gateway; it is restored where the ledger is lost, and told what is missing', async (t) => {
  const folder = await prepared(t, 100)
  t.match(await command(folder, ['store', 'backup', 'all.backup']), { code: 0, out: /: 101 entries/ })
  t.match(await command(folder, ['audit', '--json']), { code: 0, out: /"who":"command of .*"what":"store\.backup"/ })
  const store = await open(t, join(folder, 'data'))
  for (let i = 0; i < 5; i++) await store.credit('acme', `more-${i}`, 1n)
  await store.close()
  t.match(await command(folder, ['store', 'restore', 'all.backup']), { code: 1,
    err: /Nothing was restored from .*all\.backup: there is a ledger in the data folder .*never replaces one\. Move/ })
  rmSync(join(folder, 'data/gateway.db'))
  t.match(await command(folder, ['ledger', 'verify']), { code: 1, err: /is lost: .*gateway store restore FILE/ })
  t.match(await command(folder, ['store', 'restore', 'all.backup']), { code: 0,
    out: /: 101 entries, the last one of 2026-01-01T00:00:01\.000Z; the ledger is right\.\nLost: some 5 entries, charged and booked from 2026-01-01T00:00:01\.000Z to 20/ })
  t.match(await command(folder, ['ledger', 'verify']), { code: 0, out: /right: 101 entries/ })
})

void t.test('a client that reads nothing: nobody else gets one meanwhile, charges go on, and it is gone with the client', async (t) => {
  const folder = await prepared(t, 60_000)
  const { api, admin } = await run(t, folder, ['start']).urls()
  const load = new Load(api)
  t.teardown(() => load.end())
  const asked = await reluctant(folder, admin)
  const sofar = load.answered.length
  await until(() => load.answered.length > sofar + 20)
  t.match(await command(folder, ['store', 'backup', 'all.backup']), { code: 1,
    err: /^Another backup of this gateway is being made: wait until it has ended\.\n$/ })
  asked.destroy()
  await until(() => !existsSync(copyIn(join(folder, 'data')).folder))
  t.match(await command(folder, ['store', 'backup', 'all.backup']), { code: 0 })
  await load.end()
})

void t.test('a full disk, of the gateway or of the command: it says so, nothing is left, and charges go on', async (t) => {
  const folder = await prepared(t, 60_000)
  const file = join(folder, 'all.backup')
  const { child, urls } = run(t, folder, ['start'])
  const { api } = await urls()
  const load = new Load(api)
  t.teardown(() => load.end())
  await until(() => load.answered.length > 5)
  const most = statSync(join(folder, 'data/gateway.db')).size - 1_000_000
  // No file grows beyond that: what a full disk is.
  execFileSync('prlimit', ['--pid', `${child.pid}`, `--fsize=${most}:unlimited`])
  t.match(await command(folder, ['store', 'backup', file]), { code: 1, err: /^No backup was made: .+\.\n$/ })
  t.notOk(isLeft(folder, file))
  const sofar = load.answered.length
  await until(() => load.answered.length > sofar + 20)
  execFileSync('prlimit', ['--pid', `${child.pid}`, '--fsize=unlimited:unlimited'])

  const blocks = Math.floor(most / 1024)
  const [program, args] = untapped(process.execPath, [join(packageRoot, 'src/launcher.js'), 'store', 'backup', file])
  const limited = spawn('bash', ['-c', `ulimit -f ${blocks}; exec "$@"`, 'bash', program, ...args], { cwd: folder,
    env: newcomersEnvironment(), stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  limited.stderr.setEncoding('utf8').on('data', (text: string) => { said += text })
  t.strictSame(await once(limited, 'close'), [1, null])
  t.match(said, /^Nothing was backed up: EFBIG/)
  await until(() => !isLeft(folder, file))
  t.match(await command(folder, ['store', 'backup', file]), { code: 0 })
  await load.end()
  t.match(await command(folder, ['ledger', 'verify']), { code: 0 })
})
