// How many input tokens a request has, where no provider says it: the tokenizer's count of its text, and guesses for the rest.
// An estimate that nobody is charged by; it leaves the event loop and the thread that counts tokens to whoever is.
import { setImmediate } from 'node:timers/promises'
import type { Blobs } from '../blobs.ts'
import type { Exchange } from '../exchange.ts'
import { clientTools, IMAGE } from '../money/bound.ts'
import type { TokensThread } from '../money/tokens-thread.ts'
import { within } from '../within.ts'
import { isRecord } from '../json-value.ts'

/** Characters that the thread is given at a time: 1.5 ms of prose, 100 ms of random Han characters (measured). */
const CHUNK = 16 * 1024
/** What reading a value costs, in characters: a million empty ones must not stop the loop either. */
const VALUE = 8
/**
 * Characters waiting for the thread beyond which it gets none of ours. It takes eight times as many and counts so many in half a
 * second at the worst, so what answers produced, which is money, never finds it full or late because of us.
 */
const BUSY = 64 * 1024

/** What the vendor adds of its own: around all, and around each turn. */
const FRAME = 3
const TURN = 3
/** The vendor's system prompt for tools, and its description of a tool that is known by its type. */
const TOOLS = 346
const TYPED_TOOL = 500
/** Of a document nothing is read: so many tokens for each page, and a page for so many bytes of base64. */
const PAGE = 2000
const PAGE_BYTES = 64 * 1024

/**
 * Text that the thread does not count in time is guessed by what it counted of the rest, or by four bytes a token.
 * @param ms how long it may count; a prompt of 200,000 tokens takes 80 ms (measured)
 * @throws {GatewayError} the client has left
 */
export async function estimateInputTokens (exchange: Exchange, ms: number): Promise<number> {
  const { tokens: counter } = exchange.snapshot.services
  const prompt = new Prompt(exchange.blobs)
  const until = performance.now() + ms
  let counted = 0
  let countedBytes = 0
  let otherBytes = 0
  for (const chunk of chunksOf(prompt.read(exchange.request.body))) {
    exchange.throwIfAborted()
    const bytes = Buffer.byteLength(chunk)
    const tokens = await count(counter.thread, chunk, until - performance.now())
    if (tokens === undefined) {
      otherBytes += bytes
      await setImmediate()
    } else {
      counted += tokens
      countedBytes += bytes
    }
  }
  const perByte = countedBytes === 0 ? 1 / 4 : counted / countedBytes
  return prompt.allowance + counted + Math.ceil((otherBytes + prompt.hiddenBytes) * perByte)
}

async function count (thread: TokensThread | undefined, text: string, ms: number): Promise<number | undefined> {
  if (text === '' || thread === undefined || thread.backlog > BUSY || ms <= 0) return undefined
  return await within(thread.count(thread.newId(), text), ms, () => undefined).catch(() => undefined)
}

/** Short texts together, long ones in slices: none is more work than a chunk, and no text is copied as a whole. */
function * chunksOf (texts: Iterable<string>): Generator<string> {
  let held = ''
  let work = 0
  for (const text of texts) {
    if (work > 0 && work + text.length > CHUNK) {
      yield held
      held = ''
      work = 0
    }
    let at = 0
    for (; text.length - at > CHUNK; at += CHUNK) yield text.slice(at, at + CHUNK)
    held += at === 0 ? text : text.slice(at)
    work += text.length - at + VALUE
  }
  yield held
}

/** What of a body in messages style becomes text for the model, and an empty text for each value. Takes anything: nobody need have checked it. */
class Prompt {
  /** tokens of what is no text */
  allowance = FRAME
  /** of text that stayed bytes (blobs.ts) */
  hiddenBytes = 0
  readonly #blobs: Blobs

  constructor (blobs: Blobs) {
    this.#blobs = blobs
  }

  * read ({ system, tools, messages, output_config: output }: Readonly<Record<string, unknown>>): Generator<string> {
    yield * this.#content(system)
    if (Array.isArray(tools) && tools.length > 0) {
      this.allowance += TOOLS
      for (const tool of tools as readonly unknown[]) {
        if (isRecord(tool) && typeof tool['type'] === 'string' && tool['type'] !== 'custom' && clientTools.test(tool['type'])) this.allowance += TYPED_TOOL
        yield * this.#json(tool)
      }
    }
    if (isRecord(output)) yield * this.#json(output['format'])
    if (!Array.isArray(messages)) return
    for (const message of messages as readonly unknown[]) {
      yield ''
      if (!isRecord(message)) continue
      this.allowance += TURN
      yield * this.#content(message['content'])
    }
  }

  * #content (content: unknown): Generator<string> {
    yield * this.#text(content)
    if (!Array.isArray(content)) return
    for (const block of content as readonly unknown[]) {
      yield ''
      if (isRecord(block)) yield * this.#block(block)
    }
  }

  * #block (block: Readonly<Record<string, unknown>>): Generator<string> {
    switch (block['type']) {
      case 'text': yield * this.#text(block['text']); return
      case 'thinking': yield * this.#text(block['thinking']); return
      case 'redacted_thinking': return
      case 'tool_result': yield * this.#content(block['content']); return
      case 'image': this.allowance += IMAGE; return
      case 'document': yield * this.#document(block); return
      case 'tool_use': yield * this.#text(block['name']); yield * this.#json(block['input']); return
      default: yield * this.#json(block)
    }
  }

  * #document ({ title, context, source }: Readonly<Record<string, unknown>>): Generator<string> {
    yield * this.#text(title)
    yield * this.#text(context)
    const { type, data, content } = isRecord(source) ? source : {}
    if (type === 'text') yield * this.#text(data)
    else if (type === 'content') yield * this.#content(content)
    else {
      const bytes = typeof data === 'string' ? Math.max(data.length, this.#blobs.hiddenBytes(data)) : 0
      this.allowance += PAGE * Math.max(1, Math.ceil(bytes / PAGE_BYTES))
    }
  }

  * #text (text: unknown): Generator<string> {
    if (typeof text !== 'string') return
    this.hiddenBytes += this.#blobs.hiddenBytes(text)
    yield text
    yield '\n'
  }

  /** Names and values. Not recursive: each value would go through as many generators as it is deep. */
  * #json (root: unknown): Generator<string> {
    const open: Iterator<unknown>[] = [[root].values()]
    for (let inner = open.at(-1); inner !== undefined; inner = open.at(-1)) {
      const { done, value: next } = inner.next()
      if (done === true) {
        open.pop()
        continue
      }
      const value = next instanceof Field ? next.value : next
      yield next instanceof Field ? `${next.name}:` : ''
      if (typeof value === 'string') {
        this.hiddenBytes += this.#blobs.hiddenBytes(value)
        yield value
        yield ','
      } else if (Array.isArray(value)) open.push(value.values())
      else if (isRecord(value)) open.push(fieldsOf(value))
      else yield `${String(value)},`
    }
  }
}

class Field {
  readonly name: string
  readonly value: unknown

  constructor (name: string, value: unknown) {
    this.name = name
    this.value = value
  }
}

function * fieldsOf (record: Readonly<Record<string, unknown>>): Generator<Field> {
  for (const name of Object.keys(record)) yield new Field(name, record[name])
}
