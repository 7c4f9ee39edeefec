// The fast lane of upstreams on real sockets: whatever an upstream does, a call ends as it does with undici alone.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { setImmediate, setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { collectGarbage } from '../../src/base/collect-garbage.ts'
import { atEndOfTurn } from '../../src/base/end-of-turn.ts'
import type { CallRequest } from '../../src/upstream/transport/call.ts'
import { Lane } from '../../src/upstream/transport/lane/lane.ts'
import { onread } from '../../src/upstream/transport/lane/lane-connection.ts'
import { RequestHeads } from '../../src/upstream/transport/lane/request-heads.ts'
import { type Answer, caller, closedBut, type Fate, POST, rawUpstream, said } from '../support/raw-upstream.ts'
import { piecesOf } from '../fuzz/lane-answers.ts'
import { listening } from '../support/transport.ts'
import { until } from '../support/until.ts'

/** More with ANSWERS in the environment. */
const ANSWERS = Number(process.env['ANSWERS'] ?? 150)
const OK = 'HTTP/1.1 200 OK\r\n'
const PLAIN = `${OK}content-type: text/plain\r\ncontent-length: 5\r\n\r\nhello`
const CHUNKED = `${OK}Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n` +
  '5\r\nhello\r\nA\r\n, world, s\r\n003\r\nuch\r\n0\r\n\r\n'
const sized = (fields: string, body = 'hello'): string => `${OK}${fields}content-length: ${body.length}\r\n\r\n${body}`
const chunked = (body: string, fields = ''): string => `${OK}${fields}transfer-encoding: chunked\r\n\r\n${body}`

/** As many turns of the event loop as it takes until a connection that rests was read since. */
async function turnsWithSteps (): Promise<void> {
  for (let turn = 0; turn < 3; turn++) {
    atEndOfTurn(() => {})
    await setImmediate()
  }
}

interface Course {
  readonly fates: readonly Fate[]
  /** connections that were made */
  readonly connections: number
  /** what came on each */
  readonly received: readonly string[]
}

/** Requests one after the other, to an upstream that is gone behind them: there are thousands. */
async function course (
  fastLane: boolean, answer: Answer, requests: readonly CallRequest[] = [POST, POST]
): Promise<Course> {
  const ends: (() => unknown)[] = []
  const own = { teardown: (end: () => unknown) => { ends.push(end) } }
  const upstream = await rawUpstream(own, answer)
  const { ask } = caller(own, upstream.port, fastLane)
  const fates: Fate[] = []
  for (const request of requests) fates.push(await ask(request))
  const connections = upstream.sockets.length
  for (const end of ends) await end()
  return { fates, connections, received: upstream.received }
}

/** The same by the lane and by undici alone. */
async function both (answer: Answer, requests?: readonly CallRequest[]): Promise<readonly [Course, Course]> {
  return [await course(true, answer, requests), await course(false, answer, requests)]
}

/** Of thousands only those that differ are printed. */
function holds (t: Test, got: unknown, wanted: unknown, name: string): void {
  if (JSON.stringify(got) !== JSON.stringify(wanted)) t.strictSame(got, wanted, name)
}

t.test('answers that are for the lane: as undici reads them, and the connection is used again', async (t) => {
  const answers: Readonly<Record<string, string>> = {
    'a length': PLAIN,
    'no body': sized('', ''),
    'chunks, of all spellings': CHUNKED,
    'an empty chunked body': chunked('0\r\n\r\n'),
    'an error': PLAIN.replace('200 OK', '429 Too Many Requests'),
    'no reason': PLAIN.replace('200 OK', '500 '),
    'names and values of all kinds': sized('X-A: b\r\nset-cookie: a=b\r\nSet-Cookie: c=d\r\nx-obs: \xE9\xFF\r\n' +
      'x-tab: a\tb\r\nserver:none\r\n!#$%&\'*+-.^_`|~9: 1\r\n'),
    'a name in all spellings': sized('X-A: b\r\nx-a: c\r\nX-a: d\r\n'),
    'a length in capitals': sized('').replace('content-length', 'CONTENT-LENGTH'),
    'a length that begins with zeros': sized('').replace(': 5', ': 0005'),
    'a word in capitals': CHUNKED.replace('chunked', 'CHUNKED'),
    'keep-alive': sized('Connection: Keep-Alive\r\nKeep-Alive: timeout=5, max=100\r\n'),
    'a hint for ever': sized('keep-alive: timeout=99999999999999999999\r\n'),
    'bytes that look like a head': sized('', `${PLAIN}0\r\n\r\n`)
  }
  for (const [name, answer] of Object.entries(answers)) {
    const [lane, pool] = await both((socket) => { socket.write(answer, 'latin1') })
    t.strictSame(lane, pool, name)
    t.strictSame([lane.fates[0]!.end, lane.connections], ['end', 1], `${name}: whole, on one connection`)
  }
})

