// Reload: what is noticed, what is applied, what is refused. Real files, a real watcher, and the real loading thread
// where code changes.
import { EventEmitter, once } from 'node:events'
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { AccountConfig, Config } from '../../src/config/config.ts'
import { LiveConfig, type LiveOptions } from '../../src/gateway/reload.ts'
import type { ReloadResult } from '../../src/config/state.ts'
import { GatewayError } from '../../src/errors.ts'
import { ConfigError, formatProblem } from '../../src/config/problem.ts'
import type { Stat } from '../../src/config/load/stamp.ts'
import { watchFiles, type WatchOptions } from '../../src/config/load/watch.ts'
import type { Plugin } from '../../src/core/plugin.ts'
import { creditOpenings } from '../../src/gateway/opening-balances.ts'
import { parseUsd } from '../../src/money/nanos.ts'
import { MemoryStore } from '../../src/store/local/memory.ts'
import { pluginsUrl } from '../fixtures/config/mistakes.ts'
import { loadHere } from '../support/load-here.ts'

const KEY = 'sk-gw-' + 'k'.repeat(32)

// a watcher keeps no process alive
const alive = setInterval(() => {}, 60_000)
t.teardown(() => { clearInterval(alive) })

interface Compiled {
  readonly config: Config
  readonly generation: number
  readonly plugins: ReadonlyMap<string, Plugin>
  retired: number
  retire (): void
}

function live (
  t: Test,
  file: string,
  { isThreaded = false, ...more }: Partial<LiveOptions<Compiled>> & { readonly isThreaded?: boolean } = {}
): { readonly live: LiveConfig<Compiled>, readonly compiled: Compiled[], readonly results: ReloadResult[] } {
  const compiled: Compiled[] = []
  const results: ReloadResult[] = []
  const made = new LiveConfig<Compiled>({
    file, pluginsUrl, env: {},
    services: { now: () => 0 },
    watch: { interval_ms: 5 },
    ...(!isThreaded && { load: loadHere }),
    compile (config, generation, plugins) {
      const snapshot: Compiled = { config, generation, plugins, retired: 0, retire () { this.retired++ } }
      compiled.push(snapshot)
      return snapshot
    },
    onReload: (result) => { results.push(result) },
    ...more
  })
  t.teardown(() => { made.close() })
  return { live: made, compiled, results }
}

const yaml = (timeout: string, more = ''): string => `pipeline: [auth]\nhook_timeout: ${timeout}\n${more}`

/** A watcher, and a promise for its next call. */
async function watched (
  t: Test,
  files: () => readonly string[],
  options: WatchOptions = {}
): Promise<{ readonly calls: () => number, next(): Promise<unknown> }> {
  const emitter = new EventEmitter()
  let calls = 0
  const watcher = watchFiles(files, () => { calls++; emitter.emit('change') }, { interval_ms: 5, ...options })
  t.teardown(() => { watcher.close() })
  await watcher.ready
  return { calls: () => calls, next: () => once(emitter, 'change') }
}

