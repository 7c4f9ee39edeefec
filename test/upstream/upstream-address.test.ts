// Where an upstream is asked: `url` with the version or without, for every dialect and for what is forwarded unread, as
// the other end of a socket sees it.
import { once } from 'node:events'
import t, { type Test } from 'tap'
import { CALM, gateway, KEY } from '../support/gateway.ts'
import { json, upstream } from '../support/upstream.ts'
import { socketUpstream } from '../support/websocket.ts'

const MESSAGE = { id: 'msg_1', type: 'message', role: 'assistant', model: 'v', content: [{ type: 'text', text: 'Hi' }],
  stop_reason: 'end_turn', stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } }
const COMPLETION = { id: 'c1', object: 'chat.completion', created: 1, model: 'v',
  choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'Hi' } }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } }
const VIDEO = { id: 'video_1', object: 'video', model: 'v', status: 'completed', progress: 100, created_at: 1,
  seconds: '4', size: '1280x720' }
const HELLO = [{ role: 'user', content: 'Hello' }]

/** What a vendor of every dialect answers, by the end of the address: the beginning is what is looked at. */
function answer (method: string, path: string): unknown {
  if (method === 'POST' && path.endsWith('/videos')) return { ...VIDEO, status: 'queued', progress: 0 }
  if (path.endsWith('/count_tokens')) return { input_tokens: 7 }
  if (path.endsWith('/messages')) return MESSAGE
  if (path.endsWith('/chat/completions')) return COMPLETION
  if (path.endsWith('/images/generations')) return { created: 1, data: [{ url: 'http://127.0.0.1:9/a.png' }] }
  return path.includes('/videos') ? VIDEO : { path }
}

function yaml (base: string, socketBase: string): string {
  const text = (id: string, target: string): string => `
  - { id: ${id}, provider: acme, kind: text, created: 2025-09-29, context: 200000, max_output: 64000, channels: { premium: { price: free, targets: [{ upstream: ${target}, model: v }] } } }`
  return `
server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: test-admin-token }
store: { driver: memory, path: ./data }
videos: { poll_interval: 1s }
pipeline: [auth, chat-to-messages, channel-router, billing-meter, error-normalize]
upstreams:
  messages: { url: "${base}", dialect: messages, count_tokens: true, ${CALM} }
  chat: { url: "${base}", dialect: chat, ${CALM} }
  images: { url: "${base}", dialect: images, ${CALM} }
  videos: { url: "${base}", dialect: videos, ${CALM} }
  sockets: { url: "${socketBase}", ${CALM} }
models:${text('m', 'messages')}${text('c', 'chat')}
  - { id: i, provider: acme, kind: image, created: 2025-09-29, channels: { premium: { price: free, targets: [{ upstream: images, model: v }] } } }
  - { id: w, provider: acme, kind: video, created: 2025-09-29, parameters: { seconds: { values: [4], default: 4 } }, channels: { premium: { price: free, targets: [{ upstream: videos, model: v }] } } }
accounts: [{ id: acme, opening_balance_usd: 100 }]
keys: [{ id: acme-dev, account: acme, secret: ${KEY} }]
routes:
  - { match: "GET,POST /v1/files/*", forward: messages, price: free }
  - { match: "GET /v1/realtime", forward: sockets, websocket: true, price: free }
  - { match: "GET /other/*", forward: messages, price: free }
`
}

/** Each address once, in the order in which they were asked. */
async function asked (t: Test, suffix: string): Promise<readonly string[]> {
  const up = await upstream(t, ({ method, path }) => json(answer(method, path)))
  const sockets = await socketUpstream(t, ({ socket }) => {
    socket.end('HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n')
  })
  const gw = await gateway(t, yaml(up.url + suffix, sockets.url + suffix))
  const headers = { 'x-api-key': KEY, 'content-type': 'application/json' }
  const post = async (path: string, body: unknown): Promise<Record<string, unknown>> => {
    const response = await fetch(gw.url + path, { method: 'POST', headers, body: JSON.stringify(body) })
    const read = await response.json() as Record<string, unknown>
    if (response.status !== 200) throw new Error(`${path} ${JSON.stringify(read)}`)
    return read
  }
  await post('/v1/messages', { model: 'm', max_tokens: 5, messages: HELLO })
  await post('/v1/messages/count_tokens', { model: 'm', messages: HELLO })
  await post('/v1/messages', { model: 'c', max_tokens: 5, messages: HELLO })
  await post('/v1/images/generations', { model: 'i', prompt: 'a cat' })
  const { id } = await post('/v1/videos', { model: 'w', prompt: 'a cat' })
  for (;;) {
    const video = await (await fetch(`${gw.url}/v1/videos/${String(id)}`, { headers })).json() as {
      readonly status: string
    }
    if (video.status === 'completed') break
  }
  await (await fetch(`${gw.url}/v1/videos/${String(id)}/content`, { headers })).arrayBuffer()
  await post('/v1/files/a?b=c', {})
  await (await fetch(`${gw.url}/other/v1/x`, { headers })).arrayBuffer()
  const socket = new WebSocket(gw.url.replace('http', 'ws') + '/v1/realtime?x=1', ['realtime',
    `openai-insecure-api-key.${KEY}`])
  await once(socket, 'error')
  return [
    ...new Set([...up.requests.map(({ method, url }) => `${method} ${url}`),
      `${sockets.visitors[0]!.request.method} ${sockets.visitors[0]!.request.url}`])
  ]
}

function addresses (
  { messages, openai, forwarded, base }: { readonly messages: string, readonly openai: string,
    readonly forwarded: string, readonly base: string }
): readonly string[] {
  return [
    `POST ${messages}/messages`,
    `POST ${messages}/messages/count_tokens`,
    `POST ${openai}/chat/completions`,
    `POST ${openai}/images/generations`,
    `POST ${openai}/videos`,
    `GET ${openai}/videos/video_1`,
    `GET ${openai}/videos/video_1/content`,
    `POST ${forwarded}/files/a?b=c`,
    `GET ${base}/other/v1/x`,
    `GET ${forwarded}/realtime?x=1`
  ]
}

for (const [suffix, expected] of [
  ['', { messages: '/v1', openai: '/v1', forwarded: '/v1', base: '' }],
  ['/v1', { messages: '/v1', openai: '/v1', forwarded: '/v1', base: '/v1' }],
  ['/v1/', { messages: '/v1', openai: '/v1', forwarded: '/v1', base: '/v1' }],
  ['/anthropic', { messages: '/anthropic/v1', openai: '/anthropic/v1', forwarded: '/anthropic/v1',
    base: '/anthropic' }],
  ['/anthropic/v1', { messages: '/anthropic/v1', openai: '/anthropic/v1', forwarded: '/anthropic/v1',
    base: '/anthropic/v1' }],
  ['/api/v4', { messages: '/api/v4', openai: '/api/v4', forwarded: '/api/v4/v1', base: '/api/v4' }],
  // A proxy with a version of its own, such as Cloudflare's AI gateway.
  ['/v1/account/name/vendor', { messages: '/v1/account/name/vendor/v1', openai: '/v1/account/name/vendor',
    forwarded: '/v1/account/name/vendor/v1', base: '/v1/account/name/vendor' }]
] as const) {
  t.test(`url: http://HOST${suffix}`, async (t) => {
    t.strictSame(new Set(await asked(t, suffix)), new Set(addresses(expected)))
  })
}