t.test('answers that end their connection', async (t) => {
  for (const [name, answer] of Object.entries({
    'a length': sized('Connection: close\r\n'),
    chunks: CHUNKED.replace('Transfer', 'connection: CLOSE\r\nTransfer'),
    'a hint that leaves no time': sized('keep-alive: timeout=1\r\n'),
    'a hint that leaves just none': sized('keep-alive: timeout=2\r\n')
  })) {
    const [lane, pool] = await both((socket) => { socket.write(answer) })
    t.strictSame(lane, pool, name)
    t.strictSame([lane.fates[1]!.end, lane.connections], ['end', 2], name)
  }
})

t.test('unusual answers are undici\'s: the same status, headers, body and failure', async (t) => {
  const HINTS = 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'
  const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n'
  const answers: Readonly<Record<string, string>> = {
    '204': 'HTTP/1.1 204 No Content\r\n\r\n',
    '204 with a length': 'HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n',
    '205': 'HTTP/1.1 205 Reset Content\r\ncontent-length: 0\r\n\r\n',
    '304': 'HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n',
    '100 before': CONTINUE + PLAIN,
    '103 before': HINTS + PLAIN,
    '103 twice, then chunks': HINTS + HINTS + CHUNKED,
    '101': 'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n',
    '199': PLAIN.replace('200', '199'), '600': PLAIN.replace('200', '600'), '999': PLAIN.replace('200', '999'),
    'HTTP/1.0': PLAIN.replace('1.1', '1.0'),
    'HTTP/1.0 kept': sized('connection: keep-alive\r\n').replace('1.1', '1.0'),
    'HTTP/2.0': PLAIN.replace('1.1', '2.0'),
    'no space behind the status': PLAIN.replace(' OK', ''),
    'two spaces': PLAIN.replace(' 200', '  200'),
    'no HTTP': 'ICY 200 OK\r\n\r\n', 'TLS': '\x15\x03\x01\x00\x02\x02\x28', 'nothing but a line': '\r\n',
    'a line before': `\r\n${PLAIN}`,
    'ended by the connection': `${OK}content-type: text/plain\r\n\r\nhello`,
    'length and chunks': chunked('5\r\nhello\r\n0\r\n\r\n', 'content-length: 5\r\n'),
    'chunks and length': `${OK}transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n`,
    'two lengths': sized('content-length: 5\r\n'), 'two lengths that differ': sized('content-length: 4\r\n'),
    ...Object.fromEntries(['5, 5', '+5', '-5', '5.0', '0x5', '5 5', '5;', '', '5 ', '\t5', '99999999999999999999',
      '18446744073709551621'].map((length) => [`the length "${length}"`,
      sized('').replace('content-length: 5', `content-length: ${length}`)])),
    'space behind a name': sized('').replace('content-length', 'content-length '),
    ...Object.fromEntries(['gzip, chunked', 'chunked, chunked', 'identity', 'xchunked', 'chunked,', '\tchunked',
      'chunked ', '"chunked"'].map((coding) => [`the coding "${coding}"`,
      CHUNKED.replace(': chunked', `: ${coding}`)])),
    'two codings': CHUNKED.replace('Transfer', 'transfer-encoding: chunked\r\nTransfer'),
    'LF': PLAIN.replaceAll('\r', ''), 'one LF': sized('x-a: b\n'),
    'LF behind the head': PLAIN.replace('\r\n\r\n', '\r\n\n'),
    'CR': sized('x-a: b\r'), 'CR in a value': sized('x-a: b\rc\r\n'), 'CR CR LF': sized('x-a: b\r\r\n'),
    'a folded line': sized('x-a: b\r\n c\r\n'), 'a folded line first': sized(' x: y\r\n'),
    'NUL': sized('x-a: b\0c\r\n'), 'DEL': sized('x-a: \x7F\r\n'), 'NUL in a name': sized('x\0: b\r\n'),
    'no colon': sized('x-a\r\n'), 'no name': sized(': a\r\n'), 'space in a name': sized('x a: b\r\n'),
    'no value': sized('x-a:\r\n'), 'no value but spaces': sized('x-a:   \r\n'),
    'spaces around a value': sized('x-a:  b \t \r\n'),
    '__proto__': sized('__proto__: a\r\n'), 'constructor': sized('constructor: a\r\n'),
    'close and more': sized('connection: close, x\r\n'),
    'keep-alive and close': sized('connection: keep-alive, close\r\n'),
    'two connections': sized('connection: keep-alive\r\nconnection: close\r\n'),
    'proxy-connection': sized('proxy-connection: close\r\n'), 'upgrade': sized('upgrade: h2c\r\n'),
    'two hints': sized('keep-alive: timeout=5\r\nkeep-alive: timeout=1\r\n'),
    'sixty fields': sized(Array.from({ length: 60 }, (_, i) => `x-${i}: ${i}\r\n`).join('')),
    'a head of 17 KB': sized(`x-a: ${'a'.repeat(17_000)}\r\n`),
    'a head of 15 KB': sized(`x-a: ${'a'.repeat(15_000)}\r\n`),
    'an extension': chunked('5;a=b\r\nhello\r\n0\r\n\r\n'),
    'an extension later': chunked('2\r\nhe\r\n3;a\r\nllo\r\n0\r\n\r\n'),
    'an extension at the end': chunked('5\r\nhello\r\n0;a\r\n\r\n'),
    'a size with a space before': chunked(' 5\r\nhello\r\n0\r\n\r\n'),
    'a size with a space behind': chunked('2\r\nhe\r\n3 \r\nllo\r\n0\r\n\r\n'),
    'a size of nine digits': chunked('000000005\r\nhello\r\n0\r\n\r\n'),
    'a size that is too large': chunked('2\r\nhe\r\nFFFFFFFFFFFFFFFFF\r\nllo\r\n0\r\n\r\n'),
    'a size of 64 bits': chunked('2\r\nhe\r\nFFFFFFFFFFFFFFFF\r\nllo\r\n0\r\n\r\n'),
    'no size': chunked('2\r\nhe\r\n\r\nllo\r\n0\r\n\r\n'),
    'a size of letters': chunked('5\r\nhello\r\nxyz\r\n0\r\n\r\n'),
    'a size with LF': chunked('5\nhello\r\n0\r\n\r\n'),
    'a size with a sign': chunked('2\r\nhe\r\n+3\r\nllo\r\n0\r\n\r\n'),
    'a chunk that is longer': chunked('2\r\nhello\r\n0\r\n\r\n'), 'a chunk with LF': chunked('5\r\nhello\n0\r\n\r\n'),
    'a chunk with CR': chunked('5\r\nhello\rx0\r\n\r\n'),
    'a last size of two zeros': chunked('5\r\nhello\r\n00\r\n\r\n'), 'LF at the end': chunked('5\r\nhello\r\n0\r\n\n'),
    'trailers': chunked('5\r\nhello\r\n0\r\nx-a: b\r\n\r\n'),
    'broken trailers': chunked('5\r\nhello\r\n0\r\nx\0\r\n\r\n'),
    'two answers': PLAIN + PLAIN, 'a line behind': `${PLAIN}\r\n`, 'chunks and another answer': CHUNKED + PLAIN
  }
  for (const [name, answer] of Object.entries(answers)) {
    await t.test(name, async (t) => {
      const [lane, pool] = await both((socket, { number }) => {
        if (number > 0) socket.write(PLAIN)
        else socket.end(answer, 'latin1')
      })
      t.strictSame(lane.fates, pool.fates)
    })
  }
})

