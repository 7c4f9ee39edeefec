// Everything fails at random under traffic: Redis is killed, stands still, is slow, loses its connections; gateways are
// killed. Then what clients and their upstream saw is compared with the ledger, and every limit with what passed it.
// `CHAOS_MINUTES=15 node test/e2e/chaos.test.ts` for a long run, of which every second part has Sentinels and
// failovers. SEED repeats the plans and the faults, not how they meet.
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { catalogue } from '../../src/errors.ts'
import { formatUsd, parseUsd } from '../../src/money/nanos.ts'
import type { RedisStore } from '../../src/store/redis/store.ts'
import { startClock } from '../support/clock.ts'
import { KEY, yaml } from '../support/gateway.ts'
import { redisSentinel, redisServer, type RedisServer } from '../support/redis-server.ts'
import { openRedis } from '../support/redis-store.ts'
import { slowProxy } from '../support/slow-proxy.ts'
import { folderFor, run, type Spawned } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'
import { until } from '../support/until.ts'
import { answerTo, type Asked, type Books, type Chapter, compare, newPlan, type Plan, play, random, SEED, type Sent,
  TELL_ID } from '../support/traffic.ts'
import { upstream } from '../support/upstream.ts'

const MINUTES = Number(process.env['CHAOS_MINUTES'] ?? 0)
/** A ledger is compared as a whole, so it must not grow for ever. */
const CHAPTER_MS = 60_000
const CLIENTS = 24
const GATEWAYS = 2
t.setTimeout(900_000 + MINUTES * 120_000)

interface Purse {
  readonly account: string
  readonly key: string
  readonly secret: string
  readonly opening: bigint
  readonly settings?: string
  /** there is less than what is asked for */
  readonly isShort: boolean
}

const RATE = 40
const USAGE_LIMIT = parseUsd('0.05')
const secret = (letter: string): string => 'sk-gw-' + letter.repeat(32)
const [RICH, LIMITED, THRIFTY, POOR] = [
  { account: 'acme', key: 'acme-dev', secret: KEY, opening: parseUsd('1000000'), isShort: false },
  { account: 'limited', key: 'limited-dev', secret: secret('l'), opening: parseUsd('1000000'),
    settings: `rate_limit: ${RATE}`, isShort: false },
  { account: 'thrifty', key: 'thrifty-dev', secret: secret('t'), opening: parseUsd('1000000'),
    settings: `usage_limit_usd: ${formatUsd(USAGE_LIMIT)}`, isShort: true },
  { account: 'poor', key: 'poor-dev', secret: secret('p'), opening: parseUsd('0.05'), isShort: true }
] as const satisfies readonly Purse[]
const PURSES: readonly Purse[] = [RICH, LIMITED, THRIFTY, POOR]
/** The most that one request of test/support/traffic.ts costs. */
const DEAREST = 5_000_000n

function settings (url: string, store: string): string {
  const others = PURSES.filter((purse) => purse !== RICH)
  return yaml([url], others.map((purse) => `  - { id: ${purse.key}, account: ${purse.account}, secret: ${purse.secret}${purse.settings === undefined ? '' : `, ${purse.settings}`} }\n`)
    .join(''),
    'auth, key-policy, { rate-limit: { default_rpm: 0, default_concurrency: 0 } }, schema-validate, chat-to-messages, channel-router, billing-meter, { use: ./tell-id.mjs }, error-normalize')
    .replace('server:\n', 'server:\n  overload: { event_loop_delay: 0s }\n')
    .replace('store: { driver: memory, path: ./data }', `store: { driver: redis, ${store}, path: ./data }`)
    .replace('opening_balance_usd: 100 }\n', `opening_balance_usd: ${formatUsd(RICH.opening)} }\n${others.map(({ account, opening }) => `  - { id: ${account}, name: ${account}, opening_balance_usd: ${formatUsd(opening)} }\n`).join('')}`)
}

// Two gateways, each of which is started again when it was killed.

interface Machine {
  readonly folder: string
  gateway: Spawned | undefined
  /** undefined: it does not listen */
  api: string | undefined
  /** `performance.now()` of each kill */
  readonly kills: number[]
}

/** As whoever supervises it would: again, until it runs, while it is Redis that it misses. */
async function start (t: Test, machine: Machine): Promise<void> {
  while (machine.api === undefined) {
    machine.gateway = run(t, machine.folder, ['start', '--config', 'gateway.yaml'])
    const urls = await machine.gateway.urls().catch((error: Error) => {
      if (!/Redis|the store/.test(error.message)) throw error
      return undefined
    })
    machine.api = urls?.api
  }
}

