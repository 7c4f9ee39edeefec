// A reload while the gateway works: what runs ends on the configuration that it began with, what comes gets the new one, and
// a configuration that is wrong changes nothing (lesson 24).
import { EventEmitter, once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, type IncomingMessage, request as httpRequest } from 'node:http'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { ReloadResult } from '../src/config/live.ts'
import { startProcess } from './gateway-process.ts'
import { gateway, KEY, messagesRequest, type TestGateway, yaml } from './gateway.ts'
import { answer, blockStart, blockStop, eventBytes, messageEnd, messageStart, step, textDelta, upstream, type Upstream, wait } from './upstream.ts'

// The load: streams that go on for as long as the test wants, and a configuration of many files.

const STREAMS = 300
/** Good and bad ones. */
const RELOADS = 50
/** Each stream gets an event every TICK_MS × GROUPS. */
const TICK_MS = 20
const GROUPS = 10

/**
 * The goals are 1 s and 50 ms. They are asserted with RELOAD_STRICT=1, on a machine that has nothing else to do; the loose
 * bounds are for one whose two cores are shared by other tests, where the scheduler alone takes longer. What was measured is
 * printed in either case.
 */
const isStrict = process.env['RELOAD_STRICT'] === '1'
const NEW_WITHIN_MS = isStrict ? 1000 : 10_000
const STALL_MS = isStrict ? 50 : 1000

interface Sent {
  /** what the upstream wrote, and which secret it was called with */
  readonly events: Buffer[]
  /** as the client calls it */
  readonly model: string
  readonly secret: unknown
  readonly socket: Socket
}

interface Received {
  readonly id: string
  readonly generation: number
  readonly bytes: Buffer
  /** of each event, from the upstream's write to the client's read */
  readonly lags: readonly number[]
}

/** What one generation of the configuration says. */
interface State {
  readonly step: number
  readonly models: number
  /** whether the upstream `leaving` is there, and the model m2 that it sells */
  readonly hasLeaving: boolean
  readonly secret: string
  /** of the code of the plugin */
  readonly version: number
  readonly route: boolean
}

class Load {
  readonly #folder: string
  readonly #written = new Map<string, string>()
  readonly #ticks = new EventEmitter().setMaxListeners(0)
  readonly #timer: NodeJS.Timeout
  readonly #finishing = new Set<string>()
  readonly #agent = new Agent({ keepAlive: false, maxSockets: Infinity })
  readonly #pollAgent = new Agent({ keepAlive: true })
  #opened = 0
  readonly sent = new Map<string, Sent>()
  readonly open = new Map<string, { readonly generation: number, readonly ended: Promise<Received> }>()
  staying!: Upstream
  leaving!: Upstream

