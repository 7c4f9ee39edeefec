// What a gateway keeps in memory, and for how long: a process of its own, real connections, bytes counted by V8.
import path from 'node:path'
import t from 'tap'
import { startClosedLoop } from '../bench/load.ts'
import { toWire } from '../bench/payloads.ts'
import { type Call, client, errorOf, fate } from '../support/client.ts'
import { startProcess } from '../support/gateway-process.ts'
import { gateway, KEY, messagesRequest, type TestGateway, yaml } from '../support/gateway.ts'
import { ANSWER_NANOS } from '../support/resilience.ts'
import { folderFor } from '../support/spawned.ts'
import { until } from '../support/until.ts'
import { answer, raw, status, type Script, upstream, wait } from '../support/upstream.ts'

/**
 * Bytes of a request that may outlive it: its ledger line, its charge, and what happens to be under way while memory is
 * looked at.
 */
const BYTES_A_REQUEST = 1500
const REQUESTS = 4000

t.test('what a request made dies with it, in the young generation', async (t) => {
  const up = await upstream(t, answer('Hello.'))
  const file = path.join(folderFor(t, { 'gateway.yaml': yaml([up.url]) }), 'gateway.yaml')
  // The old generation may grow so far before it is collected: what is there at the end is all that came.
  const gw = await startProcess(t, file, ['--initial-old-space-size=1024'])
  const load = startClosedLoop(Number(new URL(gw.api).port),
    toWire('/v1/messages', JSON.stringify(messagesRequest), KEY), 32)
  await until(() => load.completed() >= REQUESTS)
  // Whatever lives now is old from here on, the table of a Set or a Map too.
  await gw.ask('heap')
  const before = await gw.ask('old')
  const from = load.completed()
  await until(() => load.completed() >= from + REQUESTS)
  const bytes = (await gw.ask('old') - before) / (load.completed() - from)
  await load.stop()
  t.comment(`${Math.round(bytes)} bytes a request became old`)
  t.ok(bytes < BYTES_A_REQUEST, `${Math.round(bytes)} bytes a request became old, of at most ${BYTES_A_REQUEST}`)
})

const MEGABYTE = 1024 * 1024
/** Most bytes of free memory that the threads of large answers share. */
const POOL = 32 * MEGABYTE
const json = { 'content-type': 'application/json' }

/** A whole answer that says so many bytes. */
function saying (bytes: number): string {
  return JSON.stringify({
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: 'vendor-m1',
    content: [{ type: 'text', text: 'word '.repeat(bytes / 5) }],
    stop_reason: 'end_turn',
    stop_sequence: null,
    usage: { input_tokens: 10, output_tokens: 5 }
  })
}

function isWhole (body: unknown, bytes: number): boolean {
  return (body as { content: { text: string }[] }).content[0]!.text === 'word '.repeat(bytes / 5)
}

t.test('answers that nobody reads wait on disk: the process needs memory for none of them, and each client gets its own in the end', async (t) => {
  const [clients, bytes] = [8, 10 * MEGABYTE]
  const all = Promise.withResolvers<void>()
  const up = await upstream(t, async () => {
    if (up.requests.length === clients) all.resolve()
    await all.promise // while those that are there fill the memory, nobody new is asked
    return [status(200, json), raw(saying(bytes))]
  })
  const file = path.join(folderFor(t, { 'gateway.yaml': yaml([up.url]) }), 'gateway.yaml')
  // All at once would need more than twice that heap.
  const gw = await startProcess(t, file, ['--max-old-space-size=96'])
  const before = await gw.ask('memory')
  const calls = Array.from({ length: clients }, () => client(t, { url: gw.api }).post(messagesRequest))
  for (const call of calls) await call.stopReading()
  // Their stall is a minute: none of them is given up meanwhile. Beside them is what is kept for answers to come.
  let kept = Infinity
  while (kept > clients * MEGABYTE + POOL) kept = await gw.ask('memory') - before
  t.comment(`${Math.round(kept / clients / 1024)} KB for each answer of ${bytes / MEGABYTE} MB that nobody reads`)
  for (const call of calls) {
    await call.resume()
    const { status: code, json: body } = await call.whole()
    t.equal(code, 200)
    t.ok(isWhole(body, bytes))
  }
  const lines = await gw.until(() => {
    const all = gw.logged.filter(({ msg }) => msg === 'request')
    return all.length === clients ? all : undefined
  })
  for (const line of lines) { t.match(line, { outcome: 'completed', attempts: 1 }) }
  t.equal(up.requests.length, clients)
})

