// Takes out of an upstream's message what it quotes of the request: some repeat the body in their errors, and no log
// shows prompts.
import { isRecord, type Json } from '../base/json.ts'

const GONE = '[redacted]'
/** The fields of a request that hold texts of its client: those of tools and schemas last, for they are long. */
const FIELDS = ['messages', 'system', 'input', 'instructions', 'prompt', 'response_format', 'text', 'functions',
  'tools']
/** Their fields that hold names, which tell what is wrong. */
const NAMES: ReadonlySet<string> = new Set(['type', 'role', 'id', 'name', 'tool_use_id', 'tool_call_id', 'call_id',
  'media_type', 'status'])
/** Characters in common that are a quote, however long the text is that they come from. */
const QUOTE = 20
const BLOCK = QUOTE / 2
/** A whole text of at least so many characters is one too. */
const SHORT_QUOTE = 4
/** Characters read of a text's beginning, and of its end; and of all texts, where each value counts as one more. */
const READ = 4096
const READ_IN_ALL = 65_536
/** Items read of a list's beginning, and of its end. */
const ITEMS = 8
/** Places of one block that are compared. */
const PLACES = 8
/** Of the hash, which is a sum of characters times powers of it, modulo 2^32; and its power for a whole block. */
const BASE = 0x01000193
const BASE_OF_BLOCK = Array.from({ length: BLOCK }).reduce<number>((power) => Math.imul(power, BASE), 1)

/** What stands between quotation marks, in a text and in JSON. */
const MARKED = {
  text: /(?<!\w)(["'`])(?:(?!\1).){20,}\1(?!\w)/g,
  json: /(?<!\w)(\\"|['`])(?:(?!\1).){20,}\1(?!\w)/g
}

/** Without what is marked as a quote, where the body of the request is not known, to compare it with. */
export function withoutMarked (said: string, isIn: keyof typeof MARKED): string {
  return said.replace(MARKED[isIn], GONE)
}

/**
 * A message without the texts of its request: each whole text of 4 to 19 characters, and each run of at least 20
 * characters in common with one. Every text is looked for in the message as it came, never in what was put in place of
 * another, so the result is at most `[redacted]` for each 4 characters. Costs as much as it reads: the message, and
 * `READ_IN_ALL` characters and values of the body.
 * @param said at most some thousand characters
 * @param body of the request
 */
export function withoutQuotes (said: string, body: Json): string {
  const whole = plain(said)
  const texts = textsOf(body)
  const quotes = [...shortQuotes(whole, texts), ...runs(whole, texts.join('\n'))]
  return quotes.length === 0 ? said : without(whole, quotes)
}

/** Texts of a body as `plain` leaves them: the beginnings and ends of the long ones, and of long lists. */
function textsOf (body: Json): readonly string[] {
  const texts: string[] = []
  let left = READ_IN_ALL
  const read = (value: unknown): void => {
    if (left-- <= 0) return
    if (typeof value === 'string') {
      const parts = value.length <= 2 * READ ? [value] : [value.slice(0, READ), value.slice(-READ)]
      for (const part of parts) {
        left -= part.length
        texts.push(plain(part))
      }
    } else if (Array.isArray(value)) {
      const some = value.length <= 2 * ITEMS ? value : [...value.slice(-ITEMS), ...value.slice(0, ITEMS)]
      for (const item of some) read(item)
    } else if (isRecord(value)) {
      // No list of the entries, which would be made of all of them before the first is read.
      for (const name in value) {
        if (left <= 0) return
        if (!NAMES.has(name)) read(value[name])
      }
    }
  }
  for (const field of FIELDS) read(body[field])
  return texts
}

/** From the first character to behind the last one, in UTF-16 units. */
type Span = readonly [start: number, end: number]

/** Where whole texts of `SHORT_QUOTE` to `QUOTE` characters stand: at each place the longest one. */
function shortQuotes (message: string, texts: readonly string[]): readonly Span[] {
  const short = new Set(texts.filter(({ length }) => length >= SHORT_QUOTE && length < QUOTE))
  if (short.size === 0) return []
  const spans: Span[] = []
  for (let at = 0; at + SHORT_QUOTE <= message.length; at++) {
    let end = Math.min(at + QUOTE - 1, message.length)
    while (end - at >= SHORT_QUOTE && !short.has(message.slice(at, end))) end--
    if (end - at < SHORT_QUOTE) continue
    spans.push([at, end])
    at = end - 1
  }
  return spans
}

/** A part of the message of `BLOCK` characters. */
interface Block {
  readonly at: number
  /** of the source that have its hash */
  places: number
  /** the longest that was found around it */
  span: Span | undefined
}

/**
 * Where runs of at least `QUOTE` characters stand that are in `source` too. Blocks of the message are looked for at
 * every place of the source at once, by a hash that moves on by one character (Karp and Rabin, 1987): to look for each
 * block by itself would cost the product of both lengths.
 */
function runs (message: string, source: string): readonly Span[] {
  const blocks: Block[] = []
  const byHash = new Map<number, Block[]>()
  for (let at = 0; at + BLOCK <= message.length; at += BLOCK) {
    let hash = 0
    for (let i = at; i < at + BLOCK; i++) hash = (Math.imul(hash, BASE) + message.charCodeAt(i)) | 0
    const block = { at, places: 0, span: undefined }
    blocks.push(block)
    const same = byHash.get(hash)
    if (same === undefined) byHash.set(hash, [block])
    else same.push(block)
  }
  let hash = 0
  for (let end = 0; end < source.length; end++) {
    const gone = end >= BLOCK ? Math.imul(source.charCodeAt(end - BLOCK), BASE_OF_BLOCK) : 0
    hash = (Math.imul(hash, BASE) + source.charCodeAt(end) - gone) | 0
    if (end + 1 < BLOCK) continue
    const found = byHash.get(hash)
    if (found === undefined) continue
    for (const block of found) {
      block.places++
      const span = common(message, block.at, source, end + 1 - BLOCK)
      if (span[1] - span[0] >= QUOTE && isLonger(span, block.span)) block.span = span
    }
    // All blocks of one hash have had as many places.
    if (found[0]!.places === PLACES) byHash.delete(hash)
  }
  return blocks.flatMap(({ span }) => span === undefined ? [] : [span])
}

/** The part of the message around `at` that stands around `place` in the source as well. */
function common (message: string, at: number, source: string, place: number): Span {
  let [start, end] = [at, at]
  while (start > 0 && place + start - at > 0 && message[start - 1] === source[place + start - at - 1]) start--
  while (end < message.length && message[end] === source[place + end - at]) end++
  return [start, end]
}

function isLonger ([start, end]: Span, other: Span | undefined): boolean {
  return other === undefined || end - start > other[1] - other[0]
}

/** With one `[redacted]` for spans that overlap or touch. */
function without (message: string, spans: readonly Span[]): string {
  let clean = ''
  let done = 0
  let gone = -1                                               // the end of the last span; -1: there was none
  for (const [start, end] of spans.toSorted(([one], [other]) => one - other)) {
    if (start > gone) clean += message.slice(done, start) + GONE
    gone = done = Math.max(gone, end)
  }
  return clean + message.slice(done)
}

/** Without what JSON does to a text once or twice, so that a quote in JSON looks like its source. */
function plain (text: string): string {
  // One backslash first: `\\+[nrtbf]` would read many of them again from each one.
  return text.replace(/\\+/g, '\\').replace(/\\[nrtbf]/g, ' ').replaceAll('\\', '').replace(/\s+/g, ' ').trim()
}