t.test('watching', async (t) => {
  t.test('a write, an atomic rename, a removal and a return are each noticed', async (t) => {
    const folder = t.testdir({ a: '1' })
    const file = join(folder, 'a')
    const { next } = await watched(t, () => [file])
    for (const change of [
      () => { writeFileSync(file, '2') },
      () => { writeFileSync(file + '.new', '3'); renameSync(file + '.new', file) },
      () => { rmSync(file) },
      () => { writeFileSync(file, '4') }
    ]) {
      const noticed = next()
      change()
      await noticed
    }
    t.pass('all of them')
  })

  t.test('a swapped symlink, as a mounted ConfigMap swaps it, is noticed', async (t) => {
    const folder = t.testdir({ one: { 'gateway.yaml': 'a' }, two: { 'gateway.yaml': 'b' } })
    symlinkSync('one', join(folder, '..data'))
    symlinkSync('..data/gateway.yaml', join(folder, 'gateway.yaml'))
    const { next } = await watched(t, () => [join(folder, 'gateway.yaml')])
    const noticed = next()
    symlinkSync('two', join(folder, '..data_tmp'))
    renameSync(join(folder, '..data_tmp'), join(folder, '..data'))
    await noticed
    t.pass('noticed')
  })

  t.test('several writes in a row are one change, told when they are over', async (t) => {
    let size = 0n
    let writing = 10
    // a file that is another at each of ten looks, then stands still
    const stat = async (): Promise<Stat> => ({ dev: 1n, ino: 1n, size, mtimeNs: 0n, ctimeNs: 0n })
    const looks = new EventEmitter()
    const { calls, next } = await watched(t, () => {
      if (writing > 0 && size > 0n) {
        writing--
        size++
      }
      looks.emit('look')
      return ['a']
    }, { stat })
    const noticed = next()
    size = 1n
    await noticed
    t.equal(writing, 0, 'not before the last write')
    for (let i = 0; i < 5; i++) await once(looks, 'look')
    t.equal(calls(), 1)
  })

  t.test('a file that changed between being read and being looked at first is noticed', async (t) => {
    const folder = t.testdir({ a: '1' })
    const emitter = new EventEmitter()
    const changed = once(emitter, 'change')
    const watcher = watchFiles(() => [join(folder, 'a')], () => {
      emitter.emit('change')
    }, { interval_ms: 5, known: () => 'as it was when it was read' })
    t.teardown(() => {
      watcher.close()
    })
    await changed
    t.pass('noticed')
  })

  t.test('looks never overlap, and one that fails does not end the watch', async (t) => {
    let open = 0
    let most = 0
    let looks = 0
    const asked = new EventEmitter()
    const enough = once(asked, 'enough')
    const stat = async (): Promise<Stat> => {
      most = Math.max(most, ++open)
      await new Promise(setImmediate)
      await new Promise(setImmediate)
      open--
      if (++looks === 20) asked.emit('enough')
      if (looks % 2 === 0) throw new Error('the mount hangs')
      return { dev: 1n, ino: 1n, size: 1n, mtimeNs: 0n, ctimeNs: 0n }
    }
    await watched(t, () => ['a', 'b'], { stat, interval_ms: 1 })
    await enough
    t.equal(most, 1)
  })

  t.test('after close() nothing is told', async (t) => {
    const folder = t.testdir({ a: '1' })
    let calls = 0
    const watcher = watchFiles(() => [join(folder, 'a')], () => { calls++ }, { interval_ms: 1 })
    await watcher.ready
    watcher.close()
    writeFileSync(join(folder, 'a'), '2')
    const other = await watched(t, () => [join(folder, 'a')])
    const noticed = other.next()
    writeFileSync(join(folder, 'a'), '3')
    await noticed
    t.equal(calls, 0)
  })
})

t.test('an edit of any file of the configuration goes live', async (t) => {
  const folder = t.testdir({
    'gateway.yaml':
      'include: [more.yaml]\npipeline:\n  - auth\n  - use: ./mine.ts\nserver: { admin: { token: "${file:token}" } }\nupstreams: { a: { url: "simulator:", headers: { x-api-key: "${file:key}" } } }\n',
    'more.yaml': 'log: { level: info }\n',
    token: 'first-admin-token',
    key: 'first',
    'mine.ts': 'import { version } from "./version.ts"\nexport default { name: "mine", create: () => ({ version }) }\n',
    'version.ts': 'export const version: number = 1\n'
  })
  const { live: config, compiled } = live(t, join(folder, 'gateway.yaml'), { isThreaded: true })
  await config.start()
  await config.watch().ready
  const edit = async (name: string, text: string): Promise<void> => {
    const reloaded = config.reloaded()
    writeFileSync(join(folder, name), text)
    t.match(await reloaded, { ok: true, changed: true, reason: 'file' }, name)
  }
  await edit('more.yaml', 'log: { level: warn }\n')
  t.equal(config.current().config.log.level, 'warn')
  await edit('key', 'second\n')
  t.equal(config.current().config.upstreams.a!.headers['x-api-key'], 'second')
  await edit('version.ts', 'export const version: number = 2\n')
  const [plugin] = config.current().plugins.values()
  t.strictSame(plugin!.create({}, config.current().config, {} as never), { version: 2 })
  await edit('mine.ts', 'export default { name: "mine", create: () => ({ version: 3 }) }\n')
  t.equal(config.current().generation, 5)
  t.strictSame(compiled.map(({ retired }) => retired), [1, 1, 1, 1, 0], 'the old ones are retired once')
})

