// A wait that is in vain ends long before the time limit of its file, and says what it waited for.
import t from 'tap'
import { until } from '../support/until.ts'

t.test('what comes is returned, also when a promise says it', async (t) => {
  let asked = 0
  t.equal(await until(() => ++asked === 3 && 'here'), 'here')
  t.equal(await until(async () => await Promise.resolve(asked)), 3)
})

t.test('what never comes is named', async (t) => {
  const count = 2
  await t.rejects(until(() => count > 2, 20), { message: 'waited 0.02 s in vain for () => count > 2' })
})
