// The fast lane against the same gateway without it: whatever a client sends, and however, both give the same bytes and
// leave the connection in the same state. `node test/fuzz/lane.ts` has the reader alone.
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setImmediate as turn, setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { Lane } from '../../src/http/lane/lane.ts'
import type { LaneResponse } from '../../src/http/lane/response.ts'
import { RequestReader } from '../../src/http/lane/read-request.ts'
import { finished, gateway, KEY, messagesRequest, type TestGateway, yaml } from '../support/gateway.ts'
import { answer, stall, upstream, wait, type Upstream } from '../support/upstream.ts'

/**
 * A piece to be written, milliseconds to wait, something to wait for (SOME: an answer that may never come), or the
 * client's end.
 */
type Step<Up = Upstream> = string | Buffer | number | 'ANSWER' | 'SOME' | 'END' | 'LEAVE' |
  ((up: Up) => Promise<unknown>)

/** Where the answer is late the next piece comes behind the first one at once: the answers are the same. */
const PATIENCE_MS = 300

const body = JSON.stringify(messagesRequest)

function head (lines: readonly string[], line = 'POST /v1/messages HTTP/1.1'): string {
  return [line, ...lines, '', ''].join('\r\n')
}

const usual = ['Host: gateway', `x-api-key: ${KEY}`, 'content-type: application/json']
const plain = head([...usual, `content-length: ${body.length}`]) + body
const last = lengthThen('connection: close')
/** Says whether the connection was open; its answer is the last. */
const probe = head(['host: gateway', 'connection: close'], 'GET /probe HTTP/1.1')

function lengthThen (...lines: readonly string[]): string {
  return head([...usual, `content-length: ${body.length}`, ...lines]) + body
}

/** All that the server says until the connection is over, without what differs between two answers. */
async function said<Up> (
  t: Test, { url }: { readonly url: string }, up: Up, steps: readonly Step<Up>[]
): Promise<string> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  t.teardown(() => socket.destroy())
  socket.on('error', () => {})
  let text = ''
  socket.on('data', (chunk: Buffer) => { text += chunk.toString('latin1') })
  const closed = new Promise((resolve) => { socket.once('close', resolve) })
  for (const step of steps) {
    if (typeof step === 'function') await step(up)
    else if (typeof step === 'number') await pause(step)
    else if (step === 'ANSWER' || step === 'SOME') {
      const [before, until] = [text, step === 'SOME' ? performance.now() + PATIENCE_MS : Infinity]
      while (text === before && !socket.destroyed && performance.now() < until) await turn()
    }
    else if (step === 'END') socket.end()
    else if (step === 'LEAVE') socket.destroy()
    else {
      socket.write(step)
      await turn()
    }
  }
  await closed
  return text.replaceAll(/req_\w{24}/g, 'ID').replaceAll(/^date: .*$/gim, 'date').replaceAll(
    /^server-timing: .*$/gm, 'timing')
}

/** Not so where the variable FAST_LANE turns it off everywhere. */
function isOn (gateway: TestGateway): boolean {
  return gateway.live.current().config.server.fast_lane === 'on'
}

interface Pair {
  readonly on: TestGateway
  readonly off: TestGateway
  readonly ups: readonly [Upstream, Upstream]
}

async function pair (t: Test, script: Parameters<typeof upstream>[1] = answer('hi')): Promise<Pair> {
  const ups = [await upstream(t, script), await upstream(t, script)] as const
  const configured = (up: Upstream, lane: string): string =>
    yaml([up.url]).replace('server:\n', `server:\n  fast_lane: ${lane}\n`)
  const [on, off] = [await gateway(t, configured(ups[0], 'on')), await gateway(t, configured(ups[1], 'off'))]
  return { on, off, ups }
}

/** How many requests of a gateway node's server has read. */
function countNodes (t: Test, { url }: TestGateway): () => number {
  let count = 0
  const onRequest = (message: unknown): void => {
    const { server } = message as { readonly server: Server }
    if ((server.address() as AddressInfo | null)?.port === Number(new URL(url).port)) count++
  }
  subscribe('http.server.request.start', onRequest)
  t.teardown(() => { unsubscribe('http.server.request.start', onRequest) })
  return () => count
}

