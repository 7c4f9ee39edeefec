// Several processes as one gateway: real ones, through the launcher, with a real Redis. What clients, scrapes and
// signals meet when a worker works, dies, reads its configuration again, or drains.
import { once } from 'node:events'
import { readdirSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { basename, join } from 'node:path'
import t, { type Test } from 'tap'
import { deliverLeftovers } from '../../src/cluster/orphaned-outboxes.ts'
import { ask, type Got } from '../support/billing-client.ts'
import { freePort } from '../support/free-port.ts'
import { gateway as command, json as jsonOf } from '../support/gateway-command.ts'
import { KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { redisServer } from '../support/redis-server.ts'
import { folderFor, run, type Spawned } from '../support/spawned.ts'
import { until } from '../support/until.ts'
import { answer, blockStart, blockStop, errorReply, json, message, messageEnd, messageStart, textDelta, upstream,
  wait } from '../support/upstream.ts'

const PIPELINE =
  'auth, key-policy, { rate-limit: { default_rpm: 0, default_concurrency: 0 } }, channel-router, billing-meter, error-normalize'

function settings (upstreamUrl: string, redisUrl: string, adminPort = 0): string {
  return yaml([upstreamUrl], '', PIPELINE)
    .replace('server:\n', 'server:\n  workers: 2\n  overload: { event_loop_delay: 0s }\n')
    .replace('drain_timeout: 5s', 'drain_timeout: 60s')
    .replace('admin: { listen: "127.0.0.1:0"', `admin: { listen: "127.0.0.1:${adminPort}"`)
    .replace('store: { driver: memory, path: ./data }',
      `store: { driver: redis, url: "${redisUrl}", path: ./data, timeout: 10s }`)
}

interface Admin {
  /** as JSON */
  get<T> (path: string): Promise<T>
  /** the sum of a metric's series */
  metric (name: string): Promise<number>
  isReady (): Promise<boolean>
}

interface Config {
  readonly generation: number
  readonly hash: string
  readonly workers: readonly { readonly worker: number, readonly pid: number, readonly generation?: number,
    readonly hash?: string, readonly last_reload?: { readonly reason: string } }[]
}

function adminOf (url: string): Admin {
  return {
    get: async <T>(path: string) =>
      await (await fetch(url + path, { headers: { authorization: 'Bearer test-admin-token' } })).json() as T,
    async metric (name) {
      const text = await (await fetch(`${url}/metrics`)).text()
      return text.split('\n').filter((line) => line.startsWith(name + '{') || line.startsWith(name + ' ')).reduce(
        (sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))),
        0
      )
    },
    isReady: async () => (await fetch(`${url}/readyz`)).status === 200
  }
}

async function post (api: string, stream: boolean, onEvent: () => void = () => {}): Promise<Got> {
  return await ask(`${api}/v1/messages`, { ...messagesRequest, stream }, { headers: { 'x-api-key': KEY }, onEvent })
}

const linesOf = (gateway: Spawned, msg: string): Record<string, unknown>[] =>
  gateway.log().filter((line) => line['msg'] === msg)

