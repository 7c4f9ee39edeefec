// What needs no guard is what a guard would let pass, and nearly all that clients send.
import fc from 'fast-check'
import t from 'tap'
import { isHarmless, JsonGuard, MAX_DEPTH, MAX_KEYS } from '../../src/base/json-limits.ts'

const guarded = (json: Buffer): boolean => {
  try {
    new JsonGuard().push(json)
    return true
  } catch {
    return false
  }
}

t.test('brackets are counted, wherever they are', (t) => {
  const texts = fc.array(fc.constantFrom('[', '{', ']', '}', '"', 'a', 'é', ',1', ':', ' '.repeat(50)), { maxLength: 300 })
  fc.assert(fc.property(texts, (parts) => {
    const json = Buffer.from(parts.join(''))
    const opened = parts.filter((part) => part === '[' || part === '{').length
    t.equal(isHarmless(json), opened <= MAX_DEPTH)
    if (opened <= MAX_DEPTH) t.ok(guarded(json))
  }), { numRuns: 1000 })
  for (const bracket of '[{') {
    t.ok(isHarmless(Buffer.from(bracket.repeat(MAX_DEPTH))))
    t.notOk(isHarmless(Buffer.from(bracket.repeat(MAX_DEPTH + 1))))
    t.notOk(guarded(Buffer.from(bracket.repeat(MAX_DEPTH + 1))))
  }
  t.ok(isHarmless(Buffer.alloc(MAX_KEYS, ',')))
  t.notOk(isHarmless(Buffer.alloc(MAX_KEYS + 1, ' ')))
  t.end()
})
