// Where the inputs go: a real gateway in a process of its own, with the embedded store, in front of a simulator and of
// an upstream that says whatever it was told; and a second gateway, that has nothing to do but to be given
// configurations.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { packageRoot } from '../../src/base/package.ts'
import { type Dialect, dialectNames, dialectsOf } from '../../src/config/sections/dialects.ts'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { strictVendors, type VendorName } from '../../src/simulator/vendors.ts'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import { newcomersEnvironment, untapped } from '../support/newcomer.ts'
import { declarations, isOwnRefusal, modelFields, upstreamOptions, vendorsOf } from '../support/strict-vendors.ts'
import type { Chance } from './chance.ts'

export const KEY = 'sk-gw-' + 'f'.repeat(32)
export const TOKEN = 'admin-token-of-the-fuzz'
/** How long something may take that never takes a second, on a machine that is ten times as slow. */
export const PATIENCE_MS = 120_000

/** One refusal of a credential would leave nothing to ask for ten minutes. */
const RESET_MS = 500
const HOSTILE_UPSTREAMS = [...dialectNames.map((dialect) => `bad-${dialect}`), 'mirror-images']

export interface Arena {
  readonly api: string
  readonly admin: string
  /** of the hostile upstream */
  readonly hostile: string
  /** What the hostile upstream says to the request that has `fuzz-ID` in it. */
  readonly answers: Map<string, readonly Buffer[]>
  /** lines of the log, and deaths, that should not be */
  readonly wrong: readonly string[]
  /** of the loop of the first gateway, since the last call */
  worstStall (): Promise<Stall>
  /** one of the two has ended by itself */
  readonly isDead: () => boolean
  /** Gives the second gateway this configuration. @returns what it thinks of it */
  reload (text: Buffer): Promise<'live' | 'refused'>
  /** Ends all; what is not as it should be by then, in words. */
  end (): Promise<readonly string[]>
}

/** Milliseconds of the wall clock, and of them those that the loop computed: the rest it waited for a processor. */
export interface Stall {
  readonly ms: number
  readonly cpu: number
}

export const noStall: Stall = { ms: 0, cpu: 0 }

const textDialects = dialectsOf('text')

/** @param who the upstream: "good", "bad", or "vendor" */
export function textModel (who: string, dialect: typeof textDialects[number]): string {
  return `${who}-${dialect === 'messages' ? 'text' : dialect}`
}

function playersOf (player: (dialect: Dialect) => Player): Readonly<Record<Dialect, Player>> {
  return Object.fromEntries(dialectNames.map((dialect) => [dialect, player(dialect)])) as Record<Dialect, Player>
}

function optionsOf ({ vendor }: Player): string {
  return vendor === undefined ? '' : upstreamOptions(vendor)
}

/** Of the simulators: the url, and whose rules it has. */
interface Player {
  readonly url: string
  readonly vendor?: VendorName
}

