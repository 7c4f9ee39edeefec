// What each page of the dashboard costs the gateway on a ledger of a million entries: CPU of all its threads, which a
// busy machine moves less than the time on the clock, and that is told beside it.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parse, stringify } from 'yaml'
import { freePort } from '../support/free-port.ts'
import { pinningProblem, startChild, type Child } from './children.ts'
import type { Experiment, Sample } from './experiments.ts'
import { sleep } from './load.ts'
import { accountId, accountIds, ENTRIES, KEYS, keyId, seed } from './million.ts'
import { median } from './statistics.ts'

const TOKEN = 'bench-admin-token'
const DAY_MS = 86_400_000
const MOST_MS = 100
/** Of each page, behind one that is not counted: its code is not compiled yet. */
const TIMES = 10
const launcher = fileURLToPath(new URL('../../src/launcher.js', import.meta.url))
const shipped = new URL('../../gateway.yaml', import.meta.url)
const models = fileURLToPath(new URL('../../config/models.yaml', import.meta.url))

interface Page {
  readonly name: string
  readonly path: string
  readonly body?: object
}

/** What the pages of the dashboard ask, and what is the most that may be asked of the series. */
function pages (now: number): readonly Page[] {
  const iso = (time: number): string => new Date(time).toISOString()
  const series = (name: string, query: string): Page => ({ name, path: `/usage/series?${query}` })
  const week = iso(now - 6 * DAY_MS).slice(0, 10)
  const last10 = `from=${iso(now - 9 * DAY_MS).slice(0, 10)}`
  const get = (name: string, path: string): Page => ({ name, path })
  return [
    get('summary', '/summary'),
    series('30 days', 'by=day'),
    series('30 days × account', 'by=day&group=account'),
    series('30 days × model', 'by=day&group=model'),
    series('30 days × channel', 'by=day&group=channel'),
    series('30 days × key', 'by=day&group=key'),
    series('30 days × account, key', 'by=day&group=account,key'),
    series('30 days × key, CSV', 'by=day&group=key&format=csv'),
    series('30 days of a key', 'by=day&group=model,channel&key=key-007'),
    series('10 days × all', `by=day&group=account,key,model,channel&${last10}`),
    series('months', 'by=month'),
    series('months × account', 'by=month&group=account'),
    series('months × key', 'by=month&group=key'),
    series('months × all', 'by=month&group=account,key,model,channel'),
    series('24 hours', 'by=hour'),
    series('24 hours × key', 'by=hour&group=key'),
    series('7 days of hours', `by=hour&from=${week}`),
    series('7 days of hours × account', `by=hour&from=${week}&group=account`),
    series('Berlin days', 'by=day&time_zone=Europe/Berlin'),
    series('Berlin days × key', 'by=day&time_zone=Europe/Berlin&group=key'),
    series('Berlin days × all', 'by=day&time_zone=Europe/Berlin&group=account,key,model,channel'),
    series('Berlin hours × key', 'by=hour&time_zone=Europe/Berlin&group=key'),
    get('keys', '/keys?limit=100'),
    get('accounts', '/accounts?limit=100'),
    get('an account', `/accounts/${accountId(0)}`),
    get('statement', `/ledger?account=${accountId(0)}&order=newest&limit=50`),
    get('entries of a key', `/ledger?key=${keyId(7)}&order=newest&limit=50`),
    get('requests', '/requests?limit=50'),
    get('videos', '/videos?limit=50'),
    get('failed videos', '/videos?state=failed&limit=50'),
    get('open videos', '/videos?state=in_progress&limit=50'),
    get('videos of an account', `/videos?account=${accountId(3)}&limit=50`),
    get('upstreams', '/upstreams'),
    get('prices', '/prices'),
    get('config', '/config'),
    { name: 'config check', path: '/config/check', body: { text: readFileSync(shipped, 'utf8') } },
    { name: 'config diff', path: '/config/diff', body: { text: readFileSync(shipped, 'utf8') } },
    get('fleet', '/fleet'),
    get('audit', '/audit?order=newest&limit=50'),
    get('tokens', '/tokens')
  ]
}

const names = pages(0).map(({ name }) => name)

interface Cost { readonly cpuMs: number, readonly ms: number }

