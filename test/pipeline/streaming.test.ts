// Streams over real sockets: the same bytes however they came, nothing kept back, nothing lost, and an end for every
// way to break.
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { createHash } from 'node:crypto'
import type { Socket } from 'node:net'
import { setImmediate, setTimeout as pause } from 'node:timers/promises'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { formatUsd } from '../../src/money/nanos.ts'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { connectionsOf } from '../../src/upstream/pool.ts'
import { client, errorOf, events, fate, namesOf, nextFate, said, type Received } from '../support/client.ts'
import { gateway, messagesRequest, withCase, yaml } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, blockStart, blockStop, bytes, cut, end, errorEvent, eventBytes, json, message, messageEnd,
  messageStart, messageStop, ping, raw, refusing, sse, stall, status, step, textBlock, textDelta, upstream, wait,
  type Script } from '../support/upstream.ts'

const streaming = { ...messagesRequest, stream: true } as const
/** An unknown field of the body passes, so that a script can see which case it plays. */
const playing = (name: string): object => ({ ...streaming, case: name })

/** The shipped pipeline in front of these upstreams. */
const config = (urls: readonly string[], api = '', upstreamTimeouts = ''): string =>
  withCase(yaml(urls))
    .replace('hold_head: 10s', api === '' ? 'hold_head: 10s' : api)
    .replaceAll('dialect: messages,',
      upstreamTimeouts === '' ? 'dialect: messages,' : `dialect: messages, timeouts: { ${upstreamTimeouts} },`)

/** message_start as the client must see it: with the public id. */
const publicStart = eventBytes('message_start', { type: 'message_start',
  message: { id: 'msg_upstream', type: 'message', role: 'assistant', model: 'm1', content: [], stop_reason: null,
    stop_sequence: null,
    usage: { input_tokens: 10, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 1 } } })
const vendorStart = Buffer.from(publicStart.toString().replace('"m1"', '"upstream-model"'))
const opening: Script = [messageStart(), blockStart(0)]
const closing: Script = [blockStop(0), messageEnd()]

function isTold (t: Test, got: Received, code: string): void {
  const error = errorOf(got)
  t.equal(got.status, 200)
  t.ok(got.isWhole, 'the body ends properly')
  t.equal(error.code, code)
  t.equal(error.id, got.id, 'the id of the head')
  t.ok(error.message.endsWith(` Request ID: ${got.id}`), error.message)
  t.notMatch(got.text, 'message_stop')
}

