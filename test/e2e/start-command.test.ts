// `gateway start` on real processes: what a newcomer sees, what is kept in the data folder, and every refusal of a
// configuration or a machine in plain words.
import { execFile } from 'node:child_process'
import { chmodSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { once } from 'node:events'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { printedCurl } from '../support/newcomer.ts'
import { folderFor, run } from '../support/spawned.ts'
import { until } from '../support/until.ts'
import { answer, upstream } from '../support/upstream.ts'

/** A configuration as small as the shipped one allows: no key, no admin token, every upstream the simulator. */
function small (
  more = '',
  upstreams = '  simulator: { url: "simulator:", dialect: messages, headers: { x-api-key: simulated } }'
): string {
  return `server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0" }
store: { driver: memory, path: ./data }
pipeline: [auth, channel-router, billing-meter, error-normalize]
upstreams:
${upstreams}
models:
  - id: m1
    name: Model One
    provider: acme
    kind: text
    created: 2025-09-29
    channels:
      premium:
        price: { input: 3, output: 15 }
        targets: [{ upstream: simulator, model: vendor-m1 }]
${more}`
}

async function refused (
  t: Test,
  folder: string,
  args: readonly string[],
  options: { readonly uid?: number } = {}
): Promise<string> {
  const { ended, stderr, stdout } = run(t, folder, args, options)
  const [code, signal] = await ended
  const isConfig = args[0] === 'start' && /configuration can't be used/.test(stderr())
  t.strictSame([code, signal], [isConfig ? 78 : 1, null], args.join(' '))
  t.match(stdout(), /^(?:\{"level".*\}\n)*$/, 'on standard output there is the log and nothing else')
  t.notMatch(stderr(), /\n\s+at /, 'no stack')
  return stderr()
}

const asDemo = async (api: string, key: string): Promise<Response> =>
  await fetch(api + '/v1/models', { headers: { 'x-api-key': key } })

await t.test('start prints a curl that works as it is; what it generated is for its owner alone and survives a restart', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': small() })
  const first = run(t, folder, ['start'])
  const curl = await printedCurl(first.child)
  const { stdout } = await promisify(execFile)('bash', ['-c', curl])
  t.match(stdout, /^event: message_start$/m)
  t.match(stdout, /^event: content_block_delta$/m)
  t.ok(stdout.endsWith('event: message_stop\ndata: {"type":"message_stop"}\n\n'))

  const { api, admin } = await first.urls()
  t.match(first.stderr(), 'admin token in data/admin-token')
  for (const signal of ['SIGUSR1', 'SIGUSR2'] as const) first.child.kill(signal)
  await until(async () => (await fetch(`${admin}/healthz`)).status === 200)
  t.notMatch(first.stderr(), 'Debugger listening')
  const secret = (name: string): string => readFileSync(join(folder, 'data', name), 'utf8').trim()
  const [token, key] = [secret('admin-token'), secret('demo-key')]
  t.match(token, /^[A-Za-z0-9]{32}$/)
  t.match(key, /^sk-gw-[A-Za-z0-9]{32}$/)
  t.ok(curl.includes(key))
  for (const name of ['admin-token', 'demo-key']) {
    t.equal(statSync(join(folder, 'data', name)).mode & 0o777, 0o600, name)
  }
  t.equal(statSync(join(folder, 'data')).mode & 0o777, 0o700, 'the folder, too')
  t.equal((await fetch(admin + '/admin/v1/config', { headers: { authorization: `Bearer ${token}` } })).status, 200)
  t.notMatch(first.stderr(), token, 'the token itself is not printed')
  first.child.kill('SIGTERM')
  t.strictSame(await first.ended, [0, null])
  t.notMatch(first.stdout(), new RegExp(`${token}|${key}`), 'and neither is in the log')

  const second = run(t, folder, ['start', '--config', 'gateway.yaml'])
  t.ok((await printedCurl(second.child)).includes(key), 'the same key')
  const again = await second.urls()
  t.equal((await asDemo(again.api, key)).status, 200)
  t.equal((await fetch(again.admin + '/admin/v1/config', { headers: { authorization: `Bearer ${token}` } })).status,
    200, 'the same token')
  t.not(again.api, api)
})

