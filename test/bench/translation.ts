// Contender: the least that a translating gateway does, on undici. It reads and parses the body, translates it (chat or
// responses to messages) or only renames the model (messages), calls, parses the reply or each event, renames or
// translates it back, encodes it and writes it: one write per upstream chunk, as we do. No keys, no limits, no money,
// no metrics, no log, no failover. Arguments: our port, the upstream's port.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { Pool } from 'undici'
import { publicModel, upstreamModel } from './payloads.ts'

interface Part { readonly type: string, readonly image_url?: { readonly url: string } }

interface ResponsePart { readonly type: string, readonly text?: string, readonly image_url?: string }

interface ClientRequest {
  readonly max_tokens: number
  /** of a Responses request, as all that is not in one of chat style */
  readonly max_output_tokens: number
  readonly instructions: string
  readonly input: ReadonlyArray<{ readonly role: string, readonly content: string | readonly ResponsePart[] }>
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

const imageFrom = (url: string): object =>
  ({ type: 'image', source: { type: 'base64', media_type: 'image/png', data: url.slice(url.indexOf(',') + 1) } })
const partFromChat = (part: Part): object => part.image_url === undefined ? part : imageFrom(part.image_url.url)
const partFromResponses = ({ text, image_url: url }: ResponsePart): object =>
  url === undefined ? { type: 'text', text } : imageFrom(url)

const requestFromChat = ({ max_tokens, stream, temperature, messages }: ClientRequest): object => ({
  model: upstreamModel, max_tokens, stream, temperature,
  system: messages.filter(({ role }) => role === 'system').map(({ content }) => content).join('\n'),
  messages: messages.filter(({ role }) => role !== 'system').map(({ role, content }) => ({
    role, content: typeof content === 'string' ? content : content.map(partFromChat)
  }))
})

const requestFromResponses = (
  { max_output_tokens: max, stream, temperature, instructions, input }: ClientRequest
): object => ({
  model: upstreamModel, max_tokens: max, stream, temperature, system: instructions,
  messages: input.map(({ role, content }) => ({
    role, content: typeof content === 'string' ? content : content.map(partFromResponses)
  }))
})

const responseOf = (status: string, text?: string): object => ({
  id: 'resp_1', object: 'response', created_at: 1760000000, status, model: publicModel,
  output: text === undefined ? [] : [itemOf(text)]
})
const itemOf = (text?: string): object => ({ id: 'msg_1', type: 'message', role: 'assistant',
  content: text === undefined ? [] : [{ type: 'output_text', text, annotations: [], logprobs: [] }] })

const replyToResponse = ({ content }: MessageReply): object =>
  responseOf('completed', content.map(({ text }) => text).join(''))

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

/** Turns one stream of events into another, and keeps the text and the count that the last events repeat. */
class ResponseEvents {
  #count = 0
  #text = ''

  event (name: string, { delta }: MessageEvent): string {
    const place = { item_id: 'msg_1', output_index: 0, content_index: 0 }
    switch (name) {
      case 'message_start': return this.#say('response.created', { response: responseOf('in_progress') })
      case 'content_block_start': return this.#say('response.output_item.added', { output_index: 0, item: itemOf() }) +
        this.#say('response.content_part.added', { ...place, part: { type: 'output_text', text: '', annotations: [] } })
      case 'content_block_delta':
        this.#text += delta?.text ?? ''
        return this.#say('response.output_text.delta', { ...place, delta: delta?.text, logprobs: [] })
      case 'content_block_stop': return this.#say('response.output_text.done', { ...place, text: this.#text }) +
        this.#say('response.output_item.done', { output_index: 0, item: itemOf(this.#text) })
      case 'message_stop': return this.#say('response.completed', { response: responseOf('completed', this.#text) })
    }
    return ''
  }

  #say (type: string, fields: object): string {
    return `event: ${type}\ndata: ${JSON.stringify({ type, sequence_number: this.#count++, ...fields })}\n\n`
  }
}

function eventToMessages (name: string, event: MessageEvent): string {
  if (event.message !== undefined) event.message.model = publicModel
  return `event: ${name}\ndata: ${JSON.stringify(event)}\n\n`
}

/** What becomes of one event's data. */
type Translate = (name: string, json: MessageEvent) => string

function translateEvent (text: string, translate: Translate): string {
  let name = ''
  let data = ''
  for (const line of text.split('\n')) {
    if (line.startsWith('event: ')) name = line.slice(7)
    else if (line.startsWith('data: ')) data += line.slice(6)
  }
  return translate(name, JSON.parse(data) as MessageEvent)
}

interface Style {
  readonly request: (body: ClientRequest) => object
  readonly reply: (reply: MessageReply) => object
  readonly events: () => Translate
}

const styles: Readonly<Record<string, Style>> = {
  '/v1/chat/completions': { request: requestFromChat, reply: replyToChat, events: () => eventToChat },
  '/v1/responses': { request: requestFromResponses, reply: replyToResponse, events: () => {
    const own = new ResponseEvents()
    return (name, json) => own.event(name, json)
  } }
}
const messages: Style = {
  request: (body) => ({ ...body, model: upstreamModel }),
  reply: (reply) => ({ ...reply, model: publicModel }),
  events: () => eventToMessages
}

function serve (req: IncomingMessage, res: ServerResponse): void {
  const pieces: Buffer[] = []
  req.on('data', (piece: Buffer) => pieces.push(piece))
  req.on('end', () => {
    const style = styles[req.url!] ?? messages
    const body = JSON.parse(Buffer.concat(pieces).toString()) as ClientRequest
    call(res, JSON.stringify(style.request(body)), style)
  })
}

function call (res: ServerResponse, body: string, style: Style): void {
  const translate = style.events()
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
      for (const event of events) out += translateEvent(event, translate)
      if (out !== '' && !res.write(out)) controller.pause()
    },
    onResponseEnd () {
      hasEnded = true
      if (isStream) return void res.end()
      const reply = JSON.parse(Buffer.concat(pieces).toString()) as MessageReply
      const text = JSON.stringify(style.reply(reply))
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
