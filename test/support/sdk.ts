// What the tests of unmodified SDKs share: a gateway whose requests pass every shipped plugin on their way to the
// simulator, the keys that it refuses, and a limit that frees itself while an SDK waits.
import type { Test } from 'tap'
import { startSimulator, type Simulator } from '../../src/simulator/simulator.ts'
import type { Entry } from '../../src/store/store.ts'
import { fate } from './client.ts'
import { gateway, yaml, type TestGateway } from './gateway.ts'
import { answer, errorReply, upstream, wait, type Upstream } from './upstream.ts'

const keyOf = (letter: string): string => 'sk-gw-' + letter.repeat(32)

/** Keys that are refused, each for a reason of its own. */
export const keys = {
  /** nobody's */
  wrong: keyOf('w'),
  /** its account has next to nothing */
  poor: keyOf('p'),
  /** its account is suspended */
  suspended: keyOf('s'),
  /** may use the cheap channel only, where nothing is sold */
  cheap: keyOf('c'),
  /** may ask once in a minute */
  slow: keyOf('o'),
  /** its requests break a plugin */
  unlucky: keyOf('u')
} as const

const PIPELINE =
  'auth, key-policy, rate-limit: { default_rpm: 100000 }, use: ./unlucky.ts, schema-validate, chat-to-messages, responses-to-messages: { keep: 1h }, channel-router, billing-meter, error-normalize'

/** A plugin of the operator's with a defect. */
const UNLUCKY = `export default {
  name: 'unlucky',
  create: () => ({ onHead ({ received }) { if (Object.values(received.headers).join().includes('${keys.unlucky}')) throw new Error('a defect') } })
}`

export interface Setting {
  readonly upstreams?: string
  readonly models?: string
  /** of the clients of the API */
  readonly timeouts?: string
  /** of `acme` */
  readonly balance?: string
}

/** `m1` can do all, `plain` only talks: it sees no images, does not think, and knows nothing of JSON Schemas. */
function sdkYaml (
  url: string,
  { upstreams = '', models = '', timeouts = 'hold_head: 10s', balance = '100' }: Setting
): string {
  const key = (id: Exclude<keyof typeof keys, 'wrong'>, account: string, more = ''): string =>
    `  - { id: ${id}, account: ${account}, secret: ${keys[id]}${more} }\n`
  return yaml([url], [
    key('poor', 'poor'),
    key('suspended', 'suspended'),
    key('cheap', 'acme', ', routing_mode: cheap, channels: [cheap]'),
    key('slow', 'acme', ', rate_limit: 1'),
    key('unlucky', 'acme')
  ].join(''), PIPELINE)
    .replace('hold_head: 10s', timeouts)
    .replace('opening_balance_usd: 100', `opening_balance_usd: ${balance}`)
    .replace('dialect: messages', 'dialect: messages, count_tokens: true')
    .replace('drain_timeout: 5s', 'drain_timeout: 5s\n  body_limit: 1MB')
    .replace('accepts: [text, image]', 'accepts: [text, image]\n    thinking: budget\n    structured_outputs: true')
    .replace('models:\n',
      `${upstreams}models:\n${models}  - { id: plain, name: Plain, provider: acme, created: 2025-11-01, context: 200000, max_output: 64000, channels: { premium: { price: { input: 1, output: 1 }, targets: [{ upstream: u0, model: vendor-plain }] } } }\n`)
    .replace('accounts:\n',
      'accounts:\n  - { id: poor, name: Poor, opening_balance_usd: 0.0001 }\n  - { id: suspended, name: Suspended, opening_balance_usd: 10, suspended: true }\n')
}

/** Before an upstream of the test's own. */
export async function sdkGateway (
  t: Test,
  url: string,
  { now, ...setting }: Setting & { readonly now?: () => number } = {}
): Promise<TestGateway> {
  return await gateway(t, sdkYaml(url, setting), { files: { 'unlucky.ts': UNLUCKY }, isForgetful: true,
    ...(now !== undefined && { now }) })
}

export interface Simulated {
  readonly gw: TestGateway
  readonly simulator: Simulator
  /** the body that came last to the simulator */
  lastBody (): Readonly<Record<string, unknown>>
  /** Waits until so many requests came to the simulator, and the last was given up by the gateway. */
  isLeft (count: number): Promise<void>
}

export async function simulated (t: Test, setting?: Setting): Promise<Simulated> {
  const simulator = await simulate(t, 'upstream-secret-0')
  return {
    gw: await sdkGateway(t, simulator.url, setting),
    simulator,
    lastBody: () => simulator.requests.at(-1)!.body as Readonly<Record<string, unknown>>,
    isLeft: async (count) => {
      await simulator.until(() =>
        simulator.requests.length === count && simulator.requests.at(-1)!.ended === 'client_left'
      )
    }
  }
}

