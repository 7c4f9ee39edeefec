// When and how vendors report usage, and what a client is shown and pays for it: one and the same.
import t, { type Test } from 'tap'
import { ask, type Asking, type Got } from '../support/billing-client.ts'
import { fate } from '../support/client.ts'
import { clientStyles, type Style, styles } from '../support/client-styles.ts'
import { KEY, type TestGateway } from '../support/gateway.ts'
import { cut, json, raw, type Received, type Script, stall, wait } from '../support/upstream.ts'
import { answering, type Dialect, dialects, type Json, parts, type Shown, shownUsage, streamOf, TEXT,
  usageGateway } from '../support/usage-vendor.ts'
import { tokensOf } from '../support/tokens.ts'

let script: (received: Received, dialect: Dialect) => Script = () => []
const gw = await usageGateway(t, (received, dialect) => script(received, dialect))
const threaded = await usageGateway(t, (received, dialect) => script(received, dialect), { largeBody: 500 })

interface Asked {
  readonly model?: string
  readonly style?: Style
  readonly stream?: boolean
  readonly how?: Asking
  readonly at?: TestGateway
}

interface Result {
  readonly got: Got
  readonly shown: Shown
  readonly charged: Shown
  readonly source: string
}

async function send (
  dialect: Dialect, { style = 'messages', stream = true, how = {}, at = gw, model }: Asked = {}
): Promise<Result> {
  const { path, asking } = clientStyles[style]
  const got = await ask(at.url + path, asking({ model: model ?? dialect, max_tokens: 20_000, stream,
    messages: [{ role: 'user', content: 'When does the ferry leave? '.repeat(30) }] }),
  { ...how, headers: { authorization: `Bearer ${KEY}` } })
  const { entries } = await fate(at, String(got.headers['x-request-id']))
  const [entry] = entries
  const usage = entry?.usage
  return { got, shown: got.ended === 'whole' && got.events.every(({ event }) => event !== 'error')
    ? shownUsage(style, got) : { input: -1, read: -1, output: -1 },
  source: String(entry?.usage_source),
  charged: { input: (usage?.input ?? 0) + (usage?.cache_read ?? 0) + (usage?.cache_write_5m ?? 0) +
    (usage?.cache_write_1h ?? 0), read: usage?.cache_read ?? 0, output: usage?.output ?? 0 } }
}

const counts = (dialect: Dialect, input: number, output: number): Json => dialect === 'chat'
  ? { prompt_tokens: input, completion_tokens: output }
  : { input_tokens: input, output_tokens: output }

function agrees (
  t: Test, { shown, charged, source }: Result, expected: Partial<Shown> & { readonly source: string }, name: string
): void {
  t.match({ ...charged, source }, expected, `${name}: the bill`)
  t.strictSame(shown, charged, `${name}: what the client sees`)
}

t.test('U1: usage next to the finish reason is provisional', async (t) => {
  for (const style of styles) {
    for (const first of [[0, 0], [1000, 1]] as const) {
      script = (received) => answering('chat', received, { finish: counts('chat', first[0], first[1]),
        after: counts('chat', 1000, 2000) })
      agrees(t, await send('chat', { style }), { input: 1000, output: 2000, source: 'provider' },
        `${first.join('/')}, then more, for a ${style} client`)
    }
    script = (received) => answering('chat', received, { finish: counts('chat', 1000, 2000), after: counts('chat', 0, 0) })
    agrees(t, await send('chat', { style }), { input: 1000, output: 2000, source: 'provider' }, 'zeros behind it')
  }
})

t.test('U1: content flows at once, and only the end waits', async (t) => {
  const { promise: seen, resolve } = Promise.withResolvers<void>()
  script = () => [...streamOf('chat', { finish: counts('chat', 0, 0) }).slice(0, -1).map(raw), wait(seen),
    raw(parts.chat.after(counts('chat', 1000, 2000))), raw(parts.chat.end(undefined))]
  // The vendor goes on when the client has the last word.
  const result = await send('chat', { how: { onEvent: (count) => { if (count === 4) resolve() } } })
  agrees(t, result, { input: 1000, output: 2000, source: 'provider' }, 'the words came before')
})

t.test('U1: a vendor that leaves the body open keeps no client waiting, once it has reported', async (t) => {
  for (const style of styles) {
    let closed: Promise<string> | undefined
    script = (received) => {
      closed = received.closed
      return [...streamOf('chat', { finish: counts('chat', 1000, 2000) }).slice(0, -1).map(raw), stall()]
    }
    agrees(t, await send('chat', { style }), { input: 1000, output: 2000, source: 'provider' }, style)
    t.equal(await closed, 'left', 'the gateway closes the connection')
  }
})

