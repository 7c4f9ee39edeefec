// How the cost of a function grows with its input. Text from outside may cost n log n (src/README.md#growth).
import { Session } from 'node:inspector'
import { pathToFileURL } from 'node:url'
import { packageRoot } from '../../src/base/package.ts'

export interface Grown {
  /** makes an input of about so many characters, items or bytes; not measured */
  readonly input: (size: number) => unknown
  readonly run: (input: never) => unknown
  /** the simple size; the largest one is eight times that */
  readonly from: number
}

/**
 * Steps at the double size over those at the simple one: n log n has less than 2.3, n to the power of 1.5 has 2.83.
 * Steps are counted, so there is no noise.
 */
const MOST_DOUBLED = 2.4
/** Steps that say something. */
const CLEAR_STEPS = 10_000
/**
 * CPU time at the eightfold size over that at the simple one: n log n has about 10, a square has 64. Between them lies
 * what the collector of garbage adds on a loaded machine (23 was seen).
 */
const MOST_GROWTH = 32
/** CPU microseconds of the simple size that can be told from noise. */
const CLEAR_US = 4000
/** CPU microseconds of one call that no linear function takes, at the sizes here. */
const ENDLESS_US = 4_000_000
/** Times are measured so often, because a loaded machine only ever adds to them. */
const TRIES = 6

/**
 * What is wrong with the growth; undefined: nothing. Counts the steps of our own code, at a quarter of the sizes; what
 * the engine does in one call (a search, a copy, a regular expression) is no step, so times are compared too.
 */
export async function growsTooFast (of: Grown): Promise<string | undefined> {
  return await stepsGrow({ ...of, from: Math.ceil(of.from / 4) }) ?? await timeGrows(of)
}

async function stepsGrow ({ input, run, from }: Grown): Promise<string | undefined> {
  const steps: number[] = []
  await run(input(from) as never)                             // what is done once, such as to compile a schema
  for (const times of [1, 2, 4, 8]) {
    const made = input(from * times) as never
    steps.push(await stepsOf(() => run(made)))
  }
  const [, two, four, eight] = steps as [number, number, number, number]
  // Both, because a function that begins to work at a certain size jumps once.
  return eight > CLEAR_STEPS && eight > MOST_DOUBLED * four && four > MOST_DOUBLED * two
    ? `${steps.join(', ')} steps at 1, 2, 4 and 8 times ${from}`
    : undefined
}

async function timeGrows ({ input, run, from }: Grown): Promise<string | undefined> {
  const cost = async (size: number): Promise<number> => {
    const made = input(size) as never
    const before = process.threadCpuUsage()
    const result = run(made)
    if (result instanceof Promise) await result
    const { user, system } = process.threadCpuUsage(before)
    return user + system
  }
  let [one, eight] = [Infinity, Infinity]
  for (let tries = 0; tries < TRIES; tries++) {
    // By doubling, so that a function that never ends in its time is noticed at the smallest size possible.
    for (const times of tries === 0 ? [1, 2, 4, 8] : [1, 8]) {
      const us = await cost(from * times)
      if (us > ENDLESS_US) return `${Math.round(us / 1e6)} s at ${times} times ${from}`
      if (times === 1) one = Math.min(one, us)
      if (times === 8) eight = Math.min(eight, us)
    }
    if (eight <= MOST_GROWTH * Math.max(one, CLEAR_US)) return undefined
  }
  return `${(eight / Math.max(one, 1)).toFixed(0)} times the time at 8 times ${from}`
}

const OURS = ['src', 'plugins', 'test'].map((folder) => pathToFileURL(`${packageRoot}/${folder}/`).href)

const session = new Session()
session.connect()
session.post('Profiler.enable')
// From now on, because functions that are compiled before have no counters.
session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true })

/** How often the blocks of our own code run, as V8 counts them for coverage. */
export async function stepsOf (work: () => unknown): Promise<number> {
  takeSteps()
  await work()
  return takeSteps()
}

function takeSteps (): number {
  let steps = 0
  session.post('Profiler.takePreciseCoverage', (_error, { result }) => {
    for (const { url, functions } of result) {
      if (!OURS.some((folder) => url.startsWith(folder))) continue
      for (const { ranges } of functions) for (const { count } of ranges) steps += count
    }
  })
  return steps
}
