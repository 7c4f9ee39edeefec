// The command line, on real processes: what a newcomer sees, what is kept in the data folder, and every refusal in plain words.
import { execFile } from 'node:child_process'
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { once } from 'node:events'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { packageRoot } from '../src/package-root.ts'
import { directives } from '../src/simulator/faults.ts'
import { until } from './billing-client.ts'
import { printedCurl } from './newcomer.ts'
import { folderFor, run } from './spawned.ts'
import { answer, upstream } from './upstream.ts'

/** A configuration as small as the shipped one allows: no key, no admin token, every upstream the simulator. */
function small (more = '', upstreams = '  simulator: { url: "simulator:", dialect: messages, headers: { x-api-key: simulated } }'): string {
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

async function refused (t: Test, folder: string, args: readonly string[], options: { readonly uid?: number } = {}): Promise<string> {
  const { ended, stderr, stdout } = run(t, folder, args, options)
  t.strictSame(await ended, [1, null], args.join(' '))
  t.match(stdout(), /^(?:\{"level".*\}\n)*$/, 'on standard output there is the log and nothing else')
  t.notMatch(stderr(), /\n\s+at /, 'no stack')
  return stderr()
}

const asDemo = async (api: string, key: string): Promise<Response> => await fetch(api + '/v1/models', { headers: { 'x-api-key': key } })

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
  const secret = (name: string): string => readFileSync(join(folder, 'data', name), 'utf8').trim()
  const [token, key] = [secret('admin-token'), secret('demo-key')]
  t.match(token, /^[A-Za-z0-9]{32}$/)
  t.match(key, /^sk-gw-[A-Za-z0-9]{32}$/)
  t.ok(curl.includes(key))
  for (const name of ['admin-token', 'demo-key']) t.equal(statSync(join(folder, 'data', name)).mode & 0o777, 0o600, name)
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
  t.equal((await fetch(again.admin + '/admin/v1/config', { headers: { authorization: `Bearer ${token}` } })).status, 200, 'the same token')
  t.not(again.api, api)
})

