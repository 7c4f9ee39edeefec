// A process that has more to do than it can: when that is, and what becomes of requests that come then.
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { connect } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { OverloadConfig } from '../../src/config/config.ts'
import { type Load, memoryLimitOf, Overload, watchProcess } from '../../src/http/overload.ts'
import { client, errorOf, fate } from '../support/client.ts'
import { gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { answer, messageEnd, messageStart, textBlock, upstream, wait, type Upstream } from '../support/upstream.ts'
import { accept, socketUpstream } from '../support/websocket.ts'

/** Tells what the test wants to be seen. */
interface Sampler {
  readonly watchLoad: (tell: (load: Load) => void) => () => void
  /** so many samples */
  see (load: Partial<Load>, times: number): void
  isWatched: boolean
}

function sampler (): Sampler {
  let seen: (load: Load) => void
  const made: Sampler = {
    isWatched: false,
    watchLoad (tell) {
      seen = tell
      made.isWatched = true
      return () => { made.isWatched = false }
    },
    see (load, times) { for (let i = 0; i < times; i++) seen({ delay: 0, memory: 0, ...load }) }
  }
  return made
}

interface Judged {
  readonly overload: Overload
  readonly see: Sampler['see']
  readonly lines: readonly (readonly [line: unknown, message: string])[]
  /** how often garbage was collected */
  readonly collections: () => number
}

function judged (limits: Partial<OverloadConfig> = {}): Judged {
  const lines: [unknown, string][] = []
  const note = (line: unknown, message: string): void => { lines.push([line, message]) }
  const { watchLoad, see } = sampler()
  let collected = 0
  const overload = new Overload({ event_loop_delay: 500, memory: 90, ...limits }, { warn: note, info: note } as never,
    watchLoad, () => {
    collected++
  })
  overload.start()
  return { overload, see, lines, collections: () => collected }
}

t.test('a late event loop is an overload at the third look in a row, and no more at the tenth that finds it below half', async (t) => {
  const { overload, see, lines } = judged()
  see({ delay: 900 }, 2)
  see({ delay: 499 }, 1)
  see({ delay: 900 }, 2)
  t.equal(overload.isOverloaded, false, 'a garbage collection, a large body')
  see({ delay: 500 }, 1)
  t.equal(overload.isOverloaded, true)
  see({ delay: 249 }, 9)
  see({ delay: 250 }, 1)
  see({ delay: 249 }, 9)
  t.equal(overload.isOverloaded, true, 'it does not come and go')
  for (let i = 0; i < 7; i++) overload.refusal()
  see({ delay: 249 }, 1)
  t.equal(overload.isOverloaded, false)
  t.strictSame(lines, [
    [{ event_loop_delay_ms: 500, memory_percent: 0 }, 'overloaded: new requests are refused'],
    [{ event_loop_delay_ms: 249, memory_percent: 0, refused: 7 }, 'not overloaded any more']
  ])
  see({ delay: 500 }, 3)
  overload.refusal()
  see({}, 10)
  t.match(lines.at(-1), [{ refused: 1 }], 'each is counted by itself')
})

t.test('so is memory that is nearly full, until there is a little more again', async (t) => {
  const { overload, see } = judged()
  see({ memory: 0.9 }, 6)
  t.equal(overload.isOverloaded, true)
  see({ memory: 0.82 }, 99)
  t.equal(overload.isOverloaded, true)
  see({ memory: 0.8 }, 9)
  see({ memory: 0.8, delay: 300 }, 1)
  see({ memory: 0.8 }, 9)
  t.equal(overload.isOverloaded, true, 'neither may be near its limit')
  see({ memory: 0.8 }, 1)
  t.equal(overload.isOverloaded, false)
})

t.test('garbage is no overload: it is collected before anybody is refused, and now and then while they are', async (t) => {
  const { overload, see, collections } = judged()
  see({ memory: 0.95 }, 2)
  t.equal(collections(), 0)
  see({ memory: 0.95 }, 1)
  t.strictSame([collections(), overload.isOverloaded], [1, false])
  see({ memory: 0.4 }, 1)
  see({ memory: 0.95 }, 2)
  t.equal(overload.isOverloaded, false, 'what was found before it counts no more')
  see({ memory: 0.95 }, 1)
  t.strictSame([collections(), overload.isOverloaded], [1, true], 'it has just been done')
  see({ memory: 0.95 }, 300)
  t.equal(collections(), 4, 'every ten seconds')
  see({ delay: 700 }, 300)
  t.equal(collections(), 4, 'it costs time, and where there is memory that is all it does')
})

t.test('a process that keeps what a burst has made it take serves again: ten seconds below where the overload began are enough', async (t) => {
  const { overload, see } = judged()
  see({ memory: 0.95 }, 6)
  see({ memory: 0.85 }, 60)
  see({ memory: 0.9 }, 1)
  see({ memory: 0.85 }, 108)
  t.equal(overload.isOverloaded, true)
  see({ memory: 0.85 }, 1)
  t.equal(overload.isOverloaded, false)
  see({ delay: 700 }, 3)
  see({ delay: 300 }, 1000)
  t.equal(overload.isOverloaded, true, 'time is never kept')
})

t.test('what was garbage is given back', async (t) => {
  let see: (load: Load) => void
  const overload = new Overload({ event_loop_delay: 0, memory: 90 }, { warn () {}, info () {} } as never, (tell) => {
    see = tell
    return () => {}
  })
  overload.start()
  const garbage = new WeakRef({})
  await turn()                                                // a new one lives until the end of its turn
  for (let i = 0; i < 3; i++) see!({ delay: 0, memory: 1 })
  t.equal(garbage.deref(), undefined)
})

t.test('each can be switched off', async (t) => {
  const { overload, see } = judged({ event_loop_delay: 0, memory: 0 })
  see({ delay: 60_000, memory: 1 }, 10)
  t.equal(overload.isOverloaded, false)
})

t.test('who is refused is told another second each, so that not all come again at once', async (t) => {
  const { overload } = judged()
  t.strictSame(Array.from({ length: 6 }, () => overload.refusal().retryAfter), [1, 2, 3, 4, 5, 1])
})

t.test('the memory of a process is its part of what all may have', async (t) => {
  const overload = { event_loop_delay: 500, memory: 90 }
  t.equal(memoryLimitOf({ overload: { ...overload, memory_limit: 4_000_000_000 }, workers: 4 }), 1_000_000_000)
  const container = memoryLimitOf({ overload, workers: 1 })
  t.ok(container === undefined || container > process.memoryUsage.rss(), 'that of the container, if it has one')
})

t.test('the process itself is looked at: what blocks the event loop makes it late, and memory is a share', async (t) => {
  const { promise, resolve } = Promise.withResolvers<Load>()
  const alive = setInterval(() => {}, 1000)
  t.teardown(() => { clearInterval(alive) })
  const stop = watchProcess(process.memoryUsage.rss() * 100)((load) => { if (load.delay > 50) resolve(load) })
  await turn()
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300)
  const { delay, memory } = await promise
  stop()
  t.ok(delay > 50)
  t.ok(memory > 0 && memory < 1)
})

