// The runner itself: what fails in any way is failed and shown whole, what passes is a line.
import { join, sep } from 'node:path'
import t, { type Test } from 'tap'
import { type Counts, packed, runFiles } from '../run-files.ts'

const FINE = 't.test(\'a\', async (t) => { t.ok(true); t.ok(true) })'

/** Runs files of these texts; what is printed has neither times nor folders. */
async function run (
  t: Test, texts: Readonly<Record<string, string>>, isPacked = false, lastWordsMs?: number
): Promise<Counts & { readonly said: string }> {
  const names = Object.keys(texts)
  const folder = t.testdir(Object.fromEntries(
    names.map((name) => [`${name}.ts`, `import t from 'tap'\n${texts[name]}\n`])
  ))
  let said = ''
  const files = names.map((name) => join(folder, `${name}.ts`))
  const counts = await runFiles(isPacked ? [files] : files.map((file) => [file]), process.env, (text) => {
    said += text.replaceAll(folder + sep, '').replace(/ ?# time=\d+ms/g, '')
  }, lastWordsMs)
  return { ...counts, said }
}

t.test('files that pass are a line each; what they have left out, and why, stands below', async (t) => {
  const { said, ...counts } = await run(t, {
    fine: FINE,
    left: `${FINE}; t.test('b', { ['skip']: 'no server here' }, async () => {})`
  })
  t.strictSame(counts, { total: 5, pass: 4, fail: 0, skip: 1 })
  t.match(said, /^TAP version 14\n1\.\.2\n/)
  t.match(said, /^ok [12] - fine\.ts$/m)
  t.match(said, /^ok [12] - left\.ts\n {2}# ok 2 - b # SKIP no server here$/m)
  t.notMatch(said, /should be/)
  t.match(said, /^# \{ total: 5, pass: 4, skip: 1 \}$/m)
})

t.test('a file that fails is shown with all that it has said', async (t) => {
  const { said, ...counts } = await run(t, {
    fine: FINE,
    wrong: `console.error('to the side'); ${FINE}; t.test('b', async (t) => { t.equal(1, 2) })`
  })
  t.strictSame(counts, { total: 5, pass: 4, fail: 1, skip: 0 })
  t.match(said, /^ok [12] - fine\.ts$/m)
  t.match(said, /^not ok [12] - wrong\.ts\n {2}# 1 of 3 failed$/m)
  t.match(said, /^ {4}to the side$/m)
  t.match(said, /^ {8}not ok 1 - should be equal\n(?: {10}.*\n)* +-2\n +\+1$/m)
  t.match(said, /^# \{ total: 5, pass: 4, fail: 1 \}$/m)
})

// Each of them with what it is told to be.
const ODD = {
  'ends amid its tests': [`${FINE}; process.exit(0)`, '\\d of \\d failed'],
  'has no tests': ['', 'has no tests'],
  'can\'t be read': ['const = 1', 'exit code 1'],
  'throws where no test hears it': ['setTimeout(() => { process.exit(7) })', 'exit code 7'],
  'is killed': ['process.kill(process.pid, \'SIGKILL\')', 'ended by SIGKILL'],
  'says that all is well, and is not': [
    'console.log(\'# { total: 2, pass: 2 }\'); process.exit(3)', 'exit code 3'
  ]
} as const
for (const [name, [text, why]] of Object.entries(ODD)) {
  t.test(`a file that ${name} has failed`, async (t) => {
    const { said, fail } = await run(t, { odd: text })
    t.equal(fail, 1)
    t.match(said, new RegExp(`^not ok 1 - odd\\.ts\\n {2}# ${why}$`, 'm'))
  })
}

t.test('a file has ended when its process has, though one that it has started still holds its output', async (t) => {
  const { fail } = await run(t, { leaves: `
    import { spawn } from 'node:child_process'
    spawn(process.execPath, ['-e', 'setTimeout(() => {}, 60_000)'], { stdio: 'inherit', detached: true }).unref()
    ${FINE}` }, false, 10)
  t.equal(fail, 0)
})

t.test('files that share a process have a line each, and nothing else in common', async (t) => {
  const { said, ...counts } = await run(t, {
    first: `t.beforeEach(() => { console.log('before each') }); t.teardown(() => { console.log('after') }); ${FINE}`,
    second: `${FINE}; t.test('b', async (t) => { t.equal(1, 2) })`,
    none: '',
    last: `${FINE}; t.test('b', { ['skip']: 'no server here' }, async () => {})`
  }, true)
  t.strictSame(counts, { total: 9, pass: 7, fail: 1, skip: 1 })
  t.match(said, /^ok 1 - first\.ts\nnot ok 2 - second\.ts\n {2}# has failed$/m)
  t.match(said, /^ {12}not ok 1 - should be equal\n/m)
  t.notMatch(said, /before each|after/, 'what the first has asked for, the second has not')
  t.match(said, /^not ok 3 - none\.ts\n {2}# has no tests$/m)
  t.match(said, /^ok 4 - last\.ts\n {2}# ok 2 - b # SKIP no server here$/m)
})

t.test('a file that ends the process of others has failed, and those behind it are run', async (t) => {
  const { said, fail } = await run(t, {
    first: FINE, second: `${FINE}; t.test('b', async () => { process.kill(process.pid, 'SIGKILL') })`, last: FINE
  }, true)
  t.equal(fail, 1)
  t.match(said, /^ok 1 - first\.ts\nnot ok 2 - second\.ts\n {2}# ended by SIGKILL$/m)
  t.match(said, /^ok 3 - last\.ts$/m)
})

t.test('a process that ends badly behind all tests has failed with its last file', async (t) => {
  const { said, fail } = await run(t, {
    first: 'process.once(\'exit\', () => { process.exitCode = 3 })\n' + FINE, last: FINE
  }, true)
  t.equal(fail, 1)
  t.match(said, /^ok 1 - first\.ts\nnot ok 2 - last\.ts\n {2}# exit code 3$/m)
})

t.test('neighbours share a process, as many as are fair', async (t) => {
  t.strictSame(packed(['a/1', 'a/2', 'b/1', 'a/3', 'a/4', 'b/2'], 3),
    [['a/1', 'a/2'], ['a/3', 'a/4'], ['b/1', 'b/2']])
  t.strictSame(packed([]), [])
})