/** What the logs say. */
interface Notes {
  readonly requests: Map<string, Record<string, unknown>>
  /** milliseconds of each time that a gateway had no Redis, by its own word */
  readonly absences: number[]
}

async function kill (machine: Machine, notes: Notes): Promise<void> {
  machine.kills.push(performance.now())
  machine.api = undefined
  machine.gateway!.child.kill('SIGKILL')
  await machine.gateway!.ended
  keepLog(machine, notes)
}

/** A start begins a new one. */
function keepLog ({ gateway }: Machine, { requests, absences }: Notes): void {
  for (const line of gateway!.log()) {
    if (line['msg'] === 'request') requests.set(String(line['request_id']), line)
    if (typeof line['away_ms'] === 'number') absences.push(line['away_ms'])
  }
}

// What clients saw.

interface Visit extends Asked {
  readonly machine: Machine
  readonly begun: number
  readonly ended: number
}

const CODES: ReadonlySet<unknown> = new Set(
  Object.entries(catalogue).map(([row, entry]) => 'code' in entry ? entry.code : row)
)

/** @returns what no client should see */
function complaint ({ plan, got, machine, begun, ended }: Visit, notes: Notes): string | undefined {
  const about = `${plan.name} with ${plan.key.slice(6, 8)}: ${got.status} ${got.ended} ${JSON.stringify(got.body ?? got.events.at(-1))}; log ${JSON.stringify(notes.requests.get(String(got.headers['x-request-id'])))}`
  if (got.ended === 'cut') {
    return machine.kills.some((at) => at >= begun - 50 && at <= ended)
      ? undefined
      : `cut, and nobody was killed: ${about}`
  }
  const error = errorIn({ plan, got })
  if (error === undefined) return got.ended === 'left' || got.status === 200 ? undefined : `no error of ours: ${about}`
  if (!CODES.has(error)) return `no code of the catalogue: ${about}`
  // A key is never said to be wrong, and the gateway itself does not fail.
  return [401, 403, 500].includes(got.status) ? `not because of this: ${about}` : undefined
}

interface Shaped { readonly code?: string, readonly details?: { readonly error_code: string } }

function errorIn ({ got }: Asked): string | undefined {
  const shaped = [got.body, ...got.events.map(({ data }) => data)].map((data) => data?.['error'] as Shaped | undefined)
    .find((found) => found !== undefined)
  return shaped?.details?.error_code ?? shaped?.code
}

/** The most requests of 58 seconds that reached the upstream: they are counted before they do, by up to two seconds. */
function most (times: readonly number[]): number {
  const sorted = times.toSorted((a, b) => a - b)
  return sorted.reduce(
    (top, time) => Math.max(top, sorted.filter((other) => other >= time && other < time + 58_000).length),
    0
  )
}

// The books.

/** @param slack what a failover may have forgotten */
async function read (store: RedisStore, slack: bigint): Promise<Books> {
  const wrong: string[] = []
  const isEqual = (what: string, found: unknown, expected: unknown): void => {
    if (found !== expected) wrong.push(`${what}: ${String(found)}, not ${String(expected)}`)
  }
  const entries = await all(store)
  const charges = entries.filter(({ kind }) => kind !== 'credit')
  isEqual('entries of a kind and request', new Set(entries.map(({ kind, reference }) => `${kind} ${reference}`)).size,
    entries.length)
  isEqual('opening balances', entries.length - charges.length, PURSES.length)
  for (const { account, key, opening } of PURSES) {
    const spent = -charges.filter((entry) => entry.account === account).reduce((sum, { nanos }) => sum + nanos, 0n)
    const { balance, held, open_holds: open } = await store.balance(account)
    isEqual(`balance of ${account}`, balance, opening - spent)
    isEqual(`held of ${account}`, held, 0n)
    isEqual(`open holds of ${account}`, open, 0)
    if (balance < -slack) wrong.push(`${account} has spent ${formatUsd(spent)} of ${formatUsd(opening)}`)
    const usage = await store.keyUsage(key)
    isEqual(`spent by ${key}`, usage.spent, spent)
    isEqual(`held by ${key}`, usage.held, 0n)
    if (key === THRIFTY.key && spent > USAGE_LIMIT + slack) {
      wrong.push(`${key} has spent ${formatUsd(spent)} of ${formatUsd(USAGE_LIMIT)}`)
    }
  }
  const { differences } = await store.verify()
  isEqual('differences', differences.map(({ of, id }) => `${of} ${id}`).join(), '')
  return { entries: charges, wrong }
}