t.test('however the bytes of a stream are cut and its lines are ended, the client gets the same bytes, but for signatures', async (t) => {
  const body = Buffer.concat([
    eventBytes('ping', { type: 'ping' }),
    eventBytes('content_block_start', { type: 'content_block_start', index: 0,
      content_block: { type: 'thinking', thinking: '', signature: '' } }),
    eventBytes('content_block_delta',
      '{"type": "content_block_delta",  "index":0, "delta":{"thinking":"é, 😀 \\u00e9 日本","type":"thinking_delta"}}'),
    eventBytes('future_event', '{"type":"future_event","n":1.50,"big":12345678901234567890}'),
    eventBytes('content_block_delta', { type: 'content_block_delta', index: 0,
      delta: { type: 'signature_delta', signature: 'EqQB+/=' } }),
    eventBytes('content_block_stop', { type: 'content_block_stop', index: 0 }),
    eventBytes('message_delta', { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: 5 } }),
    eventBytes('message_stop', { type: 'message_stop' })
  ])
  const whole = Buffer.concat([vendorStart, body])
  const expected = Buffer.concat([publicStart, body]).toString()
  const lines = (ending: string): Buffer => Buffer.from(whole.toString().replaceAll('\n', ending))
  const emoji = whole.indexOf(Buffer.from('😀'))

  const forms: Readonly<Record<string, readonly Uint8Array[]>> = {
    whole: [whole],
    'byte by byte': [...whole].map((byte) => Buffer.of(byte)),
    'cut inside a UTF-8 character': [whole.subarray(0, emoji + 2), whole.subarray(emoji + 2)],
    'CRLF': [lines('\r\n')],
    'CRLF, cut between the two': lines('\r\n').toString().split(/(?<=\r)/).map((part) => Buffer.from(part)),
    'CR': [lines('\r')],
    'CR, byte by byte': [...lines('\r')].map((byte) => Buffer.of(byte)),
    'a byte order mark': [Buffer.of(0xEF, 0xBB, 0xBF), whole],
    'a byte order mark, cut': [Buffer.of(0xEF), Buffer.of(0xBB, 0xBF, ...whole)],
    'no event lines: named from the data': [Buffer.from(whole.toString().replaceAll(/^event: .*\n/gm, ''))],
    'no space behind the colons': [Buffer.from(whole.toString().replaceAll(/^(event|data): /gm, '$1:'))],
    'comments, ids, retry times and blank lines': [
      Buffer.from(': hello\n\n' + whole.toString().replaceAll('\n\n', '\nid: 7\nretry: 10\n: keep-alive\n\n\n'))
    ]
  }
  let cuts: readonly Uint8Array[] = []
  const up = await upstream(t,
    ({ body }) => [(forms[String(body?.['case'])] ?? cuts).map((part) => [raw(part), step(() => setImmediate())])])
  const own = await gateway(t, config([up.url]))
  const { post } = client(t, own)

  const opened = (text: string): string => text.replaceAll(/gwseal1_[\w-]+/g, (sealed) =>
    (JSON.parse(own.services.seals.open('thinking', 'acme', sealed)!) as string[]).at(-1)!
  )

  for (const form of Object.keys(forms)) {
    await t.test(form, async (t) => {
      const got = await post(playing(form)).whole()
      t.notMatch(got.text, 'EqQB')
      t.equal(opened(got.text), expected)
      t.ok(got.isWhole)
    })
  }
  await t.test('cut anywhere', async () => {
    const places = fc.array(fc.nat(whole.length), { maxLength: 12 })
    await fc.assert(fc.asyncProperty(places, fc.constantFrom('\n', '\r\n', '\r'), async (at, ending) => {
      const all = lines(ending)
      const sorted = [0, ...at.toSorted((a, b) => a - b), all.length]
      cuts = sorted.slice(1).map((to, i) => all.subarray(sorted[i], to)).filter((part) => part.length > 0)
      const { text } = await post(playing('cuts')).whole()
      return opened(text) === expected
    }), { numRuns: 40 })
  })
})

const TIMING = /^queue;dur=0, upstream;dur=\d+(\.\d{1,3})?, own;dur=\d+(\.\d{1,3})?$/

t.test('the head of a stream keeps proxies from holding it back, and has nothing of the upstream\'s', async (t) => {
  const vendor = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0 })
  t.teardown(() => vendor.close())
  const own = await gateway(t, config([vendor.url]))
  const { post } = client(t, own)
  const got = await post(streaming).whole()
  const { date: _date, 'keep-alive': _time, 'x-request-id': id, 'request-id': sameId, 'server-timing': timing,
    ...headers } = got.headers
  t.match(timing, TIMING)
  t.strictSame(headers, {
    'x-gateway-config-generation': '1',
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache, no-transform',
    'x-accel-buffering': 'no',
    connection: 'keep-alive',
    'transfer-encoding': 'chunked'
  })
  t.match(id, /^req_[0-9A-Za-z]{24}$/)
  t.equal(sameId, id)
  const whole = post(messagesRequest)
  const {
    date: _,
    'keep-alive': __,
    'x-request-id': ___,
    'request-id': ____,
    'content-length': length,
    'x-gateway-cost-usd': _____,
    'server-timing': jsonTiming,
    ...jsonHeaders
  } = (await whole.whole()).headers
  t.strictSame(jsonHeaders, { 'x-gateway-config-generation': '1', 'content-type': 'application/json',
    'cache-control': 'no-store', connection: 'keep-alive' })
  t.match(length, /^\d+$/)
  t.match(jsonTiming, TIMING)
  t.ok(whole.isReused, 'over the same connection')
})

t.test('each event reaches the client before the upstream sends the next', async (t) => {
  const said = Array.from({ length: 3 }, () => Promise.withResolvers<void>())
  const up = await upstream(
    t, [opening, said.map(({ promise }, i) => [textDelta(0, `piece ${i}`), wait(promise)]), closing]
  )
  const call = client(t, await gateway(t, config([up.url]))).post(streaming)
  for (const [i, { resolve }] of said.entries()) {
    await call.sees(`piece ${i}`)
    t.notMatch(call.soFar, `piece ${i + 1}`)
    resolve()
  }
  t.ok((await call.whole()).isWhole)
})

