// Every regular expression of the code, and every pattern of a JSON schema, takes a time that grows like the text (rule
// growth). The lint looks too, while one writes; this checker finds more.
import t from 'tap'
import { expressionsIn, slowness } from '../support/expressions.ts'
import { allExpressions, digestOf, expressionsMade, found, HARMLESS, imported, LINEAR, linearText,
  MADE } from '../support/linear-expressions.ts'
import { textOfPage } from '../support/pages.ts'

/** Of those that are known: some of them, in each run. */
const CHECKED_AGAIN = 20
const TABLES = 'of test/support/linear-expressions.ts'

t.test('each expression is linear, or has a reason', async (t) => {
  const functions = found.made.filter((one) => one.function !== undefined)
  const inFunctions = new Set(functions.map((one) => `${one.at.split(':')[0]!} ${one.function!}`))
  t.strictSame([...inFunctions].toSorted(), Object.keys(MADE).toSorted(),
    `what functions make has an example, or why it needs none, in MADE ${TABLES}`)

  const made = await expressionsMade()
  t.strictSame(imported.filter(({ at }) => !made.some((one) => one.at === at)).map(({ at }) => at), [],
    'each place has made its own')

  t.strictSame(found.computed.filter((at) => !at.startsWith('src/config/sections/')), [],
    'patterns that are computed stand in the schema of gateway.yaml')

  const all = allExpressions(made)
  const committed = textOfPage(LINEAR)
  const kept = new Set(committed.split('\n'))
  for (const one of all) if (Math.random() * all.length < CHECKED_AGAIN) kept.delete(digestOf(one))
  const slow: string[] = []
  const text = linearText(all, [...kept].join('\n'), slow)
  t.strictSame(slow, [], `write them in another way, or the reason why they are harmless into HARMLESS ${TABLES}`)
  const lines = (of: string): string[] => of.split('\n')
  t.strictSame(lines(text), lines(committed), `run "npm run goldens": it writes ${LINEAR}`)
  const sources = new Set(all.map(({ source }) => source))
  t.strictSame(Object.keys(HARMLESS).filter((source) => !sources.has(source)), [],
    `reasons without an expression: remove them from HARMLESS ${TABLES}`)
})

t.test('N2: the checker finds what is exponential, and what is a square', async (t) => {
  const image = String.raw`^(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*|<!--[\s\S]*?-->\s*|<!DOCTYPE svg[^>]*>\s*)*<svg[\s>]`
  t.match(slowness({ source: image, flags: 'i' }), /exponential/)
  t.match(slowness({ source: '0+$', flags: '' }), /2nd degree/)
  t.match(slowness({ source: '[a-z]{1,200}@', flags: '' }), /2nd degree/)
  t.equal(slowness({ source: '[a-z]{1,64}@|^[a-z]{1,200}@', flags: '' }), undefined)
})

t.test('the finder finds expressions of each kind', async (t) => {
  const { written, made, computed } = expressionsIn('a.ts', `const a = /x+/g
    const b = new RegExp('y' + a.source)
    function f (z) { return RegExp(z) }
    class C { m () { return (() => new RegExp(this.z))() } }
    const schema = { pattern: '^a$', properties: { of: { pattern: \`^\${a.source}$\` } } }`)
  t.strictSame(written, [{ at: 'a.ts:1', source: 'x+', flags: 'g' }, { at: 'a.ts:5', source: '^a$', flags: 'u' }])
  t.strictSame(made, [{ at: 'a.ts:2', function: undefined }, { at: 'a.ts:3', function: 'f' },
    { at: 'a.ts:4', function: 'm' }])
  t.strictSame(computed, ['a.ts:5'])
})