// The run.

interface Trouble {
  /** as the configuration says it */
  readonly store: string
  /** for the test itself, which goes no detours */
  readonly direct: Parameters<typeof openRedis>[1]
  readonly faults: Readonly<Record<string, () => Promise<void>>>
  /** nothing that Redis has answered is ever forgotten */
  readonly isStrict: boolean
}

async function single (t: Test): Promise<Trouble> {
  const redis = await redisServer(t)
  const proxy = await slowProxy(t, redis.port)
  return {
    store: `url: "redis://127.0.0.1:${proxy.port}"`, direct: { url: redis.url }, isStrict: true,
    faults: {
      async 'Redis is killed' () {
        await redis.kill()
        await pause(random(1500))
        await redis.restart()
      },
      async 'Redis stands still' () {
        redis.pause()
        await pause(200 + random(1500))
        redis.resume()
      },
      async 'Redis is slow' () {
        proxy.delay = 20 + random(300)
        await pause(500 + random(1500))
        proxy.delay = 0
      },
      async 'connections break' () {
        for (let i = random(3); i >= 0; i--) {
          proxy.cut()
          await pause(random(200))
        }
      }
    }
  }
}

async function sentinel (t: Test): Promise<Trouble> {
  const { name, sentinels, servers, master } = await redisSentinel(t)
  const where = { sentinels: sentinels.map(({ url }) => url), sentinel_name: name }
  return {
    store: `sentinels: ${JSON.stringify(where.sentinels)}, sentinel_name: ${name}`, direct: where, isStrict: false,
    faults: {
      async 'the master is killed, another takes over' () {
        const before = await master()
        await before.kill()
        // Who changes its role breaks connections, those of this test too.
        const now = async (): Promise<number | undefined> => (await master() as RedisServer | undefined)?.port
        await until(async () => ![undefined, before.port].includes(await now()))
        await pause(random(1000))
        await before.restart()
        // Until it is the replica of the new one: else the next failover has nobody to go to.
        await until(async () =>
          (await Promise.all(
            servers.map(async (server) =>
              (await server.ask('INFO', 'replication').catch(() => '')).includes('role:slave')
            )
          )).filter(Boolean).length === servers.length - 1
        )
      },
      async 'the master stands still for a moment' () {
        const now = await master()
        now.pause()
        await pause(100 + random(500))
        now.resume()
      }
    }
  }
}

