// Each habit of vendors that the simulator knows, in each dialect that it speaks, for clients of each style, as streams
// and as JSON: the client gets the whole answer or an error, and an answer that can be read costs one upstream request.
import t from 'tap'
import { dialectsOf } from '../../src/config/sections/dialects.ts'
import { type Habit, type HabitName, habits } from '../../src/simulator/habits.ts'
import type { RequestRecord } from '../../src/simulator/request-log.ts'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { ask, type Got } from '../support/billing-client.ts'
import { clientStyles, type Style, styles, toldError } from '../support/client-styles.ts'
import { tools } from '../fixtures/vendors/answers.ts'
import { CALM, gateway, KEY } from '../support/gateway.ts'
import { type Fate, fates } from '../support/habit-fates.ts'
import { readAnswer } from '../support/read-answer.ts'

function fateIn ({ status, body, events }: Got, style: Style, seconds: number): Fate {
  const error = toldError({ body, events })
  if (status !== 200) return { code: error?.code ?? error?.details?.error_code ?? '' }
  if (body === undefined && !clientStyles[style].isEnded(events)) return 'broken'
  return seconds > 0 ? 'elsewhere' : 'whole'
}

const cases = [true, false].flatMap((stream) => ['', ' tool_calls'].map((calls) => [stream, calls] as const))

/** Tokens of input and of output that the vendor counts. */
function reportedBy ({ usage = {} }: RequestRecord): readonly number[] {
  const sum = (...names: readonly string[]): number => names.reduce((all, name) => all + Number(usage[name] ?? 0), 0)
  return [
    sum('prompt_tokens', 'input_tokens', 'cache_read_input_tokens', 'cache_creation_input_tokens'),
    sum('completion_tokens', 'output_tokens')
  ]
}

for (const [how, options] of [['on the loop', {}], ['in threads', { largeBody: 1 }]] as const) {
  t.test(`vendors' habits, ${how}`, async (t) => {
    const pace = { firstDelayMs: 0, tokenDelayMs: 0 }
    const first = await startSimulator(pace)
    const second = await startSimulator({ ...pace, directives: false })
    t.teardown(() => Promise.all([first.close(), second.close()]))
    const dialects = dialectsOf('text')
    const headers = 'headers: { x-api-key: secret }'
    const gw = await gateway(t, `
server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: test-admin-token }
store: { driver: memory, path: ./data }
pipeline: [auth, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize]
upstreams:
${dialects.map((name) => `  ${name}: { url: "${first.url}", dialect: ${name}, ${CALM}, ${headers} }`).join('\n')}
  second: { url: "${second.url}", ${headers} }
models:
${dialects.map((name) => `  - id: ${name}
    provider: acme
    created: 2026-01-01
    context: 200000
    max_output: 64000
    channels:
      premium:
        price: { input: 1, output: 10 }
        targets:
          - { upstream: ${name}, model: vendor-model }
          - { upstream: second, model: vendor-model, priority: 1 }`).join('\n')}
accounts: [{ id: acme, opening_balance_usd: 100 }]
keys: [{ id: acme-dev, account: acme, secret: ${KEY} }]
`, { ...options, isForgetful: true })
    const bills = new Map<string, { readonly name: string, readonly counts: readonly number[] }>()
    for (const habit of Object.keys(habits) as HabitName[]) {
      for (const dialect of dialects) {
        for (const style of styles) {
          for (const [stream, calls] of cases) {
            const { path, asking } = clientStyles[style]
            const before = [first.requests.length, second.requests.length] as const
            const got = await ask(gw.url + path, { ...asking({ model: dialect, max_tokens: 200, stream,
              messages: [{ role: 'user', content: `[[sim: tokens=12 habit=${habit}${calls}]] When does it leave?` }] }),
            ...(calls !== '' && { tools: tools[style] }) }, { headers: { authorization: `Bearer ${KEY}` } })
            const name = `${habit}${calls}, ${dialect}, for a ${style} client, ${stream ? 'a stream' : 'JSON'}`
            const fate = fates[habit]?.({ dialect, stream, calls: calls !== '' }) ?? 'whole'
            const requests = [first.requests.length - before[0], second.requests.length - before[1]] as const
            const printed = JSON.stringify(got.body ?? {}).slice(0, 300)
            t.strictSame(fateIn(got, style, requests[1]), fate, `${name}: ${printed}`)
            t.strictSame(requests, [1, fate === 'elsewhere' ? 1 : 0], `${name}: upstream requests`)
            const own = first.requests.at(-1)!
            const { isReworded, of }: Habit = habits[habit]
            if (fate !== 'whole' || own.status !== 200 || (isReworded === true && of?.[dialect] !== undefined)) continue
            const { text, calls: made } = readAnswer(style, stream, got)!
            const input = made.map((call) => JSON.stringify(call.input)).join('')
            t.equal(text + input, own.text_sent, `${name}: the content`)
            bills.set(String(got.headers['x-request-id']), { name, counts: reportedBy(own) })
          }
        }
      }
    }
    for await (const { reference, usage } of gw.services.store.entries()) {
      const bill = bills.get(String(reference))
      if (bill === undefined || usage === undefined) continue
      const { input, cache_read: read, cache_write_5m: short, cache_write_1h: long, output } = usage
      t.strictSame([input + read + short + long, output], bill.counts, `${bill.name}: the charge`)
    }
    t.equal((await gw.services.store.balance('acme')).open_holds, 0, 'no hold is open')
  })
}
