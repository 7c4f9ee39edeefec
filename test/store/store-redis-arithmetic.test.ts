// Amounts in Lua, whose numbers are doubles: sums, differences and comparisons of text are those of BigInt.
import fc from 'fast-check'
import { Redis } from 'ioredis'
import t from 'tap'
import { arithmetic } from '../../src/store/redis/lua/arithmetic.ts'
import { redisServer } from '../support/redis-server.ts'

const script = `${arithmetic}
local told = {}
for i = 1, #ARGV, 2 do
  local a, b = number(ARGV[i]), number(ARGV[i + 1])
  for _, answer in ipairs({ text(a), text(plus(a, b)), text(minus(a, b)), isLess(a, b) and 'less' or '', text(smaller(a, b)), negated(ARGV[i]) }) do table.insert(told, answer) end
end
return told`

/** Where doubles and 64 bits end, and where the two halves meet. */
const EDGES = [0n, 10n ** 9n, 10n ** 18n, 2n ** 31n, 2n ** 53n, 2n ** 63n, 2n ** 64n]
const near = fc.tuple(fc.constantFrom(...EDGES), fc.bigInt(-3n, 3n)).map(([edge, by]) => edge + by)
const amount = fc.tuple(fc.oneof(near, fc.bigInt(0n, 2n ** 64n), fc.bigInt(0n, 10n ** 24n)), fc.boolean())
  .map(([one, isNegative]) => isNegative ? -one : one)

void t.test('amounts are as exact as BigInt, beyond what a double can hold', async (t) => {
  const { port } = await redisServer(t)
  const redis = new Redis(port)
  t.teardown(() => {
    redis.disconnect()
  })
  await t.resolves(
    fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(amount, amount), { minLength: 1, maxLength: 100, size: 'max' }),
        async (pairs) => {
          const told = await redis.eval(script, 0, ...pairs.flat().map(String))
          const wanted = pairs.flatMap(([a, b]) =>
            [a, a + b, a - b, a < b ? 'less' : '', a < b ? a : b, -a].map(String)
          )
          if (JSON.stringify(told) !== JSON.stringify(wanted)) {
            throw new Error(
              `${JSON.stringify(told)} instead of ${JSON.stringify(wanted)}`
            )
          }
        }),
      { numRuns: 100 }
    )
  )
  t.strictSame(
    await redis.eval(script, 0, '9223372036854775807', '1'),
    ['9223372036854775807', '9223372036854775808', '9223372036854775806', '', '1', '-9223372036854775807']
  )
})
