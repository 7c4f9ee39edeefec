// Which single changes a text of code allows: another operator, another bound, a line less.
import { stripTypeScriptTypes } from 'node:module'

export interface Mutant {
  /** of the text, as `String.prototype.slice` counts */
  readonly from: number
  readonly to: number
  readonly by: string
  /** from 1 */
  readonly line: number
  readonly what: string
}

type Swap = readonly [pattern: RegExp, by: (found: string) => string]

const swap = (
  from: string,
  to: string
): Swap => [new RegExp(`(?<= )${from.replace(/[*+|?]/g, '\\$&')}(?= )`, 'g'), () => to]

/**
 * From here on one more is no other behaviour, but another pace: 1,001 milliseconds in the place of 1,000. Amounts end
 * in n.
 */
const PACE = 50

/** One more; the same where nobody could see that. */
function more (digits: string): string {
  const plain = digits.replaceAll('_', '')
  if (plain.endsWith('n')) return `${BigInt(plain.slice(0, -1)) + 1n}n`
  return Number(plain) < PACE ? String(Number(plain) + 1) : digits
}

const COMMON: readonly Swap[] = [
  swap('<', '<='), swap('<=', '<'), swap('>', '>='), swap('>=', '>'), swap('+', '-'), swap('-', '+'),
  [/\btrue\b/g, () => 'false'], [/\bfalse\b/g, () => 'true'],
  // A number alone: no part of a name, of a fraction, of an escape or of a key.
  [/(?<![\w.$#'"\\-])\d+(?:_\d+)*n?(?![\w.'":])/g, more]
]
const SCRIPT: readonly Swap[] = [
  ...COMMON,
  swap('===', '!=='),
  swap('!==', '==='),
  swap('&&', '||'),
  swap('||', '&&'),
  swap('*', '/'),
  swap('+=', '-='),
  swap('-=', '+='),
  [/\bMath\.min\b/g, () => 'Math.max'],
  [/\bMath\.max\b/g, () => 'Math.min']
]
const LUA: readonly Swap[] = [...COMMON, swap('==', '~='), swap('~=', '=='), swap('and', 'or'), swap('or', 'and')]

/** A statement on a line of its own, whose brackets are closed, and that no other line goes on with. */
const STATEMENT =
  /^\s+(?:if \(.*\) (?:return|throw|continue|break)\b.*|(?:await |void )?\w+(?:[?!]?\.#?\w+|!?\[[^\]]*\])*(?: (?:[-+]|\?\?)?= .*|\(.*\)))$/
const LUA_STATEMENT = /^\s+(?:if .* then return .* end|redis\.call\(.*\)|write\(.*\)|[\w.[\]]+ = .*)$/

/** @param text of TypeScript, or of a file whose texts are Lua @returns every change, in the order of the text */
export function mutantsOf (text: string, isLua: boolean): readonly Mutant[] {
  const code = isLua ? luaIn(text) : bare(text)
  const starts = [0, ...[...text.matchAll(/\n/g)].map(({ index }) => index + 1)]
  const lineAt = (at: number): number => starts.findLastIndex((start) => start <= at) + 1
  const found: Mutant[] = []
  for (const [pattern, by] of isLua ? LUA : SCRIPT) {
    for (const { 0: old, index } of code.matchAll(pattern)) {
      const next = by(old)
      if (next === old) continue
      found.push({ from: index, to: index + old.length, by: next, line: lineAt(index), what: `${old} becomes ${next}` })
    }
  }
  const lines = code.split('\n')
  for (const [i, line] of lines.entries()) {
    const isStatement = (isLua ? LUA_STATEMENT : STATEMENT).test(line.trimEnd()) && isClosed(line) &&
      !/[{([,&|?:+=]\s*$/.test(line)
    if (!isStatement || /^\s*[.?:&|+)\]}]/.test(lines[i + 1] ?? '')) continue
    const from = starts[i]!
    found.push({ from, to: from + line.length, by: '', line: i + 1, what: 'the line is gone' })
  }
  return found.toSorted((a, b) => a.from - b.from || a.to - b.to)
}

function isClosed (line: string): boolean {
  let depth = 0
  for (const sign of line) {
    if ('([{'.includes(sign)) depth++
    else if (')]}'.includes(sign) && --depth < 0) return false
  }
  return depth === 0
}

/** The text with blanks for types, comments, texts and patterns; what is between `${` and `}` is left. */
function bare (text: string): string {
  const code = stripTypeScriptTypes(text).replace(/^import .*$/gm, blank)
  const token = /\/\*[^]*?\*\/|\/\/[^\n]*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|[`{}]|\/|[^\s]/g
  /** of each open bracket whether it is one of a template */
  const open: boolean[] = []
  let clean = ''
  let last = ''
  for (let found = token.exec(code); found !== null; found = token.exec(code)) {
    const [whole] = found
    clean += code.slice(clean.length, found.index)
    if (whole === '{') open.push(false)
    let end = token.lastIndex
    if (whole === '`' || (whole === '}' && open.pop() === true)) {
      const rest = /^(?:[^`\\$]|\\[^]|\$(?!\{))*(?:`|\$\{)/.exec(code.slice(end))?.[0] ?? ''
      end += rest.length
      if (rest.endsWith('{')) open.push(true)
      clean += blank(code.slice(found.index, end))
    } else if (whole === '/' && (last === '' || /[(=,:!&|?[{;]/.test(last))) {
      end = found.index +
        (/^\/(?:[^/\\\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/.exec(code.slice(found.index))?.[0].length ?? 1)
      clean += blank(code.slice(found.index, end))
    } else clean += whole.length > 1 ? blank(whole) : whole
    if (!/^\/[/*]/.test(whole)) last = whole.at(-1)!
    token.lastIndex = end
  }
  return clean + code.slice(clean.length)
}

/** What stands between back quotes alone, without Lua's texts and comments. */
function luaIn (text: string): string {
  let isInside = false
  return text.split(/(`)/).map((part) => {
    if (part === '`') { isInside = !isInside; return part }
    return isInside ? part.replace(/'[^'\n]*'|--[^\n]*|\$\{[^}]*\}/g, blank) : blank(part)
  }).join('')
}

function blank (found: string): string {
  return found.replace(/[^\n]/g, '_')
}

/** @returns whether Node can read it at all */
export function isReadable (text: string): boolean {
  try {
    stripTypeScriptTypes(text)
    return true
  } catch {
    return false
  }
}
