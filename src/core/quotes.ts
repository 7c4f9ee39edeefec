// Takes out of an upstream's message what it quotes of the request: some repeat the body in their errors, and no log
// shows prompts.
import type { Json } from '../base/json.ts'

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

/** What stands between quotation marks, in a text and in JSON. */
const MARKED = {
  text: /(?<!\w)(["'`])(?:(?!\1).){20,}\1(?!\w)/g,
  json: /(?<!\w)(\\"|['`])(?:(?!\1).){20,}\1(?!\w)/g
}

/** Without what is marked as a quote, where the body of the request is not known, to compare it with. */
export function withoutMarked (said: string, isIn: keyof typeof MARKED): string {
  return said.replace(MARKED[isIn], GONE)
}

/** @param body of the request */
export function withoutQuotes (said: string, body: Json): string {
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
    } else if (typeof value === 'object' && value !== null) {
      for (const [name, item] of Object.entries(value)) if (!NAMES.has(name)) read(item)
    }
  }
  for (const field of FIELDS) read(body[field])

  const whole = plain(said)
  let clean = whole
  for (const text of texts) {
    if (text.length >= SHORT_QUOTE && text.length < QUOTE) clean = clean.replaceAll(text, GONE)
  }
  clean = withoutRuns(clean, texts.join('\n'))
  return clean === whole ? said : clean
}

/** Without runs of at least `QUOTE` characters that are in `source` too. */
function withoutRuns (text: string, source: string): string {
  let clean = ''
  let done = 0
  for (let at = 0; at + BLOCK <= text.length; at += BLOCK) {
    if (at < done) continue
    const block = text.slice(at, at + BLOCK)
    let place = source.indexOf(block)
    for (let places = 0; place !== -1 && places < PLACES; places++) {
      let [start, end] = [at, at + BLOCK]
      while (start > done && text[start - 1] === source[place - (at - start) - 1]) start--
      while (end < text.length && text[end] === source[place + (end - at)]) end++
      if (end - start >= QUOTE) {
        clean += text.slice(done, start) + GONE
        done = end
        break
      }
      place = source.indexOf(block, place + 1)
    }
  }
  return clean + text.slice(done)
}

/** Without what JSON does to a text once or twice, so that a quote in JSON looks like its source. */
function plain (text: string): string {
  return text.replace(/\\+[nrtbf]/g, ' ').replaceAll('\\', '').replace(/\s+/g, ' ').trim()
}
