// What is estimated of tokens: by the characters of a text, and by what upstreams were seen to report. Properties, and
// what a false report can do.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { readReply, Tally } from '../../plugins/billing-meter/tally.ts'
import { packageRoot } from '../../src/base/package.ts'
import { SseEvent } from '../../src/core/sse.ts'
import { HiddenOutput } from '../../src/tokens/hidden-output.ts'
import { Overheads } from '../../src/tokens/overheads.ts'
import { TokenRates } from '../../src/tokens/rates.ts'
import { LEAST_RATES, MOST_RATES, START_RATES, type Rates } from '../../src/tokens/text-count.ts'
import { codePoint } from '../support/code-point.ts'
import { counted, tokensOf } from '../support/tokens.ts'

const model = { upstream: 'u1', model: 'a' }

interface Sample {
  readonly kind?: string
  readonly text: string
  readonly o200k: number
  readonly cl100k: number
}
const samples = JSON.parse(readFileSync(join(packageRoot, 'test/fixtures/token-counts.json'), 'utf8')) as {
  readonly natural: readonly Sample[],
  readonly odd: readonly Sample[]
}

const text = fc.oneof(
  fc.string({ unit: codePoint, maxLength: 300 }),
  fc.string({ maxLength: 300 }),
  fc.lorem(),
  fc.array(
    fc.constantFrom(
      'word', ' ', '  ', '\n', 'Ünïcödé', '👩‍👩‍👧‍👦', '漢字', '12345', '...', '\t', 'don\'t', 'हिन्दी', '----'
    ),
    { maxLength: 200 }
  ).map((parts) => parts.join(''))
)
/** As they may be learned: anything between the bounds. */
const rates: fc.Arbitrary<Rates> = fc.tuple(
  ...START_RATES.map((_, kind) => fc.double({ min: LEAST_RATES[kind]!, max: MOST_RATES[kind]!, noNaN: true }))
)
/** Answers that teach, and reports of them that are true, nearly true, or false. */
const report = fc.tuple(fc.array(text, { minLength: 1, maxLength: 20 }).map((parts) => parts.join(' ')),
  fc.oneof(fc.nat(5000), fc.constantFrom(0, 1, 31, 32, 1e9, Infinity)))

void t.test('an estimate depends on the text alone, not on how it came in pieces, inside a surrogate pair too', async (t) => {
  t.doesNotThrow(() =>
    fc.assert(fc.property(text, fc.array(fc.nat(400), { maxLength: 20 }), rates, (text, cuts, rates) => {
      const at = [0, ...cuts.map((cut) => cut % (text.length + 1)).toSorted((a, b) => a - b), text.length]
      const pieces = at.slice(1).map((end, i) => text.slice(at[i], end))
      return counted(...pieces).tokens(rates) === tokensOf(text, rates)
    }))
  )
})

void t.test('no text is none, any other is at least one token and at most its bytes, and more text never has fewer', async (t) => {
  t.equal(tokensOf(''), 0)
  t.doesNotThrow(() =>
    fc.assert(fc.property(text, text, rates, (before, behind, rates) => {
      const tokens = tokensOf(before, rates)
      const whole = counted(before).tokensWith(behind, rates)
      return (before === '' ? tokens === 0 : tokens >= 1) && tokens <= Buffer.byteLength(before) && whole >= tokens &&
        whole === tokensOf(before + behind, rates)
    }), { numRuns: 500 })
  )
})

void t.test('at first it is near what two public vocabularies make of languages and code', async (t) => {
  for (const { kind, text, o200k, cl100k } of samples.natural) {
    const tokens = tokensOf(text)
    t.ok(tokens >= Math.min(o200k, cl100k) * 0.75 && tokens <= Math.max(o200k, cl100k) * 1.3,
      `${kind}: ${tokens}, of ${o200k} and ${cl100k}`)
    // Twice `max_tokens` is where a stream is cut that does not end: no language comes near that by itself.
    t.ok(tokens < Math.min(o200k, cl100k) * 1.5, `${kind}: far from twice as many`)
  }
  for (const { text, o200k } of samples.odd) {
    t.ok(tokensOf(text) <= 3.2 * o200k, `${JSON.stringify(text.slice(0, 20))}: ${tokensOf(text)} of ${o200k}`)
  }
})