await t.test('the demo key is off as soon as one upstream is not the simulator, and on again when all are', async (t) => {
  const real = await upstream(t, answer('hi'))
  const mixed = small('',
    `  simulator: { url: "simulator:", dialect: messages, headers: { x-api-key: simulated } }\n  vendor: { url: "${real.url}", dialect: messages }`)
  const folder = folderFor(t, { 'gateway.yaml': small() })
  const first = run(t, folder, ['start'])
  await printedCurl(first.child)
  const { api } = await first.urls()
  const key = readFileSync(join(folder, 'data/demo-key'), 'utf8').trim()
  t.equal((await asDemo(api, key)).status, 200)
  writeFileSync(join(folder, 'gateway.yaml'), mixed)
  await until(async () => (await asDemo(api, key)).status === 401)
  writeFileSync(join(folder, 'gateway.yaml'), small())
  await until(async () => (await asDemo(api, key)).status === 200)
  first.child.kill('SIGTERM')
  await first.ended

  writeFileSync(join(folder, 'gateway.yaml'), mixed)
  const second = run(t, folder, ['start'])
  const urls = await second.urls()
  const refused = await asDemo(urls.api, key)
  t.equal(refused.status, 401)
  t.match(await refused.text(),
    /This is the demo key, which is off because not every upstream is the built-in simulator\./)
  t.match(second.stderr(), /the demo key is off, because not every upstream is the built-in simulator\n/)
  t.notMatch(second.stderr(), /curl|sk-gw-/, 'and no curl is printed')
  second.child.kill('SIGTERM')
  await second.ended

  // Keys that begin with something of one's own.
  writeFileSync(join(folder, 'gateway.yaml'), small().replace(/auth\b/, 'auth: { prefix: acme- }'))
  const third = run(t, folder, ['start'])
  t.equal((await asDemo((await third.urls()).api, key)).status, 401)
  t.match(third.stderr(), /the demo key is off, because keys of this gateway begin with "acme-" now\n/)
  third.child.kill('SIGTERM')
  await third.ended
  rmSync(join(folder, 'data'), { recursive: true })
  const fourth = run(t, folder, ['start'])
  const { api: ownApi } = await fourth.urls()
  const own = readFileSync(join(folder, 'data/demo-key'), 'utf8').trim()
  t.match(own, /^acme-[A-Za-z0-9]{32}$/)
  t.equal((await asDemo(ownApi, own)).status, 200)
})

await t.test('a configuration with mistakes: all of them, with file, line and column, and its exit code', async (t) => {
  const folder = folderFor(t, {
    'gateway.yaml': small().replace('kind: text', 'kind: texts').replace('  api: {', '  apis: {')
  })
  const said = await refused(t, folder, ['start'])
  t.match(said, /gateway\.yaml:2:3 \/server\/apis .*did you mean "?api"?/)
  t.match(said, /gateway\.yaml:13:11 \/models\/0\/kind /)
})

await t.test('a configuration that is not there', async (t) => {
  t.match(await refused(t, folderFor(t), ['start', '--config', 'nowhere.yaml']),
    /nowhere\.yaml.*(?:no such file|does not exist|not found)/i)
})

await t.test('an address that is taken is named, in plain words', async (t) => {
  const server = createServer().listen(0, '127.0.0.1')
  t.teardown(() => { server.close() })
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  for (const name of ['api', 'public', 'admin']) {
    const said = await refused(t, folderFor(t, {
      'gateway.yaml': small().replace(`${name}: { listen: "127.0.0.1:0" }`, `${name}: { listen: "127.0.0.1:${port}" }`)
    }), ['start'])
    t.match(said, `another process listens at this address already: 127.0.0.1:${port}. Change server.${name}.listen`)
    t.notMatch(said, /EADDRINUSE|API /, 'and it does not say that it runs')
  }
})

await t.test('a data folder that can not be written says which it is and what to do', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': small(), data: 'a file where a folder should be' })
  const said = await refused(t, folder, ['start'])
  t.match(said, join(folder, 'data'))
  t.match(said, /can't be used .*Make it writable for this user, or name another one in store\.path/)

  // Root may write anywhere: as root, somebody else tries, where somebody else may read this checkout.
  const isRoot = process.getuid?.() === 0
  if (isRoot && !(isOpenToAll(join(packageRoot, 'src')) && isOpenToAll(process.execPath))) return
  const closed = folderFor(t, { 'gateway.yaml': small() })
  mkdirSync(join(closed, 'data'))
  chmodSync(join(closed, 'data'), isRoot ? 0o755 : 0o555)
  chmodSync(closed, 0o755)
  t.match(await refused(t, closed, ['start'], isRoot ? { uid: 65534 } : {}),
    /data can't be used \(EACCES: permission denied.*Make it writable/)
})

/** Each folder on the way to it, and it. */
function isOpenToAll (file: string): boolean {
  return (statSync(file).mode & 0o001) !== 0 && (dirname(file) === file || isOpenToAll(dirname(file)))
}

await t.test('a secret file that is empty lets nobody in', async (t) => {
  for (const name of ['admin-token', 'demo-key']) {
    const folder = folderFor(t, { 'gateway.yaml': small() })
    mkdirSync(join(folder, 'data'))
    writeFileSync(join(folder, 'data', name), '\n')
    t.match(await refused(t, folder, ['start']), new RegExp(`data/${name} is empty\\. Delete it`))
  }
})
