// A client that leaves a running stream pays for what its provider counts, with reasoning that nobody was shown. With
// FAST_LANE=off too. A failure prints its seed; repeat it with FC_SEED=…
import { strict as assert } from 'node:assert'
import { EventEmitter, once } from 'node:events'
import { setImmediate } from 'node:timers/promises'
import fc from 'fast-check'
import t from 'tap'
import type { Entry } from '../../src/store/store.ts'
import { clientStyles, styles, type Style } from '../support/client-styles.ts'
import { KEY, type TestGateway } from '../support/gateway.ts'
import { raw, type Received, step, wait } from '../support/upstream.ts'
import { all } from '../support/store-conformance.ts'
import { until } from '../support/until.ts'
import { type Dialect, dialects, parts, usageGateway } from '../support/usage-vendor.ts'

/** USD 1 and 10 for a million tokens, in nano-dollars for one. */
const INPUT = 1000n
const OUTPUT = 10_000n
const TOKENS_IN = 12

/** Reports that the gateway knows of a client's leaving. */
const leaving = new EventEmitter()
Object.assign(globalThis, { billingLeft: leaving })
const OBSERVER = { usageTimeout: '1m', plugin: './observer.ts', files: { 'observer.ts': `
export default {
  name: 'observer',
  create: () => ({
    onRequest (exchange) { exchange.signal.addEventListener('abort', () => { billingLeft.emit('left') }) }
  })
}` } }

interface Case {
  readonly dialect: Dialect
  readonly style: Style
  readonly words: readonly string[]
  /** share of the words that come before the client leaves */
  readonly sent: number
  /** bytes that the client reads, at most */
  readonly read: number
  /** tokens that the provider counts: fewer than an estimate of the words, or far more */
  readonly output: number
}

const one: fc.Arbitrary<Case> = fc.record({
  dialect: fc.constantFrom(...dialects),
  style: fc.constantFrom(...styles),
  words: fc.array(fc.stringMatching(/^[a-z]{1,12} $/), { minLength: 1, maxLength: 20 }),
  sent: fc.double({ min: 0, max: 1, noNaN: true }),
  read: fc.oneof(fc.integer({ min: 1, max: 300 }), fc.constant(Infinity)),
  output: fc.oneof(fc.integer({ min: 1, max: 10 }), fc.integer({ min: 100, max: 6000 }))
})

function usageOf (dialect: Dialect, output: number): unknown {
  const thoughts = Math.max(0, output - 50)
  return dialect === 'chat'
    ? { prompt_tokens: TOKENS_IN, completion_tokens: output, total_tokens: TOKENS_IN + output,
      completion_tokens_details: { reasoning_tokens: thoughts } }
    : { input_tokens: TOKENS_IN, output_tokens: output,
      ...dialect === 'responses' && { output_tokens_details: { reasoning_tokens: thoughts } } }
}

/** Reads so many bytes, or up to the text, and leaves. @returns the request's id */
async function leave (gw: TestGateway, { dialect, style, read }: Pick<Case, 'dialect' | 'style' | 'read'>,
  text: string): Promise<string> {
  const { path, asking } = clientStyles[style]
  const gone = new AbortController()
  const response = await fetch(gw.url + path, {
    method: 'POST', signal: gone.signal,
    headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
    body: JSON.stringify(asking({ model: dialect, max_tokens: 8000, stream: true,
      messages: [{ role: 'user', content: 'Hello' }] }))
  })
  assert.equal(response.status, 200)
  let seen = ''
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  while (seen.length < read && !seen.includes(text)) {
    const { value, done } = await reader.read()
    assert.equal(done, false, seen)
    seen += value
  }
  const known = once(leaving, 'left')
  gone.abort()
  await known
  return response.headers.get('x-request-id')!
}

async function entriesOf (gw: TestGateway, id: string): Promise<readonly Entry[]> {
  await until(() => gw.logged.some(({ msg, request_id: of }) => msg === 'request' && of === id))
  return (await all(gw.services.store)).filter(({ reference }) => reference === id)
}

