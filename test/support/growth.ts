// How the cost of a function grows with its input. Text from outside may cost n log n (src/README.md#growth).

export interface Grown {
  /** makes an input of about so many characters, items or bytes; not measured */
  readonly input: (size: number) => unknown
  readonly run: (input: never) => unknown
  /** the smallest size; the default is 1000 */
  readonly from?: number
  /** the largest one of the 1-fold input; the default is 100,000 */
  readonly to?: number
  /** CPU microseconds of one call that no linear function takes; the default is 4 seconds */
  readonly endless?: number
}

/** CPU microseconds of the simple input that can be told from noise; and what a kernel's clock of 250 Hz shows. */
const CLEAR_US = 40_000
const TICK_US = 4000
/** No call of a linear function takes so long, at the sizes here. */
const ENDLESS_US = 4_000_000
/** Cost at the eightfold size over that at the simple one: n log n has about 10, a square 64. */
export const MOST_GROWTH = 28

/** CPU microseconds of one call. */
async function costOf ({ input, run }: Grown, size: number): Promise<number> {
  const made = input(size) as never
  const before = process.threadCpuUsage()
  const result = run(made)
  if (result instanceof Promise) await result
  const { user, system } = process.threadCpuUsage(before)
  return user + system
}

/**
 * What is wrong with the growth from `from` to eight times that; undefined: nothing. Measures once, and again only
 * where that looks like more than n log n: most rows of a table are quick.
 */
export async function growsTooFast (of: Grown & { readonly from: number }): Promise<string | undefined> {
  // The first call compiles the code: its time would hide what the larger one takes.
  const first = await costOf(of, of.from)
  if (first > ENDLESS_US) return `${Math.round(first / 1e6)} s at the simple size`
  const one = Math.min(first, await costOf(of, of.from))
  const eight = await costOf(of, of.from * 8)
  if (eight <= MOST_GROWTH * Math.max(one, TICK_US)) return undefined
  const grown = await growth({ ...of, to: of.from })
  return grown > MOST_GROWTH ? `${grown.toFixed(0)} times the cost at 8 times the size` : undefined
}

/**
 * The cost of an eightfold input in units of the simple one: the least of several measurements by CPU time, because a
 * loaded machine only ever adds to it. `Infinity`: a call took seconds, so larger ones were not tried.
 */
export async function growth (of: Grown): Promise<number> {
  const { from = 1000, to = 100_000, endless = ENDLESS_US } = of
  const cost = async (size: number): Promise<number> => await costOf(of, size)
  let size = from
  for (let us = await cost(size); us < CLEAR_US && size < to; us = await cost(size)) size = Math.min(size * 2, to)
  let least = Infinity
  for (let tries = 0; tries < 4 && least > MOST_GROWTH; tries++) {
    let [one, eight] = [Infinity, Infinity]
    for (let i = 0; i < 3; i++) {
      // By doubling, so that a function that never ends in its time is noticed at the smallest size possible.
      for (const times of [1, 2, 4, 8]) {
        const us = await cost(size * times)
        if (us > endless) return Infinity
        if (times === 1) one = Math.min(one, us)
        if (times === 8) eight = Math.min(eight, us)
      }
    }
    least = Math.min(least, eight / Math.max(one, TICK_US))
  }
  return least
}