t.test('an answer that is cut behind any byte, or comes in two pieces', async (t) => {
  for (const [name, answer] of Object.entries({ PLAIN, CHUNKED, closing: sized('connection: close\r\n'),
    'chunks, closing': CHUNKED.replace('Transfer', 'Connection: close\r\nTransfer'),
    'by undici': chunked('5;a\r\nhello\r\n3\r\n!!!\r\n0\r\nx-a: b\r\n\r\n') })) {
    const whole = await course(false, (socket) => { socket.write(answer) }, [POST])
    t.equal(whole.fates[0]!.end, 'end')
    for (let at = 0; at <= answer.length; at++) {
      const [lane, pool] = await both((socket) => { socket.end(answer.slice(0, at)) }, [POST])
      holds(t, lane.fates, pool.fates, `${name} ${at}`)
      const pieces = await course(true, (socket) => {
        socket.write(answer.slice(0, at))
        void setImmediate().then(setImmediate).then(() => { socket.write(answer.slice(at)) })
      }, [POST])
      holds(t, pieces.fates, whole.fates, `${name} ${at}, in pieces`)
    }
    t.pass(name)
  }
})

t.test('answers by chance', async (t) => {
  const seed = Number(process.env['SEED'] ?? Date.now() % 1_000_000)
  for (let i = 0; i < ANSWERS; i++) {
    const pieces = piecesOf(seed, i)
    const [lane, pool] = await both((socket) => {
      void (async () => {
        for (const piece of pieces) {
          socket.write(piece)
          await setImmediate()
        }
        socket.end()
      })()
    }, [POST])
    holds(t, lane.fates, pool.fates, `seed ${seed}, answer ${i}: ${JSON.stringify(pieces.map(String))}`)
  }
  t.pass(`seed ${seed}`)
})

