// Finds a key that occurs twice in one object of a JSON text. `JSON.parse` takes the last of the two; the author may
// have meant the other, and about money nothing is guessed (RFC 8259, part 4).

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]/g

/** Tokens of a text that are read in one piece: two milliseconds. */
const PIECE = 20_000

/** @param text valid JSON. @returns the first repeated key; undefined: none */
export function repeatedKey (text: string): string | undefined {
  const pieces = repeatedKeyInPieces(text)
  for (;;) {
    const { done, value } = pieces.next()
    if (done === true) return value
  }
}

/** The same, in pieces of few milliseconds: other work may be done between them. */
export function * repeatedKeyInPieces (text: string): Generator<undefined, string | undefined, void> {
  /** keys so far of each open object; null: an array */
  const open: (Set<string> | null)[] = []
  let mayBeKey = false
  let tokens = 0
  for (const [token] of text.matchAll(TOKEN)) {
    if (++tokens % PIECE === 0) yield
    switch (token) {
      case '{': open.push(new Set()); mayBeKey = true; break
      case '[': open.push(null); mayBeKey = false; break
      case '}': case ']': open.pop(); mayBeKey = false; break
      case ',': mayBeKey = open.at(-1) !== null; break
      case ':': mayBeKey = false; break
      default: {
        const keys = open.at(-1)
        if (!mayBeKey || keys === undefined || keys === null) break
        const key = JSON.parse(token) as string
        if (keys.has(key)) return key
        keys.add(key)
        mayBeKey = false
      }
    }
  }
  return undefined
}
