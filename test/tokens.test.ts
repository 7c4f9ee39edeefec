// The thread that counts tokens: what it keeps, what it is sent, and that nothing it does wrong is waited for or charged wrongly.
import { Worker } from 'node:worker_threads'
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base'
import t, { type Test } from 'tap'
import { Produced } from '../src/money/produced.ts'
import { Tally } from '../src/money/tally.ts'
import { Tokens } from '../src/money/tokens.ts'
import { compose } from '../src/simulator/composition.ts'
import { SseEvent } from '../src/sse.ts'
import { until } from './client.ts'
import { services } from './exchange.ts'

const PROSE = 'The quick brown fox jumps over the lazy dog. '
const LONG = PROSE.repeat(1000)
const guess = (text: string): number => Math.ceil(Buffer.byteLength(text) / 4)
const mortal = new URL('./mortal-tokens-worker.ts', import.meta.url)

interface Counting {
  readonly tokens: Tokens
  readonly logged: () => readonly unknown[]
}

async function counting (t: Test, url?: URL): Promise<Counting> {
  const { log, lines } = services()
  const tokens = new Tokens(log, url)
  t.teardown(() => tokens.end())
  await tokens.start()
  return { tokens, logged: () => lines.map((line) => line['msg']) }
}

function producing (tokens: Tokens, ...texts: readonly string[]): Produced {
  const produced = new Produced(tokens)
  for (const text of texts) produced.add(text)
  return produced
}

/** What was sent to threads while it ran. */
async function sentDuring (run: () => unknown): Promise<number> {
  const { postMessage } = Worker.prototype
  let sent = 0
  Worker.prototype.postMessage = function (this: Worker, ...message: Parameters<Worker['postMessage']>) {
    sent++
    postMessage.apply(this, message)
  }
  try {
    await run()
  } finally {
    Worker.prototype.postMessage = postMessage
  }
  return sent
}

void t.test('a long text is counted as a whole, whatever else is counted meanwhile', async (t) => {
  const { tokens } = await counting(t)
  const streams = Array.from({ length: 20 }, (_, i) => ({ text: `${i} ` + PROSE.repeat(i * 40), produced: new Produced(tokens) }))
  for (let at = 0; at < LONG.length; at += 700) for (const { text, produced } of streams) produced.add(text.slice(at, at + 700))
  t.strictSame(await Promise.all(streams.map(({ produced }) => produced.count())), streams.map(({ text }) => countTokens(text)))
  t.equal(tokens.thread!.open, 0)
})

void t.test('asked twice it says the same, and what comes later is not counted', async (t) => {
  const { tokens } = await counting(t)
  const produced = producing(tokens, LONG)
  const [first, second] = [produced.count(), produced.count()]
  produced.add(LONG)
  t.strictSame([await first, await second, await produced.count()], Array.from({ length: 3 }, () => countTokens(LONG)))
})

void t.test('a text shorter than 8 K characters costs no message until it is asked for, and then one; no text none at all', async (t) => {
  const { tokens } = await counting(t)
  t.equal(await sentDuring(() => { producing(tokens, 'x'.repeat(8191)).drop() }), 0)
  t.equal(await sentDuring(async () => { t.equal(await producing(tokens, PROSE).count(), countTokens(PROSE)) }), 1)
  t.equal(await sentDuring(async () => { t.equal(await producing(tokens).count(), 0) }), 0)
})

void t.test('nothing stays in the thread, whether it was asked for, dropped, or both', async (t) => {
  const { tokens } = await counting(t)
  const streams: Produced[] = []
  for (let i = 0; i < 60; i++) {
    streams.push(producing(tokens, LONG))
    await until(() => tokens.thread!.backlog === 0)
  }
  t.equal(tokens.thread!.open, 60, 'they are there before')
  await Promise.all(streams.map(async (produced, i) => {
    if (i % 3 === 0) { produced.drop(); produced.drop(); produced.add(LONG); return }
    const count = produced.count()
    if (i % 3 === 1) produced.drop()
    t.equal(await count, countTokens(LONG))
  }))
  await until(() => tokens.thread!.open === 0)
})

void t.test('it dies while a text is on its way: the whole text is estimated, it is logged, and the next thread counts', async (t) => {
  const { tokens, logged } = await counting(t, mortal)
  const dead = tokens.thread
  const before = producing(tokens, LONG, '→')
  const asked = producing(tokens, LONG, 'DIE').count()
  t.equal(await asked, guess(LONG + 'DIE'))
  before.add(LONG)
  t.equal(await before.count(), guess(LONG + '→' + LONG))
  const meanwhile = producing(tokens, LONG)
  t.equal(await producing(tokens, PROSE).count(), guess(PROSE))
  await until(() => tokens.thread !== dead && tokens.thread?.isReady)
  t.equal(await producing(tokens, LONG).count(), countTokens(LONG))
  t.equal(await meanwhile.count(), guess(LONG), 'nobody has its beginning')
  t.match(logged(), ['the thread that counts tokens died: until there is another, what cut answers produced is estimated'])
})

void t.test('it hangs: who asked has an estimate, and there is another thread', async (t) => {
  const { tokens, logged } = await counting(t, mortal)
  const hanging = tokens.thread
  const texts = ['HANG', PROSE, LONG]
  t.strictSame(await Promise.all(texts.map((text) => producing(tokens, text).count())), texts.map(guess))
  await until(() => tokens.thread !== hanging && tokens.thread?.isReady)
  t.equal(await producing(tokens, LONG).count(), countTokens(LONG))
  t.equal(logged().length, 1)
})