t.test('a reset in the head, in the body and behind the end', async (t) => {
  const RESET = /^reset ECONNRESET$/
  for (const [name, [answer, ends]] of Object.entries<readonly [string, RegExp]>({
    nothing: ['', RESET], head: [PLAIN.slice(0, 30), RESET], body: [PLAIN.slice(0, -2), RESET],
    chunk: [CHUNKED.slice(0, -20), RESET], end: [PLAIN, /^end$/],
    closing: [sized('connection: close\r\n').slice(0, -2), /^reset UND_ERR_RES_CONTENT_LENGTH_MISMATCH$/],
    'chunks, closing': [chunked('5\r\nhel', 'connection: close\r\n'), /^reset HTTPParserError.*Invalid EOF state/],
    'without a length': [`${OK}\r\nhel`, /^end$/], extension: [chunked('5;a\r\nhel'), RESET]
  })) {
    const [lane, pool] = await both((socket) => {
      socket.write(answer)
      void setTimeout(20).then(() => { socket.resetAndDestroy() })  // the bytes are there before
    }, [POST])
    t.strictSame(lane.fates, pool.fates, name)
    t.match(lane.fates[0]!.end, ends, name)
  }
})

t.test('what is sent, byte for byte', async (t) => {
  const requests: readonly CallRequest[] = [
    POST, { ...POST, body: '{"text":"é 🎩 \uD800"}' }, { ...POST, body: '' }, { ...POST, method: 'GET', body: '' },
    { ...POST, headers: { 'X-Mixed-Case': 'a', accept: 'text/event-stream', 'x-latin': '\xE9', 'x-empty': '',
      'x-tab': 'a\tb', 1: 'a' } },
    { ...POST, headers: { 'x-latin': '\xE9' }, body: 'é' },
    { ...POST, headers: {} }, { ...POST, path: '/a?b=c%20d&e#f' }, { ...POST, path: '/' }, POST,
    { ...POST, headers: { ...POST.headers, 'x-more': '1' } }, { ...POST, headers: { 'x-api-key': 'k' } },
    { ...POST, body: 'x'.repeat(300_000) },
    // undici's alone
    { ...POST, method: 'DELETE', body: '' }, { ...POST, method: 'PUT' }, { ...POST, method: 'GET' },
    { ...POST, headers: { host: 'other.test' } }, { ...POST, headers: { 'content-length': '7' } },
    { ...POST, body: { length: 3, async * [Symbol.asyncIterator] () { yield Buffer.from('abc') } } },
    { ...POST, headers: { connection: 'close' } }
  ]
  const [lane, pool] = await both((socket) => { socket.write(PLAIN) }, requests)
  t.strictSame(lane.fates, pool.fates)
  const split = ({ received }: Course): string[] => received.join('').split(/(?=(?:POST|GET|PUT|DELETE) \/)/).sort()
  t.strictSame(split(lane), split(pool))
  t.equal(split(lane).length, requests.length)
})

t.test('what undici refuses to send is refused', async (t) => {
  const requests: readonly CallRequest[] = [
    ...['a\r\nb: c', 'a\nb', 'a\0', 'é🎩'].map((value) => ({ ...POST, headers: { 'x-a': value } })),
    ...['a b', 'a:', '', 'a\r\n'].map((name) => ({ ...POST, headers: { [name]: 'a' } })),
    { ...POST, path: 'v1' }, { ...POST, path: '/a b' }, { ...POST, path: '/a\r\nx: y' }, { ...POST, method: 'A B' },
    { ...POST, headers: { 'Transfer-Encoding': 'chunked' } }, { ...POST, headers: { expect: '100-continue' } },
    { ...POST, headers: { upgrade: 'h2c' } }, { ...POST, headers: { 'content-length': '1' } }
  ]
  // Each by itself, and behind one whose head was remembered.
  const [lane, pool] = await both((socket) => { socket.write(PLAIN) },
    requests.flatMap((request) => [POST, request, request, POST]))
  t.strictSame(lane.fates, pool.fates)
  t.equal(lane.fates.filter(({ end }) => end !== 'end').length, 2 * requests.length)
})