function arenaYaml (players: Readonly<Record<Dialect, Player>>, hostile: string): string {
  const calm =
    'retries: { attempts: 0, max_backoff: 1ms }, breaker: { failures: 1000000 }, headers: { x-api-key: secret, authorization: "Bearer secret" }'
  const upstreams = dialectNames.flatMap((dialect) => [
    ...['good', 'vendor'].map((who) => `  ${who}-${dialect}: { url: "${players[dialect].url}", dialect: ${dialect}, ` +
      `${calm}${optionsOf(players[dialect])} }`),
    `  bad-${dialect}: { url: "${hostile}", dialect: ${dialect}, ${calm}, timeouts: { first_byte: 2s, idle: 2s, total: 20s } }`
  ]).concat(`  mirror-images: { url: "${hostile}", dialect: images, links: mirror, ${calm} }`)
  const model = (id: string, upstream: string, kind: string, price: string, more = '', vendor?: VendorName): string => `
  - { id: ${id}, name: ${id}, provider: acme, kind: ${kind}, created: 2025-01-01, accepts: [text, image], ${more}channels: { premium: { price: ${price}, targets: [{ upstream: ${upstream}, model: "${vendor === undefined ? 'vendor' : declarations[vendor].model}" }] } }${vendor === undefined ? '' : modelFields(vendor)} }`
  const text = '{ input: 3, output: 15, cache_read: 0.3, cache_write: 3.75 }'
  const tokens = 'context: 200000, max_output: 4096, thinking: budget, structured_outputs: true, '
  const picture = 'parameters: { size: { values: [1024x1024, 512x512], default: 1024x1024 } }, '
  const film =
    'parameters: { size: { values: [1280x720], default: 1280x720 }, seconds: { values: [4, 8], default: 4 } }, '
  return `
server:
  api: { listen: "127.0.0.1:0", timeouts: { headers: 3s, body_idle: 3s, write_stall: 10s, hold_head: 2s } }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: ${TOKEN} }
  overload: { event_loop_delay: 0s }
  drain_timeout: 30s
store: { driver: embedded, path: ./data }
videos: { poll_interval: 500ms, lost_after: 1s, max_age: 1m }
pipeline: [auth, key-policy, rate-limit: { default_rpm: 0, default_concurrency: 0 }, schema-validate, chat-to-messages, responses-to-messages: { keep: 1h }, channel-router, billing-meter: { low_balance_usd: 0 }, error-normalize]
upstreams:
${upstreams.join('\n')}
models:${['good', 'vendor', 'bad'].map((who) => [
  ...textDialects.map((dialect) => model(textModel(who, dialect), `${who}-${dialect}`,
    'text', text, tokens, who === 'bad' ? undefined : players[dialect].vendor)),
  model(`${who}-image`, `${who}-images`, 'image', '[{ usd: 0.04 }]', picture), model(
    `${who}-clip`, `${who}-videos`, 'video', '[{ usd_per_second: 0.1 }]', film
  )
].join('')).join('')}${model('mirror-image', 'mirror-images', 'image', '[{ usd: 0.04 }]', picture)}
routes:
  - { match: "GET,POST /v1/raw/*", forward: bad-chat, price: { usd: 0.001 } }
accounts:
  - { id: acme, opening_balance_usd: 1000000 }
keys:
  - { id: acme-dev, account: acme, secret: ${KEY} }
`
}

/** The configuration of the second gateway, and what configurations are made from. */
export const PLAIN_YAML = arenaYaml(playersOf(() => ({ url: 'http://127.0.0.1:9' })), 'http://127.0.0.1:9')

interface Running {
  readonly child: ChildProcess
  readonly api: string
  readonly admin: string
}

