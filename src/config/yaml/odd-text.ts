// Finds what the YAML parser misses, or stumbles over much later: quotes that are never closed, curly quotes, and
// spaces that are none. Reads the tokens of the text, so quoted texts, comments and blocks are left alone.
import { Lexer } from 'yaml'

/** A valid text that is hardly meant, and its position. */
export interface Oddity {
  readonly offset: number
  readonly message: string
  readonly hint: string
}

interface Token {
  readonly kind: 'plain' | 'quoted' | 'block' | 'other'
  readonly source: string
  readonly offset: number
}

const CURLY = /^[“”„‟‘’‚‛«»]/
const SPACE = '[\\u00a0\\u1680\\u2000-\\u200b\\u202f\\u205f\\u2060\\u3000\\ufeff]'
/** Positions of spaces that separate: at the ends of a text, at the beginning of its lines, and beside separators. */
const ODD_SPACE = new RegExp(`(?:^|\\n[ \\t]*|[-:?,[\\]{}] ?)(${SPACE})|(${SPACE})(?=$|\\n|:)`, 'd')
const MAY_BE_ODD = new RegExp(`[“”„‟‘’‚‛«»]|${SPACE}`)

/** The lexer's marks: no characters of the text. */
const MARKS = ['\u0002', '\u0018', '\u001f']
const SCALAR = '\u001f'

/** Finds curly quotes that begin a text or a key, and odd spaces in the place of plain ones. */
export function oddities (text: string): readonly Oddity[] {
  if (!MAY_BE_ODD.test(text)) return []
  const found: Oddity[] = []
  for (const { kind, source, offset } of tokens(text)) {
    if (kind !== 'plain') continue
    if (CURLY.test(source)) {
      found.push({ offset, message: 'this curly quote is a letter to YAML, and part of the text',
        hint: 'write straight quotes, " or \'' })
    }
    const space = ODD_SPACE.exec(source)
    if (space === null) continue
    const at = space.indices![1] ?? space.indices![2]!
    const code = source.charCodeAt(at[0]).toString(16).toUpperCase().padStart(4, '0')
    found.push({
      offset: offset + at[0],
      message: `this is no plain space but U+${code}${code === '00A0' ? ', a no-break space' : ''}, ` +
        'which is a letter to YAML',
      hint: 'write a plain space'
    })
  }
  return found
}

/**
 * Finds a quote that is never closed, in a text that is no YAML: the quoted text runs on to the end of its block, or to
 * the beginning of the next one, behind which stands what should be in quotes.
 * @returns offset of the quote, and of the quote that ends its text by accident
 */
export function openQuote (text: string): { readonly offset: number, readonly end?: number } | undefined {
  const all = [...tokens(text)]
  for (const [i, { kind, source, offset }] of all.entries()) {
    if (kind !== 'quoted') continue
    const isClosed = source.length > 1 && source.endsWith(source[0]!)
    if (!isClosed) return { offset }
    let after = i + 1
    while (after < all.length && /^[ \t]+$/.test(all[after]!.source)) after++
    const next = all[after]
    if (next !== undefined && !/^[\r\n#,\]}:]/.test(next.source)) return { offset, end: offset + source.length - 1 }
  }
  return undefined
}

function * tokens (text: string): Generator<Token> {
  let offset = 0
  let isScalar = false
  let isBlock = false
  for (const source of new Lexer().lex(text)) {
    if (MARKS.includes(source)) { isScalar = source === SCALAR; continue }
    const kind = isScalar ? isBlock ? 'block' : 'plain' : /^["']/.test(source) ? 'quoted' : 'other'
    if (isScalar) isBlock = false
    else if (/^[|>]/.test(source)) isBlock = true
    isScalar = false
    yield { kind, source, offset }
    offset += source.length
  }
}