async function same (t: Test, { on, off, ups }: Pair, name: string, steps: readonly Step[]): Promise<string> {
  const [own, nodes] = await Promise.all([said(t, on, ups[0], steps), said(t, off, ups[1], steps)])
  t.equal(own, nodes, name)
  return own
}

const asked = async (up: Upstream): Promise<unknown> => await up.nextRequest()

t.test('plain requests are the lane\'s, and what is not plain is node\'s, on one connection', async (t) => {
  const gateways = await pair(t)
  const nodes = countNodes(t, gateways.on)
  const text = await same(t, gateways, 'two and a probe', [plain, 'ANSWER', plain, 'ANSWER', probe])
  t.match(text, /^HTTP\/1\.1 200 OK\r\n.*HTTP\/1\.1 200 OK\r\n.*HTTP\/1\.1 404 Not Found\r\n/s)
  t.match(text, /Connection: keep-alive\r\nKeep-Alive: timeout=75\r\n/)
  t.equal(nodes(), isOn(gateways.on) ? 1 : 3)
  t.strictSame(gateways.ups[0].requests.map(({ body }) => body), gateways.ups[1].requests.map(({ body }) => body))
})

t.test('what smugglers send', async (t) => {
  const gateways = await pair(t)
  const chunked = `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`
  const chunkedThen = (...lines: readonly string[]): string => head([...usual, ...lines]) + chunked
  const length = `content-length: ${body.length}`
  const cases: Readonly<Record<string, string | Buffer>> = {
    'length and chunked': chunkedThen(length, 'transfer-encoding: chunked'),
    'chunked and length': chunkedThen('transfer-encoding: chunked', length),
    'chunked in capitals': chunkedThen('TRANSFER-ENCODING: CHUNKED'),
    'chunked': chunkedThen('transfer-encoding: chunked'),
    'chunked twice': chunkedThen('transfer-encoding: chunked', 'transfer-encoding: chunked'),
    'chunked and identity': chunkedThen('transfer-encoding: chunked, identity'),
    'identity and chunked': chunkedThen('transfer-encoding: identity, chunked'),
    'gzip': chunkedThen('transfer-encoding: gzip'),
    'an empty encoding': chunkedThen('transfer-encoding:'),
    'xchunked': chunkedThen('transfer-encoding: xchunked'),
    'chunked behind a tab': chunkedThen('transfer-encoding:\tchunked'),
    'chunked in quotes': chunkedThen('transfer-encoding: "chunked"'),
    'an encoding with a vertical tab': lengthThen('transfer-encoding: \x0bchunked'),
    'an encoding with a space in its name': lengthThen('transfer-encoding : chunked'),
    'an encoding with an underscore': lengthThen('transfer_encoding: chunked'),
    'an encoding on a folded line': lengthThen('x: y', ' transfer-encoding: chunked'),
    'an encoding behind a bare CR': lengthThen('x: y\rtransfer-encoding: chunked'),
    'an encoding behind a bare LF': lengthThen('x: y\ntransfer-encoding: chunked'),
    'two lengths that agree': lengthThen(length),
    'two lengths that differ': lengthThen('content-length: 1'),
    'two lengths in one line': head([...usual, `content-length: ${body.length}, ${body.length}`]) + body,
    'a length and a sign': head([...usual, `content-length: +${body.length}`]) + body,
    'a negative length': head([...usual, 'content-length: -1']) + body,
    'a length in hex': head([...usual, 'content-length: 0x10']) + body,
    'a length with zeros': head([...usual, `content-length: 000${body.length}`]) + body,
    'a length and a letter': head([...usual, `content-length: ${body.length}a`]) + body,
    'a length with a space in it': head([...usual, 'content-length: 1 0']) + body,
    'a length with a space behind it': head([...usual, `content-length: ${body.length} `]) + body,
    'a length of 2^64 and some': head([...usual, `content-length: ${2n ** 64n + BigInt(body.length)}`]) + body,
    'an empty length': head([...usual, 'content-length:']) + body,
    'no length': head(usual),
    'a length of 0': head([...usual, 'content-length: 0']),
    'a length that is too short': head([...usual, `content-length: ${body.length - 5}`]) + body,
    'a length with a space before its colon': head([...usual, `content-length : ${body.length}`]) + body,
    'LF alone': plain.replaceAll('\r\n', '\n'),
    'LF alone at the end of the head': plain.replace('\r\n\r\n', '\r\n\n'),
    'CR alone at the end of a line': plain.replace('\r\nx-api-key', '\rx-api-key'),
    'CR CR LF': plain.replace('\r\nx-api-key', '\r\r\nx-api-key'),
    'an empty line first': `\r\n${plain}`,
    'two empty lines first': `\r\n\r\n${plain}`,
    'a space before the first header': plain.replace('Host', ' Host'),
    'a folded line': lengthThen('x: y', '\tz'),
    'a NUL in a value': lengthThen('x: a\0b'),
    'a NUL in a name': lengthThen('x\0: ab'),
    'a DEL in a value': lengthThen('x: a\x7fb'),
    'latin1 in a value': Buffer.from(lengthThen('x: caf\xe9'), 'latin1'),
    'latin1 in a name': Buffer.from(lengthThen('caf\xe9: x'), 'latin1'),
    'no name': lengthThen(': x'),
    'no colon': lengthThen('x'),
    'two hosts': lengthThen('host: other'),
    'no host': plain.replace('Host: gateway\r\n', ''),
    'an empty host': plain.replace('Host: gateway', 'Host:'),
    'two keys': lengthThen(`x-api-key: ${KEY}x`),
    'two cookies': lengthThen('cookie: a=b', 'cookie: c=d'),
    'a header like a property of objects': lengthThen('constructor: x', '__proto__: y', 'toString: z'),
    'Expect': lengthThen('expect: 100-continue'),
    'another expectation': lengthThen('expect: 200-ok'),
    'HTTP/1.0': plain.replace('HTTP/1.1', 'HTTP/1.0'),
    'HTTP/1.0 that lives on': plain.replace('HTTP/1.1', 'HTTP/1.0').replace('Host', 'connection: keep-alive\r\nHost'),
    'HTTP/2.0': plain.replace('HTTP/1.1', 'HTTP/2.0'),
    'HTTP/1.2': plain.replace('HTTP/1.1', 'HTTP/1.2'),
    'http/1.1': plain.replace('HTTP/1.1', 'http/1.1'),
    'no version': plain.replace(' HTTP/1.1', ''),
    'two spaces in the first line': plain.replace('POST ', 'POST  '),
    'a tab in the first line': plain.replace('POST ', 'POST\t'),
    'a method in small letters': plain.replace('POST', 'post'),
    'the absolute form': plain.replace('/v1/messages', 'http://other/v1/messages'),
    'the asterisk': plain.replace('/v1/messages', '*'),
    'a fragment': plain.replace('/v1/messages', '/v1/messages#x'),
    'a query': plain.replace('/v1/messages', '/v1/messages?beta=true'),
    'a slash at the end': plain.replace('/v1/messages', '/v1/messages/'),
    'a path of bytes': Buffer.from(plain.replace('/v1/messages', '/v1/\xe9'), 'latin1'),
    'an unknown path': plain.replace('/v1/messages', '/v1/nowhere'),
    'another route': plain.replace('/v1/messages', '/v1/messages/count_tokens'),
    'a wrong method': plain.replace('POST', 'DELETE'),
    'close': lengthThen('connection: close'),
    'Keep-Alive': lengthThen('connection: Keep-Alive'),
    'keep-alive': lengthThen('connection: keep-alive'),
    'an upgrade': lengthThen('connection: upgrade, close', 'upgrade: websocket'),
    'h2c': lengthThen('connection: Upgrade, HTTP2-Settings, close', 'upgrade: h2c', 'http2-settings: AAMAAABkAAQAAP__'),
    'a trailer': lengthThen('te: trailers', 'trailer: x'),
    'another type': plain.replace('application/json', 'text/plain'),
    'another charset': plain.replace('application/json', 'application/json; charset=latin1'),
    'no type': plain.replace('content-type: application/json\r\n', ''),
    'a compressed body that is none': lengthThen('content-encoding: gzip'),
    'an origin': lengthThen('origin: https://page.example'),
    'a wrong key': plain.replace(KEY, `${KEY.slice(0, -1)}x`),
    'no key': plain.replace(`x-api-key: ${KEY}\r\n`, ''),
    'no JSON': plain.replace(body, body.replace('{', '[')),
    'no UTF-8': Buffer.from(plain.replace('Hello', 'H\xe9llo'), 'latin1'),
    'too deep': head([...usual, 'content-length: 200']) + '['.repeat(200),
    'a head of 9 KB': lengthThen(`x-large: ${'x'.repeat(9000)}`),
    'a head of 70 KB': lengthThen(`x-large: ${'x'.repeat(70_000)}`),
    'a head of 100 lines': lengthThen(...Array.from({ length: 100 }, (_, i) => `x-${i}: y`)),
    'a head of 1100 lines': lengthThen(...Array.from({ length: 1100 }, (_, i) => `x-${i}: y`)),
    'garbage': 'GARBAGE\r\n\r\n',
    'garbage behind a request': `${plain}\0\0 nonsense\r\n\r\n`,
    'TLS': Buffer.from([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3])
  }
  for (const [name, bytes] of Object.entries(cases)) {
    await same(t, gateways, name, [bytes, 'SOME', probe])
    await same(t, gateways, `${name}, and another request at once`, [Buffer.concat([bytes, probe].map((piece) =>
      typeof piece === 'string' ? Buffer.from(piece, 'latin1') : piece))])
  }
  t.ok(gateways.ups[0].requests.length > 20)
  t.equal(gateways.ups[0].requests.length, gateways.ups[1].requests.length)
})