void t.test('what is learned of one answer is bounded, whatever was reported, and so is all that can ever be learned', async (t) => {
  t.doesNotThrow(() =>
    fc.assert(fc.property(fc.array(report, { maxLength: 40 }), text, (reports, other) => {
      const learned = new TokenRates()
      for (const [text, reported] of reports) {
        const before = learned.of(model)
        learned.learn(model, counted(text), reported)
        const after = learned.of(model)
        const [least, most] = [counted(other).weigh(before) / 1.06, counted(other).weigh(before) * 1.06]
        const weight = counted(other).weigh(after)
        if (weight < least || weight > most) throw new Error(`${weight} after ${reported}, not ${least} to ${most}`)
        if (!after.every((rate, kind) => rate >= LEAST_RATES[kind]! && rate <= MOST_RATES[kind]!)) {
          throw new Error(
            `out of bounds: ${after.join(' ')}`
          )
        }
      }
    }), { numRuns: 300 })
  )
})

/** Of so many kinds, so that each class has its part. */
const answers = Array.from({ length: 12 },
  (_, i) => samples.natural.map(({ text }, j) => text.repeat((i * 7 + j * 5) % 4)).join('\n'))
const vendor: Rates = START_RATES.map((rate, kind) =>
  Math.min(MOST_RATES[kind]!, rate * [1.4, 0.7, 1, 0.8, 1, 1.8, 1.6, 1.3][kind]!)
)

void t.test('after a hundred answers it is what the model makes of text, and each model has its own', async (t) => {
  const learned = new TokenRates()
  for (let round = 0; round < 8; round++) {
    for (const text of answers) { learned.learn(model, counted(text), counted(text).tokens(vendor)) }
  }
  for (const text of answers) {
    const [found, wanted] = [tokensOf(text, learned.of(model)), tokensOf(text, vendor)]
    t.ok(Math.abs(found / wanted - 1) < 0.06, `${found}, not ${wanted}; ${tokensOf(text)} at first`)
  }
  const { text: prose } = samples.natural[0]!
  t.ok(Math.abs(tokensOf(prose, learned.of(model)) / tokensOf(prose, vendor) - 1) < 0.15, 'also of one kind alone')
  for (const other of [{ ...model, model: 'b' }, { ...model, upstream: 'u2' }]) t.equal(learned.of(other), START_RATES)
})

void t.test('false reports: those that no text explains teach nothing, others are forgotten as fast as they were learned', async (t) => {
  const learned = new TokenRates()
  const [, , , , text] = answers as readonly string[]
  const start = tokensOf(text!)
  for (const reported of [0, 1, 31, Math.floor(start / 3) - 1, start * 3 + 3, 1e9, NaN, Infinity]) {
    learned.learn(model, counted(text!), reported)
  }
  learned.learn(model, counted(''), 100)
  learned.learn(model, counted('x'), 31)
  t.equal(learned.of(model), START_RATES)
  const before = learned.of(model)
  for (let i = 0; i < 3; i++) learned.learn(model, counted(text!), start * 2)
  t.ok(tokensOf(text!, learned.of(model)) > start && tokensOf(text!, learned.of(model)) < start * 1.1)
  for (let i = 0; i < 20; i++) learned.learn(model, counted(text!), start)
  t.ok(Math.abs(tokensOf(text!, learned.of(model)) / start - 1) < 0.01)
  t.strictSame(before, START_RATES, 'what an answer is counted by does not change under it')
})

const event = (name: string, data: object): SseEvent => SseEvent.of(name, { type: name, ...data })
const delta = (type: string, field: string, text: string): SseEvent =>
  event('content_block_delta', { index: 0, delta: { type, [field]: text } })

void t.test('usage is read from the first event and the last: only behind them the tokens that are paid for are counted anew', async (t) => {
  const tally = new Tally(START_RATES)
  const seen = [event('message_start', { message: {} }), event('content_block_start', { index: 0, content_block: {} }),
    delta('text_delta', 'text', 'It rains.'), event('content_block_stop', { index: 0 }), event('ping', {}),
    event('message_delta', { delta: {}, usage: { output_tokens: 9 } }), event('message_stop', {})]
  t.strictSame(seen.filter((one) => tally.see(one)).map(({ event: name }) => name), ['message_start', 'message_delta'])
})