await t.test('the demo key is off as soon as one upstream is not the simulator, and on again when all are', async (t) => {
  const real = await upstream(t, answer('hi'))
  const mixed = small('', `  simulator: { url: "simulator:", dialect: messages, headers: { x-api-key: simulated } }\n  vendor: { url: "${real.url}", dialect: messages }`)
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
  t.match(await refused.text(), /This is the demo key, which is off because not every upstream is the built-in simulator\./)
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

await t.test('a configuration with mistakes: all of them, with file, line and column, and exit code 1', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': small().replace('kind: text', 'kind: texts').replace('  api: {', '  apis: {') })
  const said = await refused(t, folder, ['start'])
  t.match(said, /gateway\.yaml:2:3 \/server\/apis .*did you mean "?api"?/)
  t.match(said, /gateway\.yaml:13:11 \/models\/0\/kind /)
})

await t.test('a configuration that is not there', async (t) => {
  t.match(await refused(t, folderFor(t), ['start', '--config', 'nowhere.yaml']), /nowhere\.yaml.*(?:no such file|does not exist|not found)/i)
})

await t.test('every command explains itself, and does nothing else', async (t) => {
  const folder = folderFor(t)
  const commands = ['start', 'check', 'explain', 'keys', 'keys create', 'accounts', 'accounts credit', 'accounts refund', 'accounts debit', 'ledger', 'ledger export', 'fleet', 'store', 'store export', 'simulate']
  for (const command of commands) {
    const { ended, stdout, stderr } = run(t, folder, [...command.split(' '), '--help'])
    t.strictSame(await ended, [0, null], command)
    t.match(stdout(), `gateway ${command}`, 'says how it is called')
    t.equal(stderr(), '')
    if (command === 'accounts credit') t.match(stdout(), 'credit ID USD --reference TEXT [--json]', 'what is needed stands in no brackets')
  }
  t.strictSame(readdirSync(folder).filter((name) => name !== 'gateway.log'), [], 'no data folder')
})

await t.test('a command that is not quite one: did you mean', async (t) => {
  for (const [args, says] of [
    [['chekc'], 'There is no command "chekc": did you mean "check"?'], [['account'], 'There is no command "account": did you mean "accounts"?'],
    [['constructor'], 'There is no command "constructor".'], [['store', 'exprot'], 'There is no command "store exprot": did you mean "export"?'],
    [['keys', 'crate'], 'There is no command "keys crate": did you mean "create"?']
  ] as const) t.match(await refused(t, folderFor(t), args), says)
})

await t.test('an address that is taken is named, in plain words', async (t) => {
  const server = createServer().listen(0, '127.0.0.1')
  t.teardown(() => { server.close() })
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  for (const name of ['api', 'public', 'admin']) {
    const said = await refused(t, folderFor(t, { 'gateway.yaml': small().replace(`${name}: { listen: "127.0.0.1:0" }`, `${name}: { listen: "127.0.0.1:${port}" }`) }), ['start'])
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
  t.match(await refused(t, closed, ['start'], isRoot ? { uid: 65534 } : {}), /data can't be used \(EACCES: permission denied.*Make it writable/)
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

await t.test('unknown commands, options and arguments: what it does not know, and the help', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': small() })
  for (const [args, what] of [[['serve'], '"serve"'], [['start', '--port', '80'], '--port'], [['start', 'gateway.yaml'], 'gateway.yaml'], [['check', '--yaml'], '--yaml']] as const) {
    const said = await refused(t, folder, args)
    t.match(said, what)
    t.match(said, /gateway start \[--config FILE\]/)
    t.match(said, /gateway check \[FILE\] \[--json\]/)
  }
  for (const args of [[], ['help'], ['--help'], ['-h']]) {
    const { ended, stdout } = run(t, folder, args)
    t.strictSame(await ended, [0, null])
    t.match(stdout(), /gateway start \[--config FILE\]/)
  }
  const { ended, stdout } = run(t, folder, ['--version'])
  t.strictSame(await ended, [0, null])
  t.match(stdout(), /^\d+\.\d+\.\d+\n$/)
})

await t.test('check: exit code 0 or 1, for people and as JSON', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': small(), 'bad.yaml': small().replace('kind: text', 'kind: texts') })
  const check = async (...args: string[]): Promise<[number | null, string]> => {
    const { ended, stdout, stderr } = run(t, folder, ['check', ...args])
    const [code] = await ended
    t.equal(stderr(), '')
    return [code, stdout()]
  }
  const [good, summary] = await check()
  t.equal(good, 0, 'gateway.yaml of the working folder')
  t.match(summary, /gateway\.yaml is valid: 1 model, 1 upstream, /)
  const [bad, problems] = await check('bad.yaml')
  t.equal(bad, 1)
  t.match(problems, /bad\.yaml:13:11 \/models\/0\/kind /)
  const [goodJson, verdict] = await check('gateway.yaml', '--json')
  t.equal(goodJson, 0)
  t.match(JSON.parse(verdict), { ok: true, problems: [] })
  const [badJson, list] = await check('--json', 'bad.yaml')
  t.equal(badJson, 1)
  t.match(JSON.parse(list), { ok: false, problems: [{ file: join(folder, 'bad.yaml'), line: 13, column: 11, path: '/models/0/kind' }] })
  t.throws(() => statSync(join(folder, 'data')), { code: 'ENOENT' }, 'and it has left nothing behind')
})

await t.test('simulate --help lists every flag and directive; a wrong flag says so', async (t) => {
  const folder = folderFor(t)
  const help = run(t, folder, ['simulate', '--help'])
  t.strictSame(await help.ended, [0, null])
  for (const flag of ['--listen', '--delay', '--error-rate', '--cut-after', '--seed']) t.match(help.stdout(), flag)
  for (const name of Object.keys(directives)) t.match(help.stdout(), new RegExp(`^  ${name}\\b`, 'm'))
  const wrong = run(t, folder, ['simulate', '--sped', '3'])
  const [code] = await wrong.ended
  t.equal(code, 2)
  t.match(wrong.stderr(), /--sped.*\n.*simulate --help/)
})