t.test('several requests in one piece', async (t) => {
  const gateways = await pair(t, answer('hi'))
  for (const count of [2, 20, 2000]) {
    const text = await same(t, gateways, String(count), [plain.replace(KEY, 'none').repeat(count - 1) + last])
    t.equal(text.match(/HTTP\/1\.1 \d+/g)?.length, count)
  }
  const text = await same(t, gateways, 'served ones', [plain.repeat(9) + last])
  t.equal(text.match(/HTTP\/1\.1 200/g)?.length, 10)
})

t.test('requests that come while one is answered are answered behind it, in order', async (t) => {
  const padded = head(['host: gateway', `x-pad: ${'x'.repeat(10_000)}`], 'GET /padded HTTP/1.1')
  for (const [name, pieces, count] of [
    ['one, in pieces', [probe.slice(0, 9), 5, probe.slice(9)], 1],
    ['one more for the lane', [plain, 5, probe], 2],
    ['more than is kept', [padded.repeat(100), probe], 101]
  ] as const) {
    const held = Promise.withResolvers<void>()
    const gateways = await pair(t, [wait(held.promise), answer('hi')])
    const text = await same(t, gateways, name, [plain, asked, ...pieces, 5, async () => { held.resolve() }])
    t.equal(text.match(/HTTP\/1\.1 \d+/g)?.length, count + 1, name)
    t.match(text, /^HTTP\/1\.1 200.*HTTP\/1\.1 404/s)
  }
})

