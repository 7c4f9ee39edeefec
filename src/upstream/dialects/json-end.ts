// Finds the end of a JSON object that arrives in pieces, without parsing it again with each piece.
import { isRecord, parseOr } from '../../base/json.ts'
import { type CallFlaw, UnusableCall } from './error-reply.ts'

export class JsonEnd {
  /** all that was read, up to its end */
  text = ''
  isWhole = false
  /** only white space has come */
  isBlank = true
  /** what has come is none, nor the beginning of one */
  isOther = false
  #depth = 0
  #isInString = false
  #isEscaped = false
  #isObject: boolean | undefined

  /** Why it is no JSON object, now that no more comes. Undefined: it is one, or blank. */
  get flaw (): CallFlaw | undefined {
    if (this.isBlank) return undefined
    if (!this.isWhole && !this.isOther) return 'half'
    this.#isObject ??= isRecord(parseOr(this.text))
    return this.#isObject ? undefined : 'other'
  }

  /** It has begun, and has no end yet. */
  get isTorn (): boolean {
    return !this.isBlank && !this.isWhole
  }

  /** @returns the characters that belong to it: fewer than the piece has where it ends in its middle */
  read (piece: string): number {
    if (this.isBlank) {
      const first = piece.trimStart()[0]
      this.isBlank = first === undefined
      this.isOther = !this.isBlank && first !== '{'
    }
    const length = this.#lengthIn(piece)
    this.text += length === piece.length ? piece : piece.slice(0, length)
    return length
  }

  #lengthIn (piece: string): number {
    for (let i = 0; i < piece.length; i++) {
      const character = piece[i]
      if (this.#isEscaped) this.#isEscaped = false
      else if (this.#isInString) {
        if (character === '\\') this.#isEscaped = true
        else if (character === '"') this.#isInString = false
      } else if (character === '"') this.#isInString = true
      else if (character === '{' || character === '[') this.#depth++
      else if ((character === '}' || character === ']') && --this.#depth === 0) {
        this.isWhole = true
        return i + 1
      }
    }
    return piece.length
  }

  /**
   * What comes behind the end: some vendors (vLLM) repeat the whole text there, or its last pieces.
   * @throws {UnusableCall} it is another text: nobody knows which is meant
   */
  checkTail (piece: string): void {
    const more = piece.trim()
    if (more !== '' && !this.text.trimEnd().endsWith(more)) throw new UnusableCall('tail')
  }
}

/** Whether the text is the beginning of an object. */
export function isTorn (text: string): boolean {
  const end = new JsonEnd()
  end.read(text)
  return end.isTorn && !end.isOther
}
