// A key may abandon so many requests before their answers begin, and no more. With Redis:
// test/store/store-redis-reported.test.ts
import t from 'tap'
import { limitsAbandoned } from '../support/abandoned.ts'

for (const driver of ['memory', 'embedded'] as const) {
  await t.test(driver, async (t) => {
    await limitsAbandoned(t, [`{ driver: ${driver}, path: ./data }`], { time: 1_800_000_000_000 })
  })
}