t.test('slow clients', async (t) => {
  const gateways = await pair(t)
  const expected = await same(t, gateways, 'at once', [last])
  t.match(expected, /^HTTP\/1\.1 200/)
  t.equal(await same(t, gateways, 'a byte at a time', [...last]), expected)
  for (let at = 1; at < last.length; at += 3) {
    t.equal(await same(t, gateways, `cut at ${at}`, [last.slice(0, at), last.slice(at)]), expected)
  }
  for (const at of [1, 20, last.indexOf('\r\n\r\n') + 2, last.indexOf('\r\n\r\n') + 4, last.length - 1]) {
    t.equal(await same(t, gateways, `a long wait at ${at}`, [last.slice(0, at), 120, last.slice(at)]), expected)
  }
})

t.test('clients that end their side', async (t) => {
  const gateways = await pair(t, stall())
  await same(t, gateways, 'at once', ['END'])
  for (const at of [1, 20, plain.indexOf('\r\n\r\n') + 2, plain.indexOf('\r\n\r\n') + 4, plain.length - 1]) {
    await same(t, gateways, `behind ${at} bytes`, [plain.slice(0, at), 'END'])
    await same(t, gateways, `behind ${at} bytes, late`, [plain.slice(0, at), 120, 'END'])
    await same(t, gateways, `behind ${at} bytes, without a key`, [plain.replace(KEY, 'none').slice(0, at), 'END'])
  }
  await same(t, gateways, 'while their answer is made', [plain, asked, 'END'])
  await same(t, gateways, 'while another request waits', [plain, asked, plain, 'END'])
})

