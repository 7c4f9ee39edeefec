// One run of the fuzz as a test.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { fuzz } from '../fuzz/fuzz.ts'
import { kinds } from '../fuzz/kinds.ts'

/** SEED repeats the inputs, not how they meet. */
export const SEED = Number(process.env['SEED'] ?? Date.now() % 1_000_000)

/** @returns of each kind, how many inputs came to what */
export async function fuzzRun (t: Test, count: number): Promise<ReadonlyMap<string, ReadonlyMap<string, number>>> {
  const folder = join(t.testdir(), 'found')
  const { counts, wrong } = await fuzz({ seed: SEED, count, folder, say: (line) => { t.comment(line) } })
  t.strictSame(wrong, [])
  t.notOk(existsSync(folder), 'nothing is saved')
  for (const { name, share = 1 } of kinds(folder)) {
    t.equal([...counts.get(name)!.values()].reduce((sum, one) => sum + one, 0), Math.ceil(count * share), name)
  }
  return counts
}