/** A gateway on which a stream runs until `finish`. */
async function busy (
  t: Test,
  more = ''
): Promise<
  { readonly running: TestGateway, readonly up: Upstream, readonly see: Sampler['see'], readonly finish: () => void,
    readonly stream: ReturnType<ReturnType<typeof client>['post']> }
> {
  const { promise, resolve: finish } = Promise.withResolvers<void>()
  const up = await upstream(t, ({ body }) =>
    body?.['stream'] === true
      ? [messageStart(), textBlock(0, 'The', ' quick'), wait(promise), messageEnd()]
      : answer('hi'))
  const { watchLoad, see } = sampler()
  const running = await gateway(t, yaml([up.url], more), { watchLoad })
  const stream = client(t, running).post({ ...messagesRequest, stream: true })
  await stream.sees('quick')
  return { running, up, see, finish, stream }
}

async function metrics ({ urls }: TestGateway): Promise<(name: string) => number | undefined> {
  const lines = (await (await fetch(urls.admin + '/metrics')).text()).split('\n')
  return (name) => {
    const line = lines.find((one) => one.startsWith(name + ' '))
    return line === undefined ? undefined : Number(line.slice(name.length))
  }
}

async function readyz ({ urls }: TestGateway): Promise<unknown> {
  const response = await fetch(urls.admin + '/readyz')
  return [response.status, await response.json()]
}