t.test('clients that leave', async (t) => {
  const { on, off, ups } = await pair(t, stall())
  const lines: unknown[] = []
  for (const [gateway, up] of [[on, ups[0]], [off, ups[1]]] as const) {
    const seen: unknown[] = []
    for (const steps of [[plain, asked, 'LEAVE'], [plain, asked, plain, 'LEAVE'], [plain, asked, plain.slice(0, 9),
      'LEAVE']] as const) {
      t.equal(await said(t, gateway, up, steps), '')
      const { status, code, outcome, by, nanos } = await finished(gateway)
      seen.push({ status, code, outcome, by, nanos })
    }
    t.equal(await said(t, gateway, up, [plain.slice(0, 50), 'LEAVE']), '')
    t.equal(gateway.server.inFlight, 0)
    lines.push(seen)
  }
  t.strictSame(lines[0], lines[1])
  t.match(lines[0], [{ code: 'client_closed' }, { code: 'client_closed' }, { code: 'client_closed' }])
})

t.test('streams have the same bytes', async (t) => {
  const gateways = await pair(t, answer('h\u00e9llo \u{1F30D}'))
  const asked = JSON.stringify({ ...messagesRequest, stream: true })
  const stream = head([...usual, `content-length: ${asked.length}`]) + asked
  const text = await same(t, gateways, 'a stream', [stream, 'ANSWER', plain, probe])
  t.match(text, /Transfer-Encoding: chunked\r\n\r\n[0-9a-f]+\r\nevent: message_start/)
  t.match(text, /event: message_stop.*\r\n0\r\n\r\nHTTP/s)
})

