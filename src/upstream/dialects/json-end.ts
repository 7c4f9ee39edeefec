// Finds the end of a JSON object that arrives in pieces, without parsing it again with each piece.

export class JsonEnd {
  /** all that was read */
  text = ''
  isWhole = false
  /** only white space has come */
  isBlank = true
  #depth = 0
  #isInString = false
  #isEscaped = false

  read (piece: string): void {
    this.text += piece
    if (this.isBlank) this.isBlank = piece.trim() === ''
    for (let i = 0; i < piece.length && !this.isWhole; i++) {
      const character = piece[i]
      if (this.#isEscaped) this.#isEscaped = false
      else if (this.#isInString) {
        if (character === '\\') this.#isEscaped = true
        else if (character === '"') this.#isInString = false
      } else if (character === '"') this.#isInString = true
      else if (character === '{' || character === '[') this.#depth++
      else if ((character === '}' || character === ']') && --this.#depth === 0) this.isWhole = true
    }
  }
}
