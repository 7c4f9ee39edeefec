// A gateway that sells images, in front of two simulators: one for each channel. What a vendor does is told by the name
// that it knows the model by.
import type { Test } from 'tap'
import { startSimulator, type Simulator, type SimulatorOptions } from '../../src/simulator/simulator.ts'
import { fate, type Fate } from './client.ts'
import { CALM, gateway, yaml, type TestGateway } from './gateway.ts'

const PIPELINE =
  'auth, key-policy, rate-limit: { default_rpm: 0, default_concurrency: 0 }, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize'

export const modes = ['premium', 'cheap', 'auto_cheap', 'max', 'auto_premium'] as const
export type Mode = typeof modes[number]

/** Of the account `acme`, in this routing mode. */
export const keyOf = (mode: string): string => 'sk-gw-' + mode.replaceAll('_', '').padEnd(32, '0')

/** By resolution and channel, USD: 4K is not sold in cheap. */
export const PRICES = { premium: { '1K': '0.039', '2K': '0.06', '4K': '0.12' },
  cheap: { '1K': '0.02', '2K': '0.03' } } as const

/** Of the resolutions. */
const PIXELS: Readonly<Record<string, number>> = { '1K': 1_100_000, '2K': 4_200_000, '4K': 17_000_000 }

/** A target that says nothing until the gateway has waited long enough; only of the cheap channel. */
export const TIMES_OUT = 'times-out'

interface Sold {
  /** the name that the vendor of the channel knows it by; absent: not sold there */
  readonly premium?: string
  readonly cheap?: string
  readonly more?: string
}

/** An image model with the resolutions of `PRICES`. */
export function imageModel (id: string, { premium, cheap, more = 'accepts: [text, image]' }: Sold): string {
  const channel = (name: 'premium' | 'cheap', target: string | undefined): string => target === undefined ? '' : `
      ${name}:
        price: [${Object.entries(PRICES[name]).map(([resolution, usd]) => `{ when: { resolution: ${resolution} }, usd: ${usd} }`).join(', ')}]
        targets: [{ upstream: ${target === TIMES_OUT ? 'impatient' : name}, model: ${target === TIMES_OUT ? 'sim-stall' : target} }]`
  const values = Object.keys(PRICES[premium === undefined ? 'cheap' : 'premium'])
  return `  - id: ${id}
    provider: acme
    kind: image
    created: 2025-11-20
    ${more}
    parameters: { resolution: { values: [${values.join(', ')}], default: 1K, max_pixels: { ${values.map((value) => `${value}: ${PIXELS[value]!}`).join(', ')} } } }
    channels:${channel('premium', premium)}${channel('cheap', cheap)}
`
}

export interface Setting {
  /** of gateway.yaml, below `models:` */
  readonly models?: string
  /** options of both upstreams */
  readonly options?: string
  /** more upstreams */
  readonly upstreams?: string
  readonly simulators?: SimulatorOptions
  readonly balance?: string
  readonly server?: string
  /** options of the public listener */
  readonly listener?: string
  readonly keys?: string
  readonly store?: string
  readonly now?: () => number
  readonly isForgetful?: boolean
}

export interface ImageGateway {
  readonly gw: TestGateway
  readonly premium: Simulator
  readonly cheap: Simulator
  /** channels in the order in which their vendors were asked, since the last call */
  asked (): readonly ('premium' | 'cheap')[]
}

export async function imageGateway (t: Test, setting: Setting = {}): Promise<ImageGateway> {
  const simulators = { firstDelayMs: 0, tokenDelayMs: 0, ...setting.simulators }
  const [premium, cheap] = await Promise.all([startSimulator(simulators), startSimulator(simulators)])
  t.teardown(() => Promise.all([premium.close(), cheap.close()]))
  let order: ('premium' | 'cheap')[] = []
  premium.events.on('open', ({ method }) => {
    if (method === 'POST') order.push('premium')
  })
  cheap.events.on('open', ({ method }) => {
    if (method === 'POST') order.push('cheap')
  })
  const gw = await gateway(t, imageYaml(premium.url, cheap.url, setting), { isForgetful: setting.isForgetful === true,
    ...(setting.now !== undefined && { now: setting.now }) })
  return {
    gw, premium, cheap,
    asked () {
      const before = order
      order = []
      return before
    }
  }
}

export function imageYaml (
  premium: string,
  cheap: string,
  {
    models = imageModel('nano', { premium: 'nano', cheap: 'nano' }),
    options = '',
    upstreams = '',
    balance = '100',
    server = '',
    listener = '',
    keys = '',
    store
  }: Setting = {}
): string {
  const upstream = (name: string, url: string, more = ''): string =>
    `  ${name}: { url: "${url}", dialect: images, ${CALM}, headers: { authorization: "Bearer upstream-secret" }${options}${more} }\n`
  const own = modes.map((mode) => `  - { id: ${mode}, account: acme, secret: ${keyOf(mode)}, routing_mode: ${mode} }\n`)
    .join('')
  const text = yaml([], '', PIPELINE)
    .replace(/upstreams:\n[^]*(?=accounts:)/, `upstreams:\n${upstream('premium', premium)}${upstream('cheap', cheap)}${upstream('impatient', cheap, ', timeouts: { first_byte: 50ms }')}${upstreams}models:\n${models}`)
    .replace(/keys:\n[^]*$/, `keys:\n${own}${keys}`)
    .replace('opening_balance_usd: 100', `opening_balance_usd: ${balance}`)
    .replace('  drain_timeout: 5s', `  drain_timeout: 5s\n${server}`)
    .replace('public: { listen: "127.0.0.1:0" }', `public: { listen: "127.0.0.1:0"${listener} }`)
  return store === undefined ? text : text.replace(/store: .*/, `store: ${store}`)
}

export interface Told extends Fate {
  readonly status: number
  readonly headers: Headers
  readonly body: {
    readonly usage?: Readonly<Record<string, unknown>>,
    readonly data?: readonly { readonly url?: string, readonly b64_json?: string, readonly revised_prompt?: string }[],
    readonly channel?: string,
    readonly created?: number,
    readonly error?: { readonly code: string, readonly message: string, readonly param: string | null,
      readonly charged_usd: string }
  }
}

/** An answer, or an error, and what became of the request. */
export async function ask (
  gw: TestGateway,
  body: unknown,
  { key = 'premium', path = '/v1/images/generations' }: { readonly key?: string, readonly path?: string } = {}
): Promise<Told> {
  const isForm = body instanceof FormData
  const response = await fetch(gw.url + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${keyOf(key)}`, ...(!isForm && { 'content-type': 'application/json' }) },
    body: isForm ? body : JSON.stringify(body)
  })
  const told = await response.json() as Told['body']
  return { status: response.status, headers: response.headers, body: told,
    ...await fate(gw, response.headers.get('x-request-id')!) }
}
