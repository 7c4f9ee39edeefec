// Habits of vendors, read by unmodified SDKs: each has the whole answer or an error in the end.
import t from 'tap'
import { dialectsOf } from '../../src/config/sections/dialects.ts'
import { type Habit, type HabitName, habits } from '../../src/simulator/habits.ts'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { gateway, yaml, type TestGateway } from '../support/gateway.ts'
import { fates } from '../support/habit-fates.ts'
import { heard, TOLD_TWICE, ways } from './sdk-ways.ts'

const WHOLE = { text: /\w/, calls: [['weather', { city: 'Oslo' }]] }
const pace = { firstDelayMs: 0, tokenDelayMs: 0 }

for (const dialect of dialectsOf('text')) {
  t.test(`an upstream that speaks ${dialect}`, async (t) => {
    const start = async (url: string, translators: string): Promise<TestGateway> =>
      await gateway(t, yaml([url], '', `auth, ${translators}, channel-router, billing-meter, error-normalize`)
        .replace('dialect: messages', `dialect: ${dialect}`), { isForgetful: true })
    for (const habit of Object.keys(habits) as HabitName[]) {
      const simulator = await startSimulator({ ...pace, faults: `habit=${habit} tool_calls burst` })
      t.teardown(() => simulator.close())
      const gw = await start(simulator.url, 'chat-to-messages')
      const twice = await start(simulator.url,
        'chat-to-messages, responses-to-messages: { error_event_after_failed: true }')
      const fate = fates[habit]?.({ dialect, stream: true, calls: true }) ?? 'whole'
      const { isReworded }: Habit = habits[habit]
      const isReadAsIs = dialect !== 'chat' || (isReworded !== true && habit !== 'no_message')
      for (const [way, listen] of Object.entries(ways)) {
        const before = simulator.requests.length
        const got = await heard(listen, (way === TOLD_TWICE ? twice : gw).url, fetch)
        const name = `${habit}, ${way}`
        if (fate !== 'whole') t.equal(got, 'told', `${name}: an error`)
        else if (isReadAsIs) t.match(got, WHOLE, `${name}: the whole answer`)
        t.equal(simulator.requests.length - before, 1, `${name}: one request`)
      }
      await Promise.all([gw.stop(), twice.stop()])
    }
  })
}
