// Hundreds of parallel requests against one small balance, and against one small limit: neither is ever passed (rule
// hold-first), who is refused reads the numbers that were compared (src/README.md#say-numbers), and what is left at the
// end is what was not charged.
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { ask, errorOf, type Got } from '../support/billing-client.ts'
import { gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, blockStart, blockStop, json, message, messageDelta, messageStart, messageStop, step, textDelta,
  upstream } from '../support/upstream.ts'

const AT_ONCE = 200
// 10 × 3000 + 50 × 15000 nano-dollars each; 100 output tokens are held, and input by the bytes of the request.
const COST = 780_000n
const WORST_OUTPUT = 1_500_000n

interface Purse {
  /** what it had at first, in nano-dollars */
  readonly total: bigint
  /** spent and held, as the store says it */
  used (running: TestGateway): Promise<{ readonly spent: bigint, readonly held: bigint }>
  readonly named: string
  /** the code of a refusal that only running requests stand behind */
  readonly busy: 'low_balance' | 'rate_limited'
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
    busy: 'low_balance',
    change: (text) => text.replace('opening_balance_usd: 100', 'opening_balance_usd: 0.012')
  },
  'usage limit': {
    total: LIMIT,
    used: async ({ services: { store } }) => await store.keyUsage('acme-dev'),
    named: 'the usage limit of the key',
    busy: 'rate_limited',
    change: (text) => text.replace('account: acme, secret', 'account: acme, usage_limit_usd: 0.009, secret')
  }
}

const said: Readonly<Record<'busy' | 'insufficient_quota', RegExp>> = {
  busy:
    /may cost up to \$(?<needed>[\d.]+), and running requests hold \$(?<held>[\d.]+) of the \$(?<total>[\d.]+) that (?<purse>[a-z ]+) has left\./,
  insufficient_quota: /may cost up to \$(?<needed>[\d.]+), and (?<purse>[a-z ]+) has \$(?<total>[\d.]+) left\./
}