t.test('a head that was refused leaves nothing of it in the next one', async (t) => {
  const heads = new RequestHeads('it')
  const lines = (headers: Record<string, string>, path = '/'): readonly string[] | undefined =>
    heads.of('POST', path, headers)?.split('\r\n').slice(0, -1)
  const start = ['POST / HTTP/1.1', 'host: it', 'connection: keep-alive']
  t.strictSame(lines({ a: '1' }), [...start, 'a: 1'])
  t.equal(lines({ a: '2', b: '\0' }), undefined)
  t.strictSame(lines({ a: '2' }), [...start, 'a: 2'])
  t.equal(lines({ a: '2' }, '/ '), undefined)
  t.strictSame(lines({ a: '2' }), [...start, 'a: 2'])
  t.strictSame(lines({ a: '2', c: '3' }), [...start, 'a: 2', 'c: 3'])
  t.strictSame(lines({ a: '2' }), [...start, 'a: 2'])
  t.strictSame(lines({}), start)
})

t.test('all that one read brings of a body comes at once', async (t) => {
  const { port } = await rawUpstream(t, (socket) => { socket.write(CHUNKED) })
  const pieces: string[] = []
  const { promise, resolve } = Promise.withResolvers<void>()
  caller(t, port, true).call(POST, { onData (bytes) { pieces.push(String(bytes)) }, onEnd: resolve })
  await promise
  t.strictSame(pieces, ['hello, world, such'])
})

t.test('a connection that waits', async (t) => {
  const happens: Readonly<Record<string, (socket: Socket) => void>> = {
    'is closed': (socket) => { socket.end() },
    'is reset': (socket) => { socket.resetAndDestroy() },
    'gets a byte': (socket) => { socket.write('x') },
    'gets an answer that nobody has asked for': (socket) => { socket.write(PLAIN.replace('hello', 'other')) }
  }
  for (const [name, happen] of Object.entries(happens)) await t.test(name, async (t) => {
    const upstream = await rawUpstream(t, (socket) => { socket.write(PLAIN) })
    const { ask, connections } = caller(t, upstream.port, true)
    t.equal((await ask()).body, 'hello')
    happen(upstream.sockets[0]!)
    await until(() => connections.stats.connected === 0)
    t.equal((await ask()).body, 'hello')
    t.equal(upstream.sockets.length, 2)
  })
  for (const [name, happen] of Object.entries(happens)) {
    await t.test(`${name} just when it is used: nothing is written to it, nor taken for an answer`, async (t) => {
      const course = async (fastLane: boolean): Promise<unknown> => {
        const upstream = await rawUpstream(t, (socket) => { socket.write(PLAIN) })
        const { ask } = caller(t, upstream.port, fastLane)
        await ask()
        happen(upstream.sockets[0]!)                            // the kernel has it before the next call begins
        const { body, end } = await ask({ ...POST, once: true })
        return [body, end, upstream.received.map((text) => text.split('POST').length - 1)]
      }
      t.strictSame(await course(true), ['hello', 'end', [1, 1]])
      // Undici fails a request that waits for its connection with the reset of that (8.12), though nothing was sent.
      if (name !== 'is reset') t.strictSame(await course(false), ['hello', 'end', [1, 1]])
    })
  }
  await t.test('gets such an answer in the turn of its last one: it is not taken for the next', async (t) => {
    await turnsWithSteps()
    const upstream = await rawUpstream(t, (socket) => { socket.write(PLAIN) })
    const { call, ask } = caller(t, upstream.port, true)
    const { promise, resolve } = Promise.withResolvers<Fate>()
    call(POST, {
      onEnd () {
        atEndOfTurn(() => {
          upstream.sockets[0]!.write(PLAIN.replace('hello', 'other'))
          resolve(ask())
        })
      }
    })
    t.equal((await promise).body, 'hello')
    t.equal(upstream.sockets.length, 2)
  })
  await t.test('has been read since its last answer: the turn that brings its next call writes that', async (t) => {
    const upstream = await rawUpstream(t, (socket) => { socket.write(PLAIN) })
    const lane = new Lane(`http://127.0.0.1:${upstream.port}`, (_asked, callback) => {
      const socket = connect({ host: '127.0.0.1', port: upstream.port, onread })
      socket.once('connect', () => { callback(null, socket) })
    }, 0)
    t.teardown(() => { lane.destroy() })
    /** @returns whether the request was written before the next turn */
    const isWrittenInTurn = async (isOnce: boolean, before: () => void): Promise<boolean> => {
      const course: string[] = []
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      atEndOfTurn(before)
      atEndOfTurn(() => {
        void setImmediate().then(() => { course.push('next turn') })
        const { path, headers } = POST
        lane.dispatch({ method: 'POST', path, headers, body: '{}' }, {
          onRequestStart () { course.push('written') },
          onResponseError (_, error) { reject(error) },
          onResponseEnd () { resolve() },
          isOnce, takeConnection () {}, onResponseStart () {}, onResponseData () {}, onResponseRead () {}
        })
      })
      await promise
      await turnsWithSteps()
      return course[0] === 'written'
    }
    await isWrittenInTurn(false, () => {})                      // connects
    // A machine may be busy elsewhere for so long that the turn is not a short one.
    let tries = 0
    while (tries < 100 && !await isWrittenInTurn(false, () => {})) tries++
    t.ok(tries < 100, 'such a turn was seen')
    t.notOk(await isWrittenInTurn(true, () => {}), 'but not what must not be sent twice')
    t.notOk(await isWrittenInTurn(false, () => {
      for (const until = performance.now() + 5; performance.now() < until;);
    }), 'nor behind a long turn, in which more may have come')
    t.equal(upstream.sockets.length, 1)
  })
  await t.test('is closed after the time that the upstream says', async (t) => {
    const upstream = await rawUpstream(t, (socket) => { socket.write(sized('keep-alive: timeout=3\r\n')) })
    const { ask, connections } = caller(t, upstream.port, true)
    await ask()
    t.equal(connections.stats.connected, 1)
    await closedBut(0, upstream)
    t.equal(connections.stats.connected, 0)
  })
  await t.test('does not keep the process alive', async (t) => {
    const { port } = await rawUpstream(t, (socket) => { socket.write(sized('keep-alive: timeout=600\r\n')) })
    const child = spawn(process.execPath, ['--input-type=module-typescript', '-e', `
      import { caller, POST } from '${new URL('../support/raw-upstream.ts', import.meta.url)}'
      const { end } = await caller({ teardown () {} }, ${port}, true).ask()
      process.stdout.write(end)`], { stdio: ['ignore', 'pipe', 'inherit'] })
    child.stdout.setEncoding('utf8')
    let said = ''
    child.stdout.on('data', (text: string) => { said += text })
    t.strictSame(await once(child, 'close'), [0, null])
    t.equal(said, 'end')
  })
  await t.test('keeps nothing of its last call', async (t) => {
    const { port } = await rawUpstream(t, (socket) => { socket.write(PLAIN) })
    const { call, connections } = caller(t, port, true)
    const ended = await (async () => {
      const { promise, resolve } = Promise.withResolvers<void>()
      const one = call(POST, { onEnd: resolve })
      await promise
      return new WeakRef(one)
    })()
    await setImmediate()                                      // what a WeakRef leads to lives until its turn is over
    collectGarbage()
    t.equal(ended.deref(), undefined)
    t.equal(connections.stats.connected, 1)
  })
})

