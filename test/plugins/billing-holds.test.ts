// Holds of streams over the real server: they grow while the stream runs, it is cut where they can't, and a poor
// account runs one at a time.
import fc from 'fast-check'
import t from 'tap'
import { Books } from '../../src/store/local/balances.ts'
import { noUsage } from '../../src/money/usage.ts'
import { ask, errorOf, textOf, type Got } from '../support/billing-client.ts'
import { gateway, KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, blockStart, blockStop, messageDelta, messageStart, messageStop, raw, textDelta, upstream,
  type Script } from '../support/upstream.ts'

const WORDS = 'The quick brown fox jumps. '.repeat(40)
/** about 240 tokens each */
const long = (deltas: number, output: number): Script => [
  messageStart({ usage: { input_tokens: 10, output_tokens: 1 } }), blockStart(0),
  ...Array.from({ length: deltas }, () => textDelta(0, WORDS)), blockStop(0), messageDelta({
    usage: { output_tokens: output }
  }), messageStop()
]
const headers = { headers: { 'x-api-key': KEY } }

void t.test('a long stream is held for slice by slice, and charged whole', async (t) => {
  const up = await upstream(t, long(60, 14_000))
  const running = await gateway(t, yaml([up.url]))
  const got = await ask(running.url + '/v1/messages', { ...messagesRequest, stream: true, max_tokens: 20_000 }, headers)
  t.equal(errorOf(got), undefined)
  const { balance, held } = await until(async () => {
    const is = await running.services.store.balance('acme')
    return is.open_holds === 0 && is
  })
  t.equal(
    100_000_000_000n - balance, 10n * 3000n + 14_000n * 15_000n, 'all of it, though 4096 tokens were held at first'
  )
  t.equal(held, 0n)
  t.ok((await running.services.store.verify()).differences.length === 0)
})

void t.test('a stream starts with what is left, is cut when it is used up, and what it produced is charged', async (t) => {
  const up = await upstream(t, long(60, 14_000))
  const running = await gateway(t, yaml([up.url]).replace('opening_balance_usd: 100', 'opening_balance_usd: 0.03'))
  const got = await ask(running.url + '/v1/messages', { ...messagesRequest, stream: true, max_tokens: 20_000 }, headers)
  t.equal(got.status, 200)
  t.match(errorOf(got), {
    code: 'insufficient_quota',
    message: /^The answer is unfinished: with what comes next it would cost more than the \$0\.03 that the balance of the account has for it\. Only the tokens that came are charged\. Add credit, or lower max_tokens\. /
  })
  const { balance } = await until(async () => {
    const is = await running.services.store.balance('acme')
    return is.open_holds === 0 && is
  })
  t.ok(balance >= 0n && balance < 15_000_000n, `${balance} left of 30000000`)
  const entries = []
  for await (const entry of running.services.store.entries()) entries.push(entry)
  t.match(entries.map(({ kind }) => kind), ['credit', 'settle'], 'no shortfall')
})

