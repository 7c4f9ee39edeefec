// Tries inputs of chance on a gateway until the time is over, or the count is full, and says what went wrong.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { noStall, startArena, type Arena, type Stall } from './arena.ts'
import { Chance } from './chance.ts'
import { until } from '../support/until.ts'
import { kinds, type Kind } from './kinds.ts'
import type { Input } from './request.ts'

export interface FuzzOptions {
  readonly seed: number
  /** how long it goes on; absent: until `count` */
  readonly ms?: number
  /** inputs of each kind, or its share of it; absent: until `ms` */
  readonly count?: number
  /** names of kinds; absent: all */
  readonly only?: readonly string[]
  /** the number of the first input of each kind */
  readonly from?: number
  /** where inputs that did wrong are saved; made when there is one */
  readonly folder: string
  /** where inputs of a stall are saved; absent: nowhere */
  readonly stalls?: string
  readonly say?: (line: string) => void
}

export interface Told {
  /** of each kind, what its inputs came to, and how often */
  readonly counts: ReadonlyMap<string, ReadonlyMap<string, number>>
  readonly wrong: readonly string[]
  /** how long the loop of the gateway stood still at most, and the inputs that ran then */
  readonly worst: Stall & { readonly inputs: readonly string[] }
}

/** A loaded machine stops a process for longer now and then, so one input that runs alone must repeat it. */
const STALL_MS = 100
const LOOK_EVERY_MS = 100
const SAY_EVERY_MS = 10_000
/** Enough to look at. */
const MOST_WRONG = 50

/** An input is what the seed, its kind and its number say, whatever was tried before it. */
function chanceOf (seed: number, kind: string, number: number): Chance {
  let mixed = seed | 0
  for (const sign of `${kind} ${number}`) mixed = Math.imul(mixed ^ sign.codePointAt(0)!, 0x01000193)
  return new Chance(mixed)
}