t.test('a file that is included newly is watched from then on; one that no longer is, is not', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': 'pipeline: [auth]\n', 'more.yaml': 'hook_timeout: 1s\n' })
  const { live: config } = live(t, join(folder, 'gateway.yaml'))
  await config.start()
  await config.watch().ready
  for (const [name, text, expected] of [['gateway.yaml', 'include: [more.yaml]\npipeline: [auth]\n', 1000], [
    'more.yaml',
    'hook_timeout: 2s\n',
    2000
  ]] as const) {
    const reloaded = config.reloaded()
    writeFileSync(join(folder, name), text)
    await reloaded
    t.equal(config.current().config.hook_timeout, expected)
  }
  await config.reload('sighup')
  t.strictSame(config.files().length, 2)
  writeFileSync(join(folder, 'gateway.yaml'), 'pipeline: [auth]\n')
  await config.reload('sighup')
  t.strictSame(config.files(), [join(folder, 'gateway.yaml')])
})

t.test('a configuration that is wrong changes nothing, and says why; the next good one goes live', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': yaml('1s') })
  const file = join(folder, 'gateway.yaml')
  const counted: string[] = []
  const logged: string[] = []
  const say = (level: string) => (facts: unknown, message?: string): void => {
    logged.push(`${level}: ${message ?? String(facts)}`)
  }
  const { live: config, compiled } = live(t, file, {
    services: {
      now: () => 0,
      metrics: { configLive: (generation) => {
        counted.push(`live ${generation}`)
      }, configRefused: () => {
        counted.push('refused')
      } },
      log: { info: say('info'), warn: say('warn'), error: say('error') } as never
    }
  })
  await config.start()
  const before = config.current()
  writeFileSync(file, yaml('1'))
  const result = await config.reload('sighup')
  t.match(result, { ok: false, changed: false, reason: 'sighup', generation: 1, at: '1970-01-01T00:00:00.000Z' })
  t.equal(formatProblem(result.problems[0]!),
    `${file}:2:15 /hook_timeout must be a duration such as 500ms, 3s, 2m or 1h, found 1 (did you mean 1s?)`)
  t.equal(config.current(), before)
  t.equal(before.retired, 0)
  t.match(config.status(), { generation: 1, last_reload: { ok: false, reason: 'sighup' }, problems: [{ line: 2 }],
    config: { hook_timeout: 1000 } })
  writeFileSync(file, yaml('1s'))
  t.match(await config.reload('sighup'), { ok: true, changed: false, generation: 1 }, 'back to what runs')
  t.strictSame(config.status().problems, [])
  writeFileSync(file, yaml('3s'))
  t.match(await config.reload('sighup'), { ok: true, changed: true, generation: 2 })
  t.equal(compiled.length, 2)
  t.strictSame(counted, ['live 1', 'refused', 'live 1', 'live 2'])
  t.strictSame(logged, [
    `info: ${file} was loaded`,
    `error: ${file} was refused; generation 1 stays live`,
    `info: ${file} was read again: nothing to apply`,
    `info: ${file} is live`
  ])
})

t.test('the first configuration must be good', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': 'pipelin: []\n' })
  const { live: config } = live(t, join(folder, 'gateway.yaml'))
  await t.rejects(config.start(), ConfigError)
  t.throws(() => config.current(), /no configuration is live/)
  t.throws(() => config.status(), /no configuration is live/)
})

t.test('a file that is gone leaves what runs, and is still watched', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': yaml('1s') })
  const file = join(folder, 'gateway.yaml')
  const { live: config } = live(t, file)
  await config.start()
  await config.watch().ready
  const gone = config.reloaded()
  rmSync(file)
  t.match(await gone, { ok: false, problems: [{ message: /^the file does not exist/ }] })
  const back = config.reloaded()
  writeFileSync(file, yaml('2s'))
  t.match(await back, { ok: true, generation: 2 })
})

t.test('whatever compile throws leaves what runs, and shows no secret', async (t) => {
  const folder = t.testdir({
    'gateway.yaml': yaml('1s', `accounts: [{ id: acme }]\nkeys: [{ id: k, account: acme, secret: ${KEY} }]\n`)
  })
  const file = join(folder, 'gateway.yaml')
  const place = { file, line: 9, column: 9, path: '/x', message: 'too much' }
  const thrown: unknown[] = [new ConfigError([place]), new Error(`no key like ${KEY}`),
    new GatewayError('service_unavailable', { cause: new Error('Redis is away') }), 'a text']
  const { live: config } = live(t, file, {
    compile (loaded, generation, plugins) {
      if (generation > 1 && thrown.length > 0) throw thrown.shift()
      return { config: loaded, generation, plugins, retired: 0, retire () {
        throw new Error('a retirement that fails is nobody else\'s problem')
      } }
    }
  })
  await config.start()
  writeFileSync(file, yaml('2s', `accounts: [{ id: acme }]\nkeys: [{ id: k, account: acme, secret: ${KEY} }]\n`))
  t.strictSame((await config.reload('sighup')).problems, [place])
  t.strictSame((await config.reload('sighup')).problems.map(formatProblem), [
    `${file}:1:1 could not be put to use: no key like ***`
  ])
  t.strictSame((await config.reload('sighup')).problems.map(formatProblem), [
    `${file}:1:1 could not be put to use: the store does not answer at this moment: Redis is away`
  ])
  t.strictSame((await config.reload('sighup')).problems.map(formatProblem), [
    `${file}:1:1 could not be put to use: a text`
  ])
  t.equal(config.current().generation, 1)
  const warned = once(process, 'warning')
  t.match(await config.reload('sighup'), { ok: true, generation: 2 }, 'tried again although the file has not changed')
  t.match(await warned, [{ message: /a retirement that fails/ }])
})

