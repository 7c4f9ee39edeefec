// What a command prints arrives whole, however slow its reader is, and it says so where it can't: real processes, real
// pipes and files.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout as wait } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import { newLog } from '../support/embedded-store.ts'
import { freePort } from '../support/free-port.ts'
import { gateway, yaml } from '../support/gateway-command.ts'
import { newcomersEnvironment, untapped } from '../support/newcomer.ts'
import { folderFor } from '../support/spawned.ts'

/** 300 KB, where a pipe of Linux takes 64. */
const CREDITS = 1900
const READER_LEFT = 141

async function folderWithCredits (t: Test, count = CREDITS): Promise<string> {
  const folder = folderFor(t, { 'gateway.yaml': yaml(await freePort()) })
  const store = await openEmbedded({ folder: join(folder, 'data'), log: newLog() })
  await Promise.all(Array.from({ length: count }, async (_, i) => await store.credit('acme', `invoice-${i}`, 1n)))
  await store.close()
  return folder
}

/** Its reader stands still from its first word until it has ended, or has waited for longer than that takes. */
async function readLate (
  folder: string,
  args: readonly string[],
  which: 'stdout' | 'stderr' = 'stdout'
): Promise<{ readonly code: number | null, readonly said: string }> {
  const child = spawn(...untapped(process.execPath, [join(packageRoot, 'src/launcher.js'), ...args]), { cwd: folder,
    env: newcomersEnvironment() })
  child[which === 'stdout' ? 'stderr' : 'stdout'].resume()
  const ended = once(child, 'exit') as Promise<[number | null]>
  await once(child[which], 'readable')
  await Promise.race([ended, wait(1000)])
  const said = await text(child[which])
  return { code: (await ended)[0], said }
}

/** In a shell, as operators do; standard error is said. */
async function shell (folder: string, script: string): Promise<{ readonly code: number | null, readonly err: string }> {
  const [env, args] = untapped(process.execPath, [join(packageRoot, 'src/launcher.js')])
  const child = spawn('bash', ['-c', `gateway() { ${[env, ...args].join(' ')} "$@"; }; ${script}`], { cwd: folder,
    env: newcomersEnvironment(), stdio: ['ignore', 'inherit', 'pipe'] })
  const [err, [code]] = await Promise.all([text(child.stderr), once(child, 'exit') as Promise<[number | null]>])
  return { code, err }
}

await t.test('`ledger export` into a reader that is slow: every entry arrives', async (t) => {
  const { code, said } = await readLate(await folderWithCredits(t), ['ledger', 'export'])
  t.equal(code, 0)
  t.strictSame(said.trimEnd().split('\n').map((line) => (JSON.parse(line) as { readonly reference: string }).reference),
    Array.from({ length: CREDITS }, (_, i) => `invoice-${i}`))
})

await t.test('every other command that says much: lists, problems, help, and what goes to standard error', async (t) => {
  const folder = await folderWithCredits(t, 1)
  const accounts = Array.from({ length: 1500 },
    (_, i) => `  - { id: account-number-${i}, name: "${'n'.repeat(80)}", opening_balance_usd: 0 }\n`).join('')
  writeFileSync(join(folder, 'gateway.yaml'),
    readFileSync(join(folder, 'gateway.yaml'), 'utf8') + 'accounts:\n' + accounts)
  t.equal((JSON.parse((await readLate(folder, ['accounts', 'list', '--json'])).said) as unknown[]).length, 1501,
    'and the demo account')
  const wrong = readFileSync(join(folder, 'gateway.yaml'), 'utf8').replaceAll('opening_balance_usd',
    'opening_balance_in_usd')
  writeFileSync(join(folder, 'wrong.yaml'), wrong)
  const { code, said } = await readLate(folder, ['check', 'wrong.yaml', '--json'])
  t.equal(code, 1)
  const { problems } = JSON.parse(said) as { readonly problems: readonly unknown[] }
  t.ok(said.length > 200_000)
  const complaint = await readLate(folder, ['ledger', 'export', '--config', 'wrong.yaml'], 'stderr')
  t.equal(complaint.code, 1)
  t.equal(complaint.said.match(/wrong\.yaml:\d+:\d+ /g)?.length, problems.length)
  const refusal = await readLate(folder, ['start', '--config', 'wrong.yaml'], 'stderr')
  t.equal(refusal.code, 78)
  t.equal(refusal.said.match(/wrong\.yaml:\d+:\d+ /g)?.length, problems.length)
})

await t.test('a reader that has seen enough: the command ends without a word, as one that dies of SIGPIPE', async (t) => {
  const folder = await folderWithCredits(t)
  t.strictSame(await shell(folder, 'gateway --help | true; exit ${PIPESTATUS[0]}'), { code: READER_LEFT, err: '' })
  t.strictSame(await shell(folder, 'gateway ledger export | head -n 1 > first; exit ${PIPESTATUS[0]}'), {
    code: READER_LEFT,
    err: ''
  })
  t.match(JSON.parse(readFileSync(join(folder, 'first'), 'utf8')), { kind: 'credit', reference: 'invoice-0' })
  t.match(await gateway(folder, ['ledger', 'verify']), { code: 0 }, 'and it has closed the data folder')
})

await t.test('`simulate` whose reader leaves ends too', async (t) => {
  const folder = folderFor(t)
  t.strictSame(await shell(folder, 'gateway simulate --listen 127.0.0.1:0 | true; exit ${PIPESTATUS[0]}'), {
    code: READER_LEFT,
    err: ''
  })
})

await t.test('a file that can\'t take it all: exit code 1, and it says that it is not whole', async (t) => {
  const folder = await folderWithCredits(t, 1000)
  // Of its only write a part fits, and that is no error of the system. (The data folder itself is below the limit.)
  const { code, err } = await shell(folder,
    'head -c 100000 /dev/zero > file; ulimit -f 200; gateway ledger export >> file')
  t.equal(code, 1)
  t.match(err, /^The output is not whole: EFBIG.*\n$/)
})
