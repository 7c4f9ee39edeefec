// Prices, usage and the bounds of a request: each against an oracle that is made another way.
import fc from 'fast-check'
import t from 'tap'
import { type TokenPrice, compilePrice, cost, flatCost, outputCovered, unpricedExtras,
  worstCase } from '../../src/money/price.ts'
import { scratchSeals } from '../../src/base/seals.ts'
import { boundInput as bound, estimateInput } from '../../src/tokens/bound.ts'
import { formatUsd, parsePrice, parseUsd } from '../../src/money/nanos.ts'
import { noUsage, readUsage, reportedInput, type ReportedUsage, type Usage } from '../../src/money/usage.ts'
import { tokens as classes } from '../../src/config/sections/prices.ts'
import { codePoint } from '../support/code-point.ts'

const boundInput = (...of: Parameters<typeof bound>): number => bound(...of).tokens

void t.test('each price of tokens that gateway.yaml may name is charged', (t) => {
  const usage = Object.fromEntries(Object.entries(noUsage).map(([name, value]) =>
    [name, typeof value === 'number' ? 1000 : value])) as unknown as Usage
  const plain = { input: '1', output: '1' }
  const isCharged = (name: string): boolean =>
    cost(usage, compilePrice({ ...plain, [name]: '2' })) > cost(usage, compilePrice(plain))
  t.strictSame(Object.keys(classes).filter((name) => !isCharged(name)), [],
    'add it to TokenPrice and compilePrice of src/money/price.ts, and to Usage of src/money/usage.ts')
  t.end()
})

t.test('a price is read exactly, to 12 decimals, and nothing else is a price', async (t) => {
  t.equal(parsePrice('3.33'), 3_330_000_000_000n)
  t.equal(parsePrice('0.000000000001'), 1n)
  t.equal(parsePrice('1.50000000000000000'), 1_500_000_000_000n, 'zeros at the end are no decimals')
  for (const text of ['', '.5', '5.', '-1', '+1', '1e3', '0x10', '1,5', ' 1', '1 ', 'NaN', 'Infinity',
    '0.0000000000001', '1.2.3']) {
    t.throws(() => parsePrice(text), RangeError, JSON.stringify(text))
  }
  t.throws(() => parseUsd('0.0000000001'), RangeError, 'an amount is not finer than a nano-dollar')
})

void t.test('an amount survives printing and reading', async (t) => {
  t.doesNotThrow(() =>
    fc.assert(fc.property(fc.bigInt(0n, 10n ** 23n), (nanos) => parseUsd(formatUsd(nanos)) === nanos))
  )
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(decimal,
        (text) => parsePrice(text) === BigInt(text.replace('.', '')) * 10n ** BigInt(12 - decimalsOf(text)))
    )
  )
  t.strictSame(
    [39_000_000n, 0n, 1n, -2_500_000_000n, 10n ** 9n].map(formatUsd), ['0.039', '0', '0.000000001', '-2.5', '1']
  )
})

void t.test('a cost is the exact sum, rounded once, half up: as rational numbers say', async (t) => {
  t.doesNotThrow(() => fc.assert(fc.property(price, usage, (price, usage) => {
    const found = cost(usage, compilePrice(price))
    const wanted = oracle(usage, price)
    if (found !== wanted) throw new Error(`${found}, not ${wanted}`)
  }), { numRuns: 2000 }))
})

void t.test('so it is where the sum is no safe integer any more, and next to that', async (t) => {
  // Rates in nano-dollars a token, so that the sums are those of the numbers that are computed with.
  const usd = (nanos: bigint): string => `${nanos / 1000n}.${(nanos % 1000n).toString().padStart(3, '0')}`
  const tokens = fc.oneof(fc.nat(3), fc.nat(1e9))
  const border = fc.record({ tokens, others: tokens, beside: fc.integer({ min: -3, max: 3 }),
    part: fc.constantFrom(1n, 2n, 3n, 1000n) })
  t.doesNotThrow(() => fc.assert(fc.property(border, ({ tokens, others, beside, part }) => {
    const rate = (2n ** 53n / BigInt(tokens + others || 1) + BigInt(beside)) / part
    const prices = { input: usd(rate), output: usd(rate + 1n) }
    const used = { ...noUsage, input: tokens, output: others }
    const [found, wanted] = [cost(used, compilePrice(prices)), oracle(used, prices)]
    if (found !== wanted) throw new Error(`${found}, not ${wanted}`)
    if (worstCase(tokens, others, compilePrice(prices)) !== wanted) throw new Error('the bound is another')
  }), { numRuns: 2000 }))
  const largest = { input: '9007199254740.991', output: '9007199254740.991' }
  for (const [input, output] of [[1, 0], [1, 1], [1, 3], [2, 0], [1000, 1]] as const) {
    const used = { ...noUsage, input, output }
    t.equal(cost(used, compilePrice(largest)), oracle(used, largest), `${input} and ${output}`)
  }
})

