// A store that answers after hook_timeout, or not as it should: what the client was told that it is charged is what the
// ledger says, when all has come to rest. Over the real server and the embedded store, whose answers are held back by
// gates that the test opens. A failure prints its seed; repeat it with FC_SEED=… node test/plugins/billing-late.test.ts
import { strict as assert } from 'node:assert'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import type { Store } from '../../src/store/store.ts'
import { ask, errorOf, type Got } from '../support/billing-client.ts'
import { gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { all } from '../support/store-conformance.ts'
import { until } from '../support/until.ts'
import { blockStart, blockStop, cut, json, message, messageDelta, messageStart, messageStop, stall, textDelta, upstream,
  type Script } from '../support/upstream.ts'

const LIMIT_MS = 40_000

// 3000 and 15000 nano-dollars a token (test/support/gateway.ts). Each word is estimated as a token.
const USAGE = { input_tokens: 10, output_tokens: 50 }
const ALL = 10n * 3000n + 50n * 15_000n
const WORDS = ['The', ' quick', ' brown']
const PRODUCED = 3n * 15_000n

const words: Script = [messageStart({ usage: { input_tokens: 10, output_tokens: 1 } }), blockStart(0),
  ...WORDS.map((word) => textDelta(0, word))]
const scripts: Readonly<Record<Kind, Script>> = {
  JSON: json(message(WORDS.join(''), { usage: USAGE })),
  SSE: [words, blockStop(0), messageDelta({ usage: USAGE }), messageStop()],
  cut: [words, cut()],
  stalled: [words, stall()]
}

type Kind = 'JSON' | 'SSE' | 'cut' | 'stalled'

/**
 * When the answer of `settle` comes: at once; when the client has its answer, and is asked for before that or only
 * then; or never, for the first time (the connection broke), done or not.
 */
type Settling = 'at once' | 'done, late' | 'late, done' | 'done, lost' | 'lost'

interface Case {
  readonly kind: Kind
  readonly settling: Settling
}

/** The store's `settle` for each request in its own way. */
class Gates {
  /** by prompt */
  readonly #ways = new Map<string, Settling>()
  readonly #closed = new Map<string, (() => void)[]>()
  readonly #prompts: ReadonlyMap<string, string>
  /** calls that have not answered yet */
  running = 0

  /** @param prompts by request id */
  constructor (store: Store, prompts: ReadonlyMap<string, string>) {
    this.#prompts = prompts
    const settle = store.settle.bind(store)
    const count =
      <Args extends readonly unknown[], T>(call: (...args: Args) => T | Promise<T>) =>
      async (...args: Args): Promise<T> => {
        this.running++
        try {
          return await call(...args)
        } finally {
          this.running--
        }
      }
    Object.assign(store, {
      refund: count(store.refund.bind(store)),
      release: count(store.release.bind(store)),
      settle: count(async (settlement: Parameters<Store['settle']>[0]) => {
        const prompt = this.#prompts.get(settlement.request_id)!
        const way = this.#ways.get(prompt)!
        if (way.endsWith('lost')) {
          this.#ways.set(prompt, 'at once')
          if (way === 'done, lost') await settle(settlement)
          throw new Error('the connection to the store broke')
        }
        const told = way === 'late, done' ? undefined : settle(settlement)
        if (way !== 'at once') {
          await new Promise<void>((resolve) => {
            this.#closed.set(prompt, [...this.#closed.get(prompt) ?? [], resolve])
          })
        }
        return await (told ?? settle(settlement))
      })
    })
  }

  expect (prompt: string, way: Settling): void {
    this.#ways.set(prompt, way)
  }

  /** The client has its answer. */
  open (prompt: string): void {
    this.#ways.set(prompt, 'at once')
    for (const open of this.#closed.get(prompt) ?? []) open()
  }
}

interface Booted extends TestGateway {
  readonly gates: Gates
}

async function boot (t: Test, driver: 'embedded' | 'memory'): Promise<Booted> {
  const prompts = new Map<string, string>()
  const up = await upstream(t, ({ body, headers }) => {
    const [{ content }] = body!['messages'] as [{ content: string }]
    prompts.set(String(headers['x-exchange']), content)
    return scripts[content.split(' ')[0] as Kind]
  })
  const text = yaml([up.url], '', 'auth, channel-router, billing-meter, { use: ./tell-id.mjs }, error-normalize')
    .replace('driver: memory, path: ./data', `driver: ${driver}, path: ./data`)
    .replace('upstreams:', 'hook_timeout: 60ms\nupstreams:')
  const running = await gateway(t, text, {
    files: {
      'tell-id.mjs':
        'export default { name: \'tell-id\', create: () => ({ perAttempt: (_attempt, exchange) => ({ onUpstreamRequest (request) { request.headers[\'x-exchange\'] = exchange.id } }) }) }\n'
    }
  })
  return Object.assign(running, { gates: new Gates(running.services.store, prompts) })
}

const OPENING = 100_000_000_000n

/** What the client can tell of its bill, in nano-dollars. */
function billOf ({ kind }: Case, got: Got): bigint {
  const error = errorOf(got)
  if (error !== undefined) return nanos(error.charged_usd)
  assert.equal(got.status, 200)
  if (kind === 'JSON') return nanos(String(got.headers['x-gateway-cost-usd']))
  assert.equal(got.events.at(-1)?.event, 'message_stop')
  return ALL
}

function nanos (usd: string): bigint {
  const [whole = '', fraction = ''] = usd.split('.')
  return BigInt(whole + fraction.padEnd(9, '0'))
}

for (const driver of ['embedded', 'memory'] as const) {
  await t.test(`${driver}: however late the store is, the client's bill is the ledger's`, async (t) => {
    const running = await boot(t, driver)
    const { gates, services: { store } } = running
    const seen = new Map<string, number>()
    let count = 0
    const one: fc.Arbitrary<Case> = fc.record({
      kind: fc.constantFrom<Kind>('JSON', 'SSE', 'cut'),
      settling: fc.constantFrom<Settling>('at once', 'at once', 'done, late', 'late, done', 'done, lost', 'lost')
    })
    const play = async (one: Case, prompt: string): Promise<Got> => {
      gates.expect(prompt, one.settling)
      const got = await ask(running.url + '/v1/messages', { ...messagesRequest, stream: one.kind !== 'JSON',
        messages: [{ role: 'user', content: prompt }] }, { headers: { 'x-api-key': KEY } })
      gates.open(prompt)
      return got
    }
    await fc.assert(fc.asyncProperty(fc.array(one, { minLength: 1, maxLength: 12 }), async (cases) => {
      const got = await Promise.all(cases.map((one) => play(one, `${one.kind} ${++count}`)))
      await until(async () => gates.running === 0 && await store.openHolds() === 0)
      const entries = await all(store)
      for (const [i, one] of cases.entries()) {
        const id = got[i]!.headers['x-request-id']
        const own = entries.filter(({ reference }) => reference === id)
        const charged = -own.reduce((sum, { nanos }) => sum + nanos, 0n)
        const about = `${JSON.stringify(one)}, got ${got[i]!.status} ${got[i]!.events.map(({ event }) => event).join()}, entries ${own.map(({ kind, nanos }) => `${kind} ${nanos}`).join()}`
        assert.equal(billOf(one, got[i]!), charged, `the client's bill, and the ledger's: ${about}`)
        assert.ok([0n, one.kind === 'cut' ? PRODUCED : ALL].includes(charged), about)
        assert.ok(['', 'settle', 'settle adjust'].includes(own.map(({ kind }) => kind).join(' ')), about)
        if (one.settling !== 'at once') assert.equal(charged, 0n, about)
        const what = `${one.kind}, ${one.settling}: ${own.map(({ kind }) => kind).join(' and ')}`
        seen.set(what, (seen.get(what) ?? 0) + 1)
      }
      const sum = entries.reduce((sum, { nanos }) => sum + nanos, 0n)
      assert.deepEqual(await store.balance('acme'), { balance: sum, held: 0n, open_holds: 0 })
      assert.deepEqual(await store.keyUsage('acme-dev'), { spent: OPENING - sum, held: 0n })
      assert.deepEqual((await store.verify()).differences, [])
    }), { numRuns: 25, interruptAfterTimeLimit: LIMIT_MS,
      ...(process.env['FC_SEED'] !== undefined && { seed: Number(process.env['FC_SEED']) }) })
    t.ok([...seen.keys()].some((what) => what.endsWith('done, late: settle and adjust')),
      `${count} requests: ${JSON.stringify(Object.fromEntries([...seen].toSorted()))}`)
  })
}

await t.test('who left is told nothing, and pays, however late the store is', async (t) => {
  const running = await boot(t, 'embedded')
  const { gates, services: { store } } = running
  gates.expect('stalled 1', 'done, late')
  const left = new AbortController()
  const got = ask(running.url + '/v1/messages', { ...messagesRequest, stream: true,
    messages: [{ role: 'user', content: 'stalled 1' }] }, { headers: { 'x-api-key': KEY }, leaveAfter: 5,
    leave: left.signal })
  t.equal((await got).ended, 'left')
  await until(() => running.logged.find(({ msg }) => msg === 'an exchange that did not end well could not be settled'))
  gates.open('stalled 1')
  await until(async () => gates.running === 0 && await store.openHolds() === 0)
  t.match((await all(store)).map(({ kind }) => kind), ['credit', 'settle'])
})
