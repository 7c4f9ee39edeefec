// Extracts the text of `{"input":"…"}` while it arrives: the input of a custom tool, which is a function with one
// string.
import { GatewayError } from '../errors.ts'
import { isRecord, parseInput, parseJson } from '../base/json.ts'

const HEAD = /^\s*\{\s*"input"\s*:\s*"/
/**
 * Characters within which the text must begin. A later one is read at the end: a search with every piece would be
 * quadratic in the output.
 */
const HEAD_LENGTH = 64

/** The text that a custom tool is called with; the whole input, if the model made something else of it. */
export function customText (input: unknown): string {
  return isRecord(input) && typeof input.input === 'string' ? input.input : JSON.stringify(input ?? {})
}

export interface InputReader {
  /** @returns the part of the text that this piece of the JSON completes */
  readonly push: (piece: string) => string
  /** @returns the whole text, if it could not be extracted piece by piece */
  readonly end: () => string
}

/** @returns a reader that gives customText of the input in pieces, however its JSON was cut */
export function unwrapInput (): InputReader {
  let rest = ''
  let place: 'before' | 'inside' | 'behind' | 'elsewhere' = 'before'

  function push (piece: string): string {
    if (place === 'behind') return ''
    rest += piece
    if (place === 'elsewhere') return ''
    if (place === 'before') {
      const head = HEAD.exec(rest)
      if (head === null) {
        if (rest.length > HEAD_LENGTH) place = 'elsewhere'
        return ''
      }
      place = 'inside'
      rest = rest.slice(head[0].length)
    }
    const end = endOfCharacters(rest)
    const text = parse(`"${rest.slice(0, end)}"`)
    if (rest[end] === '"') place = 'behind'
    rest = rest.slice(end)
    return text
  }

  function end (): string {
    if (place === 'inside' || place === 'behind' || rest === '') return ''
    try {
      return customText(parseInput(rest))
    } catch {
      return ''                                               // the answer ended within it
    }
  }

  return { push, end }
}

/** @throws {GatewayError} the upstream's text is no JSON */
function parse (text: string): string {
  try {
    return parseJson(text) as string
  } catch (cause) {
    throw new GatewayError('upstream_stream_interrupted', { cause })
  }
}

/** Position behind the last whole character, escaped or not, before the closing quote. */
function endOfCharacters (text: string): number {
  let end = 0
  while (end < text.length && text[end] !== '"') {
    const length = text[end] !== '\\' ? 1 : text[end + 1] === 'u' ? lengthOfEscape(text, end) : 2
    if (end + length > text.length) break
    end += length
  }
  return end
}

const FIRST_HALF = /\\u[dD][89abAB]/y

/** Of both halves of a character, if the second one comes or may still come. */
function lengthOfEscape (text: string, at: number): number {
  FIRST_HALF.lastIndex = at
  return FIRST_HALF.test(text) && '\\u'.startsWith(text.slice(at + 6, at + 8)) ? 12 : 6
}
