// The README's table of plugins says what the plugins say of themselves, and its example is the one that the tests run.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { plugins } from '../plugins/index.ts'
import type { Plugin } from '../src/plugin.ts'
import { packageRoot } from '../src/package-root.ts'
import { config, services } from './exchange.ts'

const readme = readFileSync(path.join(packageRoot, 'README.md'), 'utf8')

const rows = [...readme.matchAll(/^\| `([\w-]+)` \|[^|]+\|([\w, ]*)\|([\w, -]*)\|([\w, -]*)\|$/gm)]
  .map(([, name, hooks, reads, writes]) => ({ name, hooks: list(hooks), reads: list(reads), writes: list(writes) }))

/** Its options where gateway.yaml names none. */
function defaultsOf ({ schema }: Plugin): Record<string, unknown> {
  const properties = (schema?.['properties'] ?? {}) as Readonly<Record<string, { readonly default?: unknown }>>
  return Object.fromEntries(Object.entries(properties).flatMap(([name, { default: value }]) => value === undefined ? [] : [[name, value]]))
}

function list (cell = ''): string[] {
  return cell.split(',').map((word) => word.trim()).filter((word) => word !== '')
}

t.test('each plugin has its row, in the order of the pipeline, with its hooks, what it reads and what it writes', async (t) => {
  const said = plugins.map((plugin) => ({
    name: plugin.name,
    hooks: Object.keys(plugin.create(defaultsOf(plugin), config(), services())),
    reads: (plugin.reads ?? []).map(({ name }) => name),
    writes: (plugin.writes ?? []).map(({ name }) => name)
  }))
  t.strictSame(rows.map((row) => ({ ...row, hooks: row.hooks.toSorted() })), said.map((row) => ({ ...row, hooks: row.hooks.toSorted() })))
})

t.test('the examples of plugins are those that user-plugin.test.ts loads', async (t) => {
  for (const name of ['block-words', 'outcome-log']) t.ok(readme.includes('```ts\n' + readFileSync(path.join(packageRoot, `test/fixtures/${name}.ts`), 'utf8') + '```\n'), name)
})
