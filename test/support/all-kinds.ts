// A gateway that sells models of every kind, and a vendor of them all that the test scripts. For what holds for each
// kind alike.
import { KEY, type TestGateway } from './gateway.ts'
import { answer, json, type Received, type Script } from './upstream.ts'

export const secretOf = (id: string): string => 'sk-gw-' + id.replaceAll('-', '').padStart(32, '0')

/**
 * Text: `sonnet` and `opus` at `one`, `both` in two channels at `one` and `two`. An image: `nano` in two channels. A
 * video: `clip`.
 * @param more at the end of the file, which is the list of keys
 */
export function kindsYaml (url: string, more = ''): string {
  const text = (upstream: string, model: string, price = '{ input: 3, output: 15 }'): string =>
    `{ price: ${price}, targets: [{ upstream: ${upstream}, model: ${model} }] }`
  return `
server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: test-admin-token }
  drain_timeout: 5s
store: { driver: memory, path: ./data }
pipeline: [auth, key-policy, rate-limit: { default_rpm: 0, default_concurrency: 0 }, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize]
upstreams:
  one: { url: "${url}/one", headers: { x-api-key: secret }, count_tokens: true }
  two: { url: "${url}/two", headers: { x-api-key: secret } }
  painter: { url: "${url}/painter", dialect: images }
  sketcher: { url: "${url}/sketcher", dialect: images }
  studio: { url: "${url}/studio", dialect: videos }
models:
  - { id: sonnet, provider: acme, created: 2025-09-29, context: 200000, max_output: 64000, channels: { premium: ${text('one', 'vendor-sonnet')} } }
  - { id: opus, provider: acme, created: 2025-11-24, context: 200000, max_output: 32000, channels: { premium: ${text('one', 'vendor-opus', '{ input: 15, output: 75 }')} } }
  - { id: both, provider: acme, created: 2025-09-29, context: 200000, max_output: 64000, channels: { premium: ${text('one', 'vendor-big')}, cheap: ${text('two', 'vendor-small', '{ input: 1, output: 5 }')} } }
  - { id: nano, kind: image, provider: acme, created: 2025-11-20, channels: { premium: ${text('painter', 'vendor-nano', '[{ usd: 0.04 }]')}, cheap: ${text('sketcher', 'vendor-nano', '[{ usd: 0.01 }]')} } }
  - { id: clip, kind: video, provider: acme, created: 2025-10-06, parameters: { seconds: { values: [4], default: 4 } }, channels: { premium: ${text('studio', 'vendor-clip', '[{ usd_per_second: 0.1 }]')} } }
accounts:
  - { id: acme, opening_balance_usd: 100 }
  - { id: strict, opening_balance_usd: 100, allow_fallback: false }
keys:
  - { id: acme-dev, account: acme, secret: ${KEY} }
  - { id: cheap, account: acme, secret: ${secretOf('cheap')}, routing_mode: cheap }
  - { id: auto-cheap, account: acme, secret: ${secretOf('auto-cheap')}, routing_mode: auto_cheap }
  - { id: strict, account: strict, secret: ${secretOf('strict')}, routing_mode: auto_cheap }
${more}`
}

/** What each kind is told that it wanted. */
export function allKinds ({ path }: Received): Script {
  if (path.endsWith('/count_tokens')) return json({ input_tokens: 4242 })
  if (path.includes('/images/')) return json({ created: 1, data: [{ b64_json: 'iVBORw0KGgo=' }] })
  if (path.includes('/videos')) return json({ id: 'video_1', object: 'video', status: 'queued', progress: 0 })
  return answer('Hi', { usage: { input_tokens: 10, output_tokens: 5 } })
}

export interface Told {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  /** of an answer that is JSON */
  readonly body: Readonly<Record<string, unknown>>
  /** of an error, in whichever format */
  readonly code: string | undefined
  readonly message: string
  readonly id: string
}

const PROMPTS: Readonly<Record<string, object>> = {
  '/v1/messages': { max_tokens: 50, messages: [{ role: 'user', content: 'Hello' }] },
  '/v1/messages/count_tokens': { messages: [{ role: 'user', content: 'Hello' }] },
  '/v1/chat/completions': { messages: [{ role: 'user', content: 'Hello' }] },
  '/v1/responses': { input: 'Hello' },
  '/v1/images/generations': { prompt: 'A cat' },
  '/v1/videos': { prompt: 'A cat' }
}

/** Asks for a model at an address, in the words of that address. @param key the id of one; undefined: the test's own */
export async function askFor (
  gw: TestGateway,
  path: string,
  model: string,
  more: object = {},
  key?: string
): Promise<Told> {
  return await send(gw, 'POST', path, { model, ...PROMPTS[path], ...more }, key)
}

export async function send (
  gw: TestGateway,
  method: string,
  path: string,
  body?: unknown,
  key?: string
): Promise<Told> {
  const response = await fetch(gw.url + path, {
    method,
    headers: { authorization: `Bearer ${key === undefined ? KEY : secretOf(key)}`,
      ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { body: JSON.stringify(body) })
  })
  const text = await response.text()
  const parsed = response.headers.get('content-type') === 'application/json'
    ? JSON.parse(text) as Readonly<Record<string, unknown>>
    : {}
  const error = parsed['error'] as { code?: string, message: string, details?: { error_code: string } } | undefined
    | null
  return {
    status: response.status, headers: response.headers, text, body: parsed,
    code: error?.details?.error_code ?? error?.code,
    message: error?.message.replace(/ Request ID: \S+$/, '') ?? '',
    id: response.headers.get('x-request-id')!
  }
}