void t.test('not a token is sent beyond those that are paid for, however small the pieces, and none is held back before', async (t) => {
  const piece = fc.oneof(fc.string({ unit: codePoint, minLength: 1, maxLength: 12 }), fc.constantFrom('日本語', '😀', 'word ',
    '    ', '3', '\ud83d', '\ude00', 'x'.repeat(200)))
  fc.assert(fc.property(fc.array(piece, { maxLength: 120 }), fc.nat(300), fc.boolean(), (pieces, most, isLooked) => {
    const tally = new Tally(START_RATES)
    let sent = ''
    for (const said of pieces) {
      const has = tokensOf(sent + said) <= most
      const one = delta('text_delta', 'text', said)
      t.equal(tally.deliver(one, most), has)
      if (!has) break
      sent += said
      t.ok(tally.counted <= tokensOf(sent) && tally.atMost >= tokensOf(sent), 'between the two bounds')
      if (isLooked) t.equal(tally.soFar, tokensOf(sent))
    }
    t.equal(tally.soFar, tokensOf(sent))
    t.strictSame(tally.countSoFar().output, tokensOf(sent))
    t.ok(tokensOf(sent) <= most || sent === '')
  }), { numRuns: 500 })
})

void t.test('an answer teaches by its text where that is all that its provider counts', async (t) => {
  const usage = event('message_delta', { delta: {}, usage: { output_tokens: 9 } })
  const of = (...events: readonly SseEvent[]): Tally => {
    const tally = new Tally(START_RATES)
    for (const event of events) { tally.see(event); tally.deliver(event) }
    return tally
  }
  const words = delta('text_delta', 'text', 'It rains. ')
  const { lesson } = of(words, delta('input_json_delta', 'partial_json', '{"a":1}'), usage)
  t.strictSame([lesson!.text.tokens(START_RATES), lesson!.reported], [tokensOf('It rains. {"a":1}'), 9])
  t.equal(of(words).lesson, undefined, 'nothing was reported')
  for (const unseen of [
    delta('thinking_delta', 'thinking', 'Hm'),
    delta('signature_delta', 'signature', 'c2ln'),
    event('content_block_start', { index: 0, content_block: { type: 'redacted_thinking', data: 'x' } }),
    event('content_block_start', { index: 0,
      content_block: { type: 'server_tool_use', name: 'web_search', input: {} } }),
    event('message_delta', { delta: {}, usage: { output_tokens: 9, output_tokens_details: { thinking_tokens: 3 } } })
  ]) t.equal(of(words, unseen, usage).lesson, undefined, unseen.data)
  const whole = new Tally(START_RATES)
  whole.hear(readReply({ content: [{ type: 'text', text: 'It rains. ' },
    { type: 'tool_use', name: 'f', input: { a: 1 } }], usage: { output_tokens: 9 } }, undefined))
  t.equal(whole.lesson!.text.tokens(START_RATES), tokensOf('It rains. {"a":1}'))
})

const shown = { tokens: 100, images: 0 }
const [ONCE, PERIOD, CONTEXT] = [5000, 100, 200_000]

void t.test('what an upstream counts beyond the bound is believed when two of its reports say it', async (t) => {
  const overheads = new Overheads()
  const bound = (): number => overheads.bound(model, shown)
  overheads.learn(model, shown, ONCE)
  t.equal(bound(), 100, 'a single report raises no hold')
  overheads.learn(model, shown, 340)
  t.equal(bound(), 340, 'as much as both of them say')
  overheads.learn(model, shown, 360)
  t.equal(bound(), 360)
  t.equal(overheads.bound({ ...model, upstream: 'u2' }, shown), 100)
  t.equal(overheads.bound(model, shown, 200), 200, 'never more than the context')
  for (let i = 0; i < 2 * PERIOD; i++) overheads.learn(model, shown, 90)
  t.equal(bound(), 100, 'what is reported no more is forgotten')
})