t.test('U1: zeros alone beside content are no report: estimated, in all dialects, as JSON and as a stream', async (t) => {
  for (const dialect of dialects) {
    for (const style of styles) {
      for (const stream of [true, false]) {
        for (const at of [gw, threaded]) {
          const name = `${dialect} for ${style}, ${stream ? 'a stream' : 'JSON'}${at === gw ? '' : ' in a thread'}`
          script = (received) => answering(dialect, received, { finish: counts(dialect, 0, 0) })
          const none = await send(dialect, { style, stream, at })
          t.ok(none.charged.input > 100, `${name}: the input is estimated`)
          agrees(t, none, { output: tokensOf(TEXT), source: 'estimated' }, name)
          script = (received) => answering(dialect, received, { finish: counts(dialect, 1000, 0) })
          agrees(t, await send(dialect, { style, stream, at }),
            { input: 1000, output: tokensOf(TEXT), source: 'estimated' }, `${name}, output 0`)
          script = (received) => answering(dialect, received, { finish: counts(dialect, 0, 2000) })
          agrees(t, await send(dialect, { style, stream, at }), { input: 0, output: 2000, source: 'provider' },
            `${name}, input 0`)
        }
      }
    }
  }
})

t.test('V6: one estimate: what the client sees of a usage that nobody reported is what it pays', async (t) => {
  for (const dialect of dialects) {
    for (const style of styles) {
      for (const stream of [true, false]) {
        for (const at of [gw, threaded]) {
          script = (received) => answering(dialect, received, {})
          const name = `${dialect} for ${style}, ${stream ? 'a stream' : 'JSON'}${at === gw ? '' : ' in a thread'}`
          agrees(t, await send(dialect, { style, stream, at }), { output: tokensOf(TEXT), source: 'estimated' }, name)
        }
      }
    }
  }
})

t.test('V6: also for a price of nothing', async (t) => {
  const free = await usageGateway(t, (received, dialect) => script(received, dialect), { isFree: true })
  for (const dialect of dialects) {
    for (const style of styles) {
      for (const stream of [true, false]) {
        script = (received) => answering(dialect, received, {})
        agrees(t, await send(dialect, { style, stream, at: free }), { output: tokensOf(TEXT), source: 'estimated' },
          `${dialect} for ${style}`)
      }
    }
  }
})

t.test('U2: a last report that repeats the input as zero does not change it', async (t) => {
  const start = { input_tokens: 1200, cache_read_input_tokens: 5000, cache_creation_input_tokens: 300,
    output_tokens: 1 }
  const zero = { input_tokens: 0, cache_read_input_tokens: 0, cache_creation_input_tokens: 0, output_tokens: 40 }
  for (const style of styles) {
    script = (received) => answering('messages', received, { start, finish: zero })
    agrees(t, await send('messages', { style }), { input: 6500, read: 5000, output: 40, source: 'provider' }, style)
    // A stream that nobody requested, collected.
    script = () => streamOf('messages', { start, finish: zero }).map(raw)
    agrees(t, await send('messages', { style, stream: false }),
      { input: 6500, read: 5000, output: 40, source: 'provider' }, `${style}, collected`)
    script = (received) => answering('messages', received, { start, finish: zero, after: { output_tokens: 0 } })
    agrees(t, await send('messages', { style }), { input: 6500, read: 5000, output: 40, source: 'provider' },
      `${style}, and the output`)
    script = (received) => answering('messages', received, {
      start: { input_tokens: 1200, cache_read_input_tokens: 0, cache_creation_input_tokens: 0, output_tokens: 1 },
      finish: { input_tokens: 0, cache_read_input_tokens: 1200, cache_creation_input_tokens: 0, output_tokens: 40 } })
    agrees(t, await send('messages', { style }), { input: 1200, read: 1200, output: 40, source: 'provider' },
      `${style}: a real move into the cache`)
  }
})