/** @throws {Error} it does not start: with what it said */
async function start (folder: string, onLine: (line: string) => void): Promise<Running> {
  const [command, args] = untapped(
    process.execPath,
    [
      '--import',
      new URL('../support/probe.ts', import.meta.url).href,
      join(packageRoot, 'src/launcher.js'),
      'start',
      '--config',
      join(folder, 'gateway.yaml')
    ]
  )
  const child = spawn(command, args, { cwd: folder, env: newcomersEnvironment(),
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'] })
  let begun = ''
  child.stdout!.setEncoding('utf8').on('data', (chunk: string) => {
    const lines = (begun + chunk).split('\n')              // not by readline, to which U+2028 is an end too
    begun = lines.pop()!
    for (const line of lines) onLine(line)
  })
  const urls = await new Promise<readonly [string, string]>((resolve, reject) => {
    let said = ''
    child.stderr!.on('data', (chunk: Buffer) => {
      said = (said + chunk.toString('latin1')).slice(-20_000)
      const found = /API +(http:\S+?)\/v1\n[^]*admin +(http:\S+)/.exec(said)
      if (found !== null) resolve([found[1]!, found[2]!])
    })
    child.once('error', reject).once('exit', (code, signal) => {
      reject(new Error(`the gateway ended with ${code ?? signal}:\n${said}`))
      onLine(JSON.stringify({ level: 'error', msg: `the process has ended with ${code ?? signal}`, said }))
    })
  })
  return { child, api: urls[0], admin: urls[1] }
}

/** What an upstream that lies leads to, and a configuration that is refused. */
const EXPECTED =
  /an answer cost more than was held for it|an upstream reported more than its model can have|an upstream went on far beyond max_tokens|extras without a price were given away|an upstream has lost a video task|nobody knows what became of a video task|was refused; generation \d+ stays live/

/**
 * Refusals that clients get from the vendor: of its own style, where schemas, names of properties, further fields and
 * the last turn are not changed; and of a conversation in which nothing is said.
 */
const LEFT = /^(?:schema|array|unknown field|name of a property|white space at the end|empty)/

/** @param chance of the vendors whose rules the simulators have: one of each dialect of text */
export async function startArena (chance: Chance): Promise<Arena> {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-fuzz-'))
  const second = mkdtempSync(join(tmpdir(), 'gateway-fuzz-'))
  const answers = new Map<string, readonly Buffer[]>()
  const wrong: string[] = []
  const simulators = await Promise.all([undefined, ...textDialects.map((dialect) => chance.of(vendorsOf(dialect)))]
    .map(async (vendor) => ({ vendor, simulator: await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0, videoMs: 500,
      keepRequests: 10, ...vendor === undefined ? { keepBodyBytes: 0 } : { faults: `vendor=${vendor}` } }) })))
  for (const { vendor, simulator } of simulators) {
    simulator.events.on('end', (record) => {
      if (!isOwnRefusal(record) || LEFT.test(record.refusal!) || wrong.length >= 100) return
      wrong.push(`${vendor} refuses "${record.refusal}": ${JSON.stringify(record.body).slice(0, 3000)}`)
    })
  }
  const hostile = await startHostile(answers)
  writeFileSync(join(folder, 'gateway.yaml'), arenaYaml(playersOf((dialect) => {
    const { vendor, simulator } = simulators.find(({ vendor }) => vendor !== undefined &&
      strictVendors[vendor].api === dialect) ?? simulators[0]!
    return { url: simulator.url, ...vendor !== undefined && { vendor } }
  }), hostile.url))
  writeFileSync(join(second, 'gateway.yaml'), PLAIN_YAML)
  let isEnding = false
  const look = (who: string) => (line: string): void => {
    if (isEnding || !/"level":"(?:error|fatal)"/.test(line) || EXPECTED.test(line)) return
    if (wrong.length < 100) wrong.push(`${who}: ${line.slice(0, 3000)}`)
  }
  const first = await start(folder, look('gateway'))
  const other = await start(second, look('the reloaded gateway'))
  const resets = setInterval(() => {
    for (const upstream of HOSTILE_UPSTREAMS) {
      fetch(`${first.admin}/admin/v1/upstreams/${upstream}/reset`, { method: 'POST',
        headers: { authorization: `Bearer ${TOKEN}` } }).then(async (answer) => await answer.arrayBuffer()).catch(() => {})
    }
  }, RESET_MS)

  async function stateOfOther (): Promise<
    { readonly at: string, readonly ok: boolean, readonly problems: readonly { readonly message: string }[] }
  > {
    const response = await fetch(`${other.admin}/admin/v1/config`, { headers: { authorization: `Bearer ${TOKEN}` },
      signal: AbortSignal.timeout(PATIENCE_MS) })
    const { last_reload: last, problems } = await response.json() as { last_reload: { at: string, ok: boolean },
      problems: readonly { message: string }[] }
    return { ...last, problems }
  }

  async function reload (text: Buffer): Promise<'live' | 'refused'> {
    const before = await stateOfOther()
    writeFileSync(join(second, 'gateway.yaml'), text)
    other.child.kill('SIGHUP')                              // else a file that says the same is not read
    for (const limit = Date.now() + PATIENCE_MS; Date.now() < limit; await pause(20)) {
      const now = await stateOfOther()
      if (now.at === before.at) continue
      if (now.problems.some(({ message }) => message.includes('could not be checked'))) {
        throw new Error(`the checker threw: ${JSON.stringify(now.problems).slice(0, 2000)}`)
      }
      return now.ok ? 'live' : 'refused'
    }
    throw new Error('a configuration was neither taken nor refused')
  }

  const dead = (): readonly string[] =>
    [first, other].filter(({ child }) => child.exitCode !== null || child.signalCode !== null).map(({ child }) =>
      `a gateway has ended with ${child.exitCode ?? child.signalCode}`
    )

  return {
    api: first.api, admin: first.admin, hostile: hostile.url, answers, wrong, reload,
    async worstStall () {
      const { child } = first
      if (!child.connected) return noStall
      child.send('delay')
      const [answer] = await once(child, 'message', { signal: AbortSignal.timeout(PATIENCE_MS) })
      const { max: ms, cpu } = answer as { readonly max: number, readonly cpu: number }
      return { ms, cpu }
    },
    isDead: () => dead().length > 0,
    async end () {
      clearInterval(resets)
      const found = await lookAtBooks(first).catch((error: Error) => [`the books could not be read: ${error.message}`])
      const ended = dead()
      isEnding = true
      const stopped = await Promise.all([first, other].map(async ({ child }) => await stop(child)))
      const sums = await addUp(join(folder, 'data')).catch((error: Error) => [`the ledger could not be opened: ${error.message}`])
      await Promise.all(simulators.map(({ simulator }) => simulator.close()))
      await hostile.close()
      for (const one of [folder, second]) rmSync(one, { recursive: true, force: true })
      return [...wrong, ...found, ...ended, ...stopped.flat(), ...sums]
    }
  }
}