void t.test('half a nano-dollar is rounded up, and less is dropped; one rounding per charge', async (t) => {
  // 0.000001 USD per 1M tokens is a thousandth of a nano-dollar per token.
  const cheap = compilePrice({ input: '0.000001', output: '0.000001' })
  t.equal(cost({ ...noUsage, input: 499 }, cheap), 0n)
  t.equal(cost({ ...noUsage, input: 500 }, cheap), 1n)
  t.equal(cost({ ...noUsage, input: 1499 }, cheap), 1n)
  t.equal(cost({ ...noUsage, input: 499, output: 499, cache_read: 499 }, cheap), 1n,
    'three classes of 0.499 are 1.497: rounded each, they would be 0')
  t.equal(cost({ ...noUsage, input: 3, output: 7 }, compilePrice({ input: '3.33', output: '0.0125' })), 10_078n,
    '9990 + 87.5')
  t.equal(flatCost(parsePrice('0.0001')), 100_000n)
  t.equal(flatCost(parsePrice('0.0000000005')), 1n)
  t.equal(flatCost(parsePrice('0.000000000499')), 0n)
})

void t.test('awkward prices in every class cost what they cost by hand, to the nano-dollar', async (t) => {
  const classes = ['input', 'output', 'cache_read', 'cache_write_5m', 'cache_write_1h'] as const
  // A USD per 1M tokens is 1000 nano-dollars a token: 12.5, 3330 and a thousandth of one.
  const byHand: readonly (readonly [price: string, of: Readonly<Record<number, bigint>>, perUse: bigint])[] = [
    ['0.0125', { 1: 13n, 2: 25n, 3: 38n, 1_234_567: 15_432_088n, 1_000_000_000: 12_500_000_000n }, 12_500_000n],
    ['3.33', { 1: 3330n, 2: 6660n, 3: 9990n, 1_234_567: 4_111_108_110n, 1_000_000_000: 3_330_000_000_000n },
      3_330_000_000n],
    ['0.000001', { 1: 0n, 499: 0n, 500: 1n, 1_234_567: 1235n, 1_000_000_000: 1_000_000n }, 1000n]
  ]
  for (const [price, of, perUse] of byHand) {
    const extras = compilePrice({ input: '9.99', output: '9.99', extras: { web_search: price } })
    for (const uses of [0, 1, 7]) {
      t.equal(cost({ ...noUsage, extras: { web_search: uses } }, extras), BigInt(uses) * perUse,
        `${uses} searches for ${price}`)
    }
    for (const name of classes) {
      const prices: TokenPrice = { input: '9.99', output: '9.99', cache_read: '9.99', cache_write: '9.99',
        cache_write_5m: '9.99', cache_write_1h: '9.99', [name]: price }
      for (const [tokens, nanos] of Object.entries(of)) {
        const used = { ...noUsage, [name]: Number(tokens) }
        t.equal(cost(used, compilePrice(prices)), nanos, `${tokens} of ${name} for ${price}`)
        t.equal(
          worstCase(name === 'output' ? 0 : Number(tokens), name === 'output' ? Number(tokens) : 0,
            compilePrice({ input: price, output: price })),
          nanos
        )
      }
    }
    // Where a class has no price of its own.
    t.equal(
      cost({ ...noUsage, cache_read: 3, cache_write_5m: 3, cache_write_1h: 3 },
        compilePrice({ input: price, output: '9.99' })),
      cost({ ...noUsage, input: 9 }, compilePrice({ input: price, output: '9.99' }))
    )
  }
  // 37.5 + 23310 + 0.499 + 12.5 + 1.001 + 1000 = 24361.5, and rounded once.
  const mixed = compilePrice({ input: '0.0125', cache_read: '3.33', cache_write_5m: '0.000001',
    cache_write_1h: '0.0125', output: '0.000001', extras: { web_search: '0.000001' } })
  t.equal(
    cost({ input: 3, cache_read: 7, cache_write_5m: 499, cache_write_1h: 1, output: 1001, extras: { web_search: 1 } },
      mixed),
    24_362n
  )
  t.equal(
    cost({ input: 3, cache_read: 7, cache_write_5m: 498, cache_write_1h: 1, output: 1001, extras: { web_search: 1 } },
      mixed),
    24_361n,
    'a thousandth less'
  )
})

