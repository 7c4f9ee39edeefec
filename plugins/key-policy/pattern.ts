// A pattern for user agents: "*" matches any characters, all others match themselves in any case. Not a regex, so that
// no pattern is slow on a user agent of 64 KiB: each part is searched once, from the end of the one before.

/** Matches a text in lower case. */
export type Pattern = (text: string) => boolean

export function compilePattern (pattern: string): Pattern {
  const [first = '', ...parts] = pattern.toLowerCase().split('*')
  const last = parts.pop()
  if (last === undefined) return (text) => text === first
  const between = parts.filter((part) => part !== '')
  return function matches (text) {
    const end = text.length - last.length
    let at = first.length
    if (at > end || !text.startsWith(first) || !text.endsWith(last)) return false
    for (const part of between) {
      const found = text.indexOf(part, at)
      if (found === -1) return false
      at = found + part.length
    }
    return at <= end
  }
}