t.test('pings', async (t) => {
  const ours = 'event: ping\ndata: {"type":"ping"}\n\n'

  await t.test('ours come in silence, again and again, only between events; the upstream\'s pass', async (t) => {
    const pinged = Promise.withResolvers<void>()
    const half = eventBytes('content_block_delta', { type: 'content_block_delta', index: 0,
      delta: { type: 'text_delta', text: 'half' } })
    const up = await upstream(
      t,
      [
        opening, ping(), textDelta(0, 'a'), raw(half.subarray(0, 60)), wait(pinged.promise), raw(half.subarray(60)),
        closing
      ]
    )
    const own = await gateway(t, config([up.url], 'ping: 500ms'))
    const call = client(t, own).post(streaming)
    await call.sees(ours.repeat(3))
    pinged.resolve()
    const got = await call.whole()
    t.match(namesOf(got.text),
      /^message_start content_block_start ping content_block_delta( ping){3,} content_block_delta content_block_stop message_delta message_stop$/)
    t.equal(said(got.text), 'ahalf')
    t.match(got.text, publicStart.toString() +
      eventBytes('content_block_start', { type: 'content_block_start', index: 0,
        content_block: { type: 'text', text: '' } }).toString() +
      ours, 'the upstream\'s is where it was')
  })

  await t.test('hold_head: without a commit the client gets the head and a ping, and a late success streams whole', async (t) => {
    const pinged = Promise.withResolvers<void>()
    const up = await upstream(t, [wait(pinged.promise), answer('late')])
    const own = await gateway(t, config([up.url], 'hold_head: 50ms'))
    const call = client(t, own).post(streaming)
    await call.sees(ours)
    t.equal(call.soFar, ours)
    pinged.resolve()
    const got = await call.whole()
    t.equal(got.status, 200)
    t.equal(namesOf(got.text),
      'ping message_start ping content_block_start content_block_delta content_block_stop message_delta message_stop')
    t.match(await fate(own, got.id), { line: { outcome: 'completed' }, charged: 10n * 3000n + 5n * 15000n,
      openHolds: 0 })
  })

  await t.test('hold_head: a late failure is in-band, and costs nothing', async (t) => {
    const pinged = Promise.withResolvers<void>()
    const up = await upstream(t, [wait(pinged.promise), status(529, { 'content-type': 'text/plain' })])
    const own = await gateway(t, config([up.url], 'hold_head: 50ms'))
    const { post } = client(t, own)
    const call = post(streaming)
    await call.sees(ours)
    pinged.resolve()
    const got = await call.whole()
    isTold(t, got, 'model_overloaded')
    t.match(errorOf(got), { charged: '0', type: 'overloaded_error' })
    t.match(await fate(own, got.id), { line: { outcome: 'failed', code: 'model_overloaded', attempts: 1 },
      entries: { length: 0 }, openHolds: 0 })
    const next = post(messagesRequest)
    await next.whole()
    t.ok(next.isReused)
  })

  await t.test('hold_head: the failover works behind the head', async (t) => {
    const pinged = Promise.withResolvers<void>()
    const first = await upstream(t, [messageStart({ id: 'msg_of_the_first' }), wait(pinged.promise), cut()])
    const second = await upstream(t, answer('second'))
    const own = await gateway(t, config([first.url, second.url], 'hold_head: 50ms'))
    const call = client(t, own).post(streaming)
    await call.sees(ours)
    pinged.resolve()
    const got = await call.whole()
    t.match(namesOf(got.text),
      /^(ping )+message_start ping content_block_start content_block_delta content_block_stop message_delta message_stop$/)
    t.notMatch(got.text, 'msg_of_the_first')
    t.match(await fate(own, got.id), { line: { outcome: 'completed', attempts: 2, upstream: 'u1' }, openHolds: 0 })
  })
})

