// What every driver must do with kept responses: give them back to their account until they end, and let those go that
// were used longest ago where there is no room.
import type { Test } from 'tap'
import type { Life, ResponseStore } from '../../src/store/responses.ts'

export const HOUR = 3_600_000
const START = 1_800_000_000_000

/** A time that the test moves. */
export interface Hands {
  now: () => number
  time: number
}

export function life (more: Partial<Life> = {}): Life {
  return { life: HOUR, space: 1000, ...more }
}

function bytes (length: number, byte = 7): Buffer {
  return Buffer.alloc(length, byte)
}

/** @param make an empty store, which goes with the test */
export function responsesConformance (
  t: Test, make: (t: Test, now: () => number) => Promise<{ readonly responses: ResponseStore }>
): void {
  const test = (sentence: string, body: (t: Test, kept: ResponseStore, hands: Hands) => Promise<void>): void => {
    void t.test(sentence, async (t) => {
      const hands: Hands = { time: START, now: () => hands.time }
      await body(t, (await make(t, hands.now)).responses, hands)
    })
  }

  test('what is kept comes back byte for byte, to its account alone', async (t, kept) => {
    const content = Buffer.from([0, 255, 10, 13, 128, 0xc3, 0x28])
    t.equal(await kept.keep('acme', 'resp_a', content, life()), true)
    t.strictSame(await kept.find('acme', 'resp_a'), content)
    t.equal(await kept.find('other', 'resp_a'), undefined)
    t.equal(await kept.find('acme', 'resp_b'), undefined)
    t.equal(await kept.find('acme', '../resp_a'), undefined)
    await kept.keep('a/b: {c}@d', 'resp_a', bytes(3), life())
    t.strictSame(await kept.find('a/b: {c}@d', 'resp_a'), bytes(3), 'whatever letters its id has')
    t.strictSame(await kept.find('acme', 'resp_a'), content)
  })

  test('it ends when its life is over, which each use may prolong', async (t, kept, hands) => {
    await kept.keep('acme', 'resp_a', bytes(10), life())
    await kept.keep('acme', 'resp_b', bytes(10), life())
    hands.time += HOUR / 2
    await kept.prolong('acme', 'resp_a', HOUR)
    await kept.prolong('other', 'resp_b', HOUR)
    await kept.prolong('acme', 'resp_c', HOUR)
    hands.time += HOUR / 2
    t.strictSame(await kept.find('acme', 'resp_a'), bytes(10))
    t.equal(await kept.find('acme', 'resp_b'), undefined)
    await kept.prolong('acme', 'resp_b', HOUR)
    t.equal(await kept.find('acme', 'resp_b'), undefined, 'what is over stays over')
    t.equal(await kept.drop('acme', 'resp_b'), false)
    hands.time += HOUR / 2
    t.equal(await kept.find('acme', 'resp_a'), undefined)
    t.equal(await kept.find('acme', 'resp_c'), undefined)
  })

  test('it is dropped once, and by its account alone', async (t, kept) => {
    await kept.keep('acme', 'resp_a', bytes(10), life())
    t.equal(await kept.drop('other', 'resp_a'), false)
    t.strictSame(await kept.find('acme', 'resp_a'), bytes(10))
    t.equal(await kept.drop('acme', 'resp_a'), true)
    t.equal(await kept.find('acme', 'resp_a'), undefined)
    t.equal(await kept.drop('acme', 'resp_a'), false)
  })

  test('where an account has no more room, what was used longest ago goes', async (t, kept, hands) => {
    const [a, b, c, d] = ['resp_a', 'resp_b', 'resp_c', 'resp_d'] as const
    for (const id of [a, b, c]) {
      t.equal(await kept.keep('acme', id, bytes(300), life()), true)
      hands.time += 1000
    }
    await kept.keep('other', a, bytes(900), life())
    await kept.prolong('acme', a, HOUR)
    hands.time += 1000
    t.equal(await kept.keep('acme', d, bytes(400), life()), true)
    t.equal(await kept.find('acme', b), undefined)
    for (const id of [a, c]) t.strictSame(await kept.find('acme', id), bytes(300))
    t.strictSame(await kept.find('acme', d), bytes(400))
    t.strictSame(await kept.find('other', a), bytes(900), 'nothing of another account')
    t.equal(await kept.keep('acme', 'resp_e', bytes(1000), life()), true)
    for (const id of [a, c, d]) t.equal(await kept.find('acme', id), undefined)
    t.equal(await kept.keep('acme', 'resp_f', bytes(1001), life()), false, 'one that never fits drives out nothing')
    t.strictSame(await kept.find('acme', 'resp_e'), bytes(1000))
  })

  test('room that is free again can be used again', async (t, kept, hands) => {
    for (let i = 0; i < 5; i++) {
      t.equal(await kept.keep('acme', 'resp_same', bytes(600, i), life()), true)
      t.strictSame(await kept.find('acme', 'resp_same'), bytes(600, i), 'the same id again')
    }
    t.equal(await kept.keep('acme', 'resp_more', bytes(400), life()), true)
    t.strictSame(await kept.find('acme', 'resp_same'), bytes(600, 4))
    await kept.drop('acme', 'resp_same')
    t.equal(await kept.keep('acme', 'resp_b', bytes(600), life()), true)
    t.strictSame(await kept.find('acme', 'resp_more'), bytes(400))
    hands.time += HOUR
    t.equal(await kept.keep('acme', 'resp_c', bytes(500), life()), true)
    t.equal(await kept.keep('acme', 'resp_d', bytes(500), life()), true)
    t.strictSame(await kept.find('acme', 'resp_c'), bytes(500), 'what is over takes no room')
  })

  test('eight megabytes', async (t, kept) => {
    const content = Buffer.alloc(8 * 1024 * 1024, 'sealed')
    t.equal(await kept.keep('acme', 'resp_a', content, life({ space: 9_000_000 })), true)
    t.ok((await kept.find('acme', 'resp_a'))?.equals(content))
  })
}