void t.test('cached tokens cost their own price once, and the input price where they have none (rule usage-classes)', async (t) => {
  const used: Usage = { ...noUsage, input: 1, cache_read: 10, cache_write_5m: 100, cache_write_1h: 1000 }
  const millionth = (price: TokenPrice): bigint => cost(used, compilePrice(price)) / 1000n
  t.equal(millionth({ input: '1', output: '9' }), 1111n)
  t.equal(millionth({ input: '1', output: '9', cache_read: '0' }), 1101n,
    'a price of zero is a price (rule zero-is-zero)')
  t.equal(millionth({ input: '1', output: '9', cache_write: '2' }), 1n + 10n + 2200n)
  t.equal(millionth({ input: '1', output: '9', cache_write: '2', cache_write_1h: '3' }), 1n + 10n + 200n + 3000n)
  t.equal(millionth({ input: '1', output: '9', cache_write_5m: '2' }), 1n + 10n + 200n + 1000n)
})

void t.test('extras cost per use; those without a price are named, not passed over in silence (rule no-unpriced)', async (t) => {
  const used: Usage = { ...noUsage, extras: { web_search: 3, web_fetch: 2 } }
  const priced = compilePrice({ input: '1', output: '1', extras: { web_search: '0.01' } })
  t.equal(cost(used, priced), 30_000_000n)
  t.strictSame(unpricedExtras(used, priced), ['web_fetch'])
  t.strictSame(unpricedExtras({ ...noUsage, extras: { web_fetch: 0 } }, priced), [])
  t.strictSame(unpricedExtras(used, compilePrice('free')), [])
})

void t.test('free is free, whatever was used', async (t) => {
  t.doesNotThrow(() => fc.assert(fc.property(usage, (usage) => cost(usage, compilePrice('free')) === 0n)))
  t.equal(worstCase(1e9, 1e9, compilePrice('free')), 0n)
})

void t.test('no usage within the bounds costs more than the worst case', async (t) => {
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(price, usage, fc.nat(1000), fc.nat(1000), fc.nat(9),
        (price, usage, moreInput, moreOutput, moreUses) => {
          const compiled = compilePrice(price)
          const input = usage.input + usage.cache_read + usage.cache_write_5m + usage.cache_write_1h
          const uses = { web_search: (usage.extras['web_search'] ?? 0) + moreUses }
          const most = worstCase(input + moreInput, usage.output + moreOutput, compiled, uses)
          // And what that pays for is no less than what it was for, and no more than it can pay.
          const covered = outputCovered(most, input + moreInput, compiled, uses)
          return cost(usage, compiled) <= most &&
            (covered === Infinity || worstCase(input + moreInput, covered, compiled, uses) <= most)
        }),
      { numRuns: 1000 }
    )
  )
})

void t.test('usage in messages style becomes disjoint classes that add up (rule usage-classes)', async (t) => {
  const reported = readUsage({
    input_tokens: 10, cache_read_input_tokens: 20, cache_creation_input_tokens: 70, output_tokens: 5,
    cache_creation: { ephemeral_5m_input_tokens: 30, ephemeral_1h_input_tokens: 40 },
    server_tool_use: { web_search_requests: 2, unheard_of_requests: 9 },
    service_tier: 'standard',
    output_tokens_details: { thinking_tokens: 3 }
  })
  t.strictSame(reportedInput({}), noUsage, 'what was not reported is nothing')
  t.strictSame(reportedInput(reported), { ...noUsage, input: 10, cache_read: 20, cache_write_5m: 30,
    cache_write_1h: 40 })
  t.equal(reported.output, 5, 'thinking is part of it already')
  t.strictSame(reported.extras, { web_search: 2 })
})