export async function simulate (t: Test, key: string): Promise<Simulator> {
  const simulator = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0, keepBodyBytes: 1e6, key })
  t.teardown(() => simulator.close())
  return simulator
}

/** The form of a signature that the client has. */
export const SEALED = /^gwseal1_[\w-]{60,}$/
/** The form of the simulator's own signature. */
export const THEIRS = /^[A-Za-z0-9+/]{43}=$/

/** Content in which each signature of that form is 'signed': what a client has can be compared with what was sent. */
export function asSigned (content: unknown, form: RegExp): unknown {
  return (content as readonly { readonly type: string, readonly signature?: string }[]).map((block) =>
    block.signature !== undefined && form.test(block.signature) ? { ...block, signature: 'signed' } : block
  )
}

/** What an SDK throws. */
export async function thrown (work: PromiseLike<unknown>): Promise<unknown> {
  try {
    await work
  } catch (error) {
    return error
  }
  throw new Error('nothing was thrown')
}

/** What a request was charged. */
export async function chargeOf (gw: TestGateway, id: string | null | undefined): Promise<Entry> {
  const { entries, openHolds } = await fate(gw, String(id))
  if (entries.length !== 1 || openHolds !== 0) throw new Error(`${entries.length} entries, ${openHolds} holds`)
  return entries[0]!
}

export interface Freeing {
  readonly url: string
  /** Uses up the key `slow`, for 900 ms from the moment in which the SDK with this `fetch` is refused. */
  useUp (): Promise<{ readonly fetch: typeof globalThis.fetch, readonly statuses: readonly number[] }>
}

/**
 * A limit that frees itself. The waits that SDKs choose by themselves are half a second at first: who does not do as it
 * is told is refused again. The clock stands until then, and no machine is too slow for that.
 */
export async function freeing (t: Test): Promise<Freeing> {
  let clock = 1_800_000_000_000
  let refusedAt: number | undefined
  const now = (): number => clock + (refusedAt === undefined ? 0 : Math.ceil(performance.now() - refusedAt))
  const gw = await sdkGateway(t, (await upstream(t, answer('Hello again'))).url, { now })
  return {
    url: gw.url,
    async useUp () {
      clock = now() + 60_000
      refusedAt = undefined
      const first = await gw.messages({ model: 'm1', max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }] },
        { headers: { 'x-api-key': keys.slow } })
      if (first.status !== 200) throw new Error(await first.text())
      clock += 59_100
      const statuses: number[] = []
      return {
        statuses,
        async fetch (input, init) {
          const response = await fetch(input, init)
          statuses.push(response.status)
          if (response.status === 429) refusedAt ??= performance.now()
          return response
        }
      }
    }
  }
}

/** Answers all requests with a 529 that asks to wait for a second, but those with 100 `max_tokens`: they are wrong. */
export async function overloaded (t: Test): Promise<{ readonly url: string, readonly up: Upstream }> {
  const up = await upstream(t, ({ body }) =>
    body!['max_tokens'] === 100
      ? errorReply(400, 'invalid_request_error', 'messages: no')
      : errorReply(529, 'overloaded_error', 'Overloaded', { 'retry-after': '1' }))
  const { url } = await sdkGateway(t, up.url)
  return { url, up }
}

/**
 * Is silent until the client has read a ping, which is long after the gateway said 200; then it answers as `overloaded`
 * does, but that 200 `max_tokens` get a whole answer.
 */
export async function late (t: Test): Promise<{ readonly url: string, readonly fetch: typeof globalThis.fetch }> {
  let pinged = Promise.withResolvers<void>()
  const up = await upstream(t, (
    { body }
  ) => [wait(pinged.promise),
    body!['max_tokens'] === 200 ? answer('At last') : errorReply(529, 'overloaded_error', 'Overloaded')])
  const { url } = await sdkGateway(t, up.url, { timeouts: 'hold_head: 20ms, ping: 20ms' })
  return {
    url,
    async fetch (input, init) {
      pinged = Promise.withResolvers()
      const response = await fetch(input, init)
      const spy = new TransformStream<Uint8Array, Uint8Array>({
        transform (chunk, out) {
          if (/ping|keepalive/.test(Buffer.from(chunk).toString('latin1'))) pinged.resolve()
          out.enqueue(chunk)
        }
      })
      return new Response(response.body!.pipeThrough(spy), response)
    }
  }
}