void t.test('a stream that runs out of money is cut with the last token that the balance pays for, however its bytes come, and hears the truth', async (t) => {
  // 10 tokens of input at 3000 nano-dollars, and 198 of output at 15000, are 3,000,000: all that there is. Four letters
  // are one token.
  const WORD = 'lynx'
  const first = [messageStart({ usage: { input_tokens: 10, output_tokens: 1 } }), blockStart(0)]
  const rest = [blockStop(0), messageDelta({ usage: { output_tokens: 198 } }), messageStop()]
  const line = (type: string, more: object): string => `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`
  const ways: Readonly<Record<string, (words: number) => Script>> = {
    'word by word': (words) => [...first, ...Array.from({ length: words }, () => textDelta(0, WORD)), ...rest],
    'in one write': (words) => raw(line('message_start', {
      message: {
        id: 'm',
        type: 'message',
        role: 'assistant',
        model: 'm',
        content: [],
        usage: { input_tokens: 10, output_tokens: 1 }
      }
    }) +
      line('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }) + line(
        'content_block_delta', { index: 0, delta: { type: 'text_delta', text: WORD } }
      ).repeat(words) +
      line('content_block_stop', { index: 0 }) + line('message_delta', {
        delta: { stop_reason: 'end_turn' },
        usage: { output_tokens: 198 }
      }) + line('message_stop', {}))
  }
  for (const [name, script] of Object.entries(ways)) {
    for (const words of [198, 199, 400]) {
      const up = await upstream(t, script(words))
      const running = await gateway(t, yaml([up.url]).replace('opening_balance_usd: 100', 'opening_balance_usd: 0.003'))
      const got = await ask(
        running.url + '/v1/messages', { ...messagesRequest, stream: true, max_tokens: 1000 }, headers
      )
      const { balance } = await until(async () => {
        const is = await running.services.store.balance('acme')
        return is.open_holds === 0 && is
      })
      t.equal(textOf(got.events).length / WORD.length, 198, `${name}: ${words} words`)
      const error = errorOf(got)
      if (words === 198) {
        t.equal(error, undefined, 'what can be paid is not cut')
        t.equal(balance, 0n)
        continue
      }
      t.match(error, {
        code: 'insufficient_quota',
        charged_usd: '0.00297',
        message: /^The answer is unfinished: with what comes next it would cost more than the \$0\.003 that the balance of the account has for it\. Only the tokens that came are charged\. Add credit, or lower max_tokens\. /
      })
      t.equal(balance, 30_000n, '198 tokens of output, and no input')
    }
  }
})

for (const largeBody of [undefined, 1]) {
  const where = largeBody === undefined ? '' : ', in threads'
  void t.test(`V26: a search without max_uses gets the operator's bound, and is held for by it${where}`, async (t) => {
    const received: unknown[] = []
    const up = await upstream(t, ({ body }) => {
      received.push(body?.['tools'])
      return answer('hi', { usage: { input_tokens: 10, output_tokens: 5,
        server_tool_use: { web_search_requests: 2 } } })
    })
    const text = (most: string, balance: string): string => yaml([up.url], '',
      'auth, schema-validate, chat-to-messages, responses-to-messages, channel-router, billing-meter, error-normalize')
      .replace('cache_write: 3.75 }', `cache_write: 3.75, extras: { web_search: { usd: 0.01${most} } } }`)
      .replace('opening_balance_usd: 100', `opening_balance_usd: ${balance}`)
    const options = largeBody === undefined ? {} : { largeBody }
    const [bounded, tight, without] = [await gateway(t, text(', most: 4', '0.8'), options),
      await gateway(t, text(', most: 5', '0.8'), options), await gateway(t, text('', '0.8'), options)]
    for (const stream of [false, true]) {
      const search = (at: typeof bounded, more: object = {}): Promise<Got> => ask(at.url + '/v1/messages', { ...messagesRequest,
        stream, tools: [{ type: 'web_search_20250305', name: 'web_search', ...more }] }, headers)
      const about = stream ? 'stream' : 'JSON'
      t.match(errorOf(await search(tight)), { message: /may cost up to \$0\.8015, and the balance/ }, about)
      const refused = await search(without)
      t.match([refused.status, errorOf(refused)], [400, { message: /set its "max_uses"/, charged_usd: '0' }], about)
      t.equal(received.length, 0, about)
      const before = (await bounded.services.store.balance('acme')).balance
      t.equal((await search(bounded)).status, 200, about)
      t.match(received.pop(), [{ type: 'web_search_20250305', max_uses: 4 }], about)
      t.equal(before - (await bounded.services.store.balance('acme')).balance, 20_105_000n, about)
      await bounded.services.store.credit('acme', `again:${about}`, 20_105_000n)
      t.equal((await search(bounded, { max_uses: 2 })).status, 200, about)
      t.match(received.pop(), [{ max_uses: 2 }], 'the client\'s own wins')
      await bounded.services.store.credit('acme', `again2:${about}`, 20_105_000n)
    }
  })
}

