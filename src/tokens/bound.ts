// An upper bound of a request's input tokens, without a tokenizer, which a client could use for a denial of service.
import type { Exchange } from '../core/exchange.ts'
import { Model } from '../core/facts.ts'
import type { Blobs } from '../core/large-strings.ts'
import { isRecord } from '../base/json.ts'
import { isSealed, sealedBytes } from '../base/seals.ts'

/** Input tokens of a large image, as most models scale it down (about 1,568 pixels on the long edge). */
export const IMAGE = 1600
/** The newer models of the vendor scale down to 4,784 only. */
const LARGEST_IMAGE = 4800
/** Tokens that the vendor adds: turn markers, and the system prompt of tools. */
const FRAME = 64
const TOOLS = 1024
/** Tokens of the vendor's description of a tool known by its `type` (bash, text editor, computer). */
const TYPED_TOOL = 1024
/** The context of a model without a configured one. */
export const NO_CONTEXT = 1_000_000

/** The bound of a request's input, as far as the request shows it. */
export interface InputBound {
  readonly tokens: number
  /** images in it, each with its allowance in `tokens` */
  readonly images: number
}

/** Tools that run at the client: their results come with the next request, and are counted there. */
export const clientTools = /^(?:custom$|bash_|text_editor_|computer_|browser_toolset_|memory_)/

/**
 * The most input tokens that a body in messages style can be billed for: the smaller of the model's context and the
 * UTF-8 bytes of all names and values (a token has at least one byte) plus allowances for media. Base64 of an image is
 * no text. A document (PDF) has no bound in its bytes, because a few of them can be a hundred pages: it counts as the
 * whole context. So do tools that run at the vendor, which read unknown pages into the context. Base64 that stayed
 * bytes (large-strings.ts) counts like any text, except in an image. Tokens that a vendor counts beyond it are learned
 * from its reports (overheads.ts). Stops at the context, which bounds the time, whatever the size of the body.
 */
export function boundInput (body: Readonly<Record<string, unknown>>, context = NO_CONTEXT, blobs?: Blobs): InputBound {
  const tools = body['tools']
  let tokens = FRAME
  if (body['mcp_servers'] !== undefined || body['container'] !== undefined) return { tokens: context, images: 0 }
  if (Array.isArray(tools) && tools.length > 0) {
    tokens += TOOLS
    for (const tool of tools) {
      const type: unknown = (tool as { type?: unknown } | null)?.type
      if (typeof type !== 'string' || type === 'custom') continue
      if (!clientTools.test(type)) return { tokens: context, images: 0 }
      tokens += TYPED_TOOL
    }
  }
  const { tokens: weight, images } = weigh(body, 1, LARGEST_IMAGE, context, blobs)
  return { tokens: Math.min(context, tokens + weight), images }
}

/** The same of any value that is all names and texts. */
export function boundValue (value: unknown, context = NO_CONTEXT, blobs?: Blobs): number {
  return weigh({ value }, 1, 0, context, blobs).tokens
}

/** An estimate of the input tokens, for a provider that reports none: four bytes a token. */
export function estimateInput (body: Readonly<Record<string, unknown>>, context = NO_CONTEXT): number {
  return Math.min(context, Math.ceil(weigh(body, 4, IMAGE, context).tokens))
}

/** The same of an exchange's request; of a large body it is known by the time that an upstream can have answered. */
export function inputEstimate (exchange: Exchange): number {
  return exchange.large?.inputEstimate ?? estimateInput(exchange.request.body, exchange.get(Model).context)
}

function weigh (
  body: Readonly<Record<string, unknown>>,
  bytesPerToken: number,
  image: number,
  limit: number,
  blobs?: Blobs
): InputBound {
  const scale = new Scale(bytesPerToken, image, limit, blobs)
  scale.addBody(body)
  return scale
}

/**
 * Adds up names and values, until `limit` is passed: `tokens` may then be anything above it. Media is looked for in
 * content blocks only: the same object inside a tool's input is text to the model, and must not weigh less by calling
 * itself an image.
 */
class Scale implements InputBound {
  tokens = 0
  images = 0
  readonly #bytesPerToken: number
  readonly #image: number
  readonly #limit: number
  readonly #blobs: Blobs | undefined

  constructor (bytesPerToken: number, image: number, limit: number, blobs?: Blobs) {
    this.#blobs = blobs
    this.#bytesPerToken = bytesPerToken
    this.#image = image
    this.#limit = limit
  }

  addBody (body: Readonly<Record<string, unknown>>): void {
    for (const name in body) {
      const value = body[name]
      if (name !== 'messages' || !Array.isArray(value)) { this.#addText(name); this.#add(value); continue }
      for (const message of value) {
        if (this.tokens > this.#limit) return
        if (isRecord(message)) this.#addRecord(message, 'content')
        else this.#add(message)
      }
    }
  }

  #addContent (content: unknown): void {
    if (isRecord(content)) { this.#addBlock(content); return }
    if (!Array.isArray(content)) { this.#add(content); return }
    for (const block of content) {
      if (this.tokens > this.#limit) return
      if (isRecord(block)) this.#addBlock(block)
      else this.#add(block)
    }
  }

  #addBlock (block: Readonly<Record<string, unknown>>): void {
    if (block['type'] === 'image') {
      this.tokens += this.#image
      this.images++
      this.#addRecord(block, undefined, 'source')
    } else if (block['type'] === 'document' && !isTextSource(block['source'])) this.tokens += this.#limit
    else if (block['type'] === 'thinking' || block['type'] === 'redacted_thinking') this.#addThought(block)
    // Blocks contain blocks: results of tools, fetched pages, documents made of images.
    else this.#addRecord(block, block['type'] === 'document' ? 'source' : 'content')
  }

  /** What is sealed is opened for the vendor, or not sent at all; the thought beside it is text, whatever it says. */
  #addThought (block: Readonly<Record<string, unknown>>): void {
    for (const name in block) {
      const value = block[name]
      this.#addText(name)
      const sealed = (name === 'signature' || name === 'data') && typeof value === 'string' && isSealed(value)
      if (sealed) this.tokens += (sealedBytes(value) + 3) / this.#bytesPerToken
      else this.#add(value)
    }
  }

  /**
   * @param content the field that holds content blocks
   * @param source the field that holds an image, whose base64 is no text
   */
  #addRecord (record: Readonly<Record<string, unknown>>, content?: string, source?: string): void {
    for (const name in record) {
      if (this.tokens > this.#limit) return
      const value = record[name]
      this.#addText(name)
      if (name === content) this.#addContent(value)
      else if (name !== source || !isRecord(value) || value['type'] !== 'base64') this.#add(value)
    }
  }

  #add (value: unknown): void {
    if (typeof value === 'string') this.#addText(value)
    else if (typeof value === 'number') this.#addText(String(value))
    else if (Array.isArray(value)) {
      for (const item of value) {
        if (this.tokens > this.#limit) return
        this.#add(item)
      }
    } else if (isRecord(value)) this.#addRecord(value)
    this.tokens += 2 / this.#bytesPerToken                    // brackets, quotes, true, null
  }

  #addText (text: string): void {
    // The length is a lower bound of the bytes: a text beyond the limit need not be encoded.
    const bytes = text.length / this.#bytesPerToken > this.#limit
      ? text.length
      : Buffer.byteLength(text) + (this.#blobs?.hiddenBytes(text) ?? 0)
    this.tokens += (bytes + 1) / this.#bytesPerToken
  }
}

function isTextSource (source: unknown): boolean {
  return isRecord(source) && (source['type'] === 'text' || source['type'] === 'content')
}