void t.test('it can\'t start: that is logged, and all is estimated at once', async (t) => {
  const { tokens, logged } = await counting(t, new URL('./no-such-worker.ts', import.meta.url))
  t.equal(await producing(tokens, LONG).count(), guess(LONG))
  t.equal(logged().length, 1)
  const never = new Tokens(services().log)
  t.equal(await producing(never, LONG).count(), guess(LONG), 'not started')
  await never.end()
})

void t.test('more noise than it can count is not queued without end: it is estimated, and it counts again afterwards', async (t) => {
  const { tokens, logged } = await counting(t)
  const noise = 'a'.repeat(4 * 1024 * 1024)
  const produced = producing(tokens, noise)
  t.ok(tokens.thread!.backlog <= 1024 * 1024 + 8192, String(tokens.thread!.backlog))
  t.equal(await produced.count(), guess(noise))
  await until(() => tokens.thread!.backlog === 0)
  t.equal(tokens.thread!.open, 0)
  t.equal(await producing(tokens, LONG).count(), countTokens(LONG))
  t.equal(logged().length, 1, 'told once')
})

void t.test('it ends while it is asked: an estimate, and no other thread', async (t) => {
  const { tokens, logged } = await counting(t, mortal)
  const asked = producing(tokens, 'HANG').count()
  await tokens.end()
  t.equal(await asked, 1)
  t.equal(tokens.thread, undefined)
  t.strictSame(logged(), [])
})

void t.test('looked at in between, the count is that of the text until then, and its end is not changed by that', async (t) => {
  const { tokens } = await counting(t)
  const produced = new Produced(tokens)
  const text = PROSE.repeat(600) + '👩‍👩‍👧‍👦 done'
  let at = 0
  for (const end of [0, 20, 9000, 9001, 20_000, text.length - 11, text.length - 5]) {
    produced.add(text.slice(at, end))
    at = end
    const found = await produced.peek()
    // A half of a surrogate pair has no count of its own.
    if (text.slice(0, end).isWellFormed()) t.equal(found, countTokens(text.slice(0, end)), `${end} characters`)
  }
  const asked = produced.peek()
  produced.add(text.slice(at))
  t.strictSame([await produced.count(), await asked], [countTokens(text), countTokens(text.slice(0, at))])
  t.equal(await produced.peek(), undefined, 'it has ended')
  t.equal(tokens.thread!.open, 0)
  const dropped = producing(tokens, PROSE)
  await dropped.peek()
  t.equal(tokens.thread!.open, 1)
  dropped.drop()
  await until(() => tokens.thread!.open === 0)
  t.equal(await producing(new Tokens(services().log), PROSE).peek(), undefined, 'nobody counts')
})

void t.test('what a kill would be charged is what was delivered, whatever kind of text it is', async (t) => {
  const { tokens } = await counting(t)
  const says = (content: string): readonly string[] => compose({ model: 'm', max_tokens: 4000, messages: [{ role: 'user', content }] } as never, { tokens: 900 }).parts.flatMap((part) => part.tokens)
  const delta = (text: string): SseEvent => SseEvent.of('content_block_delta', { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })
  const cut = (text: string, length: number): string[] => text.match(new RegExp(`[^]{1,${length}}`, 'gu')) ?? []
  // Of the tokenizer's count of the whole text: exact where it has spaces, within 3 % where it has none (each slice of 512 characters is cut somewhere).
  const kinds: readonly (readonly [kind: string, pieces: readonly string[], most: number])[] = [
    ['the simulator\'s answer', says('Tell me a story'), 0],
    ['prose', cut(PROSE.repeat(100), 5), 0],
    ['long words', cut('Internationalization notwithstanding, telecommunications infrastructure responsibilities. '.repeat(40), 9), 0],
    ['code', cut("    if (value !== undefined) {\n      return items.map(({ id, name }) => `${id}: ${name}`)\n    }\n".repeat(60), 7), 0],
    ['Chinese', cut('委员会星期二开会讨论了明年的预算，经过长时间的辩论，决定图书馆晚上继续开放。'.repeat(60), 2), 0.03],
    ['Russian', cut('Комитет собрался во вторник, чтобы обсудить бюджет на следующий год. '.repeat(60), 4), 0],
    ['one word of base64', cut(Buffer.from(Array.from({ length: 3000 }, (_, i) => (i * 2654435761 >>> 13) & 255)).toString('base64'), 4), 0.03],
    ['a line', cut('-'.repeat(3000), 64), 0.5]
  ]
  for (const [kind, pieces, most] of kinds) {
    const tally = new Tally(tokens)
    let delivered = ''
    for (const [i, piece] of pieces.entries()) {
      tally.deliver(delta(piece))
      delivered += piece
      if (i % 100 !== 99 && i !== pieces.length - 1) continue
      const { output } = await tally.countSoFar()
      const wanted = countTokens(delivered)
      if (Math.abs(output - wanted) > Math.max(most * wanted, most === 0 ? 0 : 4)) t.fail(`${kind}: ${output} of ${wanted} after ${delivered.length} characters`)
    }
    t.pass(`${kind}: ${delivered.length} characters`)
    tally.drop()
  }
  const simulated = says('Tell me a story')
  t.ok(simulated.length >= 900 && countTokens(simulated.join('')) <= simulated.length * 1.4 && countTokens(simulated.join('')) >= simulated.length * 0.7, `the provider's own count: ${simulated.length}, ours ${countTokens(simulated.join(''))}`)
})