void t.test('cache writes are conserved: what has no known life counts as 5 minutes', async (t) => {
  const classes = (...said: readonly unknown[]): readonly number[] => {
    const { cache_write_5m: short, cache_write_1h: long } = reportedInput(
      said.reduce<ReportedUsage | undefined>((before, now) => readUsage(now, before), undefined)!
    )
    return [short, long]
  }
  t.strictSame(classes({ cache_creation_input_tokens: 70 }), [70, 0])
  t.strictSame(classes({ cache_creation_input_tokens: 70, cache_creation: null }), [70, 0])
  t.strictSame(classes({ cache_creation: { ephemeral_5m_input_tokens: 30, ephemeral_1h_input_tokens: 40 } }), [30, 40])
  t.strictSame(
    classes({ cache_creation_input_tokens: 70, cache_creation: { ephemeral_1h_input_tokens: 40 } }), [30, 40]
  )
  t.strictSame(
    classes({ cache_creation_input_tokens: 0 }, {
      cache_creation: { ephemeral_5m_input_tokens: 30, ephemeral_1h_input_tokens: 40 }
    }),
    [30, 40]
  )
  t.strictSame(
    classes({ cache_creation_input_tokens: 70,
      cache_creation: { ephemeral_5m_input_tokens: 30, ephemeral_1h_input_tokens: 40 } }, {
      cache_creation_input_tokens: 75
    }),
    [35, 40]
  )
})

void t.test('what is said later overwrites what was said earlier, field by field (rule last-usage-wins)', async (t) => {
  const start = readUsage({ input_tokens: 43, cache_read_input_tokens: 7, output_tokens: 1 })
  t.strictSame(readUsage({ input_tokens: 61, output_tokens: 30 }, start), { input: 61, cache_read: 7, output: 30 })
  t.strictSame(readUsage({ output_tokens: 30, input_tokens: null, cache_read_input_tokens: null }, start), { input: 43,
    cache_read: 7, output: 30 })
  t.strictSame(
    readUsage({ server_tool_use: { web_search_requests: 1 } },
      readUsage({ server_tool_use: { web_search_requests: 3, web_fetch_requests: 1 } })).extras,
    { web_search: 1, web_fetch: 1 }
  )
  t.strictSame(start, { input: 43, cache_read: 7, output: 1 }, 'the earlier reading is left as it was')
})

void t.test('a zero that is reported is a zero; what is no count of tokens was not reported (rule zero-is-zero)', async (t) => {
  t.strictSame(readUsage({ input_tokens: 0, output_tokens: 0 }, { input: 5, output: 6 }), { input: 0, output: 0 })
  for (const odd of [null, undefined, -1, 1.5, NaN, Infinity, 1e9 + 1, 2 ** 60, '7', true, {}, [], 7n]) {
    const isAbsurd = typeof odd === 'number' && Number.isInteger(odd) && odd > 0 && { isAbsurd: true }
    t.strictSame(readUsage({ input_tokens: odd }, { input: 5 }), { input: 5, ...isAbsurd })
    t.strictSame(readUsage({ input_tokens: odd }), { ...isAbsurd })
  }
  t.strictSame(readUsage({ input_tokens: 1e9 }), { input: 1e9 })
  for (const odd of [null, undefined, 'usage', 7, [], [1]]) t.strictSame(readUsage(odd, { input: 5 }), { input: 5 })
})

void t.test('any sequence of usage objects reads as the last valid value of each field', async (t) => {
  const fields = { input_tokens: 'input', cache_read_input_tokens: 'cache_read',
    cache_creation_input_tokens: 'cache_write', output_tokens: 'output' } as const
  const value = fc.oneof(fc.nat(1000), fc.constantFrom(null, -1, 0.5, '3', 1e12))
  const object = fc.record(Object.fromEntries(Object.keys(fields).map((name) => [name, value])), { requiredKeys: [] })
  t.doesNotThrow(() =>
    fc.assert(fc.property(fc.array(object, { maxLength: 6 }), (said) => {
      const read = said.reduce<ReportedUsage>((before, now) => readUsage(now, before), {})
      for (const [theirs, ours] of Object.entries(fields)) {
        const wanted = said.map((object) => object[theirs]).findLast((value) =>
          typeof value === 'number' && [0, ...Array(1000).keys(), 1000].includes(value)
        )
        if (read[ours] !== wanted) throw new Error(`${theirs}: ${read[ours]}, not ${wanted as number}`)
      }
    }))
  )
})

