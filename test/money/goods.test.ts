// What answers cost the operator: computed as prices are, and unknown where no target says it.
import fc from 'fast-check'
import t from 'tap'
import { costOfItems, costOfTokens } from '../../src/money/goods.ts'
import { compileItemPrice, itemCost, rateOf } from '../../src/money/item-price.ts'
import { compilePrice, cost } from '../../src/money/price.ts'
import { noUsage } from '../../src/money/usage.ts'

const count = fc.nat({ max: 10_000_000 })
const usage = fc.record({ input: count, cache_read: count, cache_write_5m: count, cache_write_1h: count, output: count,
  extras: fc.record({ web_search: fc.nat({ max: 100 }) }, { requiredKeys: [] }) })
const usd = fc.nat({ max: 10 ** 9 }).map((millionths) => (millionths / 1e6).toFixed(6))
const tokenPrice = fc.record({ input: usd, output: usd, cache_read: usd, cache_write: usd,
  extras: fc.record({ web_search: usd }, { requiredKeys: [] }) }, { requiredKeys: ['input', 'output'] })

t.test('a cost that is written like a price is counted like a charge', async (t) => {
  fc.assert(fc.property(usage, tokenPrice, (used, written) => {
    t.equal(costOfTokens(used, written), cost(used, compilePrice(written)))
    t.equal(costOfTokens(used, written), costOfTokens(used, written), 'compiled once')
  }), { numRuns: 200 })
  const resolution = fc.constantFrom('1K', '2K', '4K')
  const rows = fc.array(fc.record({ when: fc.record({ resolution }), usd }), { minLength: 1 })
  fc.assert(fc.property(resolution, rows, fc.nat({ max: 10 }), (asked, written, images) => {
    const rate = rateOf({ resolution: asked }, compileItemPrice(written))
    t.equal(costOfItems({ resolution: asked }, written, images), rate && itemCost(rate, images))
  }), { numRuns: 200 })
  t.equal(costOfItems({ seconds: '8' }, [{ usd_per_second: '0.08' }], 0, 8), 640_000_000n)
})

t.test('nobody has said it: no cost, and not zero', async (t) => {
  t.equal(costOfTokens(noUsage, undefined), undefined)
  t.equal(costOfItems({}, undefined, 1), undefined)
  t.equal(costOfItems({ resolution: '8K' }, [{ when: { resolution: '1K' }, usd: '1' }], 1), undefined, 'no row fits')
  t.equal(costOfTokens(noUsage, { input: '0', output: '0' }), 0n)
})
