// Estimates the input tokens of a request where no provider counts them: its text is counted, and the rest is guessed.
// Never the base of a charge.
import { setImmediate } from 'node:timers/promises'
import { bodyStep } from '../core/body-step.ts'
import type { Blobs } from '../core/large-strings.ts'
import type { Exchange } from '../core/exchange.ts'
import type { Attempt } from '../core/facts.ts'
import { clientTools, IMAGE } from '../tokens/bound.ts'
import { START_RATES, TextCount } from '../tokens/text-count.ts'
import { isRecord } from '../base/json.ts'

/** Characters counted at a time, in a fraction of a millisecond, before other events get a turn. */
const CHUNK = 16 * 1024
/** Cost of visiting a value, in characters: a million empty ones must not block the loop either. */
const VALUE = 8

/** Tokens that the vendor adds: around the whole, and around each turn. */
const FRAME = 3
const TURN = 3
/** Tokens of the vendor's system prompt for tools, and of a tool that is known by its type. */
const TOOLS = 346
const TYPED_TOOL = 500
/** Documents are not read: tokens per page, and bytes of base64 per page. */
const PAGE = 2000
const PAGE_BYTES = 64 * 1024

/**
 * @param attempt at the model that would answer: its tokens are counted
 * @throws {GatewayError} the client has left
 */
export async function estimateInputTokens (exchange: Exchange, attempt: Attempt | undefined): Promise<number> {
  const rates = attempt === undefined ? START_RATES : exchange.snapshot.services.tokenRates.of(attempt)
  if (exchange.large !== undefined) return await countLarge(exchange, rates)
  const prompt = new Prompt(exchange.blobs)
  const text = new TextCount()
  let work = 0
  for (const piece of prompt.read(exchange.request.body)) {
    for (let at = 0; at === 0 || at < piece.length; at += CHUNK) {
      const part = piece.length <= CHUNK ? piece : piece.slice(at, at + CHUNK)
      text.add(part)
      work += part.length + VALUE
      if (work < CHUNK) continue
      work = 0
      await setImmediate()
      exchange.throwIfAborted()
    }
  }
  text.addLetters(prompt.hiddenBytes)
  return prompt.allowance + text.tokens(rates)
}

export const COUNT = 'count'

/** The same in the thread of a large body. */
const countLarge = bodyStep(COUNT, (exchange, rates: readonly number[]) => {
  const prompt = new Prompt(exchange.blobs)
  const text = new TextCount()
  for (const piece of prompt.read(exchange.request.body)) text.add(piece)
  text.addLetters(prompt.hiddenBytes)
  return prompt.allowance + text.tokens(rates)
}, { isRead: true })

/**
 * The texts of a body in messages style that reach the model, and an empty text for each value. Accepts any value,
 * because the body may be unchecked.
 */
class Prompt {
  /** tokens of parts that are no text */
  allowance = FRAME
  /** bytes of text that stayed bytes (large-strings.ts) */
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
        if (
          isRecord(tool) && typeof tool['type'] === 'string' && tool['type'] !== 'custom' &&
          clientTools.test(tool['type'])
        ) this.allowance += TYPED_TOOL
        yield* this.#json(tool)
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

  /**
   * Names and values of a JSON value. Iterative, because recursion would pass each value through as many generators as
   * it is deep.
   */
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