const ask = (content: unknown, more: object = {}): Readonly<Record<string, unknown>> => ({
  model: 'm',
  max_tokens: 10,
  messages: [{ role: 'user', content }],
  ...more
})

void t.test('a sealed thought weighs what is in it, for that is what is sent', (t) => {
  const seals = scratchSeals()
  const thinking = (signature: string): Record<string, unknown> => ({ messages: [{ role: 'assistant',
    content: [{ type: 'thinking', thinking: 'Hm', signature }, { type: 'redacted_thinking', data: signature }] }] })
  for (const original of ['', 'EqQB', 'é'.repeat(500), 'EqQBCkYIARgC'.repeat(1000)]) {
    const sealed = thinking(seals.seal('thinking', 'acme', original))
    t.equal(boundInput(sealed), boundInput(thinking(original)))
    t.equal(estimateInput(sealed), estimateInput(thinking(original)))
  }
  const text = (said: string): Record<string, unknown> => ({ messages: [{ role: 'user', content: [{ type: 'text', text:
    said }] }] })
  t.equal(boundInput(text(`gwseal1_${'A'.repeat(1000)}`)), boundInput(text('A'.repeat(1008))), 'a text is no thought')
  const thought = (thinking: string): number => boundInput(ask([{ type: 'thinking', thinking, signature: '' }]))
  t.equal(thought(`gwseal1_${'A'.repeat(1000)}`), thought('A'.repeat(1008)), 'nor is what a client says of one')
  t.end()
})

void t.test('the bound is never below the bytes of the text, and stops at the context', async (t) => {
  t.doesNotThrow(() =>
    fc.assert(fc.property(fc.array(fc.string({ unit: codePoint, maxLength: 50 })), fc.string(), (texts, system) => {
      const body = ask(texts.map((text) => ({ type: 'text', text })), { system,
        tools: [{ name: 'f', description: system, input_schema: { type: 'object' } }] })
      return boundInput(body) >= Buffer.byteLength(texts.join('') + system + system)
    }))
  )
  t.equal(boundInput(ask('x'.repeat(5_000_000)), 200_000), 200_000)
  t.ok(boundInput(ask('x'.repeat(5_000)), 200_000) < 5_300)
  t.ok(boundInput(ask('hi')) >= 20, 'the vendor counts turn markers too')
})

void t.test('any JSON is bounded by no less than a guess at its tokens, and both stay within the context', async (t) => {
  t.doesNotThrow(() =>
    fc.assert(fc.property(fc.jsonValue(), fc.integer({ min: 100, max: 5000 }), (content, context) => {
      const body = ask(content, { system: content })
      const [bound, guess] = [boundInput(body, context), estimateInput(body, context)]
      return guess > 0 && guess <= bound && bound <= context
    }))
  )
})

void t.test('an image weighs its allowance where content stands, and its bytes anywhere else', async (t) => {
  const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'A'.repeat(100_000) } }
  const empty = boundInput(ask([]))
  const within = (name: string, body: Readonly<Record<string, unknown>>, low: number, high: number): void => {
    const extra = boundInput(body) - empty
    t.ok(extra >= low && extra <= high, `${name}: ${extra}`)
  }
  const linked = { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } }
  within('one', ask([image]), 4800, 4900)
  within('three, one of them in the result of a tool',
    ask([image, image, { type: 'tool_result', tool_use_id: 't', content: [image] }]), 14_400, 14_600)
  within('by its address', ask([linked]), 4800, 4920)
  within('by its address in a document made of blocks',
    ask([{ type: 'document', source: { type: 'content', content: [linked, linked] } }]), 9600, 9900)
  within('the same in the result of a tool',
    ask([{ type: 'tool_result', tool_use_id: 't',
      content: [{ type: 'document', source: { type: 'content', content: [linked] } }] }]), 4800, 5050)
  within('text that calls itself an image, in the input of a tool',
    ask([{ type: 'tool_use', id: 't', name: 'f', input: image }]), 100_000, 100_200)
  within('the same in the system prompt', ask([], { system: [image] }), 100_000, 100_200)
  within('text hidden beside the source', ask([{ ...image, note: 'x'.repeat(50_000) }]), 54_800, 54_950)
})

