// What a stream says of the gateway's own accord where a plugin translates the client's style: the plugin's ping and
// the plugin's error in the place of the style's, wherever the stream is.
import t, { type Test } from 'tap'
import { client, errorOf, events, fate, namesOf, type Received } from '../support/client.ts'
import { gateway, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { answer, blockStart, cut, messageStart, status, textDelta, upstream, wait, type Script } from '../support/upstream.ts'

const streaming = { ...messagesRequest, stream: true } as const

/** Numbers its events. The header x-fault says what goes wrong, and where. */
const COUNTER = `
import { definePlugin, SseEvent } from 'model-gateway'

export default definePlugin({
  name: 'counter',
  create: () => ({
    onRequest (exchange) {
      const fault = exchange.received.headers['x-fault']
      let count = 0
      const say = (name: string, more = {}): SseEvent => SseEvent.of(name, { type: name, count: count++, ...more })
      let [marked, kept, isBack] = [0, 0, false]
      const settles = Promise.withResolvers<void>()
      let isSettling = false
      if (fault === 'settles late') exchange.onSettle(() => { isSettling = true; return settles.promise })
      exchange.ownEvents = {
        mark () { marked++; kept = count },
        takeBack () {
          if (fault === 'takeBack throws') throw new Error('a secret of the plugin')
          isBack = true
          count = kept
        },
        ping () {
          if (isSettling) settles.resolve()
          if (fault === 'ping throws') throw new Error('a secret of the plugin')
          return fault === 'no ping' ? undefined : [say('alive'), say('still_alive')]
        },
        fail (error, { body }) {
          if (fault === 'fail throws') throw new Error('a secret of the plugin')
          if (fault === 'fail gives junk') return ['failed'] as never
          return [say('failed', { row: error.row, isBack, marked, ...(body as object) })]
        }
      }
      if (fault === 'unsettled') exchange.onSettle(({ kind }) => { if (kind === 'completed') throw new Error('full') })
    },
    onStream: (exchange) => ({
      ready (event) {
        if (exchange.received.headers['x-fault'] === 'ready throws' && event.data.includes('late')) {
          throw new Error('a secret of the plugin')
        }
      },
      event (event) {
        const fault = exchange.received.headers['x-fault']
        if (fault === 'settles late' && event.data.includes('late')) throw new Error('a secret of the plugin')
        if ((fault === 'event throws' || fault === 'takeBack throws') && event.event === 'content_block_delta') {
          throw new Error('a secret of the plugin')
        }
        return event
      }
    })
  })
})
`

async function counting (t: Test, script: Script, timeouts = 'hold_head: 10s'): Promise<TestGateway> {
  const vendor = await upstream(t, script)
  const text = yaml([vendor.url], '', 'auth, { use: ./counter.ts }, channel-router, billing-meter, error-normalize')
  return await gateway(t, text.replace('hold_head: 10s', timeouts), { files: { 'counter.ts': COUNTER } })
}

/** The last event, which is an error as the plugin says it. */
function failure (t: Test, got: Received): Record<string, unknown> {
  t.ok(got.isWhole)
  const { event, data } = events(got.text).at(-1)!
  t.equal(event, 'failed')
  t.match(data, { error: { message: new RegExp(` Request ID: ${got.id}$`) } }, 'it is given the error as it was shaped')
  return data as Record<string, unknown>
}

const half: Script = [messageStart(), blockStart(0), textDelta(0, 'half')]

t.test('a silence: its events, its number going on', async (t) => {
  const pinged = Promise.withResolvers<void>()
  const own = await counting(t, [half, wait(pinged.promise), cut()], 'ping: 100ms')
  const call = client(t, own).post(streaming)
  await call.sees('"count":3')
  pinged.resolve()
  const got = await call.whole()
  t.match(namesOf(got.text), /^message_start content_block_start content_block_delta( alive still_alive){2,} failed$/)
  const numbers = [...got.text.matchAll(/"count":(\d+)/g)].map(([, n]) => Number(n))
  t.strictSame(numbers, numbers.map((_, i) => i))
})

t.test('before the answer, where the head was sent: the same, and an error that comes then', async (t) => {
  const pinged = Promise.withResolvers<void>()
  const own = await counting(t, [wait(pinged.promise), status(529)], 'hold_head: 50ms')
  const call = client(t, own).post(streaming)
  await call.sees('still_alive')
  pinged.resolve()
  const got = await call.whole()
  t.match(namesOf(got.text), /^(alive still_alive )+failed$/)
  t.match(failure(t, got), { row: 'model_overloaded', isBack: false })
  t.match(await fate(own, got.id), { line: { outcome: 'failed', code: 'model_overloaded' }, openHolds: 0 })
})

t.test('a cut: nothing is unsent; an error before the head is an answer of its own', async (t) => {
  const own = await counting(t, [half, cut()])
  const got = await client(t, own).post(streaming).whole()
  t.equal(namesOf(got.text), 'message_start content_block_start content_block_delta failed')
  t.match(failure(t, got), { row: 'upstream_stream_interrupted', isBack: false, marked: 3 })

  const refusing = await counting(t, [status(529)])
  const refused = await client(t, refusing).post(streaming).whole()
  t.equal(refused.status, 503)
  t.equal(errorOf(refused).code, 'model_overloaded')
})

t.test('an end that was made and never left: not settled, or thrown away by a plugin above', async (t) => {
  const own = await counting(t, answer('whole'))
  const { post } = client(t, own)
  const unsettled = await post(streaming, { 'x-fault': 'unsettled' }).whole()
  t.match(namesOf(unsettled.text), /content_block_stop message_delta failed$/, 'no message_stop')
  t.match(failure(t, unsettled), { row: 'server_error', isBack: true })

  const thrown = await post(streaming, { 'x-fault': 'event throws' }).whole()
  t.match(namesOf(thrown.text), /^message_start (ping )?content_block_start failed$/)
  t.match(failure(t, thrown), { row: 'server_error', isBack: true, marked: thrown.text.includes('ping') ? 4 : 3 })
})

t.test('a plugin that throws before an event, or while an answer is settled in a silence: no number comes twice', async (t) => {
  for (const fault of ['ready throws', 'settles late']) {
    const pinged = Promise.withResolvers<void>()
    const own = await counting(t, [...half, wait(pinged.promise), textDelta(0, 'late')], 'ping: 100ms')
    const call = client(t, own).post(streaming, { 'x-fault': fault })
    await call.sees('"count":1')
    pinged.resolve()
    const got = await call.whole()
    t.match(failure(t, got), { row: 'server_error', isBack: true })
    const numbers = [...got.text.matchAll(/"count":(\d+)/g)].map(([, n]) => Number(n))
    t.strictSame(numbers, numbers.map((_, i) => i), fault)
  }
  const own = await counting(t, half)
  const got = await client(t, own).post(streaming, { 'x-fault': 'takeBack throws' }).whole()
  t.match(failure(t, got), { row: 'server_error', isBack: false })
})

t.test('where the plugin has no ping, or throws, the style\'s own says it', async (t) => {
  for (const fault of ['no ping', 'ping throws']) {
    const pinged = Promise.withResolvers<void>()
    const own = await counting(t, [half, wait(pinged.promise), cut()], 'ping: 100ms')
    const call = client(t, own).post(streaming, { 'x-fault': fault })
    await call.sees('event: ping\ndata: {"type":"ping"}')
    pinged.resolve()
    t.match(failure(t, await call.whole()), { row: 'upstream_stream_interrupted', count: 0 })
    t.equal(own.logged.some(({ msg }) => msg === 'a plugin threw while it kept a stream open'), fault === 'ping throws')
  }
  for (const fault of ['fail throws', 'fail gives junk']) {
    const own = await counting(t, [half, cut()])
    const got = await client(t, own).post(streaming, { 'x-fault': fault }).whole()
    t.equal(namesOf(got.text), 'message_start content_block_start content_block_delta error')
    t.equal(errorOf(got).code, 'upstream_stream_interrupted')
    t.notMatch(got.text, 'secret')
    t.ok(own.logged.some(({ msg }) => msg === 'a plugin threw while it ended a stream with an error'))
  }
})
