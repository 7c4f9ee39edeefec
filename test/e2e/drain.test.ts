// Signals, on a real process: SIGTERM drains, a second signal does not wait, SIGHUP reads the configuration again.
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { Agent, type IncomingMessage, request } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { ask, errorOf, textOf, type Got } from '../support/billing-client.ts'
import { KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { folderFor, run, type Spawned } from '../support/spawned.ts'
import { until } from '../support/until.ts'
import { answer, blockStart, messageEnd, messageStart, stall, step, textBlock, textDelta, upstream, wait, type Script,
  type Upstream } from '../support/upstream.ts'

interface Running {
  readonly gateway: Spawned
  readonly api: string
  readonly admin: string
}

async function start (t: Test, up: Upstream, server: string): Promise<Running> {
  const gateway = run(t, folderFor(t, { 'gateway.yaml': yaml([up.url]).replace('drain_timeout: 5s', server) }), [
    'start',
    '--config',
    'gateway.yaml'
  ])
  return { gateway, ...await gateway.urls() }
}

const headers = { 'x-api-key': KEY }
const readyz = async (admin: string): Promise<number> => (await fetch(admin + '/readyz')).status

/** Whether somebody accepts a new connection. */
async function isListening (url: string): Promise<boolean> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  try {
    await once(socket, 'connect')
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}

/** A GET over a connection that is kept: what the answer says about its future, and whether it was an old one. */
async function get (
  url: string,
  agent: Agent
): Promise<{ readonly status: number, readonly connection: string | undefined, readonly isReused: boolean }> {
  const asking = request(url, { agent, headers }).end()
  const [response] = await once(asking, 'response') as [IncomingMessage]
  response.resume()
  await once(response, 'end')
  return { status: response.statusCode!, connection: response.headers.connection, isReused: asking.reusedSocket }
}

const words = (
  ...pieces: readonly string[]
): Script => [messageStart(), blockStart(0), pieces.map((piece) => textDelta(0, piece))]

await t.test('SIGTERM: not ready at once, accepts for drain_delay, then no more; a running stream ends whole; exit code 0', async (t) => {
  const end = Promise.withResolvers<void>()
  const up = await upstream(t, [messageStart(), textBlock(0, 'The', ' quick'), wait(end.promise), messageEnd()])
  const { gateway, api, admin } = await start(t, up, 'drain_delay: 2s\n  drain_timeout: 60s')
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  t.teardown(() => { agent.destroy() })
  t.strictSame(await get(api + '/v1/models', agent), { status: 200, connection: 'keep-alive', isReused: false })
  await until(async () => await readyz(admin) === 200)

  const begun = Promise.withResolvers<void>()
  const streaming = ask(api + '/v1/messages', { ...messagesRequest, stream: true }, { headers, onEvent: () => {
    begun.resolve()
  } })
  await begun.promise
  gateway.child.kill('SIGTERM')
  await until(async () => await readyz(admin) === 503)
  t.same(await (await fetch(admin + '/readyz')).json(), { ready: false, reasons: ['draining'] })
  t.equal((await fetch(admin + '/healthz')).status, 200, 'alive it is')
  t.ok(await isListening(api), 'within drain_delay a load balancer that has not looked yet still reaches it')
  const drained = await get(api + '/v1/models', agent)
  t.strictSame(drained, { status: 200, connection: 'close', isReused: true },
    'a kept connection is served, and told to go')

  await until(async () => !await isListening(api))
  t.equal(await readyz(admin), 503, 'the admin listener answers until the last')
  t.equal(gateway.child.exitCode, null, 'the stream is waited for')
  end.resolve()
  const got = await streaming
  t.equal(textOf(got.events), 'The quick')
  t.equal(got.events.at(-1)?.event, 'message_stop')
  t.strictSame(await gateway.ended, [0, null])
  t.match(gateway.log().find(({ msg, stream }) => msg === 'request' && stream === true), { outcome: 'completed',
    status: 200 }, 'its line is in the log')
})

await t.test('a stream that outlives drain_timeout is ended in-band and pays for what was produced; JSON in flight is 503; exit code 0', async (t) => {
  const up = await upstream(t,
    (received) => received.body?.['stream'] === true ? [words('The', ' quick', ' brown'), stall()] : stall())
  const { gateway, api } = await start(t, up, 'drain_timeout: 300ms')
  const begun = Promise.withResolvers<void>()
  const both = Promise.all([
    ask(api + '/v1/messages', { ...messagesRequest, stream: true }, { headers, onEvent: (count) => {
      if (count === 5) begun.resolve()
    } }),
    ask(api + '/v1/messages', messagesRequest, { headers })
  ])
  await Promise.all([begun.promise, up.nextRequest().then(() => up.nextRequest())])
  gateway.child.kill('SIGTERM')
  const [stream, whole] = await both

  t.equal(textOf(stream.events), 'The quick brown')
  t.strictSame([stream.status, stream.ended, stream.events.at(-1)?.event], [200, 'whole', 'error'],
    'the stream is ended as HTTP says, after its error')
  // Three tokens at 15,000 nano-dollars; the input is not charged, for it was not the client who cut.
  t.match(errorOf(stream), { code: 'stream_incomplete', charged_usd: '0.000045' })
  t.equal(whole.status, 503)
  t.match(errorOf(whole), { code: 'service_unavailable', charged_usd: '0' })
  t.match(whole.headers['retry-after'], /^[1-9]\d?$/)

  t.strictSame(await gateway.ended, [0, null])
  const lines = gateway.log().filter(({ msg }) => msg === 'request')
  t.equal(lines.length, 2)
  t.match(lines.find(({ stream }) => stream === true), { outcome: 'interrupted', by: 'gateway',
    code: 'stream_incomplete', nanos: '45000', usage: { input: 0, output: 3 }, usage_source: 'estimated' })
  t.match(lines.find(({ stream }) => stream === false), { outcome: 'failed', code: 'service_unavailable',
    nanos: undefined })
})

await t.test('a second signal ends it at once, whatever still runs', async (t) => {
  const up = await upstream(t, [words('The'), stall()])
  const { gateway, api, admin } = await start(t, up, 'drain_timeout: 60s')
  const begun = Promise.withResolvers<void>()
  const streaming = ask(api + '/v1/messages', { ...messagesRequest, stream: true }, { headers, onEvent: () => {
    begun.resolve()
  } })
  await begun.promise
  gateway.child.kill('SIGTERM')
  await until(async () => await readyz(admin) === 503)
  gateway.child.kill('SIGINT')
  t.strictSame(await gateway.ended, [1, null])
  t.equal((await streaming).ended, 'cut')
  t.ok(gateway.log().some(({ msg, signal }) => msg === 'draining' && signal === 'SIGTERM'))
})

/** A plugin with a defect that no hook of its sees: outside of the request that began it. */
const BREAKING = `export default { name: 'breaking', create: () => ({
  onHead ({ received }) {
    if (received.headers['x-break'] === 'timer') setTimeout(() => { throw new Error('a defect of a timer') }, 1)
    if (received.headers['x-break'] === 'promise') void Promise.reject(new Error('a defect of a promise'))
  }
}) }`

for (const what of ['timer', 'promise']) {
  await t.test(`an error of a ${what} that nobody caught: no new connections, streams end in-band and pay, exit code 1, and the log says what it was`, async (t) => {
    const up = await upstream(t, [words('The', ' quick', ' brown'), stall()])
    const settings = yaml([up.url], '',
      '{ use: ./breaking.mjs }, auth, chat-to-messages, channel-router, billing-meter, error-normalize').replace(
        'drain_timeout: 5s',
        'drain_delay: 60s\n  drain_timeout: 4s'
      )
    const gateway = run(
      t, folderFor(t, { 'gateway.yaml': settings, 'breaking.mjs': BREAKING }), ['start', '--config', 'gateway.yaml']
    )
    const { api, admin } = await gateway.urls()
    const begun = Promise.withResolvers<void>()
    const streaming = ask(api + '/v1/messages', { ...messagesRequest, stream: true }, { headers, onEvent: (count) => {
      if (count === 5) begun.resolve()
    } })
    await begun.promise
    t.equal((await fetch(api + '/v1/models', { headers: { ...headers, 'x-break': what } })).status, 200,
      'who broke it is answered')
    await until(async () => await readyz(admin) === 503)
    await until(async () => !await isListening(api))
    const got = await streaming
    t.strictSame([got.status, got.ended, got.events.at(-1)?.event], [200, 'whole', 'error'])
    t.match(errorOf(got), { code: 'stream_incomplete', charged_usd: '0.000045' })
    t.strictSame(await gateway.ended, [1, null])
    t.match(gateway.log().find(({ level }) => level === 'fatal'), {
      err: { message: `a defect of a ${what}`, stack: /breaking\.mjs/ },
      origin: what === 'timer' ? 'uncaughtException' : 'unhandledRejection'
    })
    t.match(gateway.log().find(({ msg, stream }) => msg === 'request' && stream === true), { outcome: 'interrupted',
      by: 'gateway', nanos: '45000' })
  })
}

await t.test('a drain that can\'t end, because a plugin never does, is given up after an error that nobody caught', async (t) => {
  const up = await upstream(t, [words('The'), stall()])
  const settings = yaml([up.url], '',
    '{ use: ./breaking.mjs }, { use: ./hanging.mjs }, auth, chat-to-messages, channel-router, billing-meter, error-normalize')
    .replace('drain_timeout: 5s', 'drain_timeout: 2s\nhook_timeout: 10m')
  const hanging =
    'export default { name: \'hanging\', create: () => ({ onHead (exchange) { exchange.onFinish(() => new Promise(() => {})) }, close: () => new Promise(() => {}) }) }'
  const gateway = run(t, folderFor(t, { 'gateway.yaml': settings, 'breaking.mjs': BREAKING, 'hanging.mjs': hanging }), [
    'start',
    '--config',
    'gateway.yaml'
  ])
  const { api } = await gateway.urls()
  t.equal((await fetch(api + '/v1/models', { headers: { ...headers, 'x-break': 'timer' } })).status, 200)
  t.strictSame(await gateway.ended, [1, null])
})

await t.test('N12: SIGTERM ends the process, though a thread in native code never answers', async (t) => {
  const settings = yaml([(await upstream(t, answer('hi'))).url], '',
    '{ use: ./stuck.mjs }, auth, chat-to-messages, channel-router, billing-meter, error-normalize')
    .replace('drain_timeout: 5s', 'drain_timeout: 2s')
  // A call of the system, which `terminate` does not stop. The child ends with the gateway.
  const stuck = `import { isMainThread, Worker } from 'node:worker_threads'
if (isMainThread) new Worker(\`require('node:child_process').execFileSync(process.execPath,
  ['-e', 'const parent = process.ppid; setInterval(() => { if (process.ppid !== parent) process.exit() }, 50)'],
  { stdio: 'ignore' })\`, { eval: true }).unref()
export default { name: 'stuck', create: () => ({}) }`
  for (const signals of [['SIGTERM'], ['SIGTERM', 'SIGINT']] as const) {
    const gateway = run(t, folderFor(t, { 'gateway.yaml': settings, 'stuck.mjs': stuck }), ['start', '--config',
      'gateway.yaml'])
    await gateway.urls()
    for (const signal of signals) gateway.child.kill(signal)
    t.strictSame(await gateway.ended, [null, 'SIGKILL'], signals.join(', '))
    if (signals.length === 1) t.match(gateway.log().at(-1), { level: 'fatal', threads: 1 })
  }
})

await t.test('an idle gateway ends as soon as it is told', async (t) => {
  const { gateway } = await start(t, await upstream(t, answer('hi')), 'drain_timeout: 60s')
  gateway.child.kill('SIGINT')
  t.strictSame(await gateway.ended, [0, null])
})

await t.test('a client that takes its time with a whole answer gets all of it, though the drain has begun', async (t) => {
  const text = 'x'.repeat(12_000_000)
  const up = await upstream(t, answer(text))
  const { gateway, api, admin } = await start(t, up, 'drain_timeout: 60s')
  const go = Promise.withResolvers<void>()
  const hasHead = Promise.withResolvers<void>()
  const asking: Promise<Got> = ask(api + '/v1/messages', messagesRequest, { headers, onHead: () => {
    hasHead.resolve()
    return go.promise
  } })
  await hasHead.promise
  gateway.child.kill('SIGTERM')
  await until(async () => await readyz(admin) === 503)
  go.resolve()
  const got = await asking
  t.equal(got.ended, 'whole')
  t.equal((got.body?.['content'] as { text: string }[])[0]!.text.length, text.length)
  t.strictSame(await gateway.ended, [0, null])
})

await t.test('SIGHUP reads the configuration again: unchanged, better, and broken', async (t) => {
  const hold = Promise.withResolvers<void>()
  let isHolding = false
  const up = await upstream(t, [words('The'), step(async () => { if (isHolding) await hold.promise }), messageEnd()])
  const { gateway, api, admin } = await start(t, up, 'drain_timeout: 5s')
  const file = join(gateway.folder, 'gateway.yaml')
  const text = readFileSync(file, 'utf8')
  interface Status {
    readonly generation: number
    readonly last_reload: { readonly ok: boolean, readonly at: string, readonly reason: string }
    readonly problems: readonly { readonly line: number }[]
  }
  const status = async (): Promise<Status> =>
    await (await fetch(admin + '/admin/v1/config', { headers: { authorization: 'Bearer test-admin-token' } }))
      .json() as Status
  const reloaded = async (): Promise<Status> => {
    const { last_reload: { at } } = await status()
    gateway.child.kill('SIGHUP')
    return await until(async () => {
      const now = await status()
      return now.last_reload.at !== at && now.last_reload.reason === 'sighup' && now
    })
  }

  t.match(await reloaded(), { generation: 1, last_reload: { ok: true } }, 'nothing to apply')
  isHolding = true
  const begun = Promise.withResolvers<void>()
  const streaming = ask(api + '/v1/messages', { ...messagesRequest, stream: true }, { headers, onEvent: () => {
    begun.resolve()
  } })
  await begun.promise
  writeFileSync(file, text.replace('Model One', 'Model Two'))
  t.match(await reloaded(), { generation: 2, last_reload: { ok: true } })
  writeFileSync(file, text.replace('provider: acme', 'provider: [acme'))
  const refused = await reloaded()
  t.match(refused, { generation: 2, last_reload: { ok: false } })
  t.ok(refused.problems.length > 0 && refused.problems[0]!.line > 0)
  hold.resolve()
  const got = await streaming
  t.equal(got.events.at(-1)?.event, 'message_stop', 'the stream from before noticed nothing')
  t.equal(got.headers['x-gateway-config-generation'], '1')
  t.equal((await fetch(api + '/v1/models', { headers })).headers.get('x-gateway-config-generation'), '2')
  gateway.child.kill('SIGTERM')
  t.strictSame(await gateway.ended, [0, null])
})
