// Parses the YAML of one file, and reports its mistakes: each once, where the author has made it.
import { type Document, isScalar, type ParsedNode, parseDocument, type Scalar, visit, type YAMLError } from 'yaml'
import { consequences, explainYaml, isHarmless, isRepeat, openBracket } from './error.ts'
import type { Findings } from './findings.ts'
import { oddities, openQuote } from './odd-text.ts'
import { locate, printSpot, problemAt, type TextFile } from './position.ts'

/** A key that was set before in its map. */
interface Repeat {
  readonly offset: number
  /** position of the earlier one */
  readonly first: number
  /** further keys behind it that were set before, too */
  more: number
}

type Quote = NonNullable<ReturnType<typeof openQuote>>

/** @returns undefined: the parser itself gave up */
export function parse (
  file: TextFile, text: string, findings: Findings
): { readonly contents: ParsedNode | null } | undefined {
  let document
  try {
    document = parseDocument(text, { lineCounter: file.lines, prettyErrors: false, stringKeys: true })
  } catch (thrown) {
    // the parser recurses: only thousands of nested brackets get here
    findings.fail({ file, offset: 0 }, '', thrown instanceof RangeError ? 'nested too deeply' : 'this is not YAML')
    return undefined
  }
  for (const { offset, message, hint } of oddities(text)) {
    findings.oddities.push(problemAt({ file, offset }, '', message, hint))
  }
  const errors = [...document.errors, ...document.warnings]
  const quote = errors.every(isHarmless) ? undefined : openQuote(text)
  const repeats = errors.some(isRepeat) ? repeatedKeys(document.contents) : undefined
  const following = consequences(errors)
  reportErrors(errors.filter((error) => {
    // all that follows is inside the quote; repeated keys are reported together
    const isInside = quote !== undefined && error.pos[0] >= quote.offset
    return !isInside && !following.has(error) &&
      !(isRepeat(error) && repeats !== undefined)
  }), document, file, text, findings)
  if (quote !== undefined) reportQuote(quote, file, findings)
  for (const repeat of repeats ?? []) reportRepeat(repeat, file, findings)
  return document
}

function reportErrors (
  errors: readonly YAMLError[], { contents }: Document.Parsed, file: TextFile, text: string, findings: Findings
): void {
  const lines = new Set<number>()
  for (const error of errors) {
    const bracket = openBracket(error)
    const opened = bracket === undefined ? undefined : lastOpen(contents, text, bracket, error.pos[0])
    const spot = { file, offset: opened ?? error.pos[0] }
    const { line } = locate(spot)
    // one broken bracket makes the parser stumble over the rest of its line
    if (!isHarmless(error) && lines.has(line)) continue
    lines.add(line)
    const { message, hint } = explainYaml(error, text)
    if (isHarmless(error)) findings.report(spot, '', message, hint)
    else findings.fail(spot, '', message, hint)
  }
}

function reportQuote ({ offset, end }: Quote, file: TextFile, findings: Findings): void {
  findings.fail({ file, offset }, '', end === undefined
    ? 'this quote is never closed'
    : `this quote is never closed, or the next one, at ${printSpot({ file, offset: end })}, is one too many`)
}

function reportRepeat ({ offset, first, more }: Repeat, file: TextFile, findings: Findings): void {
  const there = printSpot({ file, offset: first })
  if (more === 0) {
    findings.report({ file, offset }, '', `this key was set before in the same map, at ${there}`,
      'remove one of the two')
    return
  }
  findings.report({ file, offset }, '',
    `this key and the ${more === 1 ? 'one' : more} after it were set before in the same map, from ${there} on`,
    'was a block pasted twice? remove one of the two')
}

/** Repeated keys of maps; adjacent repetitions are reported as one. */
function repeatedKeys (contents: ParsedNode | null): readonly Repeat[] {
  const found: Repeat[] = []
  visit(contents, {
    Map (_, { items }) {
      const seen = new Map<unknown, number>()
      let run: { readonly repeat: Repeat, readonly last: number, readonly place: number } | undefined
      for (const [index, { key }] of items.entries()) {
        if (!isScalar(key)) continue
        const first = seen.get(key.value)
        if (first === undefined) { seen.set(key.value, index); continue }
        if (run !== undefined && run.last === index - 1 && run.place === first - 1) {
          run.repeat.more++
          run = { repeat: run.repeat, last: index, place: first }
          continue
        }
        const repeat = { offset: key.range?.[0] ?? 0, first: (items[first]!.key as Scalar).range?.[0] ?? 0, more: 0 }
        found.push(repeat)
        run = { repeat, last: index, place: first }
      }
    }
  })
  return found
}

/** The beginning of an open bracket: the parser reports where the text goes on. */
function lastOpen (
  contents: ParsedNode | null,
  text: string,
  bracket: '{' | '[',
  before: number
): number | undefined {
  let last: number | undefined
  visit(contents, {
    Collection (_, { flow, range }) {
      const isOpen = flow === true && range != null && text[range[0]] === bracket &&
        text[range[1] - 1] !== (bracket === '{' ? '}' : ']')
      if (isOpen && range[0] < before) last = range[0]
    }
  })
  return last
}
