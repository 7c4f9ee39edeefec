// node test/additions.ts [NAME ...]: what a contributor meets who adds a row to one of the tables that
// src/README.md#additions lists. Each stub goes into a copy of the checkout; `npm run goldens`, the types and the tests
// that can notice run there. Prints which of them fail, and what they say. A few minutes; not in `npm test`, because a
// failure is no mistake here.
import { execFile, execFileSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { argv, env, execPath } from 'node:process'
import { packageRoot } from '../src/base/package.ts'

interface Edit {
  readonly path: string
  /** a line of a file that is there, behind which the text goes; absent: a new file */
  readonly behind?: string
  readonly text: string
}

interface Addition {
  readonly name: string
  readonly edits: readonly Edit[]
  /** beside those that every addition concerns */
  readonly tests: readonly string[]
}

const additions: readonly Addition[] = [
  { name: 'dialect',
    edits: [
      { path: 'src/config/sections/dialects.ts', behind: '  responses: { kind: \'text\', ending: ' +
        '/\\/responses\\/*$/, options: \'responses\', callIds: { longest: 64 } },',
        text: '  stub: { kind: \'text\', ending: /\\/stub\\/*$/ },\n' },
      { path: 'src/upstream/dialects/stub/index.ts',
        text: '// A dialect that is a stub.\nexport { dialect } from \'../messages/index.ts\'\n' }
    ],
    tests: ['upstream/byte-order-mark', 'growth/bodies', 'growth/expressions', 'pipeline/failure-table',
      'pipeline/wrong-types', 'pipeline/truth-table', 'fuzz/fuzz'] },
  { name: 'plugin',
    edits: [
      { path: 'plugins/index.ts', behind: 'import { schemaValidate } from \'./schema-validate/index.ts\'',
        text: 'import { stub } from \'./stub.ts\'\n' },
      { path: 'plugins/index.ts', behind: 'export const plugins: readonly Plugin[] = [auth, keyPolicy, rateLimit, ' +
        'schemaValidate, chatToMessages,', text: '  stub,\n' },
      { path: 'plugins/stub.ts', text: `// A plugin that is a stub.
import { definePlugin } from '../src/core/plugin.ts'

export const stub = definePlugin({
  name: 'stub',
  schema: {
    type: 'object',
    properties: { most: { type: 'integer', minimum: 0, default: 5, description: 'How many there are at most.' } }
  },
  create: () => ({ onRequest () {} })
})
` }
    ],
    tests: ['config/config-keys', 'pipeline/plugin-faults'] },
  { name: 'driver',
    edits: [
      { path: 'src/config/sections/drivers.ts', behind: '  embedded: { isLasting: true, isShared: false, ' +
        'meaning: \'SQLite in the data folder.\' },',
        text: '  stub: { isLasting: false, isShared: false, meaning: \'a stub.\' },\n' },
      { path: 'src/store/stub/driver.ts',
        text: '// The driver `stub`.\nexport { driver } from \'../memory/driver.ts\'\n' }
    ],
    tests: ['store/store', 'config/config'] },
  { name: 'key-setting',
    edits: [{ path: 'src/config/sections/keys.ts', behind: '  secret: { description: \'What the client sends: a prefix ' +
      'and 32 letters or digits.\', type: \'string\', secret: true },', text: '  stub: flag(\'true: nothing.\'),\n' }],
    tests: ['config/config-keys', 'config/diff', 'admin/admin-api', 'admin/web', 'fuzz/fuzz'] },
  { name: 'error-code',
    edits: [{ path: 'src/errors.ts', behind: 'export const catalogue = {',
      text: '  stub: { status: 418, type: \'invalid_request_error\', message: \'This is a stub. Send nothing.\' },\n' }],
    tests: ['pipeline/codes'] },
  { name: 'price-component',
    edits: [{ path: 'src/config/sections/prices.ts', behind: '  output: price(\'Output tokens.\'),',
      text: '  stub: price(\'Tokens of a stub; absent: as input.\'),\n' }],
    tests: ['money/money', 'endpoints/models-info', 'config/config'] }
]

/** Concern every addition. */
const COMMON = ['core/structure', 'core/pages', 'core/plugin-tables', 'core/errors', 'config/config-mistakes',
  'config/config-schema', 'admin/openapi', 'growth/loops']
const PATIENCE_MS = 600_000
const MOST_FAILURES = 6
const MOST_LINES = 6

const wanted = argv.slice(2)
const unknown = wanted.filter((name) => !additions.some((one) => one.name === name))
if (unknown.length > 0) {
  throw new Error(`there is no addition ${unknown.join(', ')}; there are ${additions.map(({ name }) => name).join(', ')}`)
}
const folder = mkdtempSync(join(tmpdir(), 'gateway-additions-'))
try {
  copyCheckout()
  for (const one of additions) if (wanted.length === 0 || wanted.includes(one.name)) await tryOne(one)
} finally {
  rmSync(folder, { recursive: true, force: true })
}

function copyCheckout (): void {
  const listed = ['ls-files', '-co', '--exclude-standard', '-z']
  for (const path of execFileSync('git', listed, { cwd: packageRoot, encoding: 'utf8' }).split('\0')) {
    if (path === '' || !existsSync(join(packageRoot, path))) continue
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    cpSync(join(packageRoot, path), join(folder, path))
  }
  symlinkSync(join(packageRoot, 'node_modules'), join(folder, 'node_modules'))
  writeFileSync(join(folder, '.gitignore'), '/node_modules\n', { flag: 'a' })
  git('init', '--quiet')
  git('add', '--all')
}

function git (...args: readonly string[]): string {
  return execFileSync('git', args, { cwd: folder, encoding: 'utf8' })
}

async function tryOne ({ name, edits, tests }: Addition): Promise<void> {
  console.log(`\n## ${name}`)
  for (const edit of edits) apply(edit)
  for (const path of new Set(edits.map(({ path }) => path))) console.log(`added to ${path}`)
  for (const line of linesOf((await run(['test/goldens.ts'])).text)) console.log(`npm run goldens: ${line}`)
  for (const line of linesOf((await run(['node_modules/typescript/bin/tsc', '--noEmit'])).text)) {
    console.log(`types: ${line}`)
  }
  const left = [...COMMON, ...tests].map((test) => `test/${test}.test.ts`)
  const next = async (): Promise<void> => {
    for (let test = left.shift(); test !== undefined; test = left.shift()) {
      const { code, text } = await run([test])
      if (code !== 0) console.log([`fails: ${test}`, ...failuresIn(text)].join('\n  '))
    }
  }
  await Promise.all([next(), next()])                       // most have a gateway of their own
  git('checkout', '--quiet', '--', '.')
  git('clean', '--quiet', '--force', '-d')
}

/** @throws {Error} the line is no longer there: the stub must be put elsewhere */
function apply ({ path, behind, text }: Edit): void {
  const file = join(folder, path)
  mkdirSync(dirname(file), { recursive: true })
  if (behind === undefined) { writeFileSync(file, text); return }
  const before = readFileSync(file, 'utf8')
  if (!before.includes(`${behind}\n`)) throw new Error(`${path} has no line ${behind}`)
  writeFileSync(file, before.replace(`${behind}\n`, () => `${behind}\n${text}`))
}

async function run (args: readonly string[]): Promise<{ readonly code: number, readonly text: string }> {
  return await new Promise((resolve) => {
    const options = { cwd: folder, env: { ...env, TAP_TIMEOUT: '600' }, timeout: PATIENCE_MS, maxBuffer: 256 << 20 }
    const child = execFile(execPath, args, options, (_error, stdout, stderr) => {
      resolve({ code: child.exitCode ?? 1, text: stdout + stderr })
    })
  })
}

/** Of TAP: the sentence of each assertion that failed, and the first lines of what was found. */
function failuresIn (tap: string): readonly string[] {
  const failures = [...tap.matchAll(/^ *not ok \d+ - (.*)\n((?: +.*\n|\n)*?)(?= *\.\.\.$)/gm)]
    .map(([, sentence = '', details = '']) => ({ sentence, details }))
    .filter(({ sentence }) => !/ # time=/.test(sentence))
  if (failures.length === 0) return linesOf(tap).filter((line) => !/^ *(?:ok|#|\d+\.\.)/.test(line)).slice(0, 12)
  return failures.slice(0, MOST_FAILURES).flatMap(({ sentence, details }) => [sentence,
    ...linesOf(details).map((line) => line.trim()).filter((line) => /^[-+] *\S/.test(line) && !/^[-+]{3} /.test(line))
      .slice(0, MOST_LINES).map((line) => `  ${line}`)])
}

function linesOf (text: string): readonly string[] {
  return text.split('\n').filter((line) => line.trim() !== '')
}
