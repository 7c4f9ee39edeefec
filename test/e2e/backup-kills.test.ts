// `gateway store backup` and `restore`, and kill -9: of the gateway, and of the command.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { copyIn } from '../../src/store/embedded/backup.ts'
import { findLoss } from '../../src/store/embedded/ledger-mark.ts'
import { isLeft, prepared } from '../support/backups.ts'
import { gateway as command } from '../support/gateway-command.ts'
import { newcomersEnvironment, untapped } from '../support/newcomer.ts'
import { run, type Spawned } from '../support/spawned.ts'
import { until } from '../support/until.ts'

void t.test('a gateway that is killed while it makes one: no file, and its next start removes what it had begun', async (t) => {
  const folder = await prepared(t, 30_000)
  const file = join(folder, 'all.backup')
  for (let tries = 0; ; tries++) {
    const running = run(t, folder, ['start'])
    await running.urls()
    t.notOk(isLeft(folder, file), 'a start removes it')
    const backing = command(folder, ['store', 'backup', file])
    await until(() => existsSync(copyIn(join(folder, 'data')).file))
    running.child.kill('SIGKILL')
    await running.ended
    const { code, err } = await backing
    if (code === 0 && tries < 10) { rmSync(file); continue }  // it was faster
    t.equal(code, 1)
    t.match(err, /Nothing was backed up: the gateway .* ended before|did not answer/)
    t.notOk(existsSync(file) || existsSync(`${file}.partial`))
    break
  }
  t.ok(existsSync(copyIn(join(folder, 'data')).folder), 'it was in the middle of it')
  const { child, urls, ended } = run(t, folder, ['start'])
  await urls()
  t.notOk(existsSync(copyIn(join(folder, 'data')).folder))
  child.kill('SIGTERM')
  await ended
  t.match(await command(folder, ['ledger', 'verify']), { code: 0 })
})

void t.test('a command that is killed leaves no file under its name, and nothing in the data folder; the next one works', async (t) => {
  const folder = await prepared(t, 30_000)
  const file = join(folder, 'all.backup')
  await run(t, folder, ['start']).urls()
  const [program, args] = untapped(process.execPath, [join(packageRoot, 'src/launcher.js'), 'store', 'backup', file])
  const child = spawn(program, args, { cwd: folder, env: newcomersEnvironment(), stdio: 'ignore' })
  const ended = once(child, 'exit')
  await until(() => existsSync(`${file}.partial`))
  child.kill('SIGKILL')
  await ended
  t.notOk(existsSync(file))
  await until(() => !existsSync(copyIn(join(folder, 'data')).folder))
  t.match(await command(folder, ['store', 'backup', file]), { code: 0 })
  t.notOk(existsSync(`${file}.partial`), 'what the killed one has left is gone')
})

void t.test('a restore that is killed at any moment leaves a folder whose ledger is lost, or the whole ledger', async (t) => {
  const folder = await prepared(t, 30_000)
  t.match(await command(folder, ['store', 'backup', 'all.backup']), { code: 0 })
  const seen = new Set<string>()
  const data = join(folder, 'data')
  for (let i = 0; i < 5; i++) {
    rmSync(data, { recursive: true })
    const restoring: Spawned = run(t, folder, ['store', 'restore', 'all.backup'])
    // At chosen moments: when the mark is there, while it is copied, and from then on by chance.
    await until(() => existsSync(join(data, 'ledger-mark')) || restoring.child.exitCode !== null)
    if (i > 0) await until(() => existsSync(join(data, 'import-in-progress')) || restoring.child.exitCode !== null)
    if (i > 1) await pause(Math.random() * 250 * i)
    restoring.child.kill('SIGKILL')
    await restoring.ended
    const state = findLoss(data) === undefined ? 'whole' : 'lost'
    seen.add(state)
    if (state === 'lost') {
      t.match(await command(folder, ['ledger', 'verify']), { code: 1, err: /the ledger of the data folder .* is lost/ })
    } else t.match(await command(folder, ['ledger', 'verify']), { code: 0, out: /right: 30001 entries/ })
  }
  t.ok(seen.has('lost'), [...seen].join())
  if (findLoss(data) === undefined) rmSync(join(data, 'gateway.db'))
  t.match(await command(folder, ['store', 'restore', 'all.backup']), { code: 0 })
  t.strictSame(readdirSync(data).filter((name) => name.startsWith('import-')), [])
  t.match(await command(folder, ['ledger', 'verify']), { code: 0, out: /right: 30001 entries/ })
})
