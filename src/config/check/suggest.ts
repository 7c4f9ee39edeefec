// "did you mean ...?": the known word that is nearest to a mistyped one.

/** Edits (insert, delete, replace, swap neighbours) from one word to the other; optimal string alignment. */
function distance (a: string, b: string): number {
  let older: number[] = []
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      let best = Math.min(previous[j]! + 1, row[j - 1]! + 1, previous[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1))
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) best = Math.min(best, older[j - 2]! + 1)
      row.push(best)
    }
    older = previous
    previous = row
  }
  return previous[b.length]!
}

/** @returns the nearest of `known`, or undefined when none is near enough to be meant */
export function nearest (word: string, known: readonly string[]): string | undefined {
  const plain = (text: string): string => text.toLowerCase().replaceAll('_', '-')
  let best: string | undefined
  let bestDistance = Infinity
  for (const candidate of known) {
    const edits = distance(plain(word), plain(candidate))
    // a word of which every letter changed is another word
    if (
      edits < word.length && edits <= Math.max(1, Math.floor(Math.max(word.length, candidate.length) / 3)) &&
      edits < bestDistance
    ) {
      best = candidate
      bestDistance = edits
    }
  }
  return best
}

/** The hint for an unknown word; undefined when there is nothing useful to suggest. */
export function suggest (word: string, known: readonly string[], most = 12): string | undefined {
  const near = nearest(word, known)
  if (near !== undefined) return `did you mean "${near}"?`
  if (known.length === 0) return undefined
  return known.length <= most
    ? `known: ${known.join(', ')}`
    : `known: ${known.slice(0, most).join(', ')} and ${known.length - most} more`
}
