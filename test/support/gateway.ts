// Boots the real gateway from a YAML string, on free ports, and takes it down with the test.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { pino } from 'pino'
import type { Test } from 'tap'
import { plugins } from '../../plugins/index.ts'
import type { WatchLoad } from '../../src/http/overload.ts'
import { startGateway, type Gateway } from '../../src/gateway/gateway.ts'
import type { Timer } from '../../src/base/timer.ts'
import { judgeAnswers } from './admin-answers.ts'
import { loadHere } from './load-here.ts'

/** A valid key; any 32 letters or digits behind the prefix would do. */
export const KEY = 'sk-gw-' + 'k'.repeat(32)

export interface TestGateway extends Gateway {
  readonly url: string
  readonly file: string
  /** the lines that the gateway logged, parsed, newest last */
  readonly logged: Record<string, unknown>[]
  /** writes the file again; waits until the new configuration is live or refused */
  rewrite (yaml: string): Promise<void>
  /** Forgets how upstreams fared: what they have limited or refused is asked at once. */
  heal (): void
  /** POST /v1/messages with the test's key */
  messages (body: unknown, init?: RequestInit): Promise<Response>
}

export const messagesRequest = { model: 'm1', max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }] } as const

/** Of an upstream: nothing is sent again, and however often it fails it is asked. */
export const CALM = 'retries: { attempts: 0, max_backoff: 1ms }, breaker: { failures: 1000000 }'

/** A whole configuration with one model `m1` sold by the given upstream URLs, in this order of attempts. */
export function yaml (
  targets: readonly string[],
  more = '',
  pipeline = 'auth, chat-to-messages, channel-router, billing-meter, error-normalize'
): string {
  return `
server:
  api: { listen: "127.0.0.1:0", timeouts: { hold_head: 10s } }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: test-admin-token }
  drain_timeout: 5s
store: { driver: memory, path: ./data }
pipeline: [${pipeline}]
upstreams:
${targets.map((url, i) => `  u${i}: { url: "${url}", dialect: messages, ${CALM}, headers: { x-api-key: "upstream-secret-${i}" } }`).join('\n')}
models:
  - id: m1
    name: Model One
    provider: acme
    kind: text
    created: 2025-09-29
    context: 200000
    max_output: 64000
    accepts: [text, image]
    channels:
      premium:
        price: { input: 3, output: 15, cache_read: 0.30, cache_write: 3.75 }
        targets: [${targets.map((_, i) => `{ upstream: u${i}, model: vendor-m1, priority: ${i} }`).join(', ')}]
accounts:
  - { id: acme, name: Acme, opening_balance_usd: 100 }
keys:
  - { id: acme-dev, account: acme, secret: ${KEY} }
${more}`
}

/** The same with upstreams that get the field `case` of a request, by which a test chooses their answer. */
export function withCase (text: string): string {
  return text.replaceAll('dialect: messages,', 'dialect: messages, messages: { fields: [case] },')
}

export interface GatewayTestOptions {
  /** beside gateway.yaml, by name */
  readonly files?: Readonly<Record<string, string>>
  readonly env?: NodeJS.ProcessEnv
  readonly now?: () => number
  readonly timer?: Timer
  readonly watchLoad?: WatchLoad
  /** whatever upstreams did, each request finds them as if they had never been asked */
  readonly isForgetful?: boolean
  /** bytes from which a thread reads a body; absent: what the variable LARGE_BODY says, or else as in the product */
  readonly largeBody?: number
  /** `thread`: as the product does it, for tests of loading */
  readonly load?: 'here' | 'thread'
  readonly warmsUp?: boolean
}

export async function gateway (t: Test, text: string, options: GatewayTestOptions = {}): Promise<TestGateway> {
  const folder = mkdtempSync(path.join(tmpdir(), 'gateway-test-'))
  t.teardown(() => { rmSync(folder, { recursive: true, force: true }) })
  for (const [name, content] of Object.entries(options.files ?? {})) writeFileSync(path.join(folder, name), content)
  const file = path.join(folder, 'gateway.yaml')
  writeFileSync(file, text)
  const logged: Record<string, unknown>[] = []
  const log = pino({ level: 'debug' }, { write: (line: string) => {
    logged.push(JSON.parse(line) as Record<string, unknown>)
  } })
  const { LARGE_BODY: everywhere } = process.env
  const largeBody = options.largeBody ?? (everywhere === undefined ? undefined : Number(everywhere))
  const running = await startGateway({
    file, plugins, pluginsUrl: new URL('../../plugins/index.ts', import.meta.url).href, log,
    ...(options.env !== undefined && { env: options.env }),
    ...(options.now !== undefined && { now: options.now }),
    ...(options.timer !== undefined && { timer: options.timer }),
    ...(largeBody !== undefined && { largeBody }),
    ...(options.load !== 'thread' && { load: loadHere }),
    ...(options.warmsUp !== undefined && { warmsUp: options.warmsUp }),
    // A machine that is busy with other tests must not look like an overload.
    watchLoad: options.watchLoad ?? (() => () => {})
  })
  let stopped: Promise<void> | undefined
  const stop = async (): Promise<void> => { await (stopped ??= running.stop()) }
  t.teardown(stop)
  judgeAnswers(t, running.urls.admin)
  const { health } = running.services.upstreams
  const heal = (): void => { health.retain({ config: { models: [], routes: [] }, upstreams: new Map() }) }
  if (options.isForgetful === true) {
    const waitOf = health.waitOf.bind(health)
    health.waitOf = (...question) => { heal(); return waitOf(...question) }
  }
  const url = running.urls.api
  return Object.assign(Object.create(running) as Gateway, {
    url,
    urls: running.urls,
    file,
    logged,
    async rewrite (next: string) {
      const done = running.live.reloaded()
      writeFileSync(file, next)
      await done
    },
    heal,
    stop,
    messages: (body: unknown, init: RequestInit = {}) => fetch(url + '/v1/messages', {
      method: 'POST',
      body: JSON.stringify(body),
      ...init,
      headers: { 'content-type': 'application/json', 'x-api-key': KEY, ...init.headers as Record<string, string> }
    })
  })
}

const given = new WeakMap<TestGateway, number>()

/** Waits until the next request is over for the gateway, and gives its log line. */
export async function finished (gw: TestGateway): Promise<Readonly<Record<string, unknown>>> {
  const index = given.get(gw) ?? 0
  given.set(gw, index + 1)
  for (;;) {
    const line = gw.logged.filter(({ msg }) => msg === 'request')[index]
    if (line !== undefined) return line
    await setImmediate()
  }
}
