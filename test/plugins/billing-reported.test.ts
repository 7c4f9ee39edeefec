// What an answer says that it costs is what is charged, also while requests of one account race for its last money.
// With Redis: test/store/store-redis-reported.test.ts
import t from 'tap'
import { holdsWhatIsReported } from '../support/reported-cost.ts'

for (const driver of ['memory', 'embedded'] as const) {
  await t.test(`${driver}: near the end of an account the reported cost is the charged cost`, async (t) => {
    await holdsWhatIsReported(t, [`{ driver: ${driver}, path: ./data }`])
  })
}
