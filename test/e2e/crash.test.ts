// Kills a whole gateway, again and again, under traffic: what its clients and its upstream saw is what the ledger says
// afterwards. `KILLS=200 node test/e2e/crash.test.ts` for a long run. SEED repeats the plans and the moments, not how
// they meet.
import { EventEmitter, once } from 'node:events'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import { copied, newLog } from '../support/embedded-store.ts'
import { yaml } from '../support/gateway.ts'
import { folderFor, run } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'
import { until } from '../support/until.ts'
import { answerTo, type Books, type Chapter, compare, newPlan, type Plan, play, random, SEED, type Sent,
  TELL_ID } from '../support/traffic.ts'
import { upstream } from '../support/upstream.ts'

const KILLS = Number(process.env['KILLS'] ?? 6)
/** A ledger is read whole after each kill, so it must not grow for ever. */
const KILLS_OF_A_LEDGER = 20
t.setTimeout(900_000 + KILLS * 100_000)
const CLIENTS = 32
const OPENING = 1_000_000n * 1_000_000_000n

const settings = (url: string): string =>
  yaml([url], '',
    'auth, key-policy, { rate-limit: { default_rpm: 0, default_concurrency: 0 } }, schema-validate, chat-to-messages, channel-router, billing-meter, { use: ./tell-id.mjs }, error-normalize')
    .replace('store: { driver: memory, path: ./data }', 'store: { driver: embedded, path: ./data, windows: forget }')
    .replace('opening_balance_usd: 100', 'opening_balance_usd: 1000000')

// The books.

/** Opens a data folder, and looks at what holds without knowing a request. */
async function read (folder: string): Promise<Books> {
  const store = await openEmbedded({ folder, log: newLog(), windows: 'forget' })
  try {
    const wrong: string[] = []
    const isEqual = (what: string, found: unknown, expected: unknown): void => {
      if (found !== expected) wrong.push(`${what}: ${String(found)}, not ${String(expected)}`)
    }
    const entries = await all(store)
    const charges = entries.filter(({ kind }) => kind !== 'credit')
    const spent = -charges.reduce((sum, { nanos }) => sum + nanos, 0n)
    const { balance, held, open_holds: open } = await store.balance('acme')
    isEqual('balance', balance, OPENING - spent)
    isEqual('held', held, 0n)
    isEqual('open holds of the account', open, 0)
    isEqual('open holds', await store.openHolds(), 0)
    const usage = await store.keyUsage('acme-dev')
    isEqual('spent by the key', usage.spent, spent)
    isEqual('held by the key', usage.held, 0n)
    isEqual('entries of a kind and request', new Set(entries.map(({ kind, reference }) => `${kind} ${reference}`)).size,
      entries.length)
    isEqual('opening balances', entries.length - charges.length, 1)
    const { differences } = await store.verify()
    isEqual('differences', differences.map(({ of, id, where }) => `${of} ${id} ${where}`).join(), '')
    return { entries: charges, wrong }
  } finally {
    await store.close()
  }
}

// The run.

async function chapter (t: Test, kills: number, first: number): Promise<void> {
  const sent = new Map<string, Sent>()
  const plans = new Map<string, Plan>()
  const up = await upstream(t, answerTo(plans, sent, (message) => { t.fail(message) }))
  const folder = folderFor(t, { 'gateway.yaml': settings(up.url), 'tell-id.mjs': TELL_ID })
  const data = join(folder, 'data')
  const own: Chapter = { asked: [], sent, logged: new Map(), found: new Map(), counts: {} }

  for (let i = 0; i <= kills; i++) {
    if (i % 4 === 3) {                                      // killed while it puts right what the last kill left
      const starting = run(t, folder, ['start', '--config', 'gateway.yaml'])
      await pause(random(1000))
      starting.child.kill('SIGKILL')
      await starting.ended
    }
    const gateway = run(t, folder, ['start', '--config', 'gateway.yaml'])
    const { api } = await gateway.urls()
    const ends = new EventEmitter()
    let inFlight = 0
    let isOver = false
    const before = sent.size
    const clients = Array.from({ length: CLIENTS }, async (_, client) => {
      for (let count = 0; !isOver; count++) {
        const plan = newPlan(`r${first + i}-${client}-${count}`)
        plans.set(plan.name, plan)
        inFlight++
        own.asked.push(await play(plan, api, () => { ends.emit('end') }))
        inFlight--
      }
    })
    await until(() => sent.size > before + CLIENTS)
    // Some are late: then long streams have recorded how far they are.
    const ms = i % 5 === 2 ? 2200 + random(800) : random(700)
    await pause(ms)
    const isLast = i === kills
    // Most of them at the very moment when a client reads an end: what is recorded too late would be missed then.
    const isAtAnEnd = !isLast && i % 4 !== 0
    const kill = (): void => { gateway.child.kill(isLast ? 'SIGTERM' : 'SIGKILL') }
    if (isAtAnEnd) {
      ends.once('end', kill)
      await once(ends, 'end')
    } else kill()
    isOver = true
    const running = inFlight
    const [code, signal] = await gateway.ended
    await Promise.all(clients)
    for (const line of gateway.log()) if (line['msg'] === 'request') own.logged.set(String(line['request_id']), line)
    // The next start recovers what this one left; a copy shows it before, so that what each kill did is known.
    const copy = isLast ? data : copied(t, data)
    const { wrong, found } = compare(own, await read(copy))
    if (!isLast) rmSync(copy, { recursive: true })
    own.found = found
    const moment = isLast ? 'stopped' : `kill ${first + i + 1}`
    t.strictSame([isLast ? code : signal, running >= 20], [isLast ? 0 : 'SIGKILL', true],
      `${moment} after ${ms} ms${isAtAnEnd ? ' and an end' : ''}, ${running} in flight`)
    t.strictSame(wrong.slice(0, 5), [], `${moment}: ${own.asked.length} requests and ${found.size} entries agree`)
    if (wrong.length > 0) return
  }
  t.comment(`${own.asked.length} requests: ${JSON.stringify(own.counts)}`)
}

for (let first = 0; first < KILLS; first += KILLS_OF_A_LEDGER) {
  const kills = Math.min(KILLS_OF_A_LEDGER, KILLS - first)
  await t.test(`kills ${first + 1} to ${first + kills} of a gateway under traffic lose nothing and double nothing (SEED=${SEED})`, (t) =>
    chapter(t, kills, first))
}