void t.test('what has no bound in its bytes counts as the whole context', async (t) => {
  const pdf = { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERi0=' } }
  t.equal(boundInput(ask([pdf]), 200_000), 200_000)
  t.equal(boundInput(ask([{ type: 'document', source: { type: 'url', url: 'https://example.com/a.pdf' } }]), 200_000),
    200_000)
  t.equal(
    boundInput(
      ask([{ type: 'web_fetch_tool_result', tool_use_id: 't',
        content: { type: 'web_fetch_result', url: 'https://example.com/a.pdf', content: pdf } }]),
      200_000
    ),
    200_000
  )
  t.ok(
    boundInput(ask([{ type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'x'.repeat(1000) } }]),
      200_000) < 1400
  )
  t.equal(boundInput(ask('hi', { tools: [{ type: 'web_search_20260209', name: 'web_search' }] }), 200_000), 200_000)
  t.equal(boundInput(ask('hi', { mcp_servers: [] }), 200_000), 200_000)
  t.ok(
    boundInput(
      ask('hi', { tools: [{ type: 'bash_20250124', name: 'bash' }, { type: 'custom', name: 'f', input_schema: {} }] }),
      200_000
    ) < 3000
  )
})

void t.test('a guess at the input is a quarter of the bytes', async (t) => {
  const guess = estimateInput(ask('x'.repeat(40_000)))
  t.ok(guess >= 10_000 && guess < 10_060, String(guess))
  t.equal(estimateInput(ask('x'.repeat(40_000)), 5000), 5000)
})

// Awkward ones, and any with up to 12 decimals.
const decimal = fc.oneof(
  fc.constantFrom(
    '0', '0.0125', '3.33', '0.000001', '0.000000000001', '3', '15', '0.30', '3.75', '18.75', '0.999999999999', '150'
  ),
  fc.tuple(fc.nat(999), fc.integer({ min: 1, max: 12 }), fc.bigInt(0n, 999_999_999_999n))
    .map(([whole, digits, fraction]) => `${whole}.${fraction.toString().padStart(12, '0').slice(0, digits)}`))
const price: fc.Arbitrary<TokenPrice> = fc.record({
  input: decimal,
  output: decimal,
  cache_read: decimal,
  cache_write: decimal,
  cache_write_5m: decimal,
  cache_write_1h: decimal,
  extras: fc.record({ web_search: fc.oneof(decimal, fc.record({ usd: decimal, most: fc.integer({ min: 1, max: 1000 }) },
    { requiredKeys: ['usd'] })) }, { requiredKeys: [] })
}, { requiredKeys: ['input', 'output'] })
const tokens = fc.oneof(fc.nat(20), fc.nat(1_000_000), fc.constantFrom(0, 1, 500, 1e9))
const usage: fc.Arbitrary<Usage> = fc.record({
  input: tokens, cache_read: tokens, cache_write_5m: tokens, cache_write_1h: tokens, output: tokens,
  extras: fc.record({ web_search: fc.nat(100) }, { requiredKeys: [] })
})

function decimalsOf (text: string): number {
  return text.split('.')[1]?.length ?? 0
}

/** The same in fractions of integers: nothing is scaled, reduced or rounded before the end. */
function oracle (usage: Usage, price: TokenPrice): bigint {
  const fraction = (
    text: string
  ): readonly [bigint, bigint] => [BigInt(text.replace('.', '')), 10n ** BigInt(decimalsOf(text))]
  const search = price.extras?.['web_search'] ?? '0'
  const terms: (readonly [number, string, bigint])[] = [
    [usage.input, price.input, 1_000_000n],
    [usage.cache_read, price.cache_read ?? price.input, 1_000_000n],
    [usage.cache_write_5m, price.cache_write_5m ?? price.cache_write ?? price.input, 1_000_000n],
    [usage.cache_write_1h, price.cache_write_1h ?? price.cache_write ?? price.input, 1_000_000n],
    [usage.output, price.output, 1_000_000n],
    [usage.extras['web_search'] ?? 0, typeof search === 'string' ? search : search.usd, 1n]
  ]
  let [above, below] = [0n, 1n]
  for (const [count, text, per] of terms) {
    const [num, den] = fraction(text)
    ;[above, below] = [above * den * per + BigInt(count) * num * below, below * den * per]
  }
  const nanos = above * 10n ** 9n
  const whole = nanos / below
  return (nanos % below) * 2n >= below ? whole + 1n : whole
}