/** While it runs: nothing is held any more, and it agrees with itself. */
async function lookAtBooks ({ admin }: Running): Promise<string[]> {
  const wrong: string[] = []
  const headers = { authorization: `Bearer ${TOKEN}` }
  let open = 'no metric'
  for (const limit = Date.now() + PATIENCE_MS; Date.now() < limit; await pause(100)) {
    const text = await (await fetch(`${admin}/metrics`)).text()
    open = `${/^gateway_holds_open (\d+)$/m.exec(text)?.[1]} holds, ${/^gateway_videos_open (\d+)$/m.exec(text)?.[1]} videos`
    if (open === '0 holds, 0 videos') break
  }
  if (open !== '0 holds, 0 videos') wrong.push(`still open: ${open}`)
  const verified = await (await fetch(`${admin}/admin/v1/ledger/verify`, { method: 'POST', headers })).json() as {
    readonly ok?: boolean
  }
  if (verified.ok !== true) wrong.push(`ledger verify: ${JSON.stringify(verified)}`)
  return wrong
}

/** After it: what is on the disk, added up here. */
async function addUp (folder: string): Promise<string[]> {
  const wrong: string[] = []
  const note = (): void => {}
  const store = await openEmbedded({ folder, log: { info: note, warn: note, error: note } as never })
  try {
    const sums = new Map<string, bigint>()
    const settled = new Set<string>()
    for await (const { account, nanos, kind, reference } of store.entries()) {
      sums.set(account, (sums.get(account) ?? 0n) + nanos)
      if (kind !== 'settle') continue
      if (settled.has(reference)) wrong.push(`${reference} was charged twice`)
      settled.add(reference)
    }
    for (const [account, sum] of sums) {
      const { balance, held, open_holds: holds } = store.balance(account)
      if (balance !== sum || held !== 0n || holds !== 0) {
        wrong.push(`${account}: its entries are ${sum}, its balance ${balance}, and ${held} in ${holds} holds`)
      }
    }
    if (settled.size === 0) wrong.push('nothing was charged: nothing was tried')
  } finally {
    await store.close()
  }
  return wrong
}

async function stop (child: ChildProcess): Promise<string[]> {
  if (child.exitCode !== null || child.signalCode !== null) return []
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  const timer = setTimeout(() => { child.kill('SIGKILL') }, PATIENCE_MS)
  const [code, signal] = await ended as [number | null, string | null]
  clearTimeout(timer)
  return code === 0 ? [] : [`a gateway that was told to drain has ended with ${code ?? signal}`]
}

/**
 * On bare sockets. It reads a request whole, so that what it says comes when it may; a video that it is asked for has
 * failed.
 */
async function startHostile (
  answers: ReadonlyMap<string, readonly Buffer[]>
): Promise<{ readonly url: string, close(): Promise<void> }> {
  const sockets = new Set<Socket>()
  const failed = JSON.stringify({ id: 'video_1', object: 'video', status: 'failed',
    error: { code: 'no', message: 'no' } })
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {}).on('close', () => { sockets.delete(socket) })
    let got = ''
    socket.on('data', (chunk: Buffer) => {
      got += chunk.toString('latin1')
      const head = got.indexOf('\r\n\r\n')
      if (head === -1) return
      const length = Number(/^content-length: *(\d+)/im.exec(got.slice(0, head))?.[1] ?? 0)
      const isChunked = /^transfer-encoding:.*chunked/im.test(got.slice(0, head))
      if (isChunked ? !got.endsWith('0\r\n\r\n') : got.length < head + 4 + length) return
      const id = /fuzz-(\d+)/.exec(got)?.[1]
      got = ''
      void say(socket, id === undefined ? undefined : answers.get(id))
    })
  })
  async function say (socket: Socket, answer: readonly Buffer[] | undefined): Promise<void> {
    if (answer === undefined) {
      socket.end(
        `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: ${failed.length}\r\n\r\n${failed}`
      )
      return
    }
    for (const piece of answer) {
      if (socket.destroyed) return
      socket.write(piece)
      await new Promise(setImmediate)
    }
    socket.end()
  }
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close () {
      const closed = once(server, 'close')
      server.close()
      for (const socket of sockets) socket.destroy()
      await closed
    }
  }
}