void t.test('what one account\'s reports say raises the holds of no other; what two accounts\' say, of all; none beyond the context teaches', async (t) => {
  const overheads = new Overheads()
  const bound = (account: string): number => overheads.bound(model, shown, CONTEXT, account)
  const learn = (reported: number, account: string): void => {
    overheads.learn(model, shown, reported, CONTEXT, account)
  }
  for (let i = 0; i < 3 * PERIOD; i++) learn(CONTEXT, 'false')
  t.strictSame([bound('false'), bound('a'), bound('b')], [CONTEXT, 100, 100])
  for (let i = 0; i < 2; i++) learn(340, 'a')
  t.strictSame([bound('a'), bound('b')], [340, 340], 'two of them say at least that')
  for (let i = 0; i < 2; i++) for (const account of ['c', 'd']) learn(CONTEXT + 1, account)
  t.strictSame([bound('c'), bound('d')], [340, 340])
  for (let i = 0; i < 2000; i++) learn(200, `account ${i}`)
  t.strictSame([bound('false'), bound('a')], [200, 200], 'accounts that were not seen for long are forgotten')
})

void t.test('a false report in every hundred raises no hold, and what is always added is always held for', async (t) => {
  t.doesNotThrow(() =>
    fc.assert(fc.property(fc.nat(PERIOD - 1), fc.integer({ min: 0, max: 400 }), (at, added) => {
      const overheads = new Overheads()
      for (let i = 0; i < 5 * PERIOD; i++) {
        overheads.learn(model, shown, i === at + 2 * PERIOD ? 1e6 : 100 + added)
        if (i > 0 && overheads.bound(model, shown) !== 100 + added) {
          throw new Error(
            `${overheads.bound(model, shown)} after ${i}, not ${100 + added}`
          )
        }
      }
    }))
  )
})

void t.test('of images each has its own overhead, beside that of the text', async (t) => {
  const overheads = new Overheads()
  const images = { tokens: 100, images: 2 }
  for (let i = 0; i < 2; i++) overheads.learn(model, shown, 110)
  for (let i = 0; i < 2; i++) overheads.learn(model, images, 171)
  t.equal(overheads.bound(model, images), 100 + 10 + 2 * 31)
  t.equal(overheads.bound(model, { tokens: 100, images: 1 }), 100 + 10 + 31)
  for (let i = 0; i < 2 * PERIOD - 1; i++) overheads.learn(model, shown, 110)
  t.equal(overheads.bound(model, images), 100 + 10 + 2 * 31, 'requests without images do not make it forgotten')
})

void t.test('hidden output is estimated by an account\'s own answers, and no account raises that of others', async (t) => {
  await t.resolves(fc.assert(fc.asyncProperty(
    fc.array(fc.record({ visible: fc.integer({ min: 32, max: 2000 }), hidden: fc.nat(50_000) }),
      { minLength: 1, maxLength: 30 }),
    fc.nat(2000), async (answers, visible) => {
      const hidden = new HiddenOutput()
      for (const one of answers) hidden.learn(model, 'on', 'own', one.visible, one.hidden)
      const most = Math.max(...answers.map((one) => one.hidden))
      const got = hidden.of(model, 'on', 'own', visible)
      if (got < 0 || got > most || hidden.of(model, 'on', 'own', 0) !== 0) throw new Error(`${got} of ${most}`)
      if (hidden.of(model, 'on', 'new', visible) !== 0) throw new Error('one account alone speaks for no other')
      for (const account of ['a', 'b']) hidden.learn(model, 'on', account, 100, 10)
      if (hidden.of(model, 'off', 'own', visible) !== 0) throw new Error('a request that does not think has no thoughts')
      const others = hidden.of(model, 'on', 'new', visible)
      if (others > 10) throw new Error(`${others} for an account without answers, not the median`)
    })))
  const hidden = new HiddenOutput()
  for (let i = 0; i < 40; i++) hidden.learn(model, 'on', 'own', 100, i < 20 ? 900 : 300)
  t.ok(Math.abs(hidden.of(model, 'on', 'own', 50) - 150) < 25, 'by its share in newer answers')
  t.ok(Math.abs(hidden.of(model, 'on', 'own', 5000) - 300) < 50, 'at most as much as an answer has')
  t.equal(hidden.of({ ...model, upstream: 'u2' }, 'on', 'own', 50), 0)
  for (let i = 0; i < 1000; i++) hidden.learn(model, 'on', `account ${i}`, 100, 10)
  t.equal(hidden.of(model, 'on', 'own', 100), 10, 'accounts first seen long ago are forgotten')
})