async function costOf (child: Child, admin: string, { name, path, body }: Page): Promise<Cost> {
  const asked = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }
  const times: number[] = []
  let before = 0
  for (let i = 0; i <= TIMES; i++) {
    const start = performance.now()
    const answer = await fetch(`${admin}/admin/v1${path}`, { ...asked,
      headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' } })
    const text = await answer.text()
    times.push(performance.now() - start)
    if (answer.status !== 200) throw new Error(`${name}: ${answer.status} ${text.slice(0, 300)}`)
    if (i > 0 && i < TIMES) continue
    await sleep(50)    // what is done behind the answer counts too
    if (i === 0) before = cpuMs(child.pid)
  }
  return { cpuMs: (cpuMs(child.pid) - before) / TIMES, ms: median(times.slice(1)) }
}

/** Of a process, with its threads that have ended; in steps of 10 ms. */
function cpuMs (pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) * 10
}

/** The shipped one, with many accounts and keys. */
function configOf (ports: Readonly<Record<'api' | 'public' | 'admin', number>>): string {
  return stringify({
    ...parse(readFileSync(shipped, 'utf8')) as object,
    server: { api: { listen: `127.0.0.1:${ports.api}` }, public: { listen: `127.0.0.1:${ports.public}` },
      admin: { listen: `127.0.0.1:${ports.admin}`, token: TOKEN } },
    include: [models],
    accounts: accountIds.map((id) => ({ id, name: id })),
    keys: Array.from({ length: KEYS }, (_, i) => ({ id: keyId(i), account: accountId(i),
      secret: `sk-gw-${String(i).padStart(32, 'x')}` }))
  })
}

/** Starts a gateway on the ledger of a folder, and asks every page. @param data of the ledger; copied */
export async function measurePages (data: string, now: number): Promise<ReadonlyMap<string, Cost>> {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-pages-'))
  let child: Child | undefined
  try {
    cpSync(data, join(folder, 'data'), { recursive: true })
    const [api, open, admin] = await Promise.all([freePort(), freePort(), freePort()])
    writeFileSync(join(folder, 'gateway.yaml'), configOf({ api, public: open, admin }))
    child = startChild({ args: [launcher, 'start', '--config', join(folder, 'gateway.yaml')], cwd: folder,
      logFile: join(folder, 'log'), isPinned: pinningProblem() === undefined })
    const address = `http://127.0.0.1:${admin}`
    for (let tries = 0; !await isReady(address); tries++) {
      if (child.hasExited() || tries === 600) throw new Error(`is not ready:\n${child.logTail()}`)
      await sleep(100)
    }
    const costs = new Map<string, Cost>()
    for (const page of pages(now)) costs.set(page.name, await costOf(child, address, page))
    return costs
  } finally {
    await child?.stop()
    rmSync(folder, { recursive: true, force: true })
  }
}

async function isReady (address: string): Promise<boolean> {
  try {
    const { status } = await fetch(`${address}/readyz`, { signal: AbortSignal.timeout(1000) })
    return status === 200
  } catch {
    return false
  }
}

export const dashboard: Experiment = {
  name: 'pages',
  title: `Every page of the dashboard on a ledger of ${ENTRIES} entries of 90 days, ${KEYS} keys and 20,000 videos: CPU ` +
    'ms of all threads, and of the slowest page also the time on the clock',
  only: ['gateway'],
  columns: [{ key: 'worst', title: 'the worst', digits: 0 }, { key: 'wall', title: 'the slowest, ms', digits: 0 },
    ...names.map((name) => ({ key: name, title: name, digits: 0 }))],
  rounds: () => 1,
  lasts: () => 0,
  async burst ({ isQuick }): Promise<Sample> {
    const folder = mkdtempSync(join(tmpdir(), 'gateway-million-'))
    try {
      const now = Date.now()
      await seed(folder, now, isQuick ? ENTRIES / 20 : ENTRIES)
      const costs = await measurePages(folder, now)
      const all = [...costs.values()]
      return { worst: Math.max(...all.map(({ cpuMs }) => cpuMs)), wall: Math.max(...all.map(({ ms }) => ms)),
        ...Object.fromEntries([...costs].map(([name, { cpuMs }]) => [name, cpuMs])) }
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  },
  goals: (of) => names.map((name) => {
    const found = median(of('gateway', name))
    return { text: `${name}: under ${MOST_MS} ms of CPU on a ledger of a million entries`, isMet: found < MOST_MS,
      found: `${found.toFixed(0)} ms` }
  })
}