t.test('a lost race: asked once more, as by undici', async (t) => {
  for (const [name, lose] of Object.entries<(socket: Socket) => void>({
    closed: (socket) => { socket.end() }, reset: (socket) => { socket.resetAndDestroy() }
  })) {
    const [lane, pool] = await both((socket, { number }) => {
      if (number === 1) lose(socket)
      else socket.write(PLAIN)
    }, [POST, POST, { ...POST, once: true }])
    t.strictSame(lane.fates.map(({ end }) => end), ['end', 'end', 'end'], name)
    t.strictSame(lane.fates, pool.fates, name)
    const [once, onceByPool] = await both((socket, { number }) => {
      if (number === 1) lose(socket)
      else socket.write(PLAIN)
    }, [POST, { ...POST, once: true }])
    t.match(once.fates[1], { end: /^reset/ }, name)
    t.strictSame(once.fates, onceByPool.fates, name)
  }
})

t.test('an answer before the end of its request', async (t) => {
  const large = { ...POST, body: 'x'.repeat(8_000_000) }
  const course = async (fastLane: boolean, then: (socket: Socket) => void): Promise<readonly Fate[]> => {
    const server = createServer((socket) => {
      socket.once('data', () => {
        socket.pause()
        socket.write(PLAIN)
        then(socket)
      }).on('error', () => {})
    })
    const { ask } = caller(t, await listening(t, server), fastLane)
    return [await ask(large)]
  }
  for (const [name, then] of Object.entries<(socket: Socket) => void>({
    'that reads on': (socket) => { socket.resume() },
    'that reads nothing more': () => {},
    'that sends no more': (socket) => { socket.end() }
  })) {
    const fates = await course(true, then)
    t.equal(fates[0]!.body, 'hello', name)
    t.strictSame(fates, await course(false, then), name)
  }
})

