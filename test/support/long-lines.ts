// Which lines are longer than 120 characters though it is no single literal that makes them so, as ESLint's max-len has
// it with ignoreStrings, ignoreTemplateLiterals, ignoreRegExpLiterals and ignoreUrls; of pages, outside tables and
// code.

const LONGEST = 120

interface Span { readonly from: number, readonly to: number }

/** @returns the numbers of the lines, from 1 */
export function longLines (path: string, text: string): readonly number[] {
  const rows = [...text.matchAll(/^.*$/gm)].map(({ 0: { length }, index }) => ({ from: index, to: index + length }))
  if (!rows.some(isLong)) return []
  const spans = path.endsWith('.md') ? [] : literalsOf(text)
  const isProse = path.endsWith('.md') ? proseOf(text) : () => true
  return rows.flatMap((row, i) => {
    const line = text.slice(row.from, row.to)
    const inside = spans.map(({ from, to }) => Math.min(to, row.to) - Math.max(from, row.from))
    const urls = [...line.matchAll(/https?:\/\/\S+/g)].map(([url]) => url.length)
    return isLong(row) && isProse(i) && line.length - Math.max(0, ...inside, ...urls) > LONGEST ? [i + 1] : []
  })
}

function isLong ({ from, to }: Span): boolean {
  return to - from > LONGEST
}

/** Texts, whole templates with what is in them, and patterns. */
function literalsOf (code: string): readonly Span[] {
  const token = /\/\*[^]*?\*\/|\/\/[^\n]*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|[`{}]|\/|\w+|[^\s]/g
  const pattern = /\/(?:[^/\\\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/y
  const rest = /(?:[^`\\$]|\\[^]|\$(?!\{))*(?:`|\$\{)/y
  const spans: Span[] = []
  /** of each open bracket: where its template begins, undefined: it is one of code */
  const open: (number | undefined)[] = []
  let last = ''
  for (let found = token.exec(code); found !== null; found = token.exec(code)) {
    const [whole] = found
    const from = found.index
    const begin = whole === '`' ? from : whole === '}' ? open.pop() : undefined
    if (whole === '{') open.push(undefined)
    if (begin !== undefined) {
      rest.lastIndex = token.lastIndex
      const piece = rest.exec(code)?.[0] ?? ''
      token.lastIndex += piece.length
      if (piece.endsWith('{')) open.push(begin)
      else spans.push({ from: begin, to: token.lastIndex })
    } else if (/^['"]/.test(whole)) spans.push({ from, to: token.lastIndex })
    else if (whole === '/' && /^$|^[(=,:!&|?[{;>]$|^(?:return|typeof|case|of|in)$/.test(last)) {
      pattern.lastIndex = from
      if (pattern.test(code)) {
        spans.push({ from, to: pattern.lastIndex })
        token.lastIndex = pattern.lastIndex
      }
    }
    if (!/^\/[/*]/.test(whole)) last = whole
  }
  return spans
}

/** @returns of a line, counted from 0, whether it is in no table and in no code */
function proseOf (page: string): (line: number) => boolean {
  let isCode = false
  const prose = page.split('\n').map((line) => {
    const isFence = /^\s*```/.test(line)
    if (isFence) isCode = !isCode
    return !isFence && !isCode && !/^\s*\|/.test(line)
  })
  return (line) => prose[line]!
}
