// The pages lead where they say, and name what there is: links, anchors, files, metrics, errors, examples of
// gateway.yaml. The front page is short, and shows every room.
import { existsSync, globSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { Ajv } from 'ajv'
import t from 'tap'
import { parse } from 'yaml'
import { packageRoot } from '../../src/base/package.ts'
import { catalogue, type ErrorCode, GatewayError } from '../../src/errors.ts'
import { withFigures } from '../bench/report.ts'
import { anchorsOf, pages, textOfPage, withoutCode } from '../support/pages.ts'

/** A link within the repository. */
interface Link {
  readonly page: string
  /** as it is written */
  readonly to: string
  /** from the package's folder */
  readonly path: string
  readonly anchor: string | undefined
}

const all = pages()
const links = all.flatMap(({ path, text }) => targetsOf(text).flatMap((to) => linkOf(path, to)))

function targetsOf (text: string): string[] {
  return matches(withoutCode(text), /\]\(([^)\s]+)\)/g)
}

function linkOf (page: string, to: string): readonly Link[] {
  if (/^https?:|^\{\{/.test(to)) return []               // {{public_url}} of the customers' pages
  const [file = '', anchor] = to.split('#')
  return [{ page, to, path: file === '' ? page : posix.join(dirname(page), file), anchor }]
}

/** What the first group of a pattern finds, or the whole of it. */
function matches (text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].map(([whole, group]) => group ?? whole)
}

function isThere (path: string): boolean {
  return existsSync(join(packageRoot, path))
}

/** The files that fit a pattern; paths from the package's folder, with slashes. */
function filesOf (pattern: string): string[] {
  const found = globSync(pattern, { cwd: packageRoot, exclude: ['**/node_modules/**'] })
  return found.map((path) => path.replaceAll('\\', '/'))
}

const written = (link: Link): string => `${link.page}: ${link.to}`

t.test('each link of each page leads to a file or folder that there is, and to an anchor that it has', async (t) => {
  t.strictSame(links.filter(({ path }) => !isThere(path)).map(written), [])
  const anchors = new Map(all.map(({ path, text }) => [path, anchorsOf(text)]))
  const lost = links.filter(({ path, anchor }) => anchor !== undefined && anchors.get(path)?.has(anchor) !== true)
  t.strictSame(lost.map(written), [])
})

t.test('each file that a page names is there, and each metric and script is known to the code', async (t) => {
  const code = filesOf('src/**/*.ts').map(textOfPage).join('\n')
  const { scripts } = JSON.parse(textOfPage('package.json')) as { readonly scripts: Readonly<Record<string, string>> }
  for (const { path, text } of all) {
    const files = matches(text, /(?<![\w./-])(?:src|plugins|config|test)\/[\w./-]+\.(?:ts|js|json|yaml)\b/g)
    t.strictSame(files.filter((name) => !isThere(name)), [], path)
    t.strictSame(matches(text, /`(gateway_[a-z_]+)/g).filter((name) => !code.includes(name)), [], path)
    const run = matches(text, /\bnpm run (?:--silent |-s )?([\w:]+)/g)
    t.strictSame(run.filter((name) => scripts[name] === undefined), [], path)
  }
})

t.test('the page of metrics has a row for each one of ours', async (t) => {
  const page = textOfPage('config/prometheus/README.md')
  const code = filesOf('src/telemetry/*.ts').map(textOfPage).join('\n')
  const known = new Set(matches(code, /\bgateway_[a-z_]+/g))
  t.ok(known.size > 20)
  t.strictSame([...known].filter((name) => !new RegExp(`^\\|[^|]*\`${name}[{\`]`, 'm').test(page)), [])
})

t.test('each error that a page names by status and code is one of the catalogue, or of the admin API', async (t) => {
  const errors = Object.keys(catalogue).map((row) => new GatewayError(row as ErrorCode))
  const ofAdmin = ['403 forbidden', '409 above_charge', '409 account_closed', '409 insufficient_balance', '429 busy']
  const known = new Set([...errors.map(({ status, code }) => `${status} ${code}`), ...ofAdmin])
  const said = all.flatMap(({ path, text }) => [...text.matchAll(/\b([45]\d\d)[\s(]+`([a-z_]+)`/g)]
    .map(([, status, code]) => ({ path, error: `${status} ${code}` })))
  t.ok(said.length > 20)
  t.strictSame(said.filter(({ error }) => !known.has(error)), [])
})

t.test('each example of gateway.yaml on a page is one that the schema takes', async (t) => {
  const schema = JSON.parse(textOfPage('config/gateway.schema.json')) as object
  const check = new Ajv({ strict: false, allErrors: true, discriminator: true }).compile({ ...schema, required: [] })
  for (const { path, text } of all) {
    for (const example of matches(text, /^```yaml\n([^]*?)^```/gm)) {
      const isTaken = check(whole(parse(example) as Record<string, unknown>))
      const wrong = check.errors?.map(({ instancePath, message }) => `${instancePath} ${message}`)
      t.ok(isTaken, `${path}: ${example.slice(0, 60)} ${JSON.stringify(wrong)}`)
    }
  }
})

/** An example may show one part of a model only. */
function whole (example: Readonly<Record<string, unknown>>): unknown {
  const targets = [{ upstream: 'a', model: 'b' }]
  const channels = 'price' in example ? { premium: { ...example, targets } } : example['channels']
  if (channels === undefined) return example
  return { models: [{ id: 'm', provider: 'p', created: '2026-01-01', max_output: 1000, channels }] }
}

t.test('the front page leads to every other page, by way of others or of its folder', async (t) => {
  const found = new Set(['README.md'])
  for (const page of found) {
    const from = links.filter((link) => link.page === page)
    for (const { path } of from) found.add(path.endsWith('.md') ? path : posix.join(path, 'README.md'))
  }
  const current = all.filter(({ text }) => !/^This page moved to \[/m.test(text)) // an old place, for one release
  t.strictSame(current.map(({ path }) => path).filter((path) => !found.has(path)), [])
})

t.test('the front page has 120 lines at most, and no line of prose is longer than 120 characters', async (t) => {
  const lines = textOfPage('README.md').trimEnd().split('\n')
  t.ok(lines.length <= 120, `${lines.length} lines`)
  for (const { path, text } of all) {
    const prose = withoutCode(text).split('\n').filter((line) => !line.startsWith('|'))
    t.strictSame(prose.filter((line) => [...line].length > 120), [], path)
  }
})

t.test('the map shows every room of src, and no other', async (t) => {
  const rooms = filesOf('src/*/').map((path) => path.replace(/^src\/|\/$/g, '')).toSorted()
  t.strictSame(matches(textOfPage('src/README.md'), /^\| \[(\w+)\]\(\1\) \|/gm).toSorted(), rooms)
  const [floors = ''] = matches(textOfPage('src/README.md'), /^## Rooms$[^]*?^```\n([^]*?)^```/gm)
  t.strictSame(matches(floors, /^ (\w+) /gm).filter((room) => room !== 'plugins').toSorted(), rooms)
})

t.test('each rule that a file cites is one of src/README.md', async (t) => {
  const anchors = anchorsOf(textOfPage('src/README.md'))
  const files = [...filesOf('{src,plugins,test,config}/**/*.{ts,js,yaml}'), 'gateway.yaml']
  for (const path of files) {
    const text = textOfPage(path)
    const inShort = matches(text, /\(rules? ([a-z-]+(?:, [a-z-]+)*)\)/g).flatMap((names) => names.split(', '))
    const cited = [...matches(text, /src\/README\.md#([\w-]+)/g), ...inShort]
    t.strictSame(cited.filter((name) => !anchors.has(name)), [], path)
  }
})

t.test('no file cites a page that is not in the repository', async (t) => {
  const elsewhere = /\b(?:protocol|style|design|layout|speed|lessons|spec)\.md\b|\blessons? \d|\bspec \d/
  for (const path of filesOf('{src,plugins,test,config}/**/*.{ts,js,json,yaml,md,txt}')) {
    if (path.endsWith('pages.test.ts')) continue
    t.strictSame(textOfPage(path).split('\n').filter((line) => elsewhere.test(line)), [], path)
  }
})

t.test('what the bench writes takes the place of what stands between the marks of its page', async (t) => {
  const page = textOfPage('test/bench/README.md')
  const printed = '## Benchmark\n\nNode 26\n\n### json: $& requests\n'
  for (const dialect of ['chat', 'responses']) {
    const after = withFigures(page, dialect, printed, new Date('2026-12-01T10:00:00Z'))
    const [begin, end] = [`<!-- figures ${dialect} -->\n`, `<!-- /figures ${dialect} -->`]
    const whole = page.replace(new RegExp(`(?<=${begin})[^]*(?=${end})`), () =>
      'Written by `npm run bench -- --page` on 2026-12-01.\n\nNode 26\n\n### json: $& requests\n')
    t.equal(after, whole)
  }
  t.throws(() => withFigures('no marks', 'chat', 'x', new Date(0)), /nothing between/)
})
