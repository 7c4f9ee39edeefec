// A text that matches a simple regular expression, which is read and never run: it comes from a request.

/** Characters that are made at most. */
const LONGEST = 10_000
/** Groups within groups that are read. */
const DEEPEST = 32

const CLASSES: Readonly<Record<string, string>> = { d: '0123456789', w: 'abcABC012_', s: ' ', D: 'a', W: '-', S: 'a' }
const CONTROLS: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', f: '\f', v: '\v', 0: '\0' }
/** Tried in this order where a class names what is not in it. */
const USUAL = 'a0A_-. /@'

/**
 * Knows characters, classes, groups, alternatives and repetitions.
 * @param least characters that the text has at least, where the expression leaves it open
 * @returns undefined: the expression has something else, such as a look-ahead
 */
export function matching (pattern: string, least: number): string | undefined {
  const short = new PatternReader(pattern, 0).text()
  return short === undefined || short.length >= least ? short : new PatternReader(pattern, least).text()
}

class Unknown extends Error {}

class PatternReader {
  readonly #pattern: string
  /** how often something is there that may be there any number of times */
  readonly #more: number
  #at = 0
  #depth = 0

  constructor (pattern: string, more: number) {
    this.#pattern = pattern
    this.#more = more
  }

  text (): string | undefined {
    try {
      const text = this.#alternatives()
      return this.#at === this.#pattern.length ? text : undefined
    } catch (thrown) {
      if (thrown instanceof Unknown) return undefined
      throw thrown
    }
  }

  /** The first one of them. */
  #alternatives (): string {
    if (++this.#depth > DEEPEST) throw new Unknown()
    const first = this.#sequence()
    while (this.#take('|')) this.#sequence()
    this.#depth--
    return first
  }

  #sequence (): string {
    let text = ''
    while (this.#at < this.#pattern.length && this.#next !== '|' && this.#next !== ')') {
      text += this.#repeated(this.#atom())
      if (text.length > LONGEST) throw new Unknown()
    }
    return text
  }

  get #next (): string {
    return this.#pattern[this.#at] ?? ''
  }

  #take (text: string): boolean {
    if (!this.#pattern.startsWith(text, this.#at)) return false
    this.#at += text.length
    return true
  }

  #atom (): string {
    if (this.#take('^') || this.#take('$')) return ''
    if (this.#take('.')) return 'a'
    if (this.#take('(')) return this.#group()
    if (this.#take('[')) return this.#class()
    if (this.#take('\\')) return this.#escape()[0]!
    return this.#character()
  }

  #group (): string {
    if (this.#take('?') && !this.#take(':')) {
      const end = this.#pattern.indexOf('>', this.#at)
      if (!this.#take('<') || this.#next === '=' || this.#next === '!' || end === -1) throw new Unknown()
      this.#at = end + 1
    }
    const text = this.#alternatives()
    if (!this.#take(')')) throw new Unknown()
    return text
  }

  /** @returns characters of which each matches */
  #escape (): string {
    const letter = this.#character()
    if (Object.hasOwn(CLASSES, letter)) return CLASSES[letter]!
    if (Object.hasOwn(CONTROLS, letter)) return CONTROLS[letter]!
    if (/[\p{L}\p{N}]/u.test(letter)) throw new Unknown()
    return letter
  }

  #class (): string {
    const isOther = this.#take('^')
    let known = ''
    /** first and last characters of ranges */
    const ranges: (readonly [string, string])[] = []
    while (!this.#take(']')) {
      const first = this.#take('\\') ? this.#escape() : this.#character()
      known += first
      const isRange = this.#next === '-' && this.#pattern[this.#at + 1] !== ']'
      if (!isRange) continue
      this.#at++
      ranges.push([first, this.#take('\\') ? this.#escape() : this.#character()])
    }
    if (!isOther) return known[0] ?? this.#fail()
    const isIn = (one: string): boolean => known.includes(one) || ranges.some(([from, to]) => one >= from && one <= to)
    return Array.from(USUAL).find((one) => !isIn(one)) ?? this.#fail()
  }

  #fail (): never {
    throw new Unknown()
  }

  #character (): string {
    const code = this.#pattern.codePointAt(this.#at)
    if (code === undefined) throw new Unknown()
    const character = String.fromCodePoint(code)
    this.#at += character.length
    return character
  }

  #repeated (text: string): string {
    const bounds = this.#bounds()
    if (bounds === undefined) return text
    this.#take('?')
    const times = Math.min(bounds.most, Math.max(bounds.least, this.#more))
    if (text.length * times > LONGEST) throw new Unknown()
    return text.repeat(times)
  }

  #bounds (): { readonly least: number, readonly most: number } | undefined {
    if (this.#take('*')) return { least: 0, most: LONGEST }
    if (this.#take('+')) return { least: 1, most: LONGEST }
    if (this.#take('?')) return { least: 0, most: 1 }
    const count = /^\{(\d{1,6})(,(\d{0,6}))?\}/.exec(this.#pattern.slice(this.#at, this.#at + 20))
    if (count === null) return undefined
    this.#at += count[0].length
    const least = Number(count[1])
    return { least, most: count[2] === undefined ? least : count[3] === '' ? LONGEST : Number(count[3]) }
  }
}