t.test('a compilation that takes too long is refused, and what it makes at last is retired at once', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': yaml('1s') })
  const file = join(folder, 'gateway.yaml')
  const late = Promise.withResolvers<Compiled>()
  const retired = Promise.withResolvers<void>()
  const went: number[] = []
  const { live: config } = live(t, file, {
    timeoutMs: 100,
    goLive: ({ generation }) => { went.push(generation) },
    async compile (loaded, generation, plugins) {
      return generation === 2 ? await late.promise : { config: loaded, generation, plugins, retired: 0, retire () {} }
    }
  })
  await config.start()
  writeFileSync(file, yaml('2s'))
  t.strictSame((await config.reload('sighup')).problems.map(({ message }) => message), [
    'could not be put to use: it was not ready within 0.1 s'
  ])
  t.equal(config.current().generation, 1)
  late.resolve({ ...config.current(), generation: 2, retire: () => { retired.resolve() } })
  await retired.promise
  t.equal(config.current().generation, 1)
  t.strictSame(went, [1])
})

t.test('only what goes live changes the ledger: not what is compiled and refused', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': yaml('1s', 'accounts: [{ id: acme }]\n') })
  const file = join(folder, 'gateway.yaml')
  const store = new MemoryStore()
  const refusals: (() => Promise<never>)[] = [
    () => { throw new Error('not today') },
    async () => { throw new Error('not tomorrow') }
  ]
  const made: Compiled[] = []
  const { live: config } = live(t, file, {
    async compile (loaded, generation, plugins) {
      const snapshot: Compiled = { config: loaded, generation, plugins, retired: 0, retire () { this.retired++ } }
      made.push(snapshot)
      if (generation > 1 && loaded.hook_timeout === 2000) await refusals.shift()?.()
      return snapshot
    },
    async goLive ({ config: { accounts } }) {
      if (accounts.some(({ opening_balance_usd: opening }) => opening === '7')) throw new Error('the ledger is full')
      await creditOpenings(accounts, store)
    }
  })
  const credited = async (): Promise<string[]> => {
    const entries: string[] = []
    for await (const { account, nanos } of store.entries()) entries.push(`${account} ${nanos}`)
    return entries
  }
  const reload = async (timeout: string, opening: number): Promise<readonly string[]> => {
    writeFileSync(file, yaml(timeout, `accounts: [{ id: acme }, { id: new, opening_balance_usd: ${opening} }]\n`))
    return (await config.reload('sighup')).problems.map(({ message }) => message)
  }
  await config.start()
  t.strictSame(await credited(), ['acme 0'])
  t.strictSame(await reload('2s', 50), ['could not be put to use: not today'])
  t.strictSame(await reload('2s', 500), ['could not be put to use: not tomorrow'])
  t.strictSame(await credited(), ['acme 0'])
  t.strictSame(await reload('4s', 7), ['could not be put to use: the ledger is full'])
  t.strictSame([config.current().generation, made.at(-1)!.retired], [1, 1], 'what could not go live is retired')
  t.strictSame(await reload('4s', 5), [])
  t.strictSame([config.current().generation, ...await credited()], [2, 'acme 0', 'new 5000000000'])
})

t.test('an opening balance that a ledger can count only once does not refuse the next start', async (t) => {
  const store = new MemoryStore()
  const accounts = [{ id: 'rich', opening_balance_usd: '9000000000' }] as unknown as readonly AccountConfig[]
  await creditOpenings(accounts, store)
  await creditOpenings(accounts, store)
  t.strictSame((await store.balance('rich')).balance, parseUsd('9000000000'))
})

