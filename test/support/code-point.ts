// A unit for fc.string() of tests by chance.
import fc from 'fast-check'

const SURROGATES = 0x800
const FIRST_SURROGATE = 0xd800

/**
 * Any code point. `fc.string({ unit: 'binary' })` gives the same texts, among them names such as `__proto__`, but makes
 * a table of all 1,112,064 of them first: that costs more than a second.
 */
export const codePoint = fc.integer({ min: 0, max: 0x10ffff - SURROGATES }).map(
  (nth) => String.fromCodePoint(nth < FIRST_SURROGATE ? nth : nth + SURROGATES),
  (text) => {
    const code = typeof text === 'string' ? text.codePointAt(0) : undefined
    if (code === undefined || text !== String.fromCodePoint(code)) throw new Error('no code point')
    return code < FIRST_SURROGATE ? code : code - SURROGATES
  }
)
