// The embedded store in processes of their own, which are killed at random moments, fill their disk, or come second:
// what they were told is there afterwards, once.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, copyFileSync, openSync, readFileSync, statSync, truncateSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import type { Entry } from '../../src/store/store.ts'
import { untapped } from '../support/newcomer.ts'
import { folderFor } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'
import { pagesOf } from '../support/store-rollups-conformance.ts'
import { until } from '../support/until.ts'

const log = { info () {}, warn () {}, error () {} }
const program = fileURLToPath(new URL('../support/store-child.ts', import.meta.url))

interface Child {
  readonly process: ChildProcess
  /** what it was told so far, a line each */
  told (): string[]
  kill (): Promise<void>
}

/** @param blocks of 512 bytes that a file of its may have */
function child (t: Test, folder: string, work: string, { run = 'r', blocks = 0 } = {}): Child {
  const file = join(folder, `told-${run}`)
  const out = openSync(file, 'w')
  const [command, args] = untapped(process.execPath, [program, folder, work, run])
  const process_ = blocks === 0
    ? spawn(command, args, { stdio: ['ignore', out, 'inherit'] })
    : spawn('sh', ['-c', `ulimit -f ${blocks}; exec "$@"`, 'sh', command, ...args], {
      stdio: ['ignore', out, 'inherit']
    })
  closeSync(out)
  const exited = once(process_, 'exit')
  const kill = async (): Promise<void> => {
    process_.kill('SIGKILL')
    await exited
  }
  t.teardown(kill)
  return { process: process_, kill, told: () => readFileSync(file, 'utf8').split('\n').slice(0, -1) }
}

/** Opened again, checked, and closed. */
async function find (folder: string): Promise<Map<string, Entry>> {
  const store = await openEmbedded({ folder, log })
  try {
    const { differences } = await store.verify()
    if (differences.length > 0) {
      throw new Error(
        `not what the entries add up to: ${differences.map(({ of, id, where }) => `${of} ${id} ${where}`).join(', ')}`
      )
    }
    const found = new Map<string, Entry>()
    for (const entry of await all(store)) {
      const name = `${entry.kind} ${entry.reference}`
      if (found.has(name)) throw new Error(`twice: ${name}`)
      found.set(name, entry)
    }
    // The index is written some entries at a time, and a kill leaves it as far as it was.
    const newest = await pagesOf(store, { account: 'a1', limit: 1000 })
    const wanted = [...found.values()].filter(({ account }) => account === 'a1').map(({ id }) => id).reverse()
    if (newest.map(({ id }) => id).join() !== wanted.join()) {
      throw new Error(`of a1 ${newest.length} entries are found, of ${wanted.length}`)
    }
    return found
  } finally {
    await store.close()
  }
}

/**
 * Whatever was told is there, whatever was refused is not, and what was refunded adds up to nothing.
 * @returns how much was told
 */
function compare (t: Test, told: readonly string[], found: ReadonlyMap<string, Entry>): number {
  const wrong = told.filter((line) => line !== 'ready').filter((line) => {
    const [what, kind, reference, nanos] = line.split(' ')
    const entry = found.get(`${kind} ${reference}`)
    if (what === 'zero') return (entry?.nanos ?? 0n) + (found.get(`adjust ${reference}`)?.nanos ?? 0n) !== 0n
    return what === 'done' ? entry?.nanos !== BigInt(nanos!) : entry !== undefined
  })
  t.strictSame(wrong, [])
  return told.length
}

/**
 * `KILLS=200 TAP_TIMEOUT=900 node test/e2e/store-embedded-kill.test.ts` for a long run; a new folder after each ten.
 */
const kills = Number(process.env['KILLS'] ?? 10)