t.test('reloads that are asked for during one are done once, after it', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': yaml('1s') })
  const file = join(folder, 'gateway.yaml')
  const { live: config, results } = live(t, file)
  await config.start()
  const first = config.reload('sighup')
  writeFileSync(file, yaml('2s'))
  const others = await Promise.all([config.reload('file'), config.reload('sighup'), config.reload('file')])
  await first
  t.equal(new Set(others).size, 1)
  t.equal(results.length, 3, 'start, the first, and one for the others')
  t.equal(config.current().config.hook_timeout, 2000)
})

t.test('a change of server: or store: waits for a restart and is said to; the rest is applied', async (t) => {
  const server = (token: string, more: string): string => `server:\n  admin: { token: ${token} }\n${more}`
  const folder = t.testdir({ 'gateway.yaml': yaml('1s', server('old-token', '  drain_timeout: 1s\n')) })
  const file = join(folder, 'gateway.yaml')
  const { live: config } = live(t, file)
  await config.start()
  writeFileSync(file,
    yaml('2s', server('new-token', '  body_limit: 1MB\n  trusted_proxies: [10.0.0.0/8]\nstore: { path: ./other }\n')))
  const { ok, changed, warnings } = await config.reload('sighup')
  t.strictSame([ok, changed], [true, true])
  const why = 'has changed: it needs a restart, and keeps its old value until then'
  t.strictSame(warnings.map((warning) => formatProblem(warning).replace(folder + '/', '')), [
    `gateway.yaml:3:1 /server/drain_timeout ${why}`,
    `gateway.yaml:4:12 /server/admin/token ${why}`,
    `gateway.yaml:5:3 /server/body_limit ${why}`,
    `gateway.yaml:6:3 /server/trusted_proxies ${why}`,
    `gateway.yaml:7:10 /store/path ${why}`
  ])
  const { config: applied } = config.current()
  t.match(applied, { hook_timeout: 2000,
    server: { admin: { token: 'old-token' }, trusted_proxies: [], drain_timeout: 1000, body_limit: 32 * 1024 ** 2 },
    store: { path: './data' } })
  t.ok(Object.isFrozen(applied))
  const again = await config.reload('sighup')
  t.match(again, { changed: false, generation: 2 })
  t.equal(again.warnings.length, 5, 'for as long as it differs')
  t.notMatch(JSON.stringify(config.status()), /old-token|new-token/)
})

t.test('the status shows no secret', async (t) => {
  const folder = t.testdir({
    secret: 'hunter2-file',
    'gateway.yaml': `
server: { admin: { token: hunter2-token } }
pipeline: [auth, rate-limit: { token: hunter2-option, note: "\${file:secret}" }]
upstreams: { a: { url: "simulator:", headers: { authorization: hunter2-header } } }
accounts: [{ id: acme }]
keys: [{ id: k, account: acme, secret: ${KEY} }]
`
  })
  const { live: config } = live(t, join(folder, 'gateway.yaml'))
  await config.start()
  const status = config.status()
  t.notMatch(JSON.stringify(status), /hunter2|k{32}/)
  t.match(status, { generation: 1, loaded_at: '1970-01-01T00:00:00.000Z', source: join(folder, 'gateway.yaml'),
    last_reload: { ok: true, reason: 'start' }, warnings: [] })
  t.match(status.config.pipeline[1]!.with, { token: '***', note: '***' })
})

t.test('a mounted ConfigMap: the swap of its symlink reloads what is included through it, too', async (t) => {
  const folder = t.testdir({})
  for (const [version, timeout] of [['v1', '1s'], ['v2', '2s']] as const) {
    mkdirSync(join(folder, version))
    writeFileSync(join(folder, version, 'gateway.yaml'), 'include: [more.yaml]\npipeline: [auth]\n')
    writeFileSync(join(folder, version, 'more.yaml'), `hook_timeout: ${timeout}\n`)
  }
  symlinkSync('v1', join(folder, '..data'))
  for (const name of ['gateway.yaml', 'more.yaml']) symlinkSync(`..data/${name}`, join(folder, name))
  const { live: config } = live(t, join(folder, 'gateway.yaml'))
  await config.start()
  t.equal(config.current().config.hook_timeout, 1000)
  await config.watch().ready
  const reloaded = config.reloaded()
  symlinkSync('v2', join(folder, '..tmp'))
  renameSync(join(folder, '..tmp'), join(folder, '..data'))
  t.match(await reloaded, { ok: true, generation: 2 })
  t.equal(config.current().config.hook_timeout, 2000)
})
