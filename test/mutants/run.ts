// Tries changes in copies of the checkout, so that the checkout stays as it is.
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { packageRoot } from '../../src/base/package.ts'
import { equivalent } from './equivalent.ts'
import { isReadable, mutantsOf, type Mutant } from './mutants.ts'
import type { Room } from './rooms.ts'

export interface Options {
  readonly count: number
  readonly seed: number
  readonly jobs: number
  /** FILE:LINE of each */
  readonly at?: readonly string[]
}

interface Change extends Mutant {
  readonly file: string
  readonly text: string
  readonly tests: readonly string[]
}

/** Of one test file without a change, on a busy machine. */
const MOST_MS = 900_000
/** What takes so many times as long with a change as without it has noticed it. */
const SLOWER = 10
/** But no less than this, because a machine may get busy in between. */
const LEAST_MS = 120_000
/** Behind SIGTERM, for the servers that a test has started. */
const LAST_MS = 10_000

/**
 * @returns how many were noticed, and each that was not, with its place
 * @throws {Error} a test fails without any change
 */
export async function tryMutants (
  rooms: readonly Room[],
  options: Options,
  say: (line: string) => void
): Promise<{ readonly noticed: number, readonly survivors: readonly string[] }> {
  const paths = new Map(
    globSync('test/*/*.test.ts', { cwd: packageRoot }).map((path) => [/([^/\\]+)\.test\.ts$/.exec(path)![1]!, path])
  )
  const changes = choose(rooms, options, (name) => {
    const path = paths.get(name)
    if (path === undefined) throw new Error(`mutants/rooms.ts names the test ${name}, which is not there`)
    return path
  })
  const copies = await Promise.all(
    Array.from({ length: Math.min(options.jobs, Math.max(changes.length, 1)) }, copyOfCheckout)
  )
  const survivors: string[] = []
  let noticed = 0
  try {
    say(`${changes.length} changes`)
    const patience = new Map<string, Promise<number>>()
    await inLanes(copies, changes, async (copy, change) => {
      const by = await noticedBy(copy, change, patience)
      const place = `${change.file}:${change.line} ${change.what}: ${change.text.split('\n')[change.line - 1]!.trim()}`
      if (by === undefined) survivors.push(place)
      else noticed++
      say(`${by === undefined ? 'NOT NOTICED' : by}  ${place}`)
    })
  } finally {
    for (const copy of copies) rmSync(copy, { recursive: true, force: true })
  }
  return { noticed, survivors: survivors.toSorted() }
}

/**
 * Each room has its share by the changes that it allows, but a fifth of an even share at least. Which of them is a
 * matter of each change alone, so that an edit elsewhere leaves the choice as it is; so does one more in
 * equivalent.ts: those are left out behind the choice.
 */
function choose (
  rooms: readonly Room[],
  { count, seed, at }: Options,
  pathOf: (name: string) => string
): readonly Change[] {
  const all = rooms.map(({ name, files, tests }) =>
    globSync([...files], { cwd: packageRoot }).toSorted().flatMap((path) => {
      const file = path.replaceAll('\\', '/')
      const text = readFileSync(join(packageRoot, path), 'utf8')
      return mutantsOf(text, name === 'lua')
        .filter((mutant) => isReadable(text.slice(0, mutant.from) + mutant.by + text.slice(mutant.to)))
        .map((mutant) => ({
          ...mutant, file, text, tests: tests.map(pathOf), lot: lotOf(seed, file, text, mutant)
        }))
    }))
  const total = all.reduce((sum, { length }) => sum + length, 0)
  const chosen = at === undefined
    ? all.flatMap((found) => {
      const share = Math.max(Math.round(count * found.length / total), Math.ceil(count / rooms.length / 5))
      return found.toSorted((a, b) => a.lot < b.lot ? -1 : 1).slice(0, share)
    })
    : all.flat().filter(({ file, line }) => at.includes(`${file}:${line}`))
  return chosen.filter((change) => !isEquivalent(change))
}

/** By the seed, the file, the line's text, which of the same lines of the file it is, and the change in it. */
function lotOf (seed: number, file: string, text: string, { from, line, what }: Mutant): string {
  const until = text.split('\n').slice(0, line)
  const own = until.at(-1)!
  const nth = until.filter((other) => other === own).length
  const column = from - (text.lastIndexOf('\n', from - 1) + 1)
  return createHash('sha256').update(JSON.stringify([seed, file, own, nth, column, what])).digest('hex')
}

function isEquivalent ({ file, text, line, what }: Change): boolean {
  const own = text.split('\n')[line - 1]!
  return equivalent.some((one) => one.file === file && one.what === what && own.includes(one.line))
}

async function copyOfCheckout (): Promise<string> {
  const copy = mkdtempSync(join(tmpdir(), 'gateway-mutants-'))
  for (const name of ['src', 'plugins', 'config', 'test', 'gateway.yaml', 'package.json', 'tsconfig.json', 'README.md',
    '.taprc']) {
    cpSync(join(packageRoot, name), join(copy, name), { recursive: true })
  }
  symlinkSync(join(packageRoot, 'node_modules'), join(copy, 'node_modules'))
  return copy
}

async function inLanes<T> (
  copies: readonly string[],
  items: readonly T[],
  run: (copy: string, item: T) => Promise<void>
): Promise<void> {
  const left = [...items]
  await Promise.all(copies.map(async (copy) => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) await run(copy, item)
  }))
}

/**
 * @param patience milliseconds for each test file, as far as it was run
 * @returns the test file that fails with the change
 */
async function noticedBy (
  copy: string,
  { file, text, from, to, by, tests }: Change,
  patience: Map<string, Promise<number>>
): Promise<string | undefined> {
  for (const test of tests) {
    if (!patience.has(test)) patience.set(test, patienceFor(copy, test))
    const patienceMs = await patience.get(test)!
    writeFileSync(join(copy, file), text.slice(0, from) + by + text.slice(to))
    const hasPassed = await passes(copy, test, patienceMs)
    writeFileSync(join(copy, file), text)
    if (!hasPassed) return test
  }
  return undefined
}

/** Runs a test file without any change. */
async function patienceFor (copy: string, test: string): Promise<number> {
  const started = performance.now()
  if (!await passes(copy, test, MOST_MS)) throw new Error(`${test} fails without any change: mend that first`)
  return Math.max(LEAST_MS, SLOWER * (performance.now() - started))
}

async function passes (copy: string, path: string, patienceMs: number): Promise<boolean> {
  const child = spawn(process.execPath, [path], {
    cwd: copy, stdio: 'ignore', detached: true,
    env: { ...process.env, TAP_BAIL: '1', TAP_TIMEOUT: String(Math.ceil(patienceMs / 1000)) }
  })
  return await new Promise((resolve) => {
    const end = (signal: NodeJS.Signals): void => {
      try { process.kill(-child.pid!, signal) } catch { /* all of the group have ended */ }
    }
    const soft = setTimeout(() => { end('SIGTERM') }, patienceMs)
    const hard = setTimeout(() => { end('SIGKILL') }, patienceMs + LAST_MS)
    child.once('error', () => {})
    child.once('close', (code) => {
      clearTimeout(soft)
      clearTimeout(hard)
      end('SIGKILL')                                          // servers that a failed test has left
      resolve(code === 0)
    })
  })
}
