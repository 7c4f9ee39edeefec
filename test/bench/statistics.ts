// Numbers of bursts to medians, quantiles and spreads.

/** @returns the q-quantile (nearest rank), NaN of nothing */
export function quantile (values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1))] ?? NaN
}

export function median (values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] ?? NaN : ((sorted[middle - 1] ?? NaN) + (sorted[middle] ?? NaN)) / 2
}

/**
 * Values of two contenders, round by round: interleaved bursts share the machine's mood, so pairs are steadier than
 * medians.
 */
export function pairs (
  ours: readonly number[],
  theirs: readonly number[],
  join: (a: number, b: number) => number
): number[] {
  return ours.slice(0, theirs.length).map((value, round) => join(value, theirs[round] ?? NaN))
}

/** The same sequence of [0, 1) for a seed (mulberry32): every contender gets the same arrivals. */
export function seededRandom (seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6D2B79F5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296
  }
}