  constructor (t: Test) {
    this.#folder = mkdtempSync(path.join(tmpdir(), 'gateway-reload-'))
    let tick = 0
    this.#timer = setInterval(() => { this.#ticks.emit(String(tick++ % GROUPS)) }, TICK_MS)
    t.teardown(() => {
      clearInterval(this.#timer)
      this.#agent.destroy()
      this.#pollAgent.destroy()
      rmSync(this.#folder, { recursive: true, force: true })
    })
  }

  get file (): string {
    return path.join(this.#folder, 'gateway.yaml')
  }

  async start (t: Test): Promise<void> {
    const script = step(async ({ request: { body, headers }, response, gone }) => {
      const id = (body!['messages'] as { readonly content: string }[])[0]!.content
      const sent: Sent = { events: [], model: (body!['model'] as string).replace('vendor-', ''), secret: headers['x-api-key'], socket: response.socket! }
      this.sent.set(id, sent)
      const say = (event: string, data: unknown): void => {
        const bytes = eventBytes(event, data)
        sent.events.push(bytes)
        response.write(bytes)
      }
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      say('message_start', startedMessage('upstream-model'))
      say('content_block_start', { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } })
      for (let i = 0; !this.#finishing.has(id) && !gone.aborted; i++) {
        say('content_block_delta', { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: `${i} é€😀 @${performance.now()}@` } })
        await once(this.#ticks, String(Number(id) % GROUPS))
      }
      say('content_block_stop', { type: 'content_block_stop', index: 0 })
      say('message_delta', { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: { output_tokens: 5 } })
      say('message_stop', { type: 'message_stop' })
    })
    this.staying = await upstream(t, script)
    this.leaving = await upstream(t, script)
  }

  /** Writes what has changed, and nothing else. `broken` replaces files. */
  write (state: State, broken: Readonly<Record<string, string>> = {}): void {
    const files: Record<string, string> = {
      'config/models.yaml': models(state),
      'secret': state.secret + '\n',
      'mark.ts': `export const version: number = ${state.version}\n`,
      'marker.ts': MARKER,
      'gateway.yaml': this.#yaml(state),
      ...broken
    }
    mkdirSync(path.join(this.#folder, 'config'), { recursive: true })
    for (const [name, text] of Object.entries(files)) {
      if (this.#written.get(name) === text) continue
      this.#written.set(name, text)
      writeFileSync(path.join(this.#folder, name), text)
    }
  }

  #yaml ({ step, hasLeaving, route }: State): string {
    return `
server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: test-admin-token }
store: { driver: memory, path: ./data }
include: [config/models.yaml]
pipeline: [auth, { use: ./marker.ts, with: { step: ${step} } }, channel-router, billing-meter, error-normalize]
upstreams:
  staying: { url: "${this.staying.url}", dialect: messages, headers: { x-api-key: "\${file:./secret}" } }
${hasLeaving ? `  leaving: { url: "${this.leaving.url}", dialect: messages, headers: { x-api-key: "\${file:./secret}" } }` : ''}
accounts: [{ id: acme, opening_balance_usd: 1000000 }]
keys: [{ id: acme-dev, account: acme, secret: ${KEY} }]
${route ? 'routes: [{ match: GET /extra, serve: models }]' : ''}
`
  }

  /** Opens a stream; resolves when its head is there. */
  async openStream (api: string, model: string): Promise<number> {
    const id = String(this.#opened++)
    const request = httpRequest(api + '/v1/messages', { method: 'POST', agent: this.#agent, headers: { 'x-api-key': KEY, 'content-type': 'application/json' } })
    request.end(JSON.stringify({ ...messagesRequest, model, stream: true, messages: [{ role: 'user', content: id }] }))
    const [response] = await once(request, 'response') as [IncomingMessage]
    if (response.statusCode !== 200) throw new Error(`stream ${id} got status ${response.statusCode}`)
    const generation = Number(response.headers['x-gateway-config-generation'])
    const chunks: Buffer[] = []
    const lags: number[] = []
    response.on('data', (chunk: Buffer) => {
      const now = performance.now()
      chunks.push(chunk)
      for (const [, at] of chunk.toString('latin1').matchAll(/@([\d.]+)@/g)) lags.push(now - Number(at))
    })
    const ended = once(response, 'end').then(() => ({ id, generation, bytes: Buffer.concat(chunks), lags }))
    ended.catch(() => {})                      // whoever asks for it is told
    this.open.set(id, { generation, ended })
    return generation
  }

  /** Lets these streams come to their end. */
  async finish (ids: readonly string[]): Promise<Received[]> {
    const ended = ids.map((id) => this.open.get(id)!.ended)
    for (const id of ids) {
      this.#finishing.add(id)
      this.open.delete(id)
    }
    return await Promise.all(ended)
  }

  /** One small request: the generation that it was served on, and its status. */
  async poll (api: string, where = '/v1/models/m1'): Promise<readonly [generation: number, status: number]> {
    const request = httpRequest(api + where, { agent: this.#pollAgent, headers: { 'x-api-key': KEY } }).end()
    const [response] = await once(request, 'response') as [IncomingMessage]
    response.resume()
    await once(response, 'end')
    return [Number(response.headers['x-gateway-config-generation']), response.statusCode!]
  }
}

function startedMessage (model: string): unknown {
  return { type: 'message_start', message: { id: 'msg_1', type: 'message', role: 'assistant', model, content: [], stop_reason: null, stop_sequence: null, usage: { input_tokens: 10, output_tokens: 1 } } }
}

/** Says at the end of each stream which code and which options it began with; and in the log, when it is closed. */
const MARKER = `
import { definePlugin, SseEvent } from 'model-gateway'
import { version } from './mark.ts'
export default definePlugin<{ readonly step: number }>({
  name: 'marker',
  schema: { type: 'object', required: ['step'], properties: { step: { type: 'integer', description: 'Which step this is.' } } },
  create: ({ step }, _config, { log }) => ({
    onStream: () => ({ event: (event) => event, end: () => [SseEvent.of('mark', { step, version })] }),
    close () { log.info({ step }, 'marker closed') }
  })
})
`

function models ({ models: count, hasLeaving }: State): string {
  const one = (id: string, upstream: string): string => `
  - id: ${id}
    name: Model ${id}
    provider: acme
    kind: text
    created: 2025-09-29
    family: acme
    context: 200000
    max_output: 64000
    accepts: [text, image]
    channels:
      premium:
        price: { input: 3, output: 15, cache_read: 0.30, cache_write_5m: 3.75, cache_write_1h: 6 }
        targets: [{ upstream: ${upstream}, model: vendor-${id} }]
      cheap:
        price: { input: 1.5, output: 7.5 }
        targets: [{ upstream: staying, model: vendor-${id}, weight: 3 }, { upstream: staying, model: vendor-${id}-b }]`
  const more = Array.from({ length: count - 1 }, (_, i) => one(`generated-${i}`, 'staying'))
  return `models:${one('m1', 'staying')}${hasLeaving ? one('m2', 'leaving') : ''}${more.join('')}\n`
}

/** One mistake after another, each in another file. */
const broken: readonly Readonly<Record<string, string>>[] = [
  { 'config/models.yaml': 'models:\n\t- id: m1\n' },
  { 'mark.ts': 'export const version: = 1\n' },
  { 'gateway.yaml': 'pipeline: [auth, rate-limt]\n' },
  { 'marker.ts': 'throw new Error("not today")\n' }
]

t.test(`${STREAMS} streams over ${RELOADS} reloads, good and bad`, async (t) => {
  const load = new Load(t)
  await load.start(t)
  let state: State = { step: 0, models: 1000, hasLeaving: true, secret: 'secret-0', version: 0, route: false }
  const states = new Map([[1, state]])
  load.write(state)
  const running = await startProcess(t, load.file)
  const { api } = running
  t.strictSame(await load.poll(api), [1, 200])
  const heapBefore = await running.ask('heap')
  for (let i = 0; i < STREAMS; i++) await load.openStream(api, i % 3 === 0 ? 'm2' : 'm1')
  await running.ask('delay')

  const finished: Received[] = []
  const delays: number[] = []
  const took: { readonly models: number, readonly ms: number }[] = []
  let generation = 1
  for (let i = 1; i <= RELOADS; i++) {
    const isBad = i % 3 === 0
    const startedAt = performance.now()
    if (isBad) {
      load.write(state, broken[(i / 3) % broken.length])
      const before = running.logged.length
      await running.until(() => running.logged.slice(before).find(({ msg }) => String(msg).endsWith('was refused; generation ' + String(generation) + ' stays live')))
    } else {
      state = {
        step: i, models: i % 2 === 0 ? 10 : 1000, hasLeaving: i % 6 < 2, route: i % 2 === 0,
        secret: i % 4 === 1 ? `secret-${i}` : state.secret, version: i % 4 === 2 ? i : state.version
      }
      load.write(state)
      let found = generation
      while (found === generation) {
        await setTimeout(10)                     // the pace of the requests, not a wait
        found = (await load.poll(api))[0]
      }
      took.push({ models: state.models, ms: performance.now() - startedAt })
      t.equal(found, ++generation, `reload ${i} is generation ${generation}`)
      states.set(generation, state)
    }
    t.strictSame(await load.poll(api, '/extra'), [state.route ? generation : NaN, state.route ? 200 : 404], 'routes are those of the newest')
    // Each generation has streams of its own; some older ones end, so that what is old can close.
    for (let n = 0; n < 6; n++) t.equal(await load.openStream(api, state.hasLeaving && n % 2 === 0 ? 'm2' : 'm1'), generation)
    finished.push(...await load.finish([...load.open.keys()].filter((_, at) => at % 50 === 0).slice(0, 6)))
    delays.push((await running.ask('delay')).max)
  }

  const inUse = new Set([...load.open.values()].map((stream) => states.get(stream.generation)!.step))
  const closed = (): unknown[] => running.logged.filter(({ msg }) => msg === 'marker closed').map(({ step }) => step)
  t.strictSame(closed().filter((step) => inUse.has(step as number)), [], 'no generation was closed that a stream was on')
  const socketsOfLeaving = [...load.sent.values()].filter(({ socket }) => load.leaving.url.endsWith(`:${socket.localPort}`)).map(({ socket }) => socket)
  t.ok(socketsOfLeaving.some(({ destroyed }) => !destroyed), 'an upstream that was removed is still streaming')

  finished.push(...await load.finish([...load.open.keys()]))
  t.equal(finished.length, STREAMS + RELOADS * 6)
  const wrong = finished.filter(({ id, generation: from, bytes }) => !bytes.equals(expected(load.sent.get(id)!, states.get(from)!)))
  t.strictSame(wrong.map(({ id, generation: from, bytes }) => [id, from, bytes.length]), [], 'every stream is complete, to the byte, with the plugin and the options that it began with')
  t.strictSame(finished.filter(({ id, generation: from }) => load.sent.get(id)!.secret !== states.get(from)!.secret), [], 'and was sent with the secret of its generation')

  // The last state has no upstream `leaving`.
  state = { ...state, step: RELOADS + 1, models: 1000, hasLeaving: false }
  load.write(state)
  await running.until(() => running.logged.find(({ generation: live, msg }) => live === generation + 1 && String(msg).endsWith('is live')))
  const retired = [...states.values()].map(({ step }) => step)
  await running.until(() => closed().length >= retired.length ? true : undefined)
  t.strictSame(closed().toSorted((a, b) => Number(a) - Number(b)), retired, 'each old generation was closed once, and the live one was not')
  await Promise.all(socketsOfLeaving.map((socket) => socket.destroyed ? undefined : once(socket, 'close')))
  t.pass('every connection to the upstream that was removed is closed')

  const lags = finished.flatMap((stream) => stream.lags).sort((a, b) => a - b)
  const at = (part: number): string => lags[Math.min(lags.length - 1, Math.floor(lags.length * part))]!.toFixed(1)
  const slowest = Math.max(...took.map(({ ms }) => ms))
  t.comment(`new requests on the new configuration after ${took.map(({ models: count, ms }) => `${ms.toFixed(0)} (${count} models)`).join(', ')} ms`)
  t.comment(`the gateway's event loop stood still for at most ${delays.map((ms) => ms.toFixed(0)).join(', ')} ms`)
  t.comment(`${lags.length} events took ${at(0.5)} ms through the gateway at the median, ${at(0.99)} at p99, ${at(0.999)} at p99.9, ${at(1)} at most`)
  t.ok(slowest < NEW_WITHIN_MS, `new requests are on the new configuration within ${NEW_WITHIN_MS} ms (${slowest.toFixed(0)})`)
  t.ok(Math.max(...delays) < STALL_MS, `no stream stood still for ${STALL_MS} ms (${Math.max(...delays).toFixed(0)})`)

  const grown = (await running.ask('heap') - heapBefore) / 1e6
  t.comment(`the heap grew by ${grown.toFixed(1)} MB`)
  t.ok(grown < 20, 'what is retired is forgotten')
})

function expected ({ model, events }: Sent, { step, version }: State): Buffer {
  const [, ...rest] = events
  // the model's public name is ours (protocol.md K 2.3d); all else are the upstream's bytes
  return Buffer.concat([eventBytes('message_start', startedMessage(model)), ...rest, eventBytes('mark', { step, version })])
}

// One thing at a time, in the test's own process.

/** Writes files beside gateway.yaml and waits until they are live, or refused. */
async function edit (running: TestGateway, files: Readonly<Record<string, string>>): Promise<ReloadResult> {
  const reloaded = running.live.reloaded()
  for (const [name, text] of Object.entries(files)) writeFileSync(path.join(path.dirname(running.file), name), text)
  return await reloaded
}

function admin (running: TestGateway): Promise<Response> {
  return fetch(running.urls.admin + '/admin/v1/config', { headers: { authorization: 'Bearer test-admin-token' } })
}

t.test('a configuration that is wrong changes nothing and says why in the log, in a metric and at /admin/v1/config; a good one heals it', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const good = yaml([vendor.url])
  const running = await gateway(t, good)
  const metric = async (): Promise<string | undefined> => /^gateway_config_last_reload_success (\d)$/m.exec(await (await fetch(running.urls.admin + '/metrics')).text())?.[1]
  t.equal(await metric(), '1')
  const before = await (await admin(running)).json() as { readonly config: unknown }

  await edit(running, { 'gateway.yaml': good.replace('output: 15', 'output: fifteen').replace('upstream: u0', 'upstream: u9') })
  const places = [
    '/models/0/channels/premium/price/output must be a plain decimal of US dollars such as 0.0125, found "fifteen"',
    '/models/0/channels/premium/targets/0/upstream there is no upstream "u9" (did you mean "u0"?)'
  ]
  const problems = running.logged.findLast(({ msg }) => msg === `${running.file} was refused; generation 1 stays live`)?.['problems']
  t.match(problems, places, 'the log')
  t.equal(await metric(), '0')
  const status = await (await admin(running)).json() as { readonly config: unknown, readonly problems: readonly { readonly line: number, readonly column: number }[] }
  t.match(status, { generation: 1, last_reload: { ok: false, reason: 'file' }, problems: [{ file: running.file, path: '/models/0/channels/premium/price/output' }, { path: '/models/0/channels/premium/targets/0/upstream' }] })
  const lines = readFileSync(running.file, 'utf8').split('\n')
  for (const [i, wrong] of ['fifteen', 'u9'].entries()) t.ok(lines[status.problems[i]!.line - 1]!.slice(status.problems[i]!.column - 1).startsWith(wrong), 'line and column lead to the word that is wrong')
  t.strictSame(status.config, before.config)
  const served = await running.messages(messagesRequest)
  t.strictSame([served.status, served.headers.get('x-gateway-config-generation')], [200, '1'])

  await edit(running, { 'gateway.yaml': good.replace('output: 15', 'output: 16') })
  t.equal(await metric(), '1')
  t.match(await (await admin(running)).json(), { generation: 2, last_reload: { ok: true }, problems: [] })
  const healed = await running.messages(messagesRequest)
  t.equal(healed.headers.get('x-gateway-config-generation'), '2')
})

t.test('a change of server: or store: is said to need a restart, and the rest of the edit is live', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const running = await gateway(t, yaml([vendor.url]))
  const { urls } = running
  const { ok, warnings } = await edit(running, { 'gateway.yaml': yaml([vendor.url], 'routes: [{ match: GET /extra, serve: models }]').replace('token: test-admin-token', 'token: other-admin-token').replace('./data', './elsewhere') })
  t.ok(ok)
  t.strictSame(warnings.map(({ path: where, message }) => `${where} ${message}`), ['/server/admin/token', '/store/path'].map((where) => `${where} has changed: it needs a restart, and keeps its old value until then`))
  t.equal(running.logged.filter(({ level, msg }) => level === 40 && /needs a restart/.test(String(msg))).length, 2)
  t.match(await (await admin(running)).json(), { generation: 2, warnings: [{ path: '/server/admin/token' }, { path: '/store/path' }] }, 'the old token opens the door')
  t.equal((await fetch(urls.api + '/extra', { headers: { 'x-api-key': KEY } })).status, 200, 'the new route is there')
})

t.test('the level of the log is a thing of the reload', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const running = await gateway(t, yaml([vendor.url]))
  await edit(running, { 'gateway.yaml': yaml([vendor.url], 'log: { level: error }') })
  const { length } = running.logged
  await (await running.messages(messagesRequest)).text()
  t.equal(running.logged.length, length)
  await edit(running, { 'gateway.yaml': yaml([vendor.url], 'log: { level: info }') })
  await (await running.messages(messagesRequest)).text()
  t.ok(running.logged.some(({ msg, config_generation: generation }) => msg === 'request' && generation === 3))
})

t.test('two edits in quick succession end on the last', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const running = await gateway(t, yaml([vendor.url]))
  const route = (name: string): string => yaml([vendor.url], `routes: [{ match: GET /${name}, serve: models }]`)
  const ask = async (name: string): Promise<number> => (await fetch(`${running.url}/${name}`, { headers: { 'x-api-key': KEY } })).status
  writeFileSync(running.file, route('first'))
  await edit(running, { 'gateway.yaml': route('second') })
  t.strictSame([await ask('first'), await ask('second')], [404, 200])
  // The second of these comes while the first is being read.
  const between = running.live.reload('sighup')
  writeFileSync(running.file, route('third'))
  const last = running.live.reload('sighup')
  writeFileSync(running.file, route('fourth'))
  await Promise.all([between, last])
  while (await ask('fourth') !== 200) await running.live.reloaded()
  t.strictSame([await ask('second'), await ask('third')], [404, 404])
})

t.test('a request is charged at the price of the configuration that it began with', async (t) => {
  const { promise: released, resolve: release } = Promise.withResolvers<void>()
  const vendor = await upstream(t, ({ body }) => body!['stream'] === true ? [wait(released), answer('fine', { usage: { input_tokens: 100, output_tokens: 10 } })] : answer('fine', { usage: { input_tokens: 100, output_tokens: 10 } }))
  const running = await gateway(t, yaml([vendor.url]))
  const charges = async (): Promise<string[]> => {
    const entries: string[] = []
    for await (const { kind, nanos } of running.services.store.entries()) if (kind === 'settle') entries.push(String(-nanos))
    return entries
  }
  const old = running.messages({ ...messagesRequest, stream: true })
  await vendor.nextRequest()
  await edit(running, { 'gateway.yaml': yaml([vendor.url]).replace('input: 3, output: 15', 'input: 30, output: 150') })
  const young = await running.messages(messagesRequest)
  t.equal(young.headers.get('x-gateway-cost-usd'), '0.0045')
  release()
  t.match(await (await old).text(), /message_stop/)
  t.strictSame(await charges(), ['4500000', '450000'], 'dollars per million tokens are 1,000 nano-dollars per token: 100 × 30,000 + 10 × 150,000, then a tenth of it')
})

t.test('an opening balance is credited once, that of a new account when it comes, and none by what is refused', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const accounts = (...usd: readonly number[]): string => yaml([vendor.url])
    .replace('{ id: acme, name: Acme, opening_balance_usd: 100 }', usd.map((opening, i) => `{ id: ${['acme', 'new'][i]!}, opening_balance_usd: ${opening} }`).join('\n  - '))
  const running = await gateway(t, accounts(100), { files: { 'throws.ts': 'export default { name: \'throws\', create () { throw new Error(\'not today\') } }\n' } })
  const balance = async (id: string): Promise<bigint> => (await running.services.store.balance(id)).balance
  const refused = await edit(running, { 'gateway.yaml': accounts(100, 50000).replace('pipeline: [auth,', 'pipeline: [auth, { use: ./throws.ts },') })
  t.match(refused, { ok: false, problems: [{ message: /not today/ }] })
  t.equal(await balance('new'), 0n, 'a typing error in a configuration that is refused is not kept for ever')
  const { warnings } = await edit(running, { 'gateway.yaml': accounts(500, 5) })
  t.strictSame([await balance('acme'), await balance('new')], [100_000_000_000n, 5_000_000_000n])
  t.match(warnings, [{ path: '/accounts/0/opening_balance_usd', message: 'has changed from 100 to 500, which does nothing: it was credited once, when the account was new' }])
  t.equal(warnings.length, 1)
  await edit(running, { 'gateway.yaml': accounts(500) })
  await edit(running, { 'gateway.yaml': accounts(500, 5) })
  t.strictSame([await balance('acme'), await balance('new')], [100_000_000_000n, 5_000_000_000n], 'an account that comes back is not new')
})

t.test('an opening balance that is not what the ledger knows is a warning at the start, and at every reload', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const data = t.testdir()
  const text = (opening: number, more = ''): string => yaml([vendor.url], more)
    .replace('driver: memory, path: ./data', `driver: embedded, path: ${JSON.stringify(data)}`).replace('opening_balance_usd: 100', `opening_balance_usd: ${opening}`)
  await (await gateway(t, text(100))).stop()
  const running = await gateway(t, text(500.5))
  const place = { path: '/accounts/0/opening_balance_usd', message: 'has changed from 100 to 500.5, which does nothing: it was credited once, when the account was new' }
  const warnings = (): unknown => running.live.status().warnings
  t.match(warnings(), [place])
  t.ok(running.logged.some(({ level, msg }) => level === 40 && String(msg).endsWith(`${place.path} ${place.message}`)))
  t.equal((await running.services.store.balance('acme')).balance, 100_000_000_000n)
  await running.rewrite(text(500.5, '# nothing to apply'))
  t.match(warnings(), [place], 'where nothing else has changed, too')
  await running.rewrite(text(100))
  t.strictSame(warnings(), [])
  await running.rewrite(text(7))
  t.match(warnings(), [{ ...place, message: /from 100 to 7,/ }], 'from what was credited, not from what stood there last')
})

t.test('a key that is removed is unknown to the next request, and what runs with it comes to its end', async (t) => {
  const { promise: released, resolve: release } = Promise.withResolvers<void>()
  const vendor = await upstream(t, [messageStart(), blockStart(0), textDelta(0, 'first'), wait(released), textDelta(0, ' last'), blockStop(0), messageEnd()])
  const running = await gateway(t, yaml([vendor.url]))
  const stream = await running.messages({ ...messagesRequest, stream: true })
  const other = 'sk-gw-' + 'o'.repeat(32)
  await edit(running, { 'gateway.yaml': yaml([vendor.url]).replace(KEY, other) })
  t.equal((await running.messages(messagesRequest)).status, 401)
  t.equal((await fetch(running.url + '/v1/models', { headers: { 'x-api-key': other } })).status, 200)
  release()
  t.match(await stream.text(), / last[^]*message_stop/)
  t.ok((await running.services.store.balance('acme')).balance < 100_000_000_000n, 'and is charged')
})

t.test('the demo key is off as soon as an upstream is a real one, and a gateway that nobody can use says so', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const simulated = yaml([vendor.url]).replace(vendor.url, 'simulator:').replace(/^accounts:[^]*/m, '')
  const running = await gateway(t, simulated)
  const demoKey = running.demoKey()!
  const ask = async (): Promise<number> => (await running.messages(messagesRequest, { headers: { 'x-api-key': demoKey } })).status
  const why = async (key: string): Promise<string> => (await (await running.messages(messagesRequest, { headers: { 'x-api-key': key } })).json() as { readonly error: { readonly message: string } }).error.message
  t.equal(await ask(), 200)
  const { warnings } = await edit(running, { 'gateway.yaml': simulated.replace('simulator:', vendor.url) })
  t.match(warnings, [{ path: '/upstreams/u0/url', message: /the demo key is off; and no keys are declared/ }])
  t.equal(await ask(), 401)
  t.match(await why(demoKey), /^This is the demo key, which is off because not every upstream is the built-in simulator\. Use a key of your own\./)
  t.notMatch(await why('sk-gw-' + 'x'.repeat(32)), /demo/, 'who does not hold it is told nothing')
  t.equal(vendor.requests.length, 0)
  await edit(running, { 'gateway.yaml': simulated })
  t.equal(await ask(), 200)

  const withKeys = yaml([vendor.url])
  const line = withKeys.split('\n').findIndex((text) => text.includes('u0: {')) + 1
  const off = await edit(running, { 'gateway.yaml': withKeys })
  t.match(off.warnings, [{ line, column: 14, path: '/upstreams/u0/url', message: 'the demo key is off now, because not every upstream is the built-in simulator', hint: 'use keys of your own' }])
  t.equal(off.warnings.length, 1)
  t.ok(running.logged.some(({ level, msg }) => level === 40 && String(msg).includes(`gateway.yaml:${line}:14 /upstreams/u0/url the demo key is off now`)))
  t.match(await why(demoKey), /^This is the demo key/)
  t.strictSame((await edit(running, { 'gateway.yaml': withKeys.replace('Model One', 'Model 1') })).warnings, [], 'it is said once')

  await edit(running, { 'gateway.yaml': withKeys.replace(vendor.url, 'simulator:') })
  t.equal(await ask(), 200)
  const taken = await edit(running, { 'gateway.yaml': withKeys.replace(vendor.url, 'simulator:').replace('acme-dev', 'demo') })
  t.match(taken.warnings, [{ path: '', message: /because another account or key is called "demo"/ }])
  t.match(await why(demoKey), /off because another account or key is called "demo"/)
})