t.test('no connection', async (t) => {
  for (const fastLane of [true, false]) {
    const gone = createServer()
    const port = await listening(t, gone)
    gone.close()
    t.equal((await caller(t, port, fastLane).ask()).end, 'refused ECONNREFUSED')
    const never = caller(t, 9, fastLane, { host: 'vendor.test', lookup: () => {}, timeouts: { connect: 50 } })
    t.match((await never.ask()).end, /^connect_timeout/)
    const nowhere = caller(t, 9, fastLane, { host: 'vendor.test',
      lookup: (_name, _options, callback) => { callback(Object.assign(new Error('no'), { code: 'ENOTFOUND' }), '') } })
    t.equal((await nowhere.ask()).end, 'refused ENOTFOUND')
  }
})

t.test('a call that is aborted is told nothing more, and closes its connection', async (t) => {
  for (const [when, answer] of Object.entries({ 'at once': '', 'when it is asked': '', 'in its head': PLAIN,
    'in its body': CHUNKED, 'in the body that undici reads': chunked('5;a\r\nhello\r\n3\r\n!!!\r\n') })) {
    await t.test(when, async (t) => {
      const asked = Promise.withResolvers<void>()
      const upstream = await rawUpstream(t, (socket, { number }) => {
        if (number > 0 || when === 'at once') socket.write(PLAIN)
        else { socket.write(answer); asked.resolve() }
      })
      const { call, ask, connections } = caller(t, upstream.port, true)
      const told: string[] = []
      const over = Promise.withResolvers<void>()
      const end = (): void => { aborted.abort(); over.resolve() }
      const aborted = call(POST, {
        onHead () { told.push('head'); if (when === 'in its head') end() },
        onData () { told.push('data'); if (when.startsWith('in ')) end() },
        onEnd () { told.push('end') }, onFailure () { told.push('failure') }
      })
      if (when === 'at once') end()
      if (when === 'when it is asked') { await asked.promise; end() }
      await over.promise
      if (when !== 'at once') await until(() => connections.stats.connected === 0)
      t.equal((await ask()).end, 'end')
      t.strictSame(told, when.endsWith('head') ? ['head'] : when.startsWith('in ') ? ['head', 'data'] : [])
    })
  }
})

t.test('a listener that throws: its call fails, nothing else does', async (t) => {
  for (const [name, answer] of Object.entries({ PLAIN, CHUNKED, 'by undici': chunked('5;a\r\nhello\r\n0\r\n\r\n') })) {
    for (const where of ['onHead', 'onData', 'onEnd'] as const) {
      const told = async (fastLane: boolean): Promise<readonly string[]> => {
        const { port } = await rawUpstream(t, (socket) => { socket.write(answer) })
        const { call, ask } = caller(t, port, fastLane)
        const told: string[] = []
        const over = Promise.withResolvers<void>()
        const tell = (what: string): void => {
          told.push(what)
          if (what === 'onEnd' || what.startsWith('onFailure')) over.resolve()
          if (what === where) throw new Error('the listener')
        }
        call(POST, { onHead () { tell('onHead') }, onData () { tell('onData') }, onEnd () { tell('onEnd') },
          onFailure (failure) { tell(`onFailure ${said(failure)}`) } })
        await over.promise
        await setImmediate()
        told.push((await ask()).end)
        return told
      }
      t.strictSame(await told(true), await told(false), `${name} ${where}`)
    }
  }
})

t.test('a call that is paused', async (t) => {
  for (const [name, answer] of Object.entries({ PLAIN, CHUNKED, 'by undici': chunked('5;a\r\nhello\r\n0\r\n\r\n'),
    'by undici from the first chunk on': chunked('2\r\nhe\r\n3;a\r\nllo\r\n0\r\n\r\n') })) {
    await t.test(`${name}: in its head and in its body gets the rest when it goes on`, async (t) => {
      const { port } = await rawUpstream(t, (socket) => { socket.write(answer) })
      const told: string[] = []
      const over = Promise.withResolvers<void>()
      const call = caller(t, port, true).call(POST, {
        onHead () { told.push('head'); call.pause() },
        onData (bytes) { told.push(String(bytes)); call.pause() },
        onEnd () { over.resolve() },
        onFailure (failure) { over.reject(new Error(said(failure))) }
      })
      for (let seen = 0; seen < 2; seen++) {
        await until(() => told.length > seen)
        for (let i = 0; i < 20; i++) await setImmediate()
        t.equal(told.length, seen + 1, 'no more than one thing is told')
        call.resume()
      }
      for (let isOver = false; !isOver;) {
        isOver = await Promise.race([over.promise.then(() => true), setImmediate(false)])
        call.resume()
      }
      t.equal(told.slice(1).join(''), /^PLAIN|undici/.test(name) ? 'hello' : 'hello, world, such')
    })
  }
  await t.test('reads no more than a little', async (t) => {
    const BYTES = 60_000_000
    const upstream = await rawUpstream(t, (socket) => {
      socket.write(`${OK}content-length: ${BYTES}\r\n\r\n`)
      socket.write(Buffer.alloc(BYTES, 'x'))
    })
    let got = 0
    let last: Buffer = Buffer.alloc(0)
    const over = Promise.withResolvers<void>()
    const call = caller(t, upstream.port, true).call(POST, {
      onHead () { call.pause() },
      onData (bytes) {
        got += bytes.length
        last = bytes
      },
      onEnd: over.resolve
    })
    await until(() => upstream.sockets[0]?.writableLength !== undefined && upstream.sockets[0].writableLength > 0)
    await setTimeout(50)
    t.ok(upstream.sockets[0]!.writableLength > 0, 'the upstream can\'t send all')
    t.equal(got, 0)
    call.resume()
    await over.promise
    t.equal(got, BYTES)
    t.equal(last.toString(), 'x'.repeat(last.length))
  })
})

