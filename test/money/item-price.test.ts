// Price tables of images and videos: which row fits, exact amounts with one rounding per charge, and what the ledger
// keeps of a row.
import fc from 'fast-check'
import t from 'tap'
import { compileItemPrice, itemCost, rateOf } from '../../src/money/item-price.ts'

const table = compileItemPrice([
  { when: { tier: 'lite' }, usd: '0.01' },
  { when: { quality: 'high', size: '1024x1024' }, usd: '0.167' },
  { when: { quality: 'high' }, usd: '0.25' },
  { when: { quality: 'low' }, usd: '0.000000000500' }
])

t.test('the first row that fits is the price', (t) => {
  const rows: readonly (readonly [variant: Readonly<Record<string, string>>, version: string | undefined])[] = [
    [{ quality: 'high', size: '1024x1024' }, 'image=0.167 quality=high size=1024x1024'],
    [{ quality: 'high', size: '1536x1024' }, 'image=0.25 quality=high'],
    [{ quality: 'high', tier: 'lite' }, 'image=0.01 tier=lite'],
    [{ quality: 'low' }, 'image=0.0000000005 quality=low'],
    [{ quality: 'medium' }, undefined],
    [{ quality: 'HIGH' }, undefined],
    [{}, undefined]
  ]
  for (const [variant, version] of rows) t.equal(rateOf(variant, table)?.version, version, JSON.stringify(variant))
  t.equal(rateOf({}, compileItemPrice([{ usd: '1' }]))?.version, 'image=1', 'a row without "when" fits everything')
  t.match(rateOf({ any: 'thing' }, compileItemPrice('free')), { each: 0n, perSecond: 0n, version: 'free' })
  t.equal(rateOf({ size: 'a' }, compileItemPrice([{ when: { size: 'a' }, usd_per_second: '0.10' }]))?.version,
    'second=0.1 size=a')
  t.equal(rateOf({}, compileItemPrice([{ when: { constructor: 'x' }, usd: '1' }])), undefined,
    'what every object has is no parameter')
  t.throws(() => compileItemPrice([{ usd: '0.0000000000001' }]), RangeError)
  t.end()
})

t.test('an amount is exact, and rounded once, half up', (t) => {
  const cost = (usd: string, images: number): bigint => itemCost(rateOf({}, compileItemPrice([{ usd }]))!, images)
  t.equal(cost('0.039', 10), 390_000_000n)
  t.equal(cost('0.0333333333', 1), 33_333_333n)
  t.equal(cost('0.0333333333', 3), 100_000_000n, 'not three times the rounded one')
  t.equal(cost('0.0000000005', 1), 1n, 'half a nano-dollar')
  t.equal(cost('0.000000000499', 1), 0n)
  t.equal(cost('0.0000000015', 3), 5n)
  t.equal(itemCost(rateOf({}, compileItemPrice([{ usd_per_second: '0.0125' }]))!, 0, 12), 150_000_000n)
  fc.assert(fc.property(fc.bigInt({ min: 0n, max: 10n ** 15n }), fc.integer({ min: 0, max: 10 }), (pico, images) => {
    const usd = `${pico / 10n ** 12n}.${String(pico % 10n ** 12n).padStart(12, '0')}`
    return cost(usd, images) === (pico * BigInt(images) * 2n + 1000n) / 2000n
  }))
  t.end()
})