t.test('a slow client', async (t) => {
  const piece = 'x'.repeat(20_000)
  const count = 1000                                          // 20 MB
  const body = Buffer.concat([
    blockStartBytes(), ...Array.from({ length: count }, (_, i) => delta(`${i} ${piece}`)),
    eventBytes('content_block_stop', { type: 'content_block_stop', index: 0 }),
    eventBytes('message_delta', { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: 5 } })
  ])
  const expected = createHash('sha256').update(publicStart).update(body).update(
    eventBytes('message_stop', { type: 'message_stop' })
  ).digest('hex')

  /** Five million tokens, as they are estimated, are less than twice this. */
  const asking = { ...streaming, max_tokens: 4_000_000 }
  const large: typeof config = (...of) => config(...of).replace('max_output: 64000', 'max_output: 4000000')

  /** Writes as fast as it may; tells how much was taken. */
  let written = 0
  const pour = step(async ({ response, gone }) => {
    written = 0
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write(vendorStart)
    for (let at = 0; at < body.length; at += 100_000) {
      if (gone.aborted) return
      if (!response.write(body.subarray(at, at + 100_000))) {
        await once(response, 'drain', { signal: gone }).catch(() => {})
      }
      written = Math.min(body.length, at + 100_000)
    }
  })
  /** Nothing moves any more: kernels, which buffer megabytes, have all they take. */
  const stopped = async (): Promise<number> => {
    for (let before = -1, same = 0; same < 200; await setImmediate()) {
      same = written > 0 && written === before ? same + 1 : 0
      before = written
    }
    return written
  }

  // Where tokens are paid, each hold in between stops the upstream as well; what is free, its client alone.
  for (const [what, price] of [['paid', '$&'], ['free', 'price: free']] as const) {
    await t.test(`that reads nothing stops the upstream; when it goes on, nothing is lost (${what})`, async (t) => {
      written = 0
      const up = await upstream(t, [pour, messageStop()])
      const own = await gateway(t, large([up.url]).replace(/price: \{.*\}/, price))
      const { post } = client(t, own)
      const call = post(asking)
      await call.stopReading()
      const taken = await stopped()
      t.ok(taken < body.length, `${taken} of ${body.length} bytes were taken`)
      await call.resume()
      const got = await call.whole()
      t.equal(createHash('sha256').update(got.bytes).digest('hex'), expected)
      const next = post({ ...messagesRequest, stream: true })
      await next.sees('message_start')
      t.ok(next.isReused)
      next.leave()
    })
  }

  await t.test('that takes nothing for write_stall has left: the upstream is let go, what was produced is paid', async (t) => {
    const up = await upstream(t, [pour, messageStop()])
    const own = await gateway(t, large([up.url], 'write_stall: 100ms'))
    const call = client(t, own).post(asking)
    await call.stopReading()
    t.equal(await (await up.nextRequest()).closed, 'left')
    const got = await fate(own, String((await call.head).headers['x-request-id']))
    t.match(got, { line: { outcome: 'interrupted', by: 'client', code: 'client_closed' }, entries: [{ kind: 'settle' }],
      openHolds: 0 })
    t.ok(got.charged > 0n)
  })

  await t.test('that reads slowly, but reads, is not left', async (t) => {
    const up = await upstream(t, [pour, messageStop()])
    const own = await gateway(t, large([up.url], 'write_stall: 5s'))
    const call = client(t, own).post(asking)
    const response = await call.head
    response.on('data', () => {
      response.pause()
      void Promise.all(Array.from({ length: 3 }, () => setImmediate())).then(() => { response.resume() })
    })
    const got = await call.whole()
    t.equal(createHash('sha256').update(got.bytes).digest('hex'), expected)
  })

  function blockStartBytes (): Buffer {
    return eventBytes('content_block_start', { type: 'content_block_start', index: 0,
      content_block: { type: 'text', text: '' } })
  }
  function delta (text: string): Buffer {
    return eventBytes('content_block_delta', { type: 'content_block_delta', index: 0,
      delta: { type: 'text_delta', text } })
  }
})