t.test('a drain ends connections that wait, and tells those whose answer is made', async (t) => {
  const held = Promise.withResolvers<void>()
  const { on, ups: [up] } = await pair(t, [wait(held.promise), answer('hi')])
  const idle = said(t, on, up, [plain.replace(KEY, 'none'), 'ANSWER'])
  const busy = said(t, on, up, [plain])
  await up.nextRequest()
  const over = on.server.drain()
  t.match(await idle, /^HTTP\/1\.1 401/)
  held.resolve()
  t.match(await busy, isOn(on) ? /^HTTP\/1\.1 200.*Connection: close\r\n\r\n\{"id"/s : /^HTTP\/1\.1 200/)
  await over
})

/** A server with a lane alone. */
async function alone (
  t: Test, begin: (response: LaneResponse) => void, refuseLate: (socket: Socket) => void = () => {}
): Promise<{ readonly url: string }> {
  const server = createServer({ keepAliveTimeout: 100, keepAliveTimeoutBuffer: 1 })
  const lane = new Lane(server, {
    headers: 300,
    bodyLimit: 1000,
    isDraining: () => false,
    begin: (_request, _body, response) => {
      begin(response)
      return { left () {} }
    },
    refuseLate
  })
  t.teardown(() => {
    lane.closeAll()
    server.close()
  })
  await new Promise<void>((resolve) => { server.listen(0, '127.0.0.1', resolve) })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

t.test('a connection on which nothing comes is told so; one that is idle ends', async (t) => {
  let late = 0
  const server = await alone(t, (response) => {
    response.writeHead(200, ['content-length', '2'])
    response.end('ok', 'latin1')
  }, (socket) => {
    late++
    socket.end('late')
  })
  t.match(await said(t, server, undefined, [plain]), /^HTTP\/1\.1 200 OK\r\n.*ok$/s)
  t.equal(await said(t, server, undefined, []), 'late')
  t.equal(late, 1)
})

t.test('a client that asks again, ends its side and then takes its answer gets that one', async (t) => {
  const size = 30_000_000
  let answers = 0
  const { url } = await alone(t, (response) => {
    answers++
    response.writeHead(200, ['content-length', String(size)])
    response.end(Buffer.alloc(size, 'x'), 'latin1')
  })
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  t.teardown(() => socket.destroy())
  socket.pause()
  socket.write(plain)
  while (answers === 0) await turn()
  socket.end(plain)
  await pause(50)
  let got = 0
  for await (const chunk of socket) got += (chunk as Buffer).length
  t.ok(got > size && got < size + 500, `${got} bytes`)
  t.equal(answers, 1)
})

t.test('a text is over when the system has taken all of it, or when the client has left', async (t) => {
  const text = 'text '.repeat(6_000_000)
  let ended: LaneResponse | undefined
  const { url } = await alone(t, (response) => {
    ended = response
    response.writeHead(200, ['content-length', String(text.length)])
    response.end(text, 'latin1')
  })
  const asking = async (): Promise<Socket> => {
    ended = undefined
    const socket = connect(Number(new URL(url).port), '127.0.0.1')
    t.teardown(() => socket.destroy())
    socket.pause()
    socket.write(plain)
    while (ended === undefined) await turn()
    await pause(50)
    return socket
  }
  const slow = await asking()
  t.notOk(ended!.writableFinished, 'it waits for one that does not read')
  const pieces: Buffer[] = []
  let got = 0
  slow.on('data', (piece: Buffer) => { pieces.push(piece); got += piece.length }).resume()
  while (!ended!.writableFinished || got < text.length) await pause(5)
  await pause(50)
  const answer = Buffer.concat(pieces).toString('latin1')
  t.ok(answer.slice(answer.indexOf('\r\n\r\n') + 4) === text, 'then all of it has come')
  const leaving = await asking()
  const closed = new Promise<void>((resolve) => { ended!.once('close', resolve) })
  leaving.destroy()
  await closed
  t.notOk(ended!.writableFinished, 'one that has left has not got it')
})

t.test('bytes are piped, with a length and without; what breaks off ends the connection', async (t) => {
  const piped: (Promise<string>)[] = []
  const pipe = (fields: readonly string[], bytes: Iterable<unknown> | AsyncIterable<unknown>) =>
    (response: LaneResponse): void => {
      response.writeHead(200, fields)
      const whole = pipeline(Readable.from(bytes), response.toStream())
      piped.push(whole.then(() => 'whole', ({ message }: Error) => message))
    }
  const pieces = [Buffer.from('one'), Buffer.alloc(300_000, 'x'), Buffer.from('two')]
  const whole = Buffer.concat(pieces).toString()
  const chunked = await said(t, await alone(t, pipe([], pieces)), undefined, [plain])
  t.match(chunked, /\r\nKeep-Alive: timeout=0\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n493e0\r\nxxx/)
  t.ok(chunked.endsWith('xxx\r\n3\r\ntwo\r\n0\r\n\r\n'))
  const sizedOnly = pipe(['content-length', '300006', 'connection', 'close'], pieces)
  const sized = await said(t, await alone(t, sizedOnly), undefined, [plain])
  t.equal(sized.slice(sized.indexOf('\r\n\r\n') + 4), whole)
  t.match(sized, /connection: close/)
  const empty = await said(t, await alone(t, pipe(['content-length', '0'], [])), undefined, [plain])
  t.ok(empty.endsWith('\r\n\r\n'))
  const broken = await said(t, await alone(t, pipe([], (async function * () {
    yield Buffer.from('one')
    throw new Error('broken')
  })())), undefined, [plain])
  t.ok(broken.endsWith('3\r\none\r\n'))
  t.strictSame(await Promise.all(piped), ['whole', 'whole', 'whole', 'broken'])
})

t.test('heads have what node would say', async (t) => {
  const keepAlive = ['Connection: keep-alive', 'Keep-Alive: timeout=0', '']
  const heads: readonly (readonly [number, readonly string[], readonly string[]])[] = [
    [200, ['content-length', '2', 'date', 'x'], ['200 OK', 'content-length: 2', 'date', ...keepAlive, 'ok']],
    [204, [], ['204 No Content', 'date', ...keepAlive, '']],
    [299, ['Connection', 'close'],
      ['299 unknown', 'Connection: close', 'date', 'Transfer-Encoding: chunked', '', '2', 'ok', '0', '', '']]
  ]
  for (const [status, fields, expected] of heads) {
    const server = await alone(t, (response) => {
      t.throws(() => { response.writeHead(200, ['x', 'a\r\nb: c']) }, { code: 'ERR_INVALID_CHAR' })
      t.throws(() => { response.writeHead(200, ['x:', 'a']) }, { code: 'ERR_INVALID_HTTP_TOKEN' })
      response.writeHead(status, fields)
      response.end('ok', 'latin1')
    })
    const isLast = fields.includes('close')
    const text = await said(t, server, undefined, isLast ? [plain, 'ANSWER', plain] : [plain])
    t.equal(text, `HTTP/1.1 ${expected.join('\r\n')}`, isLast ? 'and no other answer' : '')
  }
})

t.test('a defect of our own before there is an exchange is a 500, and the next request is served', async (t) => {
  const up = await upstream(t, answer('hi'))
  const running = await gateway(t, yaml([up.url]))
  const current = running.live.current.bind(running.live)
  Object.assign(running.live, { current () { throw new Error('a defect') } })
  t.match(await said(t, running, up, [last]), /^HTTP\/1\.1 500 .*"server_error"/s)
  Object.assign(running.live, { current })
  t.match(await said(t, running, up, [last]), /^HTTP\/1\.1 200 /)
})

t.test('the reader knows the head before, and takes nothing for it that it is not', (t) => {
  const reader = new RequestReader()
  const request = (length: string, rest = ''): Buffer =>
    Buffer.from(`POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: ${length}\r\nx-y: z${rest}\r\n\r\n{}`)
  const read = (bytes: Buffer): unknown => {
    const [known, anew] = [reader.read(bytes), new RequestReader().read(bytes)]
    // It goes to threads with a large answer: bytes of it would take those of others along.
    if (typeof known === 'object') t.strictSame(Reflect.ownKeys(known.head), [])
    t.strictSame(known, anew)
    return known
  }
  t.match(read(request('2')), { target: '/a', headers: { host: 'x', 'content-length': '2', 'x-y': 'z' } })
  t.match(read(request('2')), { target: '/a' })
  t.equal(read(request('3')), 'more')
  t.match(read(request('2', ' and more')), { headers: { 'x-y': 'z and more' } })
  for (const length of [' 2', '2 ', '2\r\nx: y']) t.type(read(request(length)), 'object', JSON.stringify(length))
  for (const length of ['02', '+2', '', '2\r\ncontent-length: 2', '2\ntransfer-encoding: chunked']) {
    t.equal(read(request(length)), 'foreign', JSON.stringify(length))
  }
  t.equal(read(request('1')), 'foreign', 'there is more than the request')
  t.end()
})
