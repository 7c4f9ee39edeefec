// Finds a key that occurs twice in one object of a JSON text. `JSON.parse` takes the last of the two; the author may
// have meant the other, and about money nothing is guessed (RFC 8259, part 4).

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]/g

/** @param text valid JSON. @returns the first repeated key; undefined: none */
export function repeatedKey (text: string): string | undefined {
  /** keys so far of each open object; null: an array */
  const open: (Set<string> | null)[] = []
  let mayBeKey = false
  for (const [token] of text.matchAll(TOKEN)) {
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