async function chapter (
  t: Test,
  { store: where, direct, faults, isStrict }: Trouble,
  durationMs: number
): Promise<void> {
  const sent = new Map<string, Sent>()
  const plans = new Map<string, Plan>()
  const arrivals = new Map<string, number>()
  const answer = answerTo(plans, sent, (text) => { t.fail(text) })
  const up = await upstream(t, (request) => {
    const before = sent.size
    const script = answer(request)
    if (sent.size > before) arrivals.set([...sent.keys()].at(-1)!, performance.now())
    return script
  })
  const notes: Notes = { requests: new Map(), absences: [] }
  const own: Chapter = { asked: [], sent, logged: notes.requests as Chapter['logged'], found: new Map(), counts: {} }
  const visits: Visit[] = []
  const machines = Array.from({ length: GATEWAYS }, (): Machine => ({
    folder: folderFor(t, { 'gateway.yaml': settings(up.url, where), 'tell-id.mjs': TELL_ID }),
    gateway: undefined,
    api: undefined,
    kills: []
  }))
  await Promise.all(machines.map(async (machine) => { await start(t, machine) }))

  let isOver = false
  // However it ends: what listens at these ports later is nobody's business here.
  t.teardown(() => { isOver = true })
  let inFlight = 0
  let peak = 0
  /** @returns its status */
  const visit = async (machine: Machine, api: string, name: string, purse: Purse): Promise<number> => {
    const plan = newPlan(name, purse.secret, purse.isShort)
    plans.set(name, plan)
    peak = Math.max(peak, ++inFlight)
    const begun = performance.now()
    const { got } = await play(plan, api, () => {})
    inFlight--
    visits.push({ plan, got, machine, begun, ended: performance.now() })
    return got.status
  }
  const clients = Array.from({ length: CLIENTS }, async (_, client) => {
    for (let count = 0; !isOver; count++) {
      const machine = machines[random(GATEWAYS)]!
      const { api } = machine
      const status = api === undefined
        ? 503
        : await visit(machine, api, `c${client}-${count}`, PURSES[random(2) === 0 ? 0 : random(PURSES.length)]!)
      // Whoever was refused comes back a moment later.
      if (status !== 200) await pause(status === 503 ? 50 + random(150) : 10 + random(40))
    }
  })

  const all = {
    ...faults,
    async 'a gateway is killed' () {
      const machine = machines[random(GATEWAYS)]!
      await kill(machine, notes)
      await pause(random(500))
      await start(t, machine)
    }
  }
  const happened: Record<string, number> = {}
  const names = Object.keys(all) as (keyof typeof all)[]
  const cause = async (name: keyof typeof all): Promise<void> => {
    happened[name] = (happened[name] ?? 0) + 1
    await all[name]!()
  }
  const end = performance.now() + durationMs
  // Each of them once, and while there is time any, sometimes in the middle of another.
  for (const name of names.toSorted(() => random(2) - 0.5)) {
    await pause(random(500))
    await cause(name)
  }
  while (performance.now() < end) {
    await pause(random(1500))
    const [one, other] = [names[random(names.length)]!, 'a gateway is killed' as const]
    await Promise.all([cause(one), ...one !== other && random(3) === 0 ? [cause(other)] : []])
  }

  // Well again: all of them serve, without help.
  for (const [i, machine] of machines.entries()) {
    for (let count = 0; await visit(machine, machine.api!, `last${i}-${count}`, RICH) !== 200; count++) await pause(50)
  }
  isOver = true
  await Promise.all(clients)
  for (const { gateway } of machines) gateway!.child.kill('SIGTERM')
  for (const machine of machines) {
    const ended = await machine.gateway!.ended
    const isWell = t.strictSame(ended, [0, null], 'it drains')
    if (!isWell) t.comment(lastWords(machine.gateway!))
    keepLog(machine, notes)
  }

  const clock = startClock(undefined, Date.now())
  const store = await openRedis(t, direct, { prefix: 'gateway', now: clock.now, timer: clock.timer })
  // Those of the killed have their leases; an hour later nobody has one.
  await clock.advance(3_600_000)
  await clock.until(async () => await store.openHolds() === 0)
  own.asked.push(...visits)
  const { wrong, found } = compare(own, await read(store, isStrict ? 0n : BigInt(CLIENTS) * DEAREST))
  const complaints = visits.map((one) => complaint(one, notes)).filter((text) => text !== undefined)
  t.ok(peak >= 20, `${peak} in flight`)
  t.strictSame(wrong.slice(0, 5), [], `${visits.length} requests and ${found.size} entries agree`)
  t.strictSame(complaints.slice(0, 5), [], 'clients saw errors of the catalogue only')
  const limited = most([...arrivals].flatMap(([name, at]) => plans.get(name)!.key === LIMITED.secret ? [at] : []))
  if (isStrict) t.ok(limited <= RATE, `${limited} of ${RATE} requests of the limited key were let through in a minute`)
  t.comment(
    `faults: ${JSON.stringify(happened)}; ${visits.length} requests: ${JSON.stringify(own.counts)}; answers: ${JSON.stringify(tally(visits))}; ${notes.absences.length} times without Redis, ${Math.max(0, ...notes.absences)} ms at most`
  )
}

function lastWords (gateway: Spawned): string {
  const lines = gateway.stdout().split('\n').filter((line) => !line.includes('"msg":"request"'))
  return [...lines.slice(-10), gateway.stderr().slice(-3000)].join('\n')
}

/** By status and code. */
function tally (visits: readonly Visit[]): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {}
  for (const visit of visits) {
    const what = `${visit.got.status} ${errorIn(visit) ?? visit.got.ended}`
    counts[what] = (counts[what] ?? 0) + 1
  }
  return counts
}

const chapters = Math.max(1, Math.round(MINUTES * 60_000 / CHAPTER_MS))
for (let i = 1; i <= chapters; i++) {
  const isFailover = i % 2 === 0
  await t.test(`chaos ${i} of ${chapters}${isFailover ? ', with failovers' : ''}: no charge is lost or doubled, and no limit passed (SEED=${SEED})`, async (t) => {
    await chapter(t, await (isFailover ? sentinel : single)(t), MINUTES === 0 ? 0 : CHAPTER_MS)
  })
}