t.test('an answer that ends while its client takes nothing leaves no upstream connection behind', async (t) => {
  // A socket that gathers what is written stands in for a client with a small window: kernels take megabytes.
  const sockets: Socket[] = []
  const onConnection = (message: unknown): void => {
    const { socket } = message as { readonly socket: Socket }
    if (socket.localPort !== port) return
    socket.cork()
    // The end of an answer would flush it.
    Object.assign(socket, { uncork: () => {} })
    sockets.push(socket)
  }
  const rest = Promise.withResolvers<void>()
  // The end fills the socket (64 KB): in the chunk that fills it, or in the one that comes before the pause is heard.
  const fills = Buffer.concat([
    eventBytes('content_block_delta',
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'x'.repeat(36_000) } }),
    eventBytes('message_delta', { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: 5 } }),
    eventBytes('message_stop', { type: 'message_stop' })
  ])
  const up = await upstream(
    t, [messageStart(), textDelta(0, 'x'.repeat(30_000)), wait(rest.promise), raw(fills)]
  )
  const own = await gateway(t, config([up.url]))
  const port = Number(new URL(own.url).port)
  subscribe('net.server.socket', onConnection)
  t.teardown(() => { unsubscribe('net.server.socket', onConnection) })
  const call = client(t, own).post({ ...streaming, max_tokens: 20_000 })
  const connections = connectionsOf(own.live.current().upstreams.get('u0')!)
  await up.nextRequest()
  await until(() => sockets[0]!.writableLength > 30_000)
  rest.resolve()
  await until(() => connections.stats.running === 0)
  t.ok(sockets[0]!.writableNeedDrain, 'the client has taken nothing yet')
  Reflect.deleteProperty(sockets[0]!, 'uncork')
  while (sockets[0]!.writableCorked > 0) sockets[0]!.uncork()
  t.match((await call.whole()).text, /event: message_stop/)
})

t.test('a client that leaves ends the upstream call at once', async (t) => {
  const cases: Readonly<
    Record<string,
      { readonly script: Script, readonly until?: string, readonly outcome: string, readonly charged: bigint }>
  > = {
    'before the head': { script: stall(), outcome: 'failed', charged: 0n },
    'before the commit': { script: [opening, stall()], outcome: 'failed', charged: 0n },
    // input as reported, and the output produced: what the upstream reported (1) or was delivered, whichever is more
    'mid-stream': { script: [opening, textDelta(0, 'Hello'), stall()], until: 'Hello', outcome: 'interrupted',
      charged: 10n * 3000n + 1n * 15000n }
  }
  const up = await upstream(t, ({ body }) => cases[String(body?.['case'])]!.script)
  const own = await gateway(t, config([up.url]))
  for (const [name, { until: seen, outcome, charged }] of Object.entries(cases)) {
    await t.test(name, async (t) => {
      const next = nextFate(own)
      const call = client(t, own).post(playing(name))
      const request = await up.nextRequest()
      if (seen !== undefined) await call.sees(seen)
      call.leave()
      t.equal(await request.closed, 'left')
      const got = await next()
      t.match(got, {
        line: { outcome, code: 'client_closed', attempts: 1, ...(outcome === 'interrupted' && { by: 'client' }) },
        openHolds: 0
      })
      t.equal(got.charged, charged)
    })
  }
  await t.test('also before a JSON answer', async (t) => {
    const next = nextFate(own)
    const call = client(t, own).post({ ...messagesRequest, case: 'before the head' })
    const request = await up.nextRequest()
    call.leave()
    t.equal(await request.closed, 'left')
    t.match(await next(), { line: { outcome: 'failed', code: 'client_closed' }, charged: 0n, openHolds: 0 })
  })
})

t.test('a stream that says nothing but that somebody is there ends at first_byte; behind its first event it may take its time', async (t) => {
  /** Again and again, until it is left. */
  const repeating = (bytes: string): Script =>
    step(async ({ response, gone }) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      while (!gone.aborted) {
        response.write(bytes)
        await pause(5)
      }
    })
  const noise = { comments: ': keepalive\n\n', 'blank lines': '\n', pings: 'event: ping\ndata: {"type":"ping"}\n\n',
    'half a comment': ': and so on' }
  let script: Script = []
  const up = await upstream(t, () => script)
  const spare = await upstream(t, answer('from the spare'))
  const backed = await gateway(t,
    config([up.url, spare.url]).replace('dialect: messages,',
      'dialect: messages, timeouts: { first_byte: 300ms, idle: 100s },'))
  const chat = await gateway(t,
    config([up.url]).replace(/dialect: messages,.*fields: \[case\] \},/,
      'dialect: chat, timeouts: { first_byte: 300ms, idle: 100s },'))
  for (const [name, bytes] of Object.entries(noise)) {
    await t.test(name, async (t) => {
      script = repeating(bytes)
      backed.heal()
      const got = await client(t, backed).post(streaming).whole()
      t.equal(said(got.text), 'from the spare')
      if (name === 'pings') return
      chat.heal()
      const alone = await client(t, chat).post(streaming).whole()
      t.equal(errorOf(alone).code, 'server_error')
      t.match(await fate(chat, alone.id), { line: { cause: /first_byte_timeout/ }, charged: 0n, openHolds: 0 })
      for (const { closed } of up.requests) t.equal(await closed, 'left')
    })
  }
  await t.test('behind the first event', async (t) => {
    script = [messageStart(), step(async ({ response }) => {
      for (let i = 0; i < 80; i++) {
        response.write(noise.comments)
        await pause(10)
      }
    }), textBlock(0, 'late'), messageEnd()]
    backed.heal()
    t.equal(said((await client(t, backed).post(streaming).whole()).text), 'late')
  })
})