t.test('the end of the connections', async (t) => {
  await t.test('close: those that wait at once, others behind their answer', async (t) => {
    let rest: (() => void) | undefined
    const upstream = await rawUpstream(t, (socket, { number }) => {
      if (number === 0) { rest = () => { socket.write(PLAIN.slice(-5)) }; socket.write(PLAIN.slice(0, -5)) }
      else socket.write(PLAIN)
    })
    const { ask, connections } = caller(t, upstream.port, true)
    const slow = ask()
    await until(() => rest !== undefined)
    t.equal((await ask()).end, 'end')
    t.strictSame(connections.stats, { connected: 2, running: 1 })
    connections.close()
    await closedBut(1, upstream)
    rest!()
    t.equal((await slow).body, 'hello')
    await closedBut(0, upstream)
    t.match((await ask()).end, /UND_ERR_CLOSED|UND_ERR_DESTROYED/)
  })
  await t.test('destroy: all at once, whatever they do', async (t) => {
    const upstream = await rawUpstream(t, (socket, { text }) => {
      if (text.includes('/whole')) socket.write(PLAIN)
      if (text.includes('/body')) socket.write(PLAIN.slice(0, -1))
      if (text.includes('/undici')) socket.write(chunked('5;a\r\nhello\r\n'))
    })
    const { ask, connections } = caller(t, upstream.port, true)
    await ask({ ...POST, path: '/whole' })
    const fates = ['/head', '/body', '/undici'].map((path) => ask({ ...POST, path }))
    await until(() => upstream.received.join('').split('POST').length === 5)
    for (let i = 0; i < 20; i++) await setImmediate()
    const connecting = ask()
    await connections.destroy()
    for (const fate of [...fates, connecting]) t.equal((await fate).end, 'reset UND_ERR_DESTROYED')
    await closedBut(0, upstream)
  })
})

t.test('an upstream whose answers are too seldom for the lane has undici\'s connections', async (t) => {
  const course = async (strangeEvery: number, requests: number): Promise<number> => {
    const upstream = await rawUpstream(t, (socket, { number }) => {
      socket.write(number % strangeEvery === 0 ? 'HTTP/1.1 204 No Content\r\n\r\n' : PLAIN)
    })
    const { ask } = caller(t, upstream.port, true)
    for (let i = 0; i < requests; i++) t.equal((await ask()).status, i % strangeEvery === 0 ? 204 : 200)
    return upstream.sockets.length
  }
  t.equal(await course(1, 10), 5, 'never: four hand-overs, and then one connection of undici\'s')
  t.equal(await course(2, 20), 6, 'half of the time')
  t.equal(await course(6, 60), 10 + 1, 'seldom: all of them, and the last connection')
})

t.test('the address is in brackets where it is IPv6', async (t) => {
  const server = createServer((socket) => { socket.once('data', () => { socket.write(PLAIN) }) })
  server.listen(0, '::1')
  await Promise.race([once(server, 'listening'), once(server, 'error').then(() => { t.comment('no IPv6') })])
  t.teardown(() => { server.close() })
  const address = server.address()
  if (address === null || typeof address === 'string') return
  const { ask, connections } = caller(t, address.port, true, { host: '[::1]' })
  t.equal((await ask()).body, 'hello')
  await connections.destroy()
})

t.test('a connection on which more came than was asked for is not used again', async (t) => {
  const answer = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}'
  for (const fastLane of [true, false]) {
    let connections = 0
    const server = createServer((socket) => {
      connections++
      socket.on('error', () => {}).on('data', () => { socket.write(answer + answer) })
    })
    const { ask } = caller(t, await listening(t, server), fastLane)
    for (let i = 0; i < 2; i++) await ask()
    t.equal(connections, 2)
  }
})