t.test('A13: usage reported in mid-stream counts, if the stream is cut or the client leaves', async (t) => {
  for (const dialect of dialects) {
    // `middle` is before the last words that the client gets.
    const begun = streamOf(dialect, { middle: counts(dialect, 1000, 5000) }).slice(0, 4).map(raw)
    for (const style of styles) {
      script = () => [begun, cut()]
      t.match(await send(dialect, { style }), { charged: { input: 0, output: 5000 } },
        `${dialect} for ${style}: cut by the upstream`)
      script = () => [begun, stall()]
      const { opening, textOf } = clientStyles[style]
      const result = await send(dialect, { style, how: { leaveAfter: opening + 2 } })
      t.equal(result.got.events.map(textOf).join(''), TEXT, 'it had all words')
      t.match(result, { charged: { input: 1000, output: 5000 } }, `${dialect} for ${style}: the client left`)
    }
    const small = streamOf(dialect, { middle: counts(dialect, 1000, 2) }).slice(0, 4).map(raw)
    script = () => [small, cut()]
    t.match(await send(dialect), { charged: { output: tokensOf(TEXT) }, source: 'estimated' },
      `${dialect}: less than what was delivered`)
    const huge = streamOf(dialect, { middle: counts(dialect, 1000, 500_000) }).slice(0, 4).map(raw)
    script = () => [huge, cut()]
    t.match(await send(dialect), { charged: { output: tokensOf(TEXT) }, source: 'estimated' },
      `${dialect}: more than the model can`)
  }
  script = () => [...streamOf('responses', {}).slice(0, 3).map(raw), raw(`data: ${JSON.stringify({
    type: 'response.failed', response: { status: 'failed', error: { code: 'server_error', message: 'x' },
      usage: counts('responses', 1000, 5000) } })}\n\n`)]
  t.match(await send('responses'), { charged: { input: 0, output: 5000 } }, 'with a failure')
})

const passes = (...iterations: readonly Json[]): Json => ({ input_tokens: 23_000, output_tokens: 1000,
  cache_read_input_tokens: 0, cache_creation_input_tokens: 0, iterations })

t.test('V5: passes that the totals leave out are charged, and logged', async (t) => {
  const compaction = { type: 'compaction', input_tokens: 180_000, output_tokens: 3500 }
  const last = { type: 'message', input_tokens: 23_000, output_tokens: 1000 }
  const advice = { type: 'advisor_message', model: 'other', input_tokens: 159_419, output_tokens: 7805 }
  for (const stream of [true, false]) {
    for (const style of ['chat', 'responses'] as const) {
      script = (received) => answering('messages', received, { finish: passes(compaction, last) })
      agrees(t, await send('messages', { style, stream }), { input: 203_000, output: 4500, source: 'provider' }, style)
    }
    const logged = gw.logged.length
    const { got, charged } = await send('messages', { stream })
    t.match(charged, { input: 203_000, output: 4500 })
    const usage = (got.body ?? got.events.find(({ event }) => event === 'message_delta')!.data)['usage']
    t.strictSame(usage, passes(compaction, last), 'a messages client gets both as they came')
    t.ok(gw.logged.slice(logged).some(({ msg }) => /passes that its totals leave out/.test(String(msg))))
    script = (received) => answering('messages', received, { finish: passes(last, advice) })
    agrees(t, await send('messages', { stream }), { input: 23_000, output: 1000, source: 'provider' },
      'another model has another price')
    script = (received) => answering('messages', received, { finish: passes() })
    agrees(t, await send('messages', { stream }), { input: 23_000, output: 1000, source: 'provider' }, 'no passes')
  }
})

t.test('V1: reasoning_tokens says where a vendor counts thoughts', async (t) => {
  const usage = { prompt_tokens: 61, completion_tokens: 100, total_tokens: 161,
    completion_tokens_details: { reasoning_tokens: 96 } }
  for (const stream of [true, false]) {
    script = (received) => answering('chat', received, { finish: usage })
    agrees(t, await send('chat', { stream }), { input: 61, output: 100, source: 'provider' }, 'its numbers decide')
    agrees(t, await send('chat', { stream, model: 'apart' }), { input: 61, output: 196, source: 'provider' }, 'apart')
  }
})

t.test('a zero is a zero where nothing was said, and an answer without words can be free', async (t) => {
  script = () => json({ ...parts.messages.reply(counts('messages', 0, 0)), content: [], stop_reason: 'refusal' })
  agrees(t, await send('messages', { stream: false }), { input: 0, output: 0, source: 'provider' }, 'a refusal')
})

// Behind the others: the gateway learns from it how long texts are.
t.test('U3: what only an absurd total shows is not believed, and the vendor\'s own count is', async (t) => {
  for (const dialect of dialects.filter((name) => name !== 'messages')) {
    for (const style of styles) {
      for (const stream of [true, false]) {
        for (const at of [gw, threaded]) {
          const said = counts(dialect, 1000, 200) as Readonly<Record<string, unknown>>
          script = (received) => answering(dialect, received, { finish: { ...said, total_tokens: 5_000_000 } })
          agrees(t, await send(dialect, { style, stream, at }), { input: 1000, output: 200, source: 'provider' },
            `${dialect} for ${style}, ${stream ? 'a stream' : 'JSON'}${at === gw ? '' : ' in a thread'}`)
        }
      }
    }
  }
})
