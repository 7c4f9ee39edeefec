// Tries changes in copies of the checkout, so that the checkout stays as it is.
import { spawn } from 'node:child_process'
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { packageRoot } from '../../src/base/package.ts'
import { Chance } from '../fuzz/chance.ts'
import { equivalent } from './equivalent.ts'
import { isReadable, mutantsOf, type Mutant } from './mutants.ts'
import type { Room } from './rooms.ts'

export interface Options {
  readonly count: number
  readonly seed: number
  readonly jobs: number
  /** FILE:LINE */
  readonly at?: string
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
  const needed = [...new Set(changes.flatMap(({ tests }) => tests))]
  const copies = await Promise.all(
    Array.from({ length: Math.min(options.jobs, Math.max(changes.length, 1)) }, copyOfCheckout)
  )
  const survivors: string[] = []
  let noticed = 0
  try {
    const patience = new Map<string, number>()
    await inLanes(copies, needed, async (copy, path) => {
      const started = performance.now()
      const passed = await passes(copy, path, MOST_MS)
      patience.set(path, Math.max(LEAST_MS, SLOWER * (performance.now() - started)))
      if (!passed) throw new Error(`${path} fails without any change: mend that first`)
    })
    say(`${needed.length} files of tests pass; ${changes.length} changes`)
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
 * Each room has its share by the changes that it allows, but a fifth of an even share at least; in a room every file
 * has its own.
 */
function choose (
  rooms: readonly Room[],
  { count, seed, at }: Options,
  pathOf: (name: string) => string
): readonly Change[] {
  const chance = new Chance(seed)
  const all = rooms.map(({ name, files, tests }) => {
    const found = globSync([...files], { cwd: packageRoot }).toSorted().flatMap((path) => {
      const file = path.replaceAll('\\', '/')
      const text = readFileSync(join(packageRoot, path), 'utf8')
      return mutantsOf(text, name === 'lua')
        .filter((mutant) =>
          !isEquivalent(file, text, mutant) &&
          isReadable(text.slice(0, mutant.from) + mutant.by + text.slice(mutant.to))
        )
        .map((mutant): Change => ({ ...mutant, file, text, tests: tests.map(pathOf) }))
    })
    return found
  })
  if (at !== undefined) return all.flat().filter(({ file, line }) => `${file}:${line}` === at)
  const total = all.reduce((sum, { length }) => sum + length, 0)
  return all.flatMap((found) => {
    const share = Math.max(Math.round(count * found.length / total), Math.ceil(count / rooms.length / 5))
    const shuffled = found.map((change) => ({ change, at: chance.below(1_000_000) })).toSorted((a, b) => a.at - b.at)
    return shuffled.slice(0, share).map(({ change }) => change)
  })
}

function isEquivalent (file: string, text: string, { line, what }: Mutant): boolean {
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

/** @returns the test file that fails with the change */
async function noticedBy (
  copy: string,
  { file, text, from, to, by, tests }: Change,
  patience: ReadonlyMap<string, number>
): Promise<string | undefined> {
  writeFileSync(join(copy, file), text.slice(0, from) + by + text.slice(to))
  try {
    for (const test of tests) if (!await passes(copy, test, patience.get(test)!)) return test
    return undefined
  } finally {
    writeFileSync(join(copy, file), text)
  }
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
