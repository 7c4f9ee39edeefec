// Races of one account near its end: the cost that an answer reports is the charged cost, always (rule
// reported-is-charged). For every driver of the store. A failure prints its seed; repeat it with FC_SEED=…
import { strict as assert } from 'node:assert'
import fc from 'fast-check'
import type { Test } from 'tap'
import type { Entry } from '../../src/store/store.ts'
import { ask, type Got } from './billing-client.ts'
import { clientStyles, styles, toldError, type Style } from './client-styles.ts'
import { gateway, yaml, type TestGateway } from './gateway.ts'
import { all } from './store-conformance.ts'
import { until } from './until.ts'
import { answer, step, upstream, type Upstream } from './upstream.ts'

const LIMIT_MS = 60_000
/** Each has an account of its own. A race does not shrink: the first failure is reported. */
const RUNS = 25

interface Case {
  readonly style: Style
  readonly stream: boolean
  readonly max: number
  /** tokens of output that the provider counts: more than were held for */
  readonly output: number
}

const one: fc.Arbitrary<Case> = fc.record({
  style: fc.constantFrom(...styles),
  stream: fc.boolean(),
  max: fc.integer({ min: 1, max: 100 }),
  output: fc.integer({ min: 1, max: 400 })
})

/** Ten tokens of input and the output, in nano-dollars. */
function billOf ({ output }: Case): bigint {
  return 30_000n + BigInt(output) * 15_000n
}

/** Answers when all requests of the run have come, or were refused. */
class Race {
  readonly #outputs = new Map<string, number>()
  #left = 0
  #go = Promise.withResolvers<void>()

  begin (cases: readonly Case[]): void {
    this.#outputs.clear()
    for (const [i, { output }] of cases.entries()) this.#outputs.set(`race ${i}`, output)
    this.#left = cases.length
    this.#go = Promise.withResolvers<void>()
  }

  /** Of a request that has come to the upstream, or that ended. */
  readonly #arrived = new Set<string>()

  arrive (name: string): void {
    if (this.#arrived.has(name)) return
    this.#arrived.add(name)
    if (--this.#left > 0) return
    this.#arrived.clear()
    this.#go.resolve()
  }

  upstream (t: Test): Promise<Upstream> {
    return upstream(t, ({ body }) => {
      const name = /race \d+/.exec(JSON.stringify(body))![0]
      const { promise } = this.#go
      return [step(() => { this.arrive(name); return promise }),
        answer('The quick brown', { usage: { output_tokens: this.#outputs.get(name)! } })]
    })
  }
}

/** What the client reads of its cost, in nano-dollars. */
function reported ({ style, stream }: Case, got: Got): bigint {
  const error = toldError(got)
  if (error !== undefined) return nanos(error.charged_usd)
  if (!stream) return nanos(String(got.headers['x-gateway-cost-usd']))
  assert.ok(clientStyles[style].isEnded(got.events), `whole: ${JSON.stringify(got)}`)
  const said = got.events.map(({ data }) => /"charged_usd":"([^"]+)"/.exec(JSON.stringify(data))?.[1])
    .filter((usd) => usd !== undefined)
  assert.equal(said.length, 1, `it is said once: ${JSON.stringify(got.events)}`)
  return nanos(said[0]!)
}

function nanos (usd: string): bigint {
  const [whole = '', fraction = ''] = usd.split('.')
  return BigInt(whole + fraction.padEnd(9, '0'))
}

function secretOf (i: number): string {
  return 'sk-gw-' + String(i).padStart(32, 'k')
}

/** @param stores of the gateways, which share what they keep if they are several */
export async function holdsWhatIsReported (t: Test, stores: readonly string[]): Promise<void> {
  const race = new Race()
  const { url } = await race.upstream(t)
  const ids = Array.from({ length: RUNS }, (_, i) => i)
  const accounts = ids.map((i) => `  - { id: a${i}, name: A }\n`).join('')
  const keys = ids.map((i) => `  - { id: k${i}, account: a${i}, secret: ${secretOf(i)} }\n`).join('')
  const gateways: TestGateway[] = []
  for (const store of stores) {
    gateways.push(await gateway(t,
      yaml([url], keys, 'auth, chat-to-messages, channel-router, billing-meter: { low_balance_usd: 0 }, error-normalize')
        .replace('store: { driver: memory, path: ./data }', `store: ${store}`)
        .replace('keys:\n', `${accounts}keys:\n`)))
  }
  const { store } = gateways[0]!.services
  let run = 0
  let short = 0
  let full = 0
  await fc.assert(fc.asyncProperty(fc.array(one, { minLength: 2, maxLength: 10 }),
    fc.bigInt({ min: 2_000_000n, max: 16_000_000n }), async (cases, opening) => {
    const number = run++
    const account = `a${number}`
    await store.credit(account, `credit:${account}`, opening)
    race.begin(cases)
    const got = await Promise.all(cases.map(async ({ style, stream, max }, i) => {
      const { path, asking } = clientStyles[style]
      const name = `race ${i}`
      const body = asking({ model: 'm1', max_tokens: max, stream, messages: [{ role: 'user', content: name }] })
      const one = await ask(gateways[i % gateways.length]!.url + path, body,
        { headers: { authorization: `Bearer ${secretOf(number)}`, 'x-gateway-cost': 'stream' } })
      race.arrive(name)
      return one
    }))
    await until(async () => (await store.balance(account)).open_holds === 0 &&
      gateways.every(({ services }) => (services.store.health?.pending ?? 0) === 0))
    const entries = await all(store)
    for (const [i, one] of cases.entries()) {
      const own = entries.filter(({ reference }) => reference === got[i]!.headers['x-request-id'])
      const charged = -sumOf(own, ({ nanos }) => nanos)
      const about = `${JSON.stringify(one)}, got ${got[i]!.status}, entries ` +
        own.map(({ kind, nanos, shortfall }) => `${kind} ${nanos} ${shortfall ?? ''}`).join()
      assert.equal(reported(one, got[i]!), charged, `what was reported, and what was charged: ${about}`)
      if (got[i]!.status !== 200) assert.deepEqual(own, [], about)
      if (toldError(got[i]!) !== undefined) continue
      const missing = sumOf(own, ({ shortfall = 0n }) => shortfall)
      assert.equal(charged + missing, billOf(one), `what was not charged is a shortfall: ${about}`)
      if (missing > 0n) short++
      else full++
    }
    const { balance } = await store.balance(account)
    assert.equal(balance, sumOf(entries.filter((entry) => entry.account === account), ({ nanos }) => nanos))
    assert.ok(balance >= 0n, `${balance}`)
  }), { numRuns: RUNS, interruptAfterTimeLimit: LIMIT_MS, endOnFailure: true,
    ...(process.env['FC_SEED'] !== undefined && { seed: Number(process.env['FC_SEED']) }) })
  t.ok(short > 0 && full > 0, `${short} answers cost more than there was, ${full} were paid in full`)
  t.strictSame((await store.verify()).differences, [])
}

function sumOf (entries: readonly Entry[], amountOf: (entry: Entry) => bigint): bigint {
  return entries.reduce((sum, entry) => sum + amountOf(entry), 0n)
}