for (const [name, purse] of Object.entries(purses)) {
  for (const stream of [false, true]) {
    await t.test(`${AT_ONCE} parallel ${stream ? 'streams' : 'JSON requests'}, again and again, never pass the ${name}`, async (t) => {
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
      const running = await gateway(t,
        purse.change(yaml([up.url]).replace('billing-meter', 'billing-meter: { low_balance_usd: 0 }')))
      booted.resolve(running)
      const { services: { store } } = running
      const all: Got[] = []
      for (;;) {
        const round = await Promise.all(
          Array.from({ length: AT_ONCE }, () =>
            ask(running.url + '/v1/messages', { ...messagesRequest, stream }, { headers: { 'x-api-key': KEY } }))
        )
        all.push(...round)
        const { spent, held } = await until(async () => {
          const used = await purse.used(running)
          return used.held === 0n && used
        })
        t.equal(held, 0n)
        t.ok(spent <= purse.total)
        if (round.every(({ status }) => status !== 200)) break
      }

      const served = all.filter(({ status }) => status === 200)
      const { spent } = await purse.used(running)
      t.equal(BigInt(served.length) * COST, spent,
        `${served.length} of ${all.length} answers were given, and each was charged`)
      t.equal(calls, served.length, 'who was refused never reached the upstream')
      t.ok(mostAtOnce > COST, 'several held at once')
      t.ok(purse.total - spent < WORST_OUTPUT + 2_000_000n,
        'it was used up as far as the worst case of one more request allows')

      const statuses = new Set(all.map(({ status }) => status))
      t.strictSame(statuses, new Set([200, 429, 402]), 'both refusals were seen')
      for (const refused of all.filter(({ status }) => status !== 200)) checkRefusal(t, refused, purse)

      let sum = 0n
      const references = new Set<string>()
      for await (const { nanos, kind, reference } of store.entries()) {
        sum += nanos
        references.add(`${kind} ${reference}`)
      }
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
  const numbers =
    (error.code === purse.busy ? said.busy : error.code === 'insufficient_quota' ? said.insufficient_quota : undefined)
      ?.exec(error.message)?.groups
  if (numbers === undefined || numbers['purse'] !== purse.named || error.charged_usd !== '0') {
    t.fail(error.message, error)
    return
  }
  const [needed, total] = [nanos(numbers['needed']!), nanos(numbers['total']!)]
  const isTrue = error.code === purse.busy
    ? got.status === 429 && Number(got.headers['retry-after']) >= 1 && needed <= total &&
      needed > total - nanos(numbers['held']!)
    : got.status === 402 && got.headers['retry-after'] === undefined && needed > total
  if (!isTrue || total > purse.total) t.fail(`the numbers do not explain the refusal: ${got.status} ${error.message}`)
}

/** At most nine decimals. */
function nanos (usd: string): bigint {
  const [whole = '', fraction = ''] = usd.split('.')
  return BigInt(whole + fraction.padEnd(9, '0'))
}

// Any mixture of requests, for an account and a key of their own: a failure shrinks to the few that it takes, and
// prints its seed; repeat it with FC_SEED=… node test/e2e/billing-parallel.test.ts

interface Asked {
  /** m2 costs ten times as much */
  readonly model: 'm1' | 'm2'
  readonly stream: boolean
  readonly max: number
  /** share of `max` that is said */
  readonly said: number
  /** characters of the prompt */
  readonly prompt: number
  /** turns of the event loop that the upstream takes between its words */
  readonly turns: number
}

interface Crowd {
  readonly asked: readonly Asked[]
  /** in micro-dollars */
  readonly balance: number
  readonly limit: number
  readonly concurrency: number
}

const PRICES = { m1: [3000n, 15_000n], m2: [30_000n, 150_000n] } as const
/** micro-dollars: below it requests run one at a time */
const LOW = 2000

const request: fc.Arbitrary<Asked> = fc.record({
  model: fc.constantFrom('m1', 'm2'),
  stream: fc.boolean(),
  max: fc.integer({ min: 1, max: 300 }),
  said: fc.double({ min: 0.1, max: 1, noNaN: true }),
  prompt: fc.nat(400),
  turns: fc.nat(3)
})
const crowds = (balance: fc.Arbitrary<number>): fc.Arbitrary<Crowd> =>
  fc.record({
    asked: fc.array(request, { minLength: 1, maxLength: 200, size: 'max' }),
    balance,
    limit: fc.integer({ min: 0, max: 400_000 }),
    concurrency: fc.integer({ min: 1, max: 40 })
  })

/**
 * What the upstream counts as one token. Its text alone looks like more, and nothing is learned of an answer with
 * thoughts: so a stream that began with what was left never ends whole at a price above it, which would not be charged.
 */
const WORD = ' fox fox'
const THOUGHTS = { output_tokens_details: { thinking_tokens: 1 } }
const usd6 = (micros: number): string => (micros / 1e6).toFixed(6)
const turn = (): Promise<void> => new Promise((resolve) => { setImmediate(resolve) })
const outputOf = ({ max, said }: Asked): number => Math.max(1, Math.floor(max * said))

interface Arena {
  readonly running: TestGateway
  /** plays them all at once. @throws {Error} what was passed, or does not add up */
  play (crowd: Crowd): Promise<Readonly<Record<number, number>>>
}

async function arena (t: Test): Promise<Arena> {
  /** by account, and request */
  const crowd = new Map<string, readonly Asked[]>()
  const calls = new Map<string, number>()
  const wrong: string[] = []
  const booted = Promise.withResolvers<TestGateway>()
  const up = await upstream(t, async ({ body }) => {
    const { services: { store } } = await booted.promise
    const [{ content }] = body!['messages'] as [{ content: string }]
    const [account, i] = content.split(' ') as [string, string]
    const one = crowd.get(account)![Number(i)]!
    calls.set(account, (calls.get(account) ?? 0) + 1)
    const [, balance, limit, concurrency] = account.split('-').map(Number) as [number, number, number, number]
    const { balance: left, held, open_holds: now } = await store.balance(account)
    const usage = await store.keyUsage(`${account}-key`)
    if (left < 0n || held > left) wrong.push(`${held} are held of ${left}`)
    if (usage.spent + usage.held > BigInt(limit) * 1000n) {
      wrong.push(`${usage.spent} are spent and ${usage.held} held of ${limit}000`)
    }
    if (now > concurrency) wrong.push(`${now} run of ${concurrency}`)
    if (balance < LOW && now > 1) wrong.push(`${now} run with less than the low balance`)
    const pause = step(async () => {
      for (let n = 0; n < one.turns; n++) { await turn() }
    })
    const usageOf = { input_tokens: 10, output_tokens: outputOf(one), ...THOUGHTS }
    return one.stream
      ? [messageStart({ usage: { input_tokens: 10, output_tokens: 1 } }), blockStart(0), pause,
        textDelta(0, WORD.repeat(outputOf(one))), pause, blockStop(0), messageDelta({ usage: usageOf }), messageStop()]
      : [pause, json(message(WORD, { usage: usageOf }))]
  })
  const pipeline = `auth, { rate-limit: { default_rpm: 0 } }, channel-router, { billing-meter: { low_balance_usd: ${usd6(LOW)} } }, error-normalize`
  const text = yaml([up.url], '', pipeline)
  const model = /^ {2}- id: m1[^]*?(?=^accounts:)/m.exec(text)![0]
  const running = await gateway(t, text.replace(model, model +
    model.replace('id: m1', 'id: m2').replace('input: 3, output: 15, cache_read: 0.30, cache_write: 3.75',
      'input: 30, output: 150')))
  booted.resolve(running)
  const { services: { store }, urls } = running
  const admin = async (address: string, body: object): Promise<Readonly<Record<string, unknown>>> => {
    const response = await fetch(`${urls.admin}/admin/v1${address}`, { method: 'POST',
      headers: { authorization: 'Bearer test-admin-token', 'content-type': 'application/json' },
      body: JSON.stringify(body) })
    const answer = await response.json() as Readonly<Record<string, unknown>>
    if (!response.ok) throw new Error(JSON.stringify(answer))
    return answer
  }
  let count = 0
  return {
    running,
    async play ({ asked, balance, limit, concurrency }) {
      const account = `run${++count}-${balance}-${limit}-${concurrency}`
      crowd.set(account, asked)
      await admin('/accounts', { id: account, name: account })
      if (balance > 0) {
        await admin(`/accounts/${account}/credits`, { amount_usd: usd6(balance), reference: 'opening' })
      }
      const { secret } = await admin('/keys', { id: `${account}-key`, account, usage_limit_usd: usd6(limit),
        concurrency })
      const all = await Promise.all(asked.map(({ model, stream, max, prompt }, i) =>
        ask(running.url + '/v1/messages', {
          model,
          stream,
          max_tokens: max,
          messages: [{ role: 'user', content: `${account} ${i} ${'x'.repeat(prompt)}` }]
        }, { headers: { 'x-api-key': String(secret) } })
      ))
      await until(async () => (await store.balance(account)).open_holds === 0)
      const problems = wrong.splice(0)
      let spent = 0n
      for (const [i, got] of all.entries()) {
        const one = asked[i]!
        if (got.status === 200 && errorOf(got) === undefined) {
          spent += 10n * PRICES[one.model][0] + BigInt(outputOf(one)) * PRICES[one.model][1]
          continue
        }
        const error = errorOf(got)
        if (got.status === 200 && one.stream && error?.code === 'insufficient_quota') {
          spent += nanos(error.charged_usd)
          continue
        } // began with what was left
        if (error === undefined || ![402, 429].includes(got.status) || error.charged_usd !== '0') {
          problems.push(`${got.status} ${JSON.stringify(error)} for ${JSON.stringify(one)}`)
        }
      }
      const { balance: left } = await store.balance(account)
      if (left !== BigInt(balance) * 1000n - spent) {
        problems.push(`${left} are left of ${balance}000, with ${spent} served`)
      }
      if ((await store.keyUsage(`${account}-key`)).spent !== spent) {
        problems.push(
          'the key has spent something else'
        )
      }
      if ((calls.get(account) ?? 0) !== all.filter(({ status }) => status === 200).length) {
        problems.push('the upstream was asked by one that was refused')
      }
      if (problems.length > 0) throw new Error([...new Set(problems)].slice(0, 5).join('; '))
      const statuses: Record<number, number> = {}
      for (const { status } of all) statuses[status] = (statuses[status] ?? 0) + 1
      return statuses
    }
  }
}

const seeded = process.env['FC_SEED'] !== undefined && { seed: Number(process.env['FC_SEED']) }

for (const [sentence, balance] of [
  ['any requests at once, of any models and sizes, pass neither balance nor limit nor concurrency',
    fc.integer({ min: LOW, max: 400_000 })],
  ['and below the low balance only one of them runs at a time', fc.integer({ min: 0, max: LOW - 1 })]
] as const) {
  await t.test(sentence, async (t) => {
    const { running, play } = await arena(t)
    const statuses: Record<number, number> = {}
    await fc.assert(fc.asyncProperty(crowds(balance), async (crowd) => {
      for (const [status, count] of Object.entries(await play(crowd))) {
        statuses[Number(status)] = (statuses[Number(status)] ?? 0) + count
      }
    }), { numRuns: 20, interruptAfterTimeLimit: 20_000, ...seeded })
    t.ok([200, 429].every((status) => statuses[status]! > 0), JSON.stringify(statuses))
    const { differences } = await running.services.store.verify()
    t.strictSame(differences, [])
  })
}
