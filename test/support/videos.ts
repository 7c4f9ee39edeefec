// What the tests of videos share: a gateway that sells videos of the simulator, and a client that asks for them.
import type { Test } from 'tap'
import { startSimulator, type Simulator, type SimulatorOptions } from '../../src/simulator/simulator.ts'
import type { Entry } from '../../src/store/store.ts'
import { type Clock, startClock } from './clock.ts'
import { CALM, gateway, KEY, type TestGateway } from './gateway.ts'

/** Of another account. */
export const OTHER = 'sk-gw-' + 'o'.repeat(32)
/** Of the same account. */
export const SECOND = 'sk-gw-' + '2'.repeat(32)

/** `clip` costs $0.40 for 4 seconds, $0.80 for 8; `still` takes no image. */
export function videosYaml (
  url: string,
  {
    store = '{ driver: memory, path: ./data }',
    videos = '{ poll_interval: 1s, poll_concurrency: 50 }',
    balance = '100',
    families = '{}',
    more = ''
  } = {}
): string {
  return `
server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: test-admin-token }
  drain_timeout: 5s
store: ${store}
videos: ${videos}
pipeline: [auth, key-policy, rate-limit: { default_rpm: 0, default_concurrency: 0, families: ${families} }, schema-validate, chat-to-messages, channel-router, billing-meter: { low_balance_usd: 0 }, error-normalize]
upstreams:
  studio: { url: "${url}", dialect: videos, ${CALM}, headers: { authorization: "Bearer upstream-secret" } }
models:
  - id: clip
    provider: acme
    kind: video
    family: clips
    created: 2025-10-06
    accepts: [text, image]
    parameters: { size: { values: [1280x720, 720x1280], default: 1280x720 }, seconds: { values: [4, 8], default: 4 } }
    channels: { premium: { price: [{ usd_per_second: 0.10 }], targets: [{ upstream: studio, model: sora }] } }
  - id: still
    provider: acme
    kind: video
    created: 2025-10-06
    parameters: { seconds: { values: [4], default: 4 } }
    channels: { premium: { price: free, targets: [{ upstream: studio, model: sora }] } }
accounts:
  - { id: acme, opening_balance_usd: ${balance} }
  - { id: other, opening_balance_usd: 1 }
keys:
  - { id: acme-dev, account: acme, secret: ${KEY} }
  - { id: acme-2, account: acme, secret: ${SECOND}, routing_mode: cheap }
  - { id: other-dev, account: other, secret: ${OTHER} }
${more}`
}

export interface Video {
  readonly id: string
  readonly object: string
  readonly model: string
  readonly status: string
  readonly progress: number
  readonly created_at: number
  readonly completed_at: number | null
  readonly expires_at: number | null
  readonly prompt: string | null
  readonly size: string
  readonly seconds: string
  readonly remixed_from_video_id: string | null
  readonly error: { readonly code: string, readonly message: string } | null
  /** of a video that is over */
  readonly usage?: { readonly cost: number }
}

export interface Answered<T> {
  readonly status: number
  readonly headers: Headers
  readonly body: T
}

export interface Studio {
  readonly gw: TestGateway
  readonly simulator: Simulator
  readonly clock: Clock
  /** @param path below /v1 */
  ask<T = Video>(
    method: string,
    path: string,
    body?: unknown,
    headers?: Readonly<Record<string, string>>
  ): Promise<Answered<T>>
  create(prompt: string, more?: object, headers?: Readonly<Record<string, string>>): Promise<Video>
  /** Time passes until the video has come to its end. */
  ended (id: string): Promise<Video>
  entries (): Promise<readonly Entry[]>
}

/** Gateway and simulator live by the same clock. It waits for the gateway's questions, unless it `rushes`. */
export async function studio (
  t: Test,
  { simulator: more, rushes = false, ...yaml }: Parameters<typeof videosYaml>[1] & {
    readonly simulator?: SimulatorOptions,
    readonly rushes?: boolean
  } = {}
): Promise<Studio> {
  let gw: TestGateway | undefined = undefined
  const clock = startClock(() => !rushes && gw !== undefined && (gw as TestGateway).services.videos.asking > 0)
  const simulator = await startSimulator({ firstDelayMs: 0, now: clock.now, ...more })
  t.teardown(() => simulator.close())
  gw = await gateway(t, videosYaml(simulator.url, yaml), { now: clock.now, timer: clock.timer })
  return { gw, simulator, clock, ...client(gw, clock) }
}

export function client (gw: TestGateway, clock: Clock): Pick<Studio, 'ask' | 'create' | 'ended' | 'entries'> {
  async function ask<T = Video> (
    method: string,
    path: string,
    body?: unknown,
    headers: Readonly<Record<string, string>> = {}
  ): Promise<Answered<T>> {
    const response = await fetch(`${gw.url}/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${KEY}`, ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) })
    })
    const text = await response.text()
    return { status: response.status, headers: response.headers,
      body: (response.headers.get('content-type') === 'application/json' ? JSON.parse(text) : text) as T }
  }
  return {
    ask,
    async create (prompt, more = {}, headers = {}) {
      const { status, body } = await ask('POST', '/videos', { model: 'clip', prompt, ...more }, headers)
      if (status !== 200) throw new Error(`${status}: ${JSON.stringify(body)}`)
      return body
    },
    ended: async (id) => await clock.until(async () => {
      const { body } = await ask('GET', `/videos/${id}`)
      return (body.status === 'completed' || body.status === 'failed') && body
    }),
    async entries () {
      const entries: Entry[] = []
      for await (const entry of gw.services.store.entries()) if (entry.kind !== 'credit') entries.push(entry)
      return entries
    }
  }
}

/** The error of an answer. */
export function errorIn ({ status, body }: Answered<unknown>): string {
  const { code, message } = (body as { error: { code: string, message: string } }).error
  return `${status} ${code}: ${message.replace(/ Request ID: req_\w+$/, '')}`
}