t.test('beyond answer_memory nobody new is asked for an answer, and those that come wait', async (t) => {
  const bytes = 4 * MEGABYTE
  const text = saying(bytes)
  const held = Promise.withResolvers<void>()
  const both = Promise.withResolvers<void>()
  const scripts: Script[] = [
    [
      status(200, json), wait(both.promise), raw(text.slice(0, 3 * MEGABYTE)), wait(held.promise),
      raw(text.slice(3 * MEGABYTE))
    ],
    [status(200, json), raw(text)]
  ]
  const begun = Promise.withResolvers<void>()
  const up = await upstream(t, async () => {
    const script = scripts.shift()!
    if (scripts.length === 0) await begun.promise
    return script
  })
  const gw = await gateway(t, yaml([up.url]).replace('drain_timeout: 5s', 'drain_timeout: 5s\n  answer_memory: 2MB'))
  const { answers } = gw.services.upstreams
  const first = client(t, gw).post(messagesRequest)
  await up.nextRequest()
  const second = client(t, gw).post(messagesRequest)
  await up.nextRequest()
  both.resolve()
  // The oldest goes on beyond the limit: nothing else would ever end.
  await until(() => answers.used > 2.9 * MEGABYTE)
  begun.resolve()
  const alone = answers.used
  await t.test('a new one is 503 with Retry-After, and costs nothing', async (t) => {
    const got = await client(t, gw).post(messagesRequest).whole()
    t.strictSame([got.status, errorOf(got).code, errorOf(got).charged], [503, 'service_unavailable', '0'])
    t.match(got.headers['retry-after'], /^[1-9]\d?$/)
    t.match(await fate(gw, got.id), { entries: [], line: { attempts: 0 }, openHolds: 2 })
    t.equal(up.requests.length, 2, 'the upstream was not asked')
  })
  await t.test('a stream needs none of it', async (t) => {
    scripts.push([status(200, { 'content-type': 'text/event-stream' }), answer('Hi')])
    const got = await client(t, gw).post({ ...messagesRequest, stream: true }).whole()
    t.equal(got.status, 200)
    t.match(got.text, /message_stop/)
  })
  await until(() => answers.used > alone)
  t.ok(answers.used < alone + MEGABYTE, 'of the second only what was on its way')
  held.resolve()
  for (const call of [first, second] as readonly Call[]) {
    const got = await call.whole()
    t.equal(got.status, 200)
    t.ok(isWhole(got.json, bytes))
    t.match(await fate(gw, got.id), { charged: ANSWER_NANOS, line: { outcome: 'completed', attempts: 1 } })
  }
  await until(() => answers.used === 0)
  await isGivenBack(gw, t)
})

t.test('many answers at once, of all sizes, pass through a memory that holds few of them: each is whole in the end', async (t) => {
  const sizes = Array.from({ length: 30 }, (_, i) => 50_000 * (1 + i * 37 % 60))
  const all = Promise.withResolvers<void>()
  const up = await upstream(t, async ({ body }) => {
    if (up.requests.length === sizes.length) all.resolve()
    await all.promise // while one is there already that fills it, nobody new is asked
    return [status(200, json), raw(saying(sizes[(body as typeof messagesRequest).max_tokens - 1]!))]
  })
  const gw = await gateway(t, yaml([up.url]).replace('drain_timeout: 5s', 'drain_timeout: 5s\n  answer_memory: 4MB'))
  const calls = sizes.map((_, i) => client(t, gw).post({ ...messagesRequest, max_tokens: i + 1 }))
  for (const [i, call] of calls.entries()) {
    const got = await call.whole()
    t.equal(got.status, 200)
    t.ok(isWhole(got.json, sizes[i]!))
  }
  await until(() => gw.services.upstreams.answers.used === 0)
  await isGivenBack(gw, t)
})

/** What is cut, and what is left, gives back what it had. */
async function isGivenBack (
  gw: TestGateway,
  t: { equal(found: unknown, wanted: unknown, message: string): unknown }
): Promise<void> {
  t.equal(await gw.services.store.openHolds(), 0, 'no hold is left')
  t.equal(gw.services.temporary.used, 0, 'nothing is left on disk')
}

t.test('what breaks off, or is left, gives its memory back', async (t) => {
  const text = saying(4 * MEGABYTE)
  const script: Script = [status(200, json), raw(text.slice(0, 2 * MEGABYTE)), wait(new Promise(() => {}))]
  const up = await upstream(t, script)
  const gw = await gateway(t, yaml([up.url]).replace('drain_timeout: 5s', 'drain_timeout: 5s\n  answer_memory: 3MB'))
  const { answers } = gw.services.upstreams
  const left = client(t, gw).post(messagesRequest)
  await until(() => answers.used > 1.9 * MEGABYTE)
  left.leave()
  await until(() => answers.used === 0)
  await until(() => gw.logged.find(({ msg, outcome }) => msg === 'request' && outcome === 'failed'))
  await isGivenBack(gw, t)
})