export async function fuzz (
  { seed, ms = Infinity, count = Infinity, only, from = 0, folder, stalls, say = () => {} }: FuzzOptions
): Promise<Told> {
  const scratch = mkdtempSync(join(tmpdir(), 'gateway-fuzz-'))
  const chosen = kinds(scratch).filter(({ name }) => only === undefined || only.includes(name))
  const counts = new Map(chosen.map(({ name }) => [name, new Map<string, number>()]))
  const wrong: string[] = []
  const running = new Map<string, Input>()
  const started = Date.now()
  const arena = await startArena(chanceOf(seed, 'vendors', 0))
  const isOver = (): boolean => Date.now() - started >= ms || wrong.length >= MOST_WRONG || arena.isDead()

  function report (name: string, input: Input, why: string): void {
    if (wrong.length >= MOST_WRONG) return
    wrong.push(`${name}, seed ${seed}: ${why}\n  saved in ${save(folder, seed, name, input)}`)
    say(wrong.at(-1)!)
  }

  async function lane (kind: Kind, next: () => number | undefined): Promise<void> {
    for (let number = next(); number !== undefined && !isOver(); number = next()) {
      const name = `${kind.name} ${number}`
      const input = kind.make(chanceOf(seed, kind.name, number), number)
      running.set(name, input)
      recent.set(name, input)
      const verdict = await tryIt(kind, input, number, arena)
      running.delete(name)
      const counted = counts.get(kind.name)!
      counted.set(verdict.what, (counted.get(verdict.what) ?? 0) + 1)
      if (verdict.wrong !== undefined) report(name, input, verdict.wrong)
      if (arena.wrong.length > seen) {
        // Whoever runs now may have done it.
        for (const line of arena.wrong.slice(seen)) {
          wrong.push(`seed ${seed}: ${line}\n  what ran then is saved in ${folder} as ${seed}-suspect-…`)
        }
        seen = arena.wrong.length
        for (const [other, suspect] of [[name, input] as const, ...running]) {
          save(folder, seed, `suspect ${other}`, suspect)
        }
        say(wrong.at(-1)!)
      }
    }
  }
  let seen = 0

  let worst: Told['worst'] = { ...noStall, inputs: [] }
  /** Inputs that have run since the last look. */
  const recent = new Map<string, Input>()
  async function lookForStall (isCounted = true): Promise<void> {
    const inputs = [...recent]
    recent.clear()
    for (const [name, input] of running) recent.set(name, input)
    const stall = arena.isDead() ? noStall : await arena.worstStall()
    const { ms } = stall
    if (!isCounted || inputs.length === 0) return
    if (ms > worst.ms) worst = { ...stall, inputs: inputs.map(([name]) => name) }
    if (ms <= STALL_MS) return
    if (stalls !== undefined) {
      for (const [name, input] of inputs) save(stalls, seed, `stall ${name}`, input)
    }
    const line = `the loop stood still for ${lengthOf(stall)} during ${inputs.map(([name]) => name).join(', ')}, seed ${seed}`
    if (count === 1) wrong.push(line)
    say(line)
  }
  let isLooking = false
  const looks = setInterval(() => {
    if (isLooking) return
    isLooking = true
    lookForStall().catch(() => {}).finally(() => { isLooking = false })
  }, LOOK_EVERY_MS)
  await lookForStall(false)

  const timer = setInterval(() => {
    say(`${Math.round((Date.now() - started) / 1000)} s  ${progress(counts)}`)
  }, SAY_EVERY_MS)
  try {
    await Promise.all(chosen.flatMap((kind) => {
      const most = Math.ceil(count * (kind.share ?? 1))
      let number = from
      const next = (): number | undefined => number < from + most ? number++ : undefined
      return Array.from({ length: kind.lanes }, async () => { await lane(kind, next) })
    }))
  } finally {
    clearInterval(timer)
    clearInterval(looks)
    await until(() => !isLooking)
    await lookForStall().catch(() => {})
    rmSync(scratch, { recursive: true, force: true })
  }
  const atEnd = await arena.end()
  for (const line of atEnd.filter((one) => !wrong.some((told) => told.includes(one)))) {
    wrong.push(`at the end, seed ${seed}: ${line}`)
  }
  say(`${Math.round((Date.now() - started) / 1000)} s  ${progress(counts)}`)
  say(`the loop stood still for ${lengthOf(worst)} at most, during ${worst.inputs.join(', ')}`)
  return { counts, wrong, worst }
}

async function tryIt (
  kind: Kind,
  input: Input,
  number: number,
  arena: Arena
): Promise<{ readonly what: string, readonly wrong?: string }> {
  try {
    return await kind.run(input, number, arena)
  } catch (thrown) {
    return { what: 'threw', wrong: thrown instanceof Error ? thrown.stack ?? thrown.message : String(thrown) }
  }
}

function lengthOf ({ ms, cpu }: Stall): string {
  return `${Math.round(ms)} ms (computed: ${Math.round(cpu)} ms)`
}

function progress (counts: Told['counts']): string {
  return [...counts].map(([name, each]) => {
    const all = [...each.values()].reduce((sum, one) => sum + one, 0)
    const most = [...each].toSorted(([, a], [, b]) => b - a).slice(0, 4).map(([what, one]) => `${what}: ${one}`).join(
      ', '
    )
    return `${name} ${all} (${most})`
  }).join('  ')
}

/** As it went over the wire: NAME.bin to the gateway, NAME.answer.bin from the upstream. @returns the file */
function save (folder: string, seed: number, name: string, { send, answer }: Input): string {
  mkdirSync(folder, { recursive: true })
  const file = join(folder, `${seed}-${name.replace(/\W+/g, '-')}`)
  writeFileSync(`${file}.bin`, Buffer.concat(send))
  if (answer !== undefined) writeFileSync(`${file}.answer.bin`, Buffer.concat(answer))
  return `${file}.bin`
}