t.test('new requests are refused, in the style of their address, over a connection that lives on; what runs goes on', async (t) => {
  const { running, up, see, finish, stream } = await busy(t)
  const before = running.logged.length
  see({ delay: 700 }, 3)
  const caller = client(t, running)
  const refused = await caller.post(messagesRequest).whole()
  t.equal(refused.status, 503)
  t.match(errorOf(refused), { code: 'service_unavailable', type: 'api_error', charged: '0', id: refused.id })
  t.match(refused.headers, { 'retry-after': '1', 'x-request-id': /^req_\w{24}$/, 'request-id': refused.id })
  const chat = client(t, running, '/v1/chat/completions').post({ model: 'm1', messages: [] })
  t.match((await chat.whole()).json, { error: { code: 'service_unavailable', type: 'api_error', charged_usd: '0' } })
  t.equal((await fetch(running.url + '/v1/models')).status, 503, 'whoever asks: no key was looked at')
  t.equal((await fetch(running.url + '/v1/nothing')).status, 404, 'what is nowhere will not be there later either')
  t.equal(
    (await fetch(running.url + '/v1/messages', { method: 'OPTIONS',
      headers: { origin: 'https://a.example', 'access-control-request-method': 'POST' } })).status,
    204,
    'or a browser could not read why'
  )
  t.equal((await fetch(running.urls.public + '/api/public/models-info')).status, 200)

  t.strictSame(await readyz(running), [503, { ready: false, reasons: ['overloaded'] }])
  t.equal((await fetch(running.urls.admin + '/healthz')).status, 200)
  let value = await metrics(running)
  t.strictSame(
    ['gateway_overloaded', 'gateway_event_loop_delay_seconds', 'gateway_rejected_total{reason="overloaded"}',
      'gateway_ready{reason="overloaded"}', 'gateway_ready{reason="draining"}'].map(value),
    [1, 0.7, 3, 0, 1]
  )

  see({}, 10)
  t.strictSame(await readyz(running), [200, { ready: true, reasons: [] }])
  const served = caller.post(messagesRequest)
  t.equal((await served.whole()).status, 200)
  t.equal(served.isReused, true, 'the connection of the refusal')
  value = await metrics(running)
  t.strictSame(['gateway_overloaded', 'gateway_event_loop_delay_seconds'].map(value), [0, 0])
  finish()
  const whole = await stream.whole()
  t.match(whole.text, /message_stop/)
  t.equal((await fate(running, whole.id)).line['outcome'], 'completed')
  t.equal(up.requests.length, 2)
  t.strictSame(running.logged.slice(before).filter(({ msg }) => msg === 'refused').map(({ code }) => code), [
    'not_found'
  ], 'a line for each would be work too')
  t.match(
    running.logged.filter(({ msg }) => /overloaded/.test(String(msg))),
    [{ level: 40, event_loop_delay_ms: 700 }, { level: 30, refused: 3 }]
  )
})

t.test('while nothing runs one is let in: an overload that nobody can end would last for ever', async (t) => {
  const { running, see, finish, stream } = await busy(t)
  see({ memory: 0.95 }, 6)
  t.equal((await running.messages(messagesRequest)).status, 503)
  finish()
  await fate(running, (await stream.whole()).id)
  t.equal((await running.messages(messagesRequest)).status, 200)
  t.strictSame(await readyz(running), [503, { ready: false, reasons: ['overloaded'] }],
    'others should go elsewhere all the same')
})

t.test('a WebSocket that is open for hours is nothing that others wait for; the next one waits', async (t) => {
  const up = await socketUpstream(t, (visitor) => { accept(visitor) })
  const model = await upstream(t, answer('hi'))
  const { watchLoad, see } = sampler()
  const running = await gateway(t,
    yaml([model.url, up.url], 'routes:\n  - { match: GET /v1/live, forward: u1, websocket: true, price: free }\n'), {
    watchLoad
  })
  const open = (): WebSocket =>
    new WebSocket(running.url.replace('http:', 'ws:') + '/v1/live',
      { headers: { 'x-api-key': KEY } } as unknown as string[])
  const first = open()
  t.teardown(() => { first.close() })
  await once(first, 'open')
  see({ memory: 0.95 }, 6)
  t.equal((await running.messages(messagesRequest)).status, 200)
  await once(open(), 'error')
  t.equal(up.visitors.length, 1)
})

t.test('a client that sends a large body before it reads, reads why it was refused', async (t) => {
  const { running, see } = await busy(t)
  see({ delay: 700 }, 3)
  const socket = connect(Number(new URL(running.url).port), '127.0.0.1')
  t.teardown(() => { socket.destroy() })
  const body = 'x'.repeat(8_000_000)
  await new Promise<void>((resolve, reject) => {
    socket.once('error', reject)
    socket.write(
      `POST /v1/messages HTTP/1.1\r\nhost: gateway\r\nx-api-key: ${KEY}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
      () => {
        resolve()
      }
    )
  })
  let text = ''
  for await (const chunk of socket) text += String(chunk)
  t.match(text, /^HTTP\/1\.1 503 .*"error_code":"service_unavailable"/s)
  t.match(text, /^connection: close\r$/im)
})

t.test('a WebSocket is refused before its upstream is asked', async (t) => {
  const { running, up, see } = await busy(t,
    `routes:\n  - { match: GET /v1/live, forward: u0, websocket: true, price: free }\n`)
  see({ delay: 700 }, 3)
  const asking = request(running.url + '/v1/live', {
    headers: { 'x-api-key': KEY, connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13',
      'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==' }
  }).end()
  const [response] = await once(asking, 'response') as [IncomingMessage]
  response.resume()
  t.equal(response.statusCode, 503)
  t.equal(up.requests.length, 1, 'the stream')
})

t.test('the watch ends with the gateway', async (t) => {
  const watch = sampler()
  const running = await gateway(t, yaml([(await upstream(t, answer('hi'))).url]), { watchLoad: watch.watchLoad })
  t.equal(watch.isWatched, true)
  await running.stop()
  t.equal(watch.isWatched, false)
})