function isAlive (pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

/** So many streams that have begun, and wait for their upstream. */
async function streams (api: string, count: number): Promise<readonly Promise<Got>[]> {
  const begun = Array.from({ length: count }, () => Promise.withResolvers<void>())
  const running = begun.map(async ({ resolve, reject }) => {
    const got = await post(api, true, resolve)
    if (got.events.length === 0) reject(new Error(`no stream: ${got.status} ${JSON.stringify(got.body)}`))
    return got
  })
  await Promise.all(begun.map(async ({ promise }) => { await promise }))
  return running
}

t.test('a check refuses workers without a store that all share, and names the place', async (t) => {
  const folder = folderFor(t, {
    'gateway.yaml': settings('http://127.0.0.1:9', '').replace(/store: .*/, 'store: { driver: embedded, path: ./data }')
  })
  const { code, err, out } = await command(folder, ['check', 'gateway.yaml'])
  t.equal(code, 1)
  t.match(out + err,
    /gateway\.yaml:3:12 \/server\/workers more than one process needs a store that all of them share \(write "store: \{ driver: redis/)
})

await t.test('two workers are one gateway', async (t) => {
  const redis = await redisServer(t)
  let gate = Promise.withResolvers<void>()
  let isPaid = true
  let refused = 0
  const up = await upstream(t, ({ body }) => {
    if (!isPaid) { refused++; return errorReply(402, 'billing_error', 'no') }
    return body!['stream'] === true
      ? [messageStart(), blockStart(0), textDelta(0, 'one'), wait(gate.promise), textDelta(0, 'two'), blockStop(0),
        messageEnd()]
      : [json(message('Hello'))]
  })
  const folder = folderFor(t, { 'gateway.yaml': settings(up.url, redis.url, await freePort()) })
  const gateway = run(t, folder, ['start'])
  const { api, admin: adminUrl } = await gateway.urls()
  const admin = adminOf(adminUrl)
  const workers = async (): Promise<Config['workers']> => (await admin.get<Config>('/admin/v1/config')).workers

  await t.test('requests are spread, and one page has the metrics of all', async (t) => {
    for (let round = 0; round < 3; round++) {
      const all = await Promise.all(Array.from({ length: 4 }, async () => await post(api, false)))
      t.strictSame(all.map(({ status }) => status), [200, 200, 200, 200])
    }
    const served = await until(() => {
      const lines = linesOf(gateway, 'request')
      return lines.length === 12 && lines.map(({ worker }) => worker)
    })
    t.strictSame([...new Set(served)].toSorted(), [1, 2])
    t.equal(await admin.metric('gateway_requests_total'), 12)
    await until(async () => await admin.metric('gateway_fleet_processes') === 2)
    const { data } = await admin.get<{ readonly data: readonly { readonly targets: readonly unknown[] }[] }>(
      '/admin/v1/upstreams'
    )
    t.match(data, [{ targets: [{ breaker: 'closed', running: 0, ended: 12, failed: 0 }],
      credentials: [{ id: 'headers', running: 0 }] }], 'and of upstreams, one page has what all have asked')
    t.match(await admin.get('/admin/v1/summary'), { live: { requests: 12, errors: 0, spent_usd: /^0\.0/ },
      fleet: { processes: 2, is_converged: true } })
    t.strictSame(await admin.get('/readyz'), { ready: true, reasons: [] })
  })

  await t.test('the last requests of all of them are one list', async (t) => {
    const ids = linesOf(gateway, 'request').map(({ request_id: id }) => String(id))
    const list = async (query = ''): Promise<readonly string[]> =>
      (await admin.get<{ readonly data: readonly { readonly request_id: string }[] }>(`/admin/v1/requests${query}`))
        .data.map(({ request_id: id }) => id)
    await until(async () => (await list()).length === ids.length)
    t.strictSame(await list(), ids.toSorted().reverse())
    t.strictSame(await list(`?limit=5&after=${ids.toSorted()[7]}`), ids.toSorted().slice(2, 7).reverse())
    t.match(await admin.get(`/admin/v1/requests/${ids[3]}`), { request_id: ids[3], code: 'ok' })
    t.strictSame(readdirSync(join(folder, 'data/requests')).toSorted(), ['open-1.jsonl', 'open-2.jsonl'])
  })

  await t.test('what is tried on the listener of the primary is served by a worker', async (t) => {
    const before = linesOf(gateway, 'request').length
    const got = await fetch(`${adminUrl}/admin/v1/try`, { method: 'POST',
      headers: { authorization: 'Bearer test-admin-token' },
      body: JSON.stringify({ key: 'acme-dev', secret: KEY, path: '/v1/messages', body: messagesRequest }) })
    t.match(await got.text(), /^data: \{"kind":"head","status":200,[^]*Hello[^]*"kind":"end","is_whole":true/)
    const line = await until(() => linesOf(gateway, 'request')[before])
    t.match(line, { worker: Number, key_id: 'acme-dev' })
  })

  await t.test('an operator sees each of them, and that they run the same', async (t) => {
    const { generation, hash, workers } = await admin.get<Config>('/admin/v1/config')
    t.strictSame(workers.map((one) => [one.worker, one.generation, one.hash]), [[1, generation, hash], [2, generation,
      hash]])
    const { code, out, err } = await command(folder, ['fleet'])
    t.equal(code, 0)
    t.match(out, new RegExp(
      `^ID +HOST +WORKER +PID .*\\n.* 1 +${workers[0]!.pid} .* ${hash} .*\\n.* 2 +${workers[1]!.pid} .* ${hash} .*\\n$`
    ))
    t.equal(err, '')
  })

  await t.test('one that is killed takes its own streams with it and no others, and is back', async (t) => {
    const running = await streams(api, 4)
    const [one, other] = await workers()
    process.kill(one!.pid, 'SIGKILL')
    await Promise.race(running)
    gate.resolve()
    const all = await Promise.all(running)
    const whole = all.filter(({ ended, events }) => ended === 'whole' && events.at(-1)?.event === 'message_stop').length
    const cut = all.filter(({ ended }) => ended === 'cut').length
    t.ok(whole > 0 && cut > 0 && whole + cut === 4, `${whole} came to their end, ${cut} were cut`)
    t.equal((await post(api, false)).status, 200, 'whoever comes next is served')
    await until(() => admin.isReady())
    const now = await workers()
    t.not(now[0]!.pid, one!.pid)
    t.equal(now[1]!.pid, other!.pid)
    t.match(linesOf(gateway, 'a worker has ended: it is started again'), [{ level: 'error', worker: 1, pid: one!.pid,
      signal: 'SIGKILL', restart_in_ms: 0 }])
    t.equal(await admin.metric('gateway_worker_restarts_total'), 1)
    t.ok(await admin.metric('gateway_requests_total') >= 13, 'no counter has fallen')
    await until(async () => (await admin.get<{ readonly live: { readonly requests: number } }>('/admin/v1/summary'))
      .live.requests >= 13)
    t.strictSame(
      (await Promise.all(Array.from({ length: 4 }, async () => await post(api, false)))).map(({ status }) => status),
      [200, 200, 200, 200]
    )
  })

  await t.test('a change of the file and a SIGHUP reach all', async (t) => {
    const before = await admin.get<Config>('/admin/v1/config')
    writeFileSync(join(folder, 'gateway.yaml'), settings(up.url, redis.url, Number(new URL(adminUrl).port)) +
      '  - { id: acme-new, account: acme, secret: sk-gw-nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn }\n')
    const after = await until(async () => {
      const now = await admin.get<Config>('/admin/v1/config')
      return now.hash !== before.hash && now.workers.every(({ hash }) => hash === now.hash) && now
    })
    t.ok(after.generation > before.generation)
    gateway.child.kill('SIGHUP')
    await until(async () => (await workers()).every(({ last_reload: last }) => last?.reason === 'sighup'))
    t.strictSame((await workers()).map(({ hash }) => hash), [after.hash, after.hash])
  })

  await t.test('a key that is made through the admin listener works everywhere', async (t) => {
    const made =
      await (await fetch(`${adminUrl}/admin/v1/keys`, { method: 'POST',
        headers: { authorization: 'Bearer test-admin-token', 'content-type': 'application/json' },
        body: JSON.stringify({ account: 'acme' }) })).json() as { readonly secret: string }
    const used = async (): Promise<readonly number[]> =>
      await Promise.all(
        Array.from({ length: 4 }, async () =>
          (await ask(`${api}/v1/messages`, messagesRequest, { headers: { 'x-api-key': made.secret } })).status)
      )
    t.ok(await until(async () => (await used()).every((status) => status === 200)))
  })

  await t.test('F1: each finds out that the account has no money, and a reset reaches all', async (t) => {
    const four = async (): Promise<readonly number[]> =>
      (await Promise.all(Array.from({ length: 4 }, async () => await post(api, false)))).map(({ status }) => status)
    isPaid = false
    await four()
    t.ok(refused >= 2, 'both have asked')
    const before = refused
    t.strictSame(await four(), [503, 503, 503, 503])
    t.match(await admin.get('/admin/v1/upstreams'), { data: [{ credentials: [{ state: 'cooling_down',
      reason: 'no_money' }] }] })
    isPaid = true
    t.strictSame(await four(), [503, 503, 503, 503])
    t.equal((await fetch(`${adminUrl}/admin/v1/upstreams/u0/reset`, { method: 'POST',
      headers: { authorization: 'Bearer test-admin-token' } })).status, 200)
    t.strictSame(await four(), [200, 200, 200, 200])
    t.equal(refused, before)
  })

  await t.test('SIGTERM drains all of them; what they earned is in the ledger', async (t) => {
    gate = Promise.withResolvers()
    const running = await streams(api, 4)
    const pids = (await workers()).map(({ pid }) => pid)
    gateway.child.kill('SIGTERM')
    await until(async () => !await admin.isReady())
    t.strictSame(await admin.get('/readyz'), { ready: false, reasons: ['draining'] })
    gate.resolve()
    t.strictSame((await Promise.all(running)).map(({ ended, events }) => [ended, events.at(-1)?.event]),
      Array.from({ length: 4 }, () => ['whole', 'message_stop']))
    t.strictSame(await gateway.ended, [0, null])
    t.strictSame(pids.filter(isAlive), [])
    t.match(await jsonOf(folder, ['ledger', 'verify']), { ok: true, accounts: 1 })
  })
})

t.test('a worker with an error that nobody caught drains, and is back; the others go on', async (t) => {
  const redis = await redisServer(t)
  const gate = Promise.withResolvers<void>()
  const up = await upstream(
    t,
    [
      messageStart(), blockStart(0), textDelta(0, 'one'), wait(gate.promise), textDelta(0, 'two'), blockStop(0),
      messageEnd()
    ]
  )
  const breaking =
    'export default { name: \'breaking\', create: () => ({ onHead ({ received }) { if (received.headers[\'x-break\'] !== undefined) setTimeout(() => { throw new Error(\'a defect of a timer\') }, 1) } }) }'
  const folder = folderFor(t, {
    'gateway.yaml': settings(up.url, redis.url).replace('drain_timeout: 60s', 'drain_timeout: 4s').replace('[auth',
      '[{ use: ./breaking.mjs }, auth'),
    'breaking.mjs': breaking
  })
  const gateway = run(t, folder, ['start'])
  const { api, admin: adminUrl } = await gateway.urls()
  // One that is busy with its warm-up would get fewer.
  await until(() => adminOf(adminUrl).isReady())
  const running = await streams(api, 8)
  t.equal(
    (await fetch(`${api}/v1/models`, { headers: { 'x-api-key': KEY, 'x-break': 'yes', connection: 'close' } })).status,
    200
  )
  const [broken] = await until(() => {
    const lines = linesOf(gateway, 'a worker has ended: it is started again')
    return lines.length > 0 && lines
  })
  t.match(broken, { exit_code: 1, signal: undefined })
  t.match(gateway.log().filter(({ level }) => level === 'fatal'), [{ worker: broken!['worker'],
    err: { message: 'a defect of a timer' } }])
  gate.resolve()
  const last = (await Promise.all(running)).map(({ ended, events }) => `${ended} ${events.at(-1)?.event}`)
  // Its own, however many it was given: one that is slow to take a connection gets fewer.
  t.strictSame([...new Set(last)].toSorted(), ['whole error', 'whole message_stop'], last.join())
  await until(() => adminOf(adminUrl).isReady())
  gateway.child.kill('SIGTERM')
  t.strictSame(await gateway.ended, [0, null])
  t.match(await jsonOf(folder, ['ledger', 'verify']), { ok: true })
})

const LAST_SIGNALS = [['a second signal does not wait', 'SIGINT', 1, null], [
  'when the primary is killed, all end with it',
  'SIGKILL',
  null,
  'SIGKILL'
]] as const

for (const [what, lastSignal, code, signal] of LAST_SIGNALS) {
  void t.test(`${what}: nobody is left`, async (t) => {
    const redis = await redisServer(t)
    const up = await upstream(t, [messageStart(), blockStart(0), textDelta(0, 'one'), wait(new Promise(() => {}))])
    const gateway = run(t, folderFor(t, { 'gateway.yaml': settings(up.url, redis.url) }), ['start'])
    const { api, admin: adminUrl } = await gateway.urls()
    const running = await streams(api, 2)
    const pids = (await adminOf(adminUrl).get<Config>('/admin/v1/config')).workers.map(({ pid }) => pid)
    gateway.child.kill('SIGTERM')
    await until(() => linesOf(gateway, 'draining').length > 0)
    gateway.child.kill(lastSignal)
    t.strictSame(await gateway.ended, [code, signal])
    t.strictSame((await Promise.all(running)).map(({ ended }) => ended), ['cut', 'cut'])
    t.ok(await until(() => !pids.some(isAlive)))
  })
}

t.test('workers that can\'t begin are no gateway: said once, and nobody is left', async (t: Test) => {
  const redis = await redisServer(t)
  const busy = createServer().listen(0, '127.0.0.1')
  await once(busy, 'listening')
  t.teardown(() => { busy.close() })
  const { port } = busy.address() as AddressInfo
  const up = await upstream(t, answer('Hello'))
  const gateway = run(t, folderFor(t, {
    'gateway.yaml': settings(up.url, redis.url).replace('api: { listen: "127.0.0.1:0"',
      `api: { listen: "127.0.0.1:${port}"`)
  }), ['start'])
  t.strictSame(await gateway.ended, [1, null])
  t.equal(gateway.stderr().match(/another process listens at this address already/g)?.length, 1, gateway.stderr())
})

t.test('what workers have left that are no more is delivered by who comes after them, whatever became of one', async (t) => {
  const folder = t.testdir({ 'worker-1': {}, 'worker-2': {}, 'worker-3': {}, 'worker-12': {}, 'worker-x': {},
    outbox: {} })
  const opened: string[] = []
  const closed: string[] = []
  const errors: unknown[] = []
  const open = async (of: string): Promise<{ close (): void }> => {
    opened.push(basename(of))
    if (of.endsWith('-12')) throw new Error('Redis is away')
    return { close () { closed.push(basename(of)) } }
  }
  const log = { error (what: unknown) { errors.push(what) } }
  await deliverLeftovers(folder, 2, log, open)
  t.strictSame([opened.toSorted(), closed, errors.length], [['worker-12', 'worker-3'], ['worker-3'], 1],
    'two have their successors')
  await deliverLeftovers(folder, 1, log, open)
  t.strictSame(closed.toSorted(), ['worker-1', 'worker-2', 'worker-3', 'worker-3'], 'one process alone has no workers')
  await deliverLeftovers(join(folder, 'nowhere'), 1, log, open)
  t.equal(errors.length, 2)
})