void t.test('a search is held for, charged per use, and refused where it could cost anything', async (t) => {
  const up = await upstream(
    t, answer('hi', { usage: { input_tokens: 10, output_tokens: 5, server_tool_use: { web_search_requests: 2 } } })
  )
  const running = await gateway(t, yaml(
    [up.url], '', 'auth, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize'
  )
    .replace('cache_write: 3.75 }', 'cache_write: 3.75, extras: { web_search: 0.01 } }').replace('opening_balance_usd: 100', 'opening_balance_usd: 0.8'))
  const search = (more: object): Promise<Got> => ask(
    running.url + '/v1/messages',
    { ...messagesRequest, tools: [{ type: 'web_search_20250305', name: 'web_search', ...more }] },
    headers
  )
  const unbound = await search({})
  t.match(
    [unbound.status, errorOf(unbound)],
    [400, { code: 'invalid_request', message: /set its "max_uses"/, charged_usd: '0' }]
  )
  // What it reads counts as the whole context of 200,000 tokens at 3.75 USD per 1M: 0.75, and 100 tokens of output
  // 0.0015.
  const dear = await search({ max_uses: 5 })
  t.match(
    [dear.status, errorOf(dear)],
    [402, { message: /may cost up to \$0\.8015, and the balance of the account has \$0\.8 left/ }]
  )
  const got = await search({ max_uses: 4 })
  t.equal(got.headers['x-gateway-cost-usd'], '0.020105', '10 × 3000 + 5 × 15000 + 2 × 10000000 nano-dollars')
  t.equal((await running.services.store.balance('acme')).balance, 800_000_000n - 20_105_000n)
  t.equal(up.requests.length, 1)
})

void t.test('who has less than low_balance_usd runs one at a time, whatever comes in parallel', async (t) => {
  let running = 0
  let most = 0
  const up = await upstream(t, async () => {
    most = Math.max(most, ++running)
    await new Promise((resolve) => { setImmediate(resolve) })
    running--
    return long(1, 10)
  })
  const gw = await gateway(t, yaml([up.url]).replace('opening_balance_usd: 100', 'opening_balance_usd: 0.9'))
  const all = await Promise.all(Array.from({ length: 50 }, () => ask(
    gw.url + '/v1/messages', { ...messagesRequest, stream: true }, headers
  )))
  const refused = all.filter(({ status }) => status === 429)
  t.equal(most, 1)
  t.ok(refused.length > 0)
  for (const got of refused) t.match(errorOf(got), {
    code: 'low_balance',
    message: /less than \$1: so its requests run one at a time/
  })
})

void t.test('any order of holds, extensions, settlements and releases keeps both limits, and single flight below the low balance', async () => {
  const step = fc.record({
    what: fc.constantFrom('hold', 'extend', 'settle', 'release'),
    id: fc.nat(8),
    nanos: fc.bigInt(0n, 60n),
    least: fc.option(fc.bigInt(1n, 20n), { nil: undefined })
  })
  const some = fc.array(step, { maxLength: 60, size: 'max' })
  const amount = fc.bigInt(0n, 200n)
  fc.assert(fc.property(some, amount, amount, fc.bigInt(0n, 100n), (steps, balance, limit, low) => {
    const books = new Books()
    const open = new Set<string>()
    const opening = { kind: 'credit' as const, account: 'a', reference: 'r', nanos: balance }
    books.announce(opening)
    books.deposit(opening)
    steps.forEach(({ what, id: number, nanos, least }, i) => {
      const id = [...open][number] ?? `r${i}`
      const before = books.balance('a')
      if (what === 'hold') {
        const result = books.hold(
          {
            request_id: `r${i}`,
            account: 'a',
            key: 'k',
            nanos,
            usage_limit: limit,
            low_balance: low,
            ...(least !== undefined && { least })
          },
          0
        )
        if (result.kind === 'held') {
          open.add(`r${i}`)
          if (result.nanos > 0n && before.balance < low && before.held > 0n) throw new Error('two at a time')
          if (result.nanos > nanos || (result.nanos < nanos && (least === undefined || result.nanos < least))) {
            throw new Error('held something else')
          }
        }
      } else if (!open.has(id)) return
      else if (what === 'extend') books.extend(id, nanos, least)
      else {
        open.delete(id)
        if (what === 'release') books.release(id)
        else books.settle({ request_id: id, nanos, model: 'm', usage: noUsage, usage_source: 'provider' })
      }
      const is = books.balance('a')
      const key = books.keyUsage('k')
      if (is.held > is.balance || is.balance < 0n || key.spent + key.held > limit) throw new Error('a limit was passed')
    })
  }), { numRuns: 500 })
})

