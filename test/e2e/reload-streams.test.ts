// Three hundred streams, each of which goes on for as long as the test wants, over fifty reloads of a configuration of
// many files in a process of its own: each ends as it began, and what is retired is closed (rule one-snapshot). One
// reload at a time: gateway/reload.test.ts.
import { EventEmitter, once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { Agent, type IncomingMessage, request as httpRequest } from 'node:http'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { startProcess } from '../support/gateway-process.ts'
import { KEY, messagesRequest } from '../support/gateway.ts'
import { eventBytes, step, upstream, type Upstream } from '../support/upstream.ts'

const STREAMS = 300
/** Good and bad ones. */
const RELOADS = 50
/** Each stream gets an event every TICK_MS × GROUPS. */
const TICK_MS = 20
const GROUPS = 10

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
  #writes = 0
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
      const sent: Sent = { events: [], model: (body!['model'] as string).replace('vendor-', ''),
        secret: headers['x-api-key'], socket: response.socket! }
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
        say('content_block_delta', { type: 'content_block_delta', index: 0,
          delta: { type: 'text_delta', text: `${i} é€😀 @${performance.now()}@` } })
        await once(this.#ticks, String(Number(id) % GROUPS))
      }
      say('content_block_stop', { type: 'content_block_stop', index: 0 })
      say('message_delta', { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null },
        usage: { output_tokens: 5 } })
      say('message_stop', { type: 'message_stop' })
    })
    this.staying = await upstream(t, script)
    this.leaving = await upstream(t, script)
  }

  /**
   * All files at once, as a mounted ConfigMap changes: written one by one, what is half done would be a generation too,
   * on a machine that is slow enough. `broken` replaces files.
   */
  write (state: State, broken: Readonly<Record<string, string>> = {}): void {
    const files: Record<string, string> = {
      'models.yaml': models(state),
      'secret': state.secret + '\n',
      'mark.ts': `export const version: number = ${state.version}\n`,
      'marker.ts': MARKER,
      'gateway.yaml': this.#yaml(state),
      ...broken
    }
    const folder = `v${++this.#writes}`
    mkdirSync(path.join(this.#folder, folder))
    for (const [name, text] of Object.entries(files)) {
      writeFileSync(path.join(this.#folder, folder, name), text)
      const link = path.join(this.#folder, name)
      if (!existsSync(link)) symlinkSync(`..data/${name}`, link)
    }
    symlinkSync(folder, path.join(this.#folder, '..next'))
    renameSync(path.join(this.#folder, '..next'), path.join(this.#folder, '..data'))
  }

  #yaml ({ step, hasLeaving, route }: State): string {
    return `
server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: test-admin-token }
store: { driver: memory, path: ./data }
include: [models.yaml]
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
    const request = httpRequest(api + '/v1/messages', { method: 'POST', agent: this.#agent,
      headers: { 'x-api-key': KEY, 'content-type': 'application/json' } })
    // As much as the model may say: on a slow machine a stream says far more than a hundred tokens, and would be cut
    // for it.
    request.end(
      JSON.stringify({ ...messagesRequest, max_tokens: 64_000, model, stream: true,
        messages: [{ role: 'user', content: id }] })
    )
    const [response] = await once(request, 'response') as [IncomingMessage]
    if (response.statusCode !== 200) {
      throw new Error(`stream ${id} got status ${response.statusCode}: ${await text(response)}`)
    }
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
  return { type: 'message_start',
    message: { id: 'msg_1', type: 'message', role: 'assistant', model, content: [], stop_reason: null,
      stop_sequence: null, usage: { input_tokens: 10, output_tokens: 1 } } }
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
  { 'models.yaml': 'models:\n\t- id: m1\n' },
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
      await running.until(() =>
        running.logged.slice(before).find(({ msg }) =>
          String(msg).endsWith('was refused; generation ' + String(generation) + ' stays live')
        )
      )
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
    t.strictSame(await load.poll(api, '/extra'), [state.route ? generation : NaN, state.route ? 200 : 404],
      'routes are those of the newest')
    // Each generation has streams of its own; some older ones end, so that what is old can close.
    for (let n = 0; n < 6; n++) {
      t.equal(await load.openStream(api, state.hasLeaving && n % 2 === 0 ? 'm2' : 'm1'), generation)
    }
    finished.push(...await load.finish([...load.open.keys()].filter((_, at) => at % 50 === 0).slice(0, 6)))
    delays.push((await running.ask('delay')).max)
  }

  const inUse = new Set([...load.open.values()].map((stream) => states.get(stream.generation)!.step))
  const closed = (): unknown[] => running.logged.filter(({ msg }) => msg === 'marker closed').map(({ step }) => step)
  t.strictSame(closed().filter((step) => inUse.has(step as number)), [],
    'no generation was closed that a stream was on')
  const socketsOfLeaving = [...load.sent.values()].filter(({ socket }) =>
    load.leaving.url.endsWith(`:${socket.localPort}`)
  ).map(({ socket }) => socket)
  t.ok(socketsOfLeaving.some(({ destroyed }) => !destroyed), 'an upstream that was removed is still streaming')

  finished.push(...await load.finish([...load.open.keys()]))
  t.equal(finished.length, STREAMS + RELOADS * 6)
  const wrong = finished.filter(({ id, generation: from, bytes }) =>
    !bytes.equals(expected(load.sent.get(id)!, states.get(from)!))
  )
  t.strictSame(wrong.map(({ id, generation: from, bytes }) => [id, from, bytes.length]), [],
    'every stream is complete, to the byte, with the plugin and the options that it began with')
  t.strictSame(finished.filter(({ id, generation: from }) => load.sent.get(id)!.secret !== states.get(from)!.secret),
    [], 'and was sent with the secret of its generation')

  // The last state has no upstream `leaving`.
  state = { ...state, step: RELOADS + 1, models: 1000, hasLeaving: false }
  load.write(state)
  await running.until(() =>
    running.logged.find(({ generation: live, msg }) => live === generation + 1 && String(msg).endsWith('is live'))
  )
  const retired = [...states.values()].map(({ step }) => step)
  await running.until(() => closed().length >= retired.length ? true : undefined)
  t.strictSame(closed().toSorted((a, b) => Number(a) - Number(b)), retired,
    'each old generation was closed once, and the live one was not')
  await Promise.all(socketsOfLeaving.map((socket) => socket.destroyed ? undefined : once(socket, 'close')))
  t.pass('every connection to the upstream that was removed is closed')

  const lags = finished.flatMap((stream) => stream.lags).sort((a, b) => a - b)
  const at = (part: number): string => lags[Math.min(lags.length - 1, Math.floor(lags.length * part))]!.toFixed(1)
  t.comment(
    `new requests on the new configuration after ${took.map(({ models: count, ms }) => `${ms.toFixed(0)} (${count} models)`).join(', ')} ms`
  )
  t.comment(`the gateway's event loop stood still for at most ${delays.map((ms) => ms.toFixed(0)).join(', ')} ms`)
  t.comment(
    `${lags.length} events took ${at(0.5)} ms through the gateway at the median, ${at(0.99)} at p99, ${at(0.999)} at p99.9, ${at(1)} at most`
  )
  const grown = (await running.ask('heap') - heapBefore) / 1e6
  t.comment(`the heap grew by ${grown.toFixed(1)} MB`)
  t.ok(grown < 20, 'what is retired is forgotten')
})

function expected ({ model, events }: Sent, { step, version }: State): Buffer {
  const [, ...rest] = events
  // the model's public name is ours; all else are the upstream's bytes
  return Buffer.concat([eventBytes('message_start', startedMessage(model)), ...rest,
    eventBytes('mark', { step, version })])
}