void t.test('a client that leaves anywhere pays what the provider reports for the whole answer, once', async (t) => {
  let now: Case & { readonly left: PromiseWithResolvers<void> } | undefined
  const gw = await usageGateway(t, (_, dialect) => {
    const { start, text, finish, after, end } = parts[dialect]
    const { words, sent, output, left } = now!
    const shown = 1 + Math.floor(sent * (words.length - 1))
    const usage = usageOf(dialect, output)
    return [raw(start(dialect === 'messages' ? { input_tokens: TOKENS_IN, output_tokens: 1 } : undefined)),
      ...words.slice(0, shown).map((word) => raw(text(word))), raw(text('§')), wait(left.promise),
      ...words.slice(shown).map((word) => raw(text(word))), raw(finish(usage)), raw(after(undefined)), raw(end(usage))]
  }, OBSERVER)
  await fc.assert(fc.asyncProperty(one, async (it) => {
    now = { ...it, left: Promise.withResolvers() }
    const id = await leave(gw, it, '§')
    now.left.resolve()
    const entries = await entriesOf(gw, id)
    assert.equal(entries.length, 1)
    const [{ nanos, usage }] = entries as [Entry]
    assert.equal(-nanos, BigInt(TOKENS_IN) * INPUT + BigInt(it.output) * OUTPUT, JSON.stringify(usage))
  }), { numRuns: 60, interruptAfterTimeLimit: 60_000, endOnFailure: true,
    ...(process.env['FC_SEED'] !== undefined && { seed: Number(process.env['FC_SEED']) }) })
  t.equal((await gw.services.store.balance('acme')).open_holds, 0)
  t.strictSame((await gw.services.store.verify()).differences, [])
})

void t.test('a client that leaves early does not cost the operator a long answer: its upstream is stopped', async (t) => {
  let sent = 0
  let request: Received | undefined
  let left = Promise.withResolvers<void>()
  const gw = await usageGateway(t, (received, dialect) => {
    request = received
    sent = 0
    const goOn = step(async ({ response, gone }) => {
      while (!gone.aborted && sent < 1_000_000) {
        response.write(parts[dialect].text('w'.repeat(100)))
        sent += 100
        await setImmediate()
      }
    })
    const { start, text, finish, after, end } = parts[dialect]
    const usage = usageOf(dialect, 7000)
    return [raw(start(undefined)), raw(text('§')), wait(left.promise), goOn, raw(finish(usage)),
      raw(after(undefined)), raw(end(usage))]
  }, OBSERVER)
  for (const dialect of dialects) {
    left = Promise.withResolvers<void>()
    const id = await leave(gw, { dialect, style: 'chat', read: Infinity }, '§')
    left.resolve()
    t.equal(await request!.closed, 'left', dialect)
    const [{ usage, usage_source: source }] = await entriesOf(gw, id) as [Entry]
    t.equal(source, 'estimated')
    t.equal(usage!.output, 1, 'what was delivered')
  }
})

void t.test('where no usage comes in time, the hidden part is what the account\'s answers had before', async (t) => {
  const shown = 'The ferry leaves at noon. '.repeat(20)
  for (const dialect of dialects) {
    await t.test(dialect, async (t) => {
      let isSilent = false
      const gw = await usageGateway(t, () => {
        const { start, text, finish, after, end } = parts[dialect]
        const usage = { ...usageOf(dialect, 2000) as object,
          ...dialect === 'messages' && { output_tokens_details: { thinking_tokens: 1850 } } }
        const begin = [raw(start(undefined)), raw(text(shown))]
        return isSilent ? [...begin, raw(text('§')), wait(new Promise(() => {}))]
          : [...begin, raw(finish(usage)), raw(after(undefined)), raw(text('§') === '' ? '' : end(usage))]
      }, { ...OBSERVER, usageTimeout: '20ms' })
      const charged = async (): Promise<number> => {
        const id = await leave(gw, { dialect, style: 'messages', read: Infinity }, '§')
        return (await entriesOf(gw, id) as [Entry])[0].usage!.output
      }
      isSilent = true
      const visible = await charged()
      t.ok(visible < 300, `${visible} tokens: nothing is known yet`)
      isSilent = false
      const body = { model: dialect, max_tokens: 8000, stream: true, messages: [{ role: 'user', content: 'Hello' }] }
      for (let i = 0; i < 2; i++) await (await gw.messages(body)).text()
      isSilent = true
      const all = await charged()
      t.ok(all > visible + 1500 && all <= 2000 + 10, `${all} tokens`)
    })
  }
})

void t.test('a drain does not wait for usage', async (t) => {
  const release = Promise.withResolvers<void>()
  const gw = await usageGateway(t, (_, dialect) => {
    const { start, text, finish, end } = parts[dialect]
    return [raw(start(undefined)), raw(text('§')), wait(release.promise), raw(finish(undefined)), raw(end(undefined))]
  }, OBSERVER)
  const other = await gw.messages({ model: 'chat', max_tokens: 100, stream: true,
    messages: [{ role: 'user', content: 'Hello' }] })
  const id = await leave(gw, { dialect: 'chat', style: 'chat', read: Infinity }, '§')
  const drained = gw.drain()
  t.equal((await entriesOf(gw, id)).length, 1)
  t.strictSame(gw.logged.filter(({ msg }) => msg === 'request').map(({ request_id: of }) => of), [id],
    'the other request was not aborted yet')
  release.resolve()
  t.match(await other.text(), 'message_stop')
  await drained
})
