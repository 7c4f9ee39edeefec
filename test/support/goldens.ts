// The files that are written from the code: `npm run goldens` writes them, and the tests compare them with what these
// functions return.
import { plugins } from '../../plugins/index.ts'
import { configReference, schemaText } from '../../src/tools/config-reference.ts'
import { withErrorTable } from '../../src/tools/errors-table.ts'
import { type Page, pages } from './pages.ts'

interface Golden {
  /** from the package's folder */
  readonly path: string
  /** @throws {Error} it can't be written from the code alone: says what has to be changed by hand */
  text (committed: string): string | Promise<string>
}

/** In their order: the patterns of the schema are expressions, too. */
export const goldens: readonly Golden[] = [
  { path: 'config/gateway.schema.json', text: () => schemaText(plugins) },
  { path: 'config/README.md', text: () => configReference(plugins) },
  { path: errorPage().path, text: withErrorTable },
  { path: 'test/fixtures/config/mistakes.txt', text: async (committed) => {
    const { withResults } = await import('../fixtures/config/mistakes.ts')
    return await withResults(committed)
  } },
  { path: 'test/fixtures/linear-expressions.txt', text: async (committed) => {
    const { allExpressions, expressionsMade, linearText } = await import('./linear-expressions.ts')
    const slow: string[] = []
    const text = linearText(allExpressions(await expressionsMade()), committed, slow)
    if (slow.length > 0) throw new Error(`not linear:\n${slow.join('\n')}`)
    return text
  } }
]

/** The page that has the table of errors. @throws {Error} none has */
export function errorPage (): Page {
  const page = pages().find(({ text }) => text.includes('<!-- errors -->\n'))
  if (page === undefined) throw new Error('no page has its error table between <!-- errors --> and <!-- /errors -->')
  return page
}
