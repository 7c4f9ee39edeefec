// How each address of the API is asked, and what its answers say: as JSON, and as a stream that comes in pieces.
import { eventReader } from './sse.ts'

/** What the reader of the page wants, as its fields have it; empty: it is left out. */
export interface Wish {
  readonly model: string
  readonly prompt: string
  readonly system: string
  readonly maxTokens: string
  readonly temperature: string
  readonly isStream: boolean
  /** of an image or video model */
  readonly choices: Readonly<Record<string, string>>
}

export type Request = Readonly<Record<string, unknown>>

export interface Way {
  readonly path: string
  readonly name: string
  /** of the models that it takes */
  readonly kind: string
  readonly body: (wish: Wish) => Request
}

export const anthropicWay: Way = {
  path: '/v1/messages',
  name: 'POST /v1/messages (Anthropic)',
  kind: 'text',
  body: (wish) => ({ model: wish.model, ...number('max_tokens', wish.maxTokens), ...text('system', wish.system),
    ...number('temperature', wish.temperature), messages: [{ role: 'user', content: wish.prompt }], ...streamed(wish) })
}

export const openaiWay: Way = {
  path: '/v1/chat/completions',
  name: 'POST /v1/chat/completions (OpenAI)',
  kind: 'text',
  body: (wish) => ({ model: wish.model, ...number('max_tokens', wish.maxTokens),
    ...number('temperature', wish.temperature),
    messages: [...wish.system === '' ? [] : [{ role: 'system', content: wish.system }],
      { role: 'user', content: wish.prompt }], ...streamed(wish) })
}

export const responsesWay: Way = {
  path: '/v1/responses',
  name: 'POST /v1/responses (OpenAI)',
  kind: 'text',
  body: (wish) => ({ model: wish.model, ...number('max_output_tokens', wish.maxTokens),
    ...text('instructions', wish.system), ...number('temperature', wish.temperature), input: wish.prompt, store: false,
    ...streamed(wish) })
}

/** Base64, because the link would lead to another address, from which this page loads nothing. */
export const imageWay: Way = {
  path: '/v1/images/generations',
  name: 'POST /v1/images/generations',
  kind: 'image',
  body: (wish) => ({ model: wish.model, prompt: wish.prompt, ...chosen(wish), response_format: 'b64_json' })
}

export const videoWay: Way = {
  path: '/v1/videos',
  name: 'POST /v1/videos',
  kind: 'video',
  body: (wish) => ({ model: wish.model, prompt: wish.prompt, ...chosen(wish) })
}

export const ways: readonly Way[] = [anthropicWay, openaiWay, responsesWay, imageWay, videoWay]

/** A part of the tried answer, as the admin API passes it on. */
export type TrialEvent = { readonly ms: number } & (
  { readonly kind: 'head', readonly status: number, readonly headers: Readonly<Record<string, string>> } |
  { readonly kind: 'piece', readonly text: string } | { readonly kind: 'end', readonly is_whole: boolean })

interface Said {
  readonly message?: string
  readonly code?: string | null
  readonly type?: string
}

/** Whatever an answer, or an event of one, may hold. */
interface Data {
  readonly id?: string
  readonly type?: string
  readonly delta?: string | { readonly text?: string }
  readonly choices?: readonly { readonly delta?: { readonly content?: string | null },
    readonly message?: { readonly content?: string | null } }[]
  readonly content?: readonly { readonly text?: string }[]
  readonly output?: readonly { readonly content?: readonly { readonly text?: string }[] }[]
  readonly data?: readonly { readonly b64_json?: string, readonly url?: string }[]
  readonly error?: Said | null
  readonly response?: { readonly error?: Said | null }
}

/** Characters of what came that are kept for who wants to see it as it came. */
const RAW = 20_000

/** What has come so far. */
export class Answer {
  status: number | undefined
  headers: Readonly<Record<string, string>> = {}
  text = ''
  /** the beginning of the body, as it came */
  raw = ''
  error: { readonly code: string, readonly message: string } | undefined
  /** in base64 */
  images: readonly string[] = []
  links: readonly string[] = []
  /** of a video */
  task: string | undefined
  /** milliseconds until the first token, or where no stream comes, the first byte; undefined: none has come */
  firstMs: number | undefined
  ms: number | undefined
  /** how it ended; undefined: it goes on */
  end: 'whole' | 'cut' | 'stopped' | undefined
  readonly #read = eventReader()
  #body = ''

  get requestId (): string | undefined {
    return this.headers['x-request-id']
  }

  get isStream (): boolean {
    return this.headers['content-type']?.startsWith('text/event-stream') === true
  }

  hear (event: TrialEvent): void {
    this.ms = event.ms
    if (event.kind === 'head') {
      this.status = event.status
      this.headers = event.headers
      if (!this.isStream) this.firstMs = event.ms
    } else if (event.kind === 'end') {
      if (!this.isStream) this.#take(parsed(this.#body))
      this.end = event.is_whole ? 'whole' : 'cut'
    } else {
      this.raw = (this.raw + event.text).slice(0, RAW)
      if (!this.isStream) this.#body += event.text
      else for (const data of this.#read(event.text)) this.#takeEvent(parsed(data), event.ms)
    }
  }

  #takeEvent (data: Data, ms: number): void {
    this.#note(data.error ?? data.response?.error)
    const { delta, choices, type } = data
    const words = typeof delta === 'string'
      ? type === 'response.output_text.delta' ? delta : ''
      : delta?.text ?? choices?.[0]?.delta?.content ?? ''
    if (words === '') return
    this.firstMs ??= ms
    this.text += words
  }

  #take ({ id, error, content, choices, output, data = [] }: Data): void {
    this.#note(error)
    this.text = content?.map(({ text = '' }) => text).join('') ?? choices?.[0]?.message?.content ??
      output?.flatMap(({ content: parts = [] }) => parts.map(({ text = '' }) => text)).join('') ?? ''
    this.images = data.flatMap(({ b64_json: image }) => image ?? [])
    this.links = data.flatMap(({ url }) => url ?? [])
    this.task = id
  }

  #note (error: Said | null | undefined): void {
    if (error == null) return
    this.error = { code: error.code ?? error.type ?? '', message: error.message ?? '' }
  }
}

/** Without fields: it is no JSON object, because it was cut, or is no answer of a model. */
function parsed (text: string): Data {
  try {
    return (JSON.parse(text) ?? {}) as Data
  } catch {
    return {}
  }
}

function text (name: string, said: string): Request {
  return said === '' ? {} : { [name]: said }
}

function number (name: string, said: string): Request {
  return said === '' ? {} : { [name]: Number(said) }
}

function streamed ({ isStream }: Wish): Request {
  return isStream ? { stream: true } : {}
}

function chosen ({ choices }: Wish): Request {
  return Object.fromEntries(Object.entries(choices).filter(([, value]) => value !== ''))
}