void t.test('killed at any moment: what was answered is there, once, and the books balance', async (t) => {
  let folder = ''
  let told: string[] = []
  for (let run = 0; run < kills; run++) {
    if (run % 10 === 0) [folder, told] = [folderFor(t), []]
    const one = child(t, folder, 'work', { run: `${run}` })
    await until(() => one.told().length > 0)
    const ms = Math.floor(Math.random() * 250)
    await pause(ms)
    await one.kill()
    told.push(...one.told())
    t.ok(compare(t, told, await find(folder)) > 0, `killed after ${ms} ms; ${told.length} answers until now`)
  }
})

void t.test('a log that a power loss cut anywhere is a ledger that ends earlier', async (t) => {
  const folder = folderFor(t)
  const one = child(t, folder, 'work')
  await until(() => one.told().length > 500)
  await one.kill()
  const size = statSync(join(folder, 'gateway.db-wal')).size
  // What was on its way is charged as an estimate at the start: elsewhere in a shorter ledger, or for other requests.
  const written = async (bytes: number): Promise<string[]> => [...(await find(withFiles(t, folder, bytes))).values()]
    .filter(({ usage_source: source }) => source !== 'estimated').map(({ id, reference }) => `${id} ${reference}`)
  const whole = await written(size)
  for (const share of [0.1, 0.5, 0.9, Math.random()]) {
    const found = await written(Math.floor(size * share))
    t.strictSame(found, whole.slice(0, found.length), `${share} of it`)
    t.ok(found.length < whole.length)
  }
})

/** A copy, whose log has so many bytes. */
function withFiles (t: Test, folder: string, bytes: number): string {
  const copy = folderFor(t)
  for (const name of ['gateway.db', 'gateway.db-wal']) copyFileSync(join(folder, name), join(copy, name))
  truncateSync(join(copy, 'gateway.db-wal'), bytes)
  return copy
}

void t.test('a full disk refuses, and loses nothing: neither what was recorded before, nor what comes when there is room', async (t) => {
  const folder = folderFor(t)
  const full = child(t, folder, 'work', { run: 'full', blocks: 800 })
  // What the log holds fits into the file: so it goes on for a while, though the log can't grow.
  await until(() => {
    const [first = 0, last = 0] = [full.told().findIndex((line) => line.startsWith('failed')),
      full.told().findLastIndex((line) => line.startsWith('done'))]
    return first >= 0 && last > first + 200
  })
  t.equal(full.process.exitCode, null, 'it lives on')
  await full.kill()
  const found = await find(folder)
  compare(t, full.told(), found)
  t.ok(full.told().some((line) => line.startsWith('done settle')))
  const after = child(t, folder, 'work', { run: 'after' })
  await until(() => after.told().length > 100)
  await after.kill()
  compare(t, [...full.told(), ...after.told()], await find(folder))
})

void t.test('a request that is killed in the middle is charged for its last progress, once, as an estimate', async (t) => {
  const folder = folderFor(t)
  const streaming = child(t, folder, 'stream')
  await until(() => streaming.told().length > 0)
  await streaming.kill()
  for (let start = 0; start < 2; start++) {
    const found = [...(await find(folder)).values()].filter(({ kind }) => kind !== 'credit')
    t.strictSame(found.map(({ kind, reference, nanos, shortfall, usage_source: source }) => [
      kind, reference, nanos, shortfall, source
    ]), [
      ['settle', 'dear', -100n, undefined, 'estimated'],
      ['shortfall', 'dear', 0n, 400n, 'estimated'],
      ['settle', 'long', -70n, undefined, 'estimated']
    ])
    t.match(found[0], { account: 'acme', key: 'dev', model: 'm', channel: 'premium', usage: { output: 5 } })
  }
})

void t.test('a data folder has one writer: the second is told who has it, and the folder is free when that one is killed', async (t) => {
  const folder = folderFor(t)
  const first = child(t, folder, 'open')
  await until(() => first.told().length > 0)
  await t.rejects(openEmbedded({ folder, log }), {
    message:
      `the data folder ${folder} is in use by another gateway (process ${first.process.pid}). Stop that one first, or name another folder in store.path.`
  })
  await first.kill()
  await t.resolves(find(folder))
})
