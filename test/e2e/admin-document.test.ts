// The document of the admin API, as a strict reader of OpenAPI sees it: nothing is wrong in it, and nothing is odd.
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { document } from '../support/admin-answers.ts'

const CLI = join(packageRoot, 'test/e2e/node_modules/@redocly/cli/bin/cli.js')

interface Linted {
  readonly totals: { readonly errors: number, readonly warnings: number }
  readonly problems: readonly { readonly ruleId: string }[]
}

/** Asks nobody, and tells nobody. */
function lint (t: Test, described: object): Linted {
  const file = join(t.testdir(), 'openapi.json')
  writeFileSync(file, JSON.stringify(described))
  const env = { ...process.env, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' }
  const { stdout, stderr } = spawnSync(process.execPath, [CLI, 'lint', '--extends=recommended', '--format=json', file],
    { encoding: 'utf8', cwd: packageRoot, env })
  if (!stdout.startsWith('{')) throw new Error(`${stdout}\n${stderr}`)
  return JSON.parse(stdout) as Linted
}

t.test('Redocly finds no error and no warning in it', async (t) => {
  const { totals, problems } = lint(t, document)
  t.strictSame(problems, [])
  t.match(totals, { errors: 0, warnings: 0 })
})

t.test('and would find both', async (t) => {
  const { paths } = document
  const [path, methods] = Object.entries(paths)[0]!
  const { totals, problems } = lint(t, { ...document, servers: [], paths: { ...paths, [path]: { ...methods,
    get: { ...methods['get'], tags: [], parameters: [{ name: 'a', in: 'nowhere' }], responses: {} } } } })
  t.ok(totals.errors > 0 && totals.warnings > 0, JSON.stringify(problems.map(({ ruleId }) => ruleId)))
})