t.test('a stream that breaks after the commit ends in-band, and costs what was produced', async (t) => {
  const begun: Script = [opening, textDelta(0, 'one two three')]
  const cases: Readonly<Record<string, { readonly script: Script, readonly code: string, readonly type?: RegExp }>> = {
    'the upstream cuts the connection': { script: cut(), code: 'upstream_stream_interrupted' },
    'the upstream cuts in the middle of an event': {
      script: [raw('event: content_block_delta\ndata: {"type":"conte'), cut()],
      code: 'upstream_stream_interrupted'
    },
    'a clean end without message_stop': { script: end(), code: 'stream_incomplete' },
    'a clean end in the middle of an event': {
      script: [raw('event: message_stop\ndata: {"type":"message_stop"}\n'), end()],
      code: 'stream_incomplete'
    },
    'an error event': { script: errorEvent('api_error', 'Internal sk-ant-secret'),
      code: 'upstream_stream_interrupted' },
    // Claude Code looks for the literal "overloaded_error"
    'an error event that says overloaded': { script: errorEvent(), code: 'upstream_stream_interrupted',
      type: /^overloaded_error$/ },
    'an error event without its line': {
      script: raw('data: {"type":"error","error":{"type":"api_error","message":"x"}}\n\n'),
      code: 'upstream_stream_interrupted'
    },
    'a delta that is not JSON': {
      script: [raw('event: content_block_delta\ndata: {"type":"content_block_delta","del\n\n'), closing],
      code: 'upstream_stream_interrupted'
    },
    'another event that is not JSON': { script: [raw('event: content_block_stop\ndata: oops\n\n'), closing],
      code: 'upstream_stream_interrupted' },
    'an event that holds no object': { script: [raw('event: content_block_stop\ndata: 7\n\n'), closing],
      code: 'upstream_stream_interrupted' },
    'an event without a name that is not JSON': { script: [raw('data: [DONE]\n\n'), closing],
      code: 'upstream_stream_interrupted' },
    'bytes that are not HTTP': { script: bytes('zzzz\r\n\r\n'), code: 'upstream_stream_interrupted' },
    'silence': { script: stall(), code: 'upstream_stream_interrupted' }
  }
  const up = await upstream(t,
    ({ body }) => body?.['case'] === undefined ? answer('fine') : [begun, cases[String(body['case'])]!.script])
  const own = await gateway(t, config([up.url], '', 'idle: 1s'))
  const { post } = client(t, own)
  for (const [name, { code, type = /^api_error$/ }] of Object.entries(cases)) {
    await t.test(name, async (t) => {
      const got = await post(playing(name)).whole()
      isTold(t, got, code)
      t.match(errorOf(got).type, type)
      t.match(namesOf(got.text), /^message_start content_block_start content_block_delta error$/)
      t.equal(said(got.text), 'one two three')
      t.notMatch(got.text, /sk-ant|Internal/)
      const { line, entries, charged, openHolds } = await fate(own, got.id)
      t.match(line, { outcome: 'interrupted', by: 'upstream', code, attempts: 1 })
      t.equal(entries.length, 1)
      t.equal(charged, 3n * 15000n, 'three tokens of output, no input')
      t.equal(errorOf(got).charged, formatUsd(charged))
      t.equal(openHolds, 0)
      const next = post(streaming)
      t.equal(said((await next.whole()).text), 'fine')
      t.ok(next.isReused, 'the connection to the client is as good as before')
    })
  }
})

