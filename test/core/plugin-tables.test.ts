// The tables of plugins say what the plugins say of themselves, and the examples of plugins/README.md are those that
// the tests run.
import t from 'tap'
import { plugins } from '../../plugins/index.ts'
import type { Plugin } from '../../src/core/plugin.ts'
import { config, services } from '../support/exchange.ts'
import { textOfPage } from '../support/pages.ts'

const rows = [...textOfPage('src/README.md').matchAll(/^\| `([\w-]+)` \|[^|]+\|([\w, ]*)\|([\w, -]*)\|([\w, -]*)\|$/gm)]
  .map(([, name, hooks, reads, writes]) => ({ name, hooks: list(hooks), reads: list(reads), writes: list(writes) }))

/** Its options where gateway.yaml names none. */
function defaultsOf ({ schema }: Plugin): Record<string, unknown> {
  const properties = (schema?.['properties'] ?? {}) as Readonly<Record<string, { readonly default?: unknown }>>
  const values = Object.entries(properties).map(([name, { default: value }]) => [name, value] as const)
  return Object.fromEntries(values.filter(([, value]) => value !== undefined))
}

function list (cell = ''): string[] {
  return cell.split(',').map((word) => word.trim()).filter((word) => word !== '')
}

t.test('each plugin has its row, in the order of the pipeline: its hooks, what it reads and writes', async (t) => {
  const said = plugins.map((plugin) => ({
    name: plugin.name,
    hooks: Object.keys(plugin.create(defaultsOf(plugin), config(), services())),
    reads: (plugin.reads ?? []).map(({ name }) => name),
    writes: (plugin.writes ?? []).map(({ name }) => name)
  }))
  const sorted = (table: typeof rows): unknown => table.map((row) => ({ ...row, hooks: row.hooks.toSorted() }))
  const table = 'in the table of src/README.md'
  t.strictSame(rows.map(({ name }) => name), plugins.map(({ name }) => name), `rows ${table}`)
  t.strictSame(sorted(rows), sorted(said), `write hooks, reads and writes of each plugin ${table}`)
})

t.test('the page of the plugins names the options that each has, with their defaults', async (t) => {
  const cells = [...textOfPage('plugins/README.md').matchAll(/^\| `([\w-]+)` \|([^|]*)\|[^|]*\|$/gm)]
    .map(([, name, cell = '']) => ({ name, cell }))
  t.strictSame(cells.map(({ name }) => name), plugins.map(({ name }) => name),
    'each plugin has a row in the table of plugins/README.md, in the order of plugins/index.ts')
  const where = (plugin: Plugin): string => `write it into the row of ${plugin.name} in plugins/README.md`
  for (const plugin of plugins) {
    const cell = cells.find(({ name }) => name === plugin.name)?.cell
    if (cell === undefined) continue
    const defaults = Object.values(defaultsOf(plugin)).filter((value) => typeof value !== 'object').map(String)
    const options = Object.keys(plugin.schema?.['properties'] ?? {})
    t.strictSame(options.filter((option) => !cell.includes('`' + option + '`')), [],
      `an option: ${where(plugin)}`)
    const isThere = (value: string): boolean => cell.includes(`(${value})`) || cell.includes('(`' + value + '`)')
    t.strictSame(defaults.filter((value) => !isThere(value)), [], `a default in brackets: ${where(plugin)}`)
  }
})

t.test('the examples of plugins are those that user-plugin.test.ts loads', async (t) => {
  const page = textOfPage('plugins/README.md')
  for (const name of ['block-words', 'outcome-log']) {
    t.ok(page.includes('```ts\n' + textOfPage(`test/fixtures/${name}.ts`) + '```\n'), name)
  }
})
