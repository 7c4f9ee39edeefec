// Hundreds of parallel requests against one small balance, and against one small limit: neither is ever passed (lesson 4), who
// is refused reads the numbers that were compared (lesson 9), and what is left at the end is what was not charged.
import t, { type Test } from 'tap'
import { ask, errorOf, until, type Got } from './billing-client.ts'
import { gateway, KEY, messagesRequest, yaml, type TestGateway } from './gateway.ts'
import { answer, upstream } from './upstream.ts'

const AT_ONCE = 200
t.setTimeout(110_000)

// 10 × 3000 + 50 × 15000 nano-dollars each; 100 output tokens are held, and input by the bytes of the request.
const COST = 780_000n
const WORST_OUTPUT = 1_500_000n

interface Purse {
  /** what it had at first, in nano-dollars */
  readonly total: bigint
  /** spent and held, as the store says it */
  used (running: TestGateway): Promise<{ readonly spent: bigint, readonly held: bigint }>
  readonly named: string
  readonly change: (text: string) => string
}

const OPENING = 12_000_000n
const LIMIT = 9_000_000n
const purses: Readonly<Record<string, Purse>> = {
  balance: {
    total: OPENING,
    async used ({ services: { store } }) {
      const { balance, held } = await store.balance('acme')
      return { spent: OPENING - balance, held }
    },
    named: 'the balance of the account',
    change: (text) => text.replace('opening_balance_usd: 100', 'opening_balance_usd: 0.012')
  },
  'usage limit': {
    total: LIMIT,
    used: async ({ services: { store } }) => await store.keyUsage('acme-dev'),
    named: 'the usage limit of the key',
    change: (text) => text.replace('account: acme, secret', 'account: acme, usage_limit_usd: 0.009, secret')
  }
}

const said: Readonly<Record<string, RegExp>> = {
  low_balance: /may cost up to \$(?<needed>[\d.]+), and running requests hold \$(?<held>[\d.]+) of the \$(?<total>[\d.]+) that (?<purse>[a-z ]+) has left\./,
  insufficient_quota: /may cost up to \$(?<needed>[\d.]+), and (?<purse>[a-z ]+) has \$(?<total>[\d.]+) left\./
}

for (const [name, purse] of Object.entries(purses)) {
  for (const stream of [false, true]) {
    await t.test(`lesson 4: ${AT_ONCE} parallel ${stream ? 'streams' : 'JSON requests'}, again and again, never pass the ${name}`, async (t) => {
      const booted = Promise.withResolvers<TestGateway>()
      let mostAtOnce = 0n
      let calls = 0
      // Looked at from the middle of things: each time that a request which was let in reaches the upstream.
      const up = await upstream(t, async () => {
        calls++
        const { spent, held } = await purse.used(await booted.promise)
        if (spent + held > purse.total) t.fail(`${spent} spent and ${held} held of ${purse.total}`)
        if (held > mostAtOnce) mostAtOnce = held
        return answer('hi', { usage: { input_tokens: 10, output_tokens: 50 } })
      })
      const running = await gateway(t, purse.change(yaml([up.url])))
      booted.resolve(running)
      const { services: { store } } = running
      const all: Got[] = []
      for (;;) {
        const round = await Promise.all(Array.from({ length: AT_ONCE }, () => ask(running.url + '/v1/messages', { ...messagesRequest, stream }, { headers: { 'x-api-key': KEY } })))
        all.push(...round)
        const { spent, held } = await until(async () => { const used = await purse.used(running); return used.held === 0n && used })
        t.equal(held, 0n)
        t.ok(spent <= purse.total)
        if (round.every(({ status }) => status !== 200)) break
      }

      const served = all.filter(({ status }) => status === 200)
      const { spent } = await purse.used(running)
      t.equal(BigInt(served.length) * COST, spent, `${served.length} of ${all.length} answers were given, and each was charged`)
      t.equal(calls, served.length, 'who was refused never reached the upstream')
      t.ok(mostAtOnce > COST, 'several held at once')
      t.ok(purse.total - spent < WORST_OUTPUT + 2_000_000n, 'it was used up as far as the worst case of one more request allows')

      const statuses = new Set(all.map(({ status }) => status))
      t.strictSame(statuses, new Set([200, 429, 402]), 'both refusals were seen')
      for (const refused of all.filter(({ status }) => status !== 200)) checkRefusal(t, refused, purse)

      let sum = 0n
      const references = new Set<string>()
      for await (const { nanos, kind, reference } of store.entries()) { sum += nanos; references.add(`${kind} ${reference}`) }
      const { balance, open_holds: openHolds } = await store.balance('acme')
      t.equal(sum, balance, 'the balance is the sum of the entries')
      t.equal(references.size, served.length + 1, 'the credit, and one entry for each answer')
      t.equal(openHolds, 0)
    })
  }
}

/** A failure is reported, success is not: there are hundreds. */
function checkRefusal (t: Test, got: Got, purse: Purse): void {
  const error = errorOf(got)!
  const numbers = said[error.code]?.exec(error.message)?.groups
  if (numbers === undefined || numbers['purse'] !== purse.named || error.charged_usd !== '0') { t.fail(error.message, error); return }
  const [needed, total] = [nanos(numbers['needed']!), nanos(numbers['total']!)]
  const isTrue = error.code === 'low_balance'
    ? got.status === 429 && Number(got.headers['retry-after']) >= 1 && needed <= total && needed > total - nanos(numbers['held']!)
    : got.status === 402 && got.headers['retry-after'] === undefined && needed > total
  if (!isTrue || total > purse.total) t.fail(`the numbers do not explain the refusal: ${got.status} ${error.message}`)
}

/** At most nine decimals. */
function nanos (usd: string): bigint {
  const [whole = '', fraction = ''] = usd.split('.')
  return BigInt(whole + fraction.padEnd(9, '0'))
}