t.test('what comes before the commit waits', async (t) => {
  const padding: Script = Array.from({ length: 70 },
    (_, i) => sse('future_event', { type: 'future_event', i, padding: 'x'.repeat(1000) }))
  const seen = Promise.withResolvers<void>()
  const up = await upstream(t, ({ body }) => {
    switch (body?.['case']) {
      case 'much': return [messageStart(), padding, wait(seen.promise), answerEnd()]
      case 'much, then cut': return [messageStart(), padding, wait(seen.promise), cut()]
      default: return [messageStart(), padding.slice(0, 20), cut()]
    }
  })
  const other = await upstream(t, answer('second'))
  const own = await gateway(t, config([up.url, other.url]))
  const { post } = client(t, own)
  function answerEnd (): Script { return [blockStart(0), textDelta(0, 'done'), closing] }

  await t.test('64 KiB of it are the limit: then it is the client\'s', async (t) => {
    const call = post(playing('much'))
    await call.sees('"i":60')
    seen.resolve()
    const got = await call.whole()
    t.equal(events(got.text).length, 71 + 5)
    t.equal(said(got.text), 'done')
  })
  await t.test('after that there is no failover', async (t) => {
    isTold(t, await post(playing('much, then cut')).whole(), 'upstream_stream_interrupted')
    t.equal(other.requests.length, 0)
  })
  await t.test('less of it is forgotten with its attempt', async (t) => {
    const got = await post(playing('little')).whole()
    t.equal(said(got.text), 'second')
    t.notMatch(got.text, 'future_event')
  })
})

t.test('JSON answers', async (t) => {
  const large = 'é😀'.repeat(500_000) // 3 MB on the wire
  const odd = {
    ...message('hi', {
      usage: { input_tokens: 7, output_tokens: 3, cache_read_input_tokens: 11, cache_creation_input_tokens: 13,
        cache_creation: { ephemeral_5m_input_tokens: 13, ephemeral_1h_input_tokens: 0 } }
    }),
    future: { deep: [1, 2.5, null, 'é\u2028 </script>'], '': 0 },
    container: null
  }
  const up = await upstream(t, ({ body }) =>
    body?.['case'] === 'large'
      ? json(message(large))
      : body?.['case'] === 'stalled'
      ? json(message(large.repeat(8)))
      : json(odd))
  const own = await gateway(t, config([up.url], 'write_stall: 2s'))
  const { post } = client(t, own)

  await t.test('every field passes, unknown ones too, in their order; the model is the public id; the price is exact', async (t) => {
    const got = await post(messagesRequest).whole()
    t.equal(got.text, JSON.stringify({ ...odd, model: 'm1' }))
    const { charged, entries } = await fate(own, got.id)
    t.equal(charged, 7n * 3000n + 3n * 15000n + 11n * 300n + 13n * 3750n)
    t.equal(entries.length, 1)
    t.equal(got.headers['x-gateway-cost-usd'], formatUsd(charged))
  })
  await t.test('one of megabytes is whole', async (t) => {
    const call = post({ ...messagesRequest, case: 'large' })
    const got = await call.whole()
    t.ok(got.isWhole)
    t.equal(got.text, JSON.stringify({ ...message(large), model: 'm1' }))
    t.ok(call.isReused)
  })
  await t.test('also for a client that reads slowly', async (t) => {
    const call = post({ ...messagesRequest, case: 'large' })
    const response = await call.head
    response.on('data', () => { response.pause(); void setImmediate().then(() => { response.resume() }) })
    t.equal((await call.whole()).text, JSON.stringify({ ...message(large), model: 'm1' }))
    const next = post(messagesRequest)
    await next.whole()
    t.ok(next.isReused)
  })
  await t.test('a client that takes nothing of it for write_stall has left, and pays: it was there', async (t) => {
    const call = client(t, own).post({ ...messagesRequest, case: 'stalled' })
    await call.stopReading()
    const got = await fate(own, String((await call.head).headers['x-request-id']))
    t.match(got, { line: { outcome: 'interrupted', by: 'client', code: 'client_closed' }, entries: { length: 1 },
      openHolds: 0 })
  })
})

t.test('an upstream where nobody listens is 502, before any head of a stream', async (t) => {
  const own = await gateway(t, config([await refusing()]))
  const got = await client(t, own).post(streaming).whole()
  t.equal(got.status, 502)
  t.match(await fate(own, got.id), { line: { outcome: 'failed', code: 'server_error' }, charged: 0n, openHolds: 0 })
})
