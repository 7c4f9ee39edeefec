// Contender: the least that a translating gateway does, on undici. It reads and parses the body, translates it (chat to
// messages) or only renames the model (messages), calls, parses the reply or each event, renames or translates it back,
// encodes it and writes it: one write per upstream chunk, as we do. No keys, no limits, no money, no metrics, no log,
// no failover. Arguments: our port, the upstream's port.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { Pool } from 'undici'
import { publicModel, upstreamModel } from './payloads.ts'

interface Part { readonly type: string, readonly image_url?: { readonly url: string } }

interface ClientRequest {
  readonly max_tokens: number
  readonly stream: boolean
  readonly temperature: number
  readonly messages: ReadonlyArray<{ readonly role: string, readonly content: string | readonly Part[] }>
}

interface MessageReply {
  readonly id: string
  readonly content: ReadonlyArray<{ readonly text?: string }>
  readonly usage: { readonly input_tokens: number, readonly output_tokens: number }
}

interface MessageEvent {
  readonly message?: { model: string }
  readonly delta?: { readonly text?: string }
}

const [port, upstreamPort] = process.argv.slice(2).map(Number)
const pool = new Pool(`http://127.0.0.1:${upstreamPort}`)

const partFromChat = (part: Part): object =>
  part.image_url === undefined ? part : {
    type: 'image',
    source: { type: 'base64', media_type: 'image/png',
      data: part.image_url.url.slice(part.image_url.url.indexOf(',') + 1) }
  }

const requestFromChat = ({ max_tokens, stream, temperature, messages }: ClientRequest): object => ({
  model: upstreamModel, max_tokens, stream, temperature,
  system: messages.filter(({ role }) => role === 'system').map(({ content }) => content).join('\n'),
  messages: messages.filter(({ role }) => role !== 'system').map(({ role, content }) => ({
    role, content: typeof content === 'string' ? content : content.map(partFromChat)
  }))
})

const replyToChat = ({ id, content, usage }: MessageReply): object => ({
  id,
  object: 'chat.completion',
  created: 1760000000,
  model: publicModel,
  choices: [{ index: 0, message: { role: 'assistant', content: content.map(({ text }) => text).join('') },
    finish_reason: 'stop' }],
  usage: { prompt_tokens: usage.input_tokens, completion_tokens: usage.output_tokens }
})

function eventToChat (name: string, { delta }: MessageEvent): string {
  const chunk = (delta: object, reason: string | null): string => `data: ${JSON.stringify({
    id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1760000000, model: publicModel, choices: [{
      index: 0,
      delta,
      finish_reason: reason
    }]
  })}\n\n`
  if (name === 'message_start') return chunk({ role: 'assistant', content: '' }, null)
  if (name === 'content_block_delta') return chunk({ content: delta?.text }, null)
  if (name === 'message_delta') return chunk({}, 'stop')
  return name === 'message_stop' ? 'data: [DONE]\n\n' : ''
}

function eventToMessages (name: string, event: MessageEvent): string {
  if (event.message !== undefined) event.message.model = publicModel
  return `event: ${name}\ndata: ${JSON.stringify(event)}\n\n`
}

/** @returns what becomes of one event's text */
function translateEvent (text: string, isChat: boolean): string {
  let name = ''
  let data = ''
  for (const line of text.split('\n')) {
    if (line.startsWith('event: ')) name = line.slice(7)
    else if (line.startsWith('data: ')) data += line.slice(6)
  }
  const json = JSON.parse(data) as MessageEvent
  return isChat ? eventToChat(name, json) : eventToMessages(name, json)
}

function serve (req: IncomingMessage, res: ServerResponse): void {
  const pieces: Buffer[] = []
  req.on('data', (piece: Buffer) => pieces.push(piece))
  req.on('end', () => {
    const isChat = req.url === '/v1/chat/completions'
    const body = JSON.parse(Buffer.concat(pieces).toString()) as ClientRequest
    call(res, JSON.stringify(isChat ? requestFromChat(body) : { ...body, model: upstreamModel }), isChat)
  })
}

function call (res: ServerResponse, body: string, isChat: boolean): void {
  const decoder = new TextDecoder()
  const pieces: Buffer[] = []
  let isStream = false
  let rest = ''
  let hasEnded = false
  pool.dispatch({ method: 'POST', path: '/v1/messages',
    headers: { 'content-type': 'application/json', 'x-api-key': 'bench' }, body }, {
    onRequestStart (controller) {
      res.on('close', () => { if (!hasEnded) controller.abort(new Error('the client left')) })
      res.on('drain', () => controller.resume())
    },
    onResponseStart (_controller, status, headers) {
      isStream = String(headers['content-type']).startsWith('text/event-stream')
      if (isStream) res.writeHead(status, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
    },
    onResponseData (controller, chunk) {
      if (!isStream) return void pieces.push(chunk)
      const events = (rest + decoder.decode(chunk, { stream: true })).split('\n\n')
      rest = events.pop() ?? ''
      let out = ''
      for (const event of events) out += translateEvent(event, isChat)
      if (out !== '' && !res.write(out)) controller.pause()
    },
    onResponseEnd () {
      hasEnded = true
      if (isStream) return void res.end()
      const reply = JSON.parse(Buffer.concat(pieces).toString()) as MessageReply
      const text = JSON.stringify(isChat ? replyToChat(reply) : { ...reply, model: publicModel })
      res.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }).end(text)
    },
    onResponseError () {
      hasEnded = true
      res.destroy()
    }
  })
}

const server = createServer(serve)
server.keepAliveTimeout = 60_000
server.listen(port, '127.0.0.1', 4096)
process.on('SIGTERM', () => process.exit(0))
