// What stands around a body: heads, their fields, cookies, forms and frames of streams of growing size (rule growth).
import { Readable } from 'node:stream'
import t from 'tap'
import { growsTooFast } from '../support/growth.ts'
import { compilePattern } from '../../plugins/key-policy/pattern.ts'
import { sessionIn, siteOf } from '../../src/admin/web/hosts.ts'
import { readQuery } from '../../src/admin/api/operation.ts'
import { compileNetworks } from '../../src/base/ip-address.ts'
import { BodyMemory } from '../../src/core/body-memory.ts'
import { clientAddress } from '../../src/core/client-address.ts'
import { SseDecoder } from '../../src/core/sse.ts'
import { isGatewayError } from '../../src/errors.ts'
import { readForm } from '../../src/http/form.ts'
import { HeadLines } from '../../src/http/lane/head-lines.ts'
import { RequestReader } from '../../src/http/lane/read-request.ts'
import { AnswerHeads } from '../../src/upstream/transport/lane/answer-heads.ts'
import { AnswerReader } from '../../src/upstream/transport/lane/answer-reader.ts'
import { betasOf, forwardable, returnable } from '../../src/upstream/transport/headers.ts'
import { config, exchange, model, snapshot, upstreamConfig } from '../support/exchange.ts'

const UPSTREAM = { origin: 'http://127.0.0.1:9', basePath: '' }
const FROM = 10_000
const many = <T>(size: number, make: (i: number) => T): T[] => Array.from({ length: size }, (_, i) => make(i))
const list = (size: number, between: string, make: (i: number) => string): string => many(size, make).join(between)

/** Each reads a field, or a whole head, of `size` parts. */
const ROWS: Readonly<Record<string, readonly [input: (size: number) => unknown, run: (input: never) => unknown]>> = {
  'head of a request, many lines': [
    (size) => Buffer.from(`POST / HTTP/1.1\r\n${list(size, '\r\n', (i) => `x-${i}: a`)}\r\ncontent-length: 0\r\n\r\n`),
    (head: Buffer) => new RequestReader().read(head)],
  'head of a request, one long line': [
    (size) => Buffer.from(`POST / HTTP/1.1\r\nx-a: ${' \t'.repeat(size)}x\r\ncontent-length: 0\r\n\r\n`),
    (head: Buffer) => new RequestReader().read(head)],
  'head of an answer, many lines': [
    (size) => Buffer.from(`HTTP/1.1 200 OK\r\n${list(size, '\r\n', (i) => `x-${i}: a`)}\r\ncontent-length: 0\r\n\r\n`),
    (head: Buffer) => { new AnswerReader(new AnswerHeads()).read(head, head.length) }],
  'head of an answer, one long line': [
    (size) => Buffer.from(`HTTP/1.1 200 OK\r\nx-a: ${' \t'.repeat(size)}x\r\ncontent-length: 0\r\n\r\n`),
    (head: Buffer) => { new AnswerReader(new AnswerHeads()).read(head, head.length) }],
  'chunks of one byte': [
    (size) => Buffer.from(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${'1\r\nx\r\n'.repeat(size)}0\r\n\r\n`),
    (answer: Buffer) => { new AnswerReader(new AnswerHeads()).read(answer, answer.length) }],
  'chunks that come byte by byte': [
    (size) => Buffer.from(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${'1\r\nx\r\n'.repeat(size)}0\r\n\r\n`),
    (answer: Buffer) => {
      const reader = new AnswerReader(new AnswerHeads())
      const head = answer.indexOf('\r\n\r\n') + 4
      reader.read(answer, head)
      for (let at = head; at < answer.length; at++) reader.read(Buffer.of(answer[at]!), 1)
    }],
  'head that is written': [
    (size) => many(size, (i) => [`x-${i}`, 'a']).flat(),
    (fields: readonly string[]) => { new HeadLines().write(fields) }],
  'fields that pass': [
    (size) => Object.fromEntries(many(size, (i) => [`x-${i}`, 'a'])),
    (headers: Readonly<Record<string, string>>) => { forwardable(headers); returnable(headers, UPSTREAM) }],
  'names in Connection': [
    (size) => ({ connection: list(size, ', ', (i) => `x-${i}`), 'x-1': 'a', 'x-2': 'b' }),
    (headers: Readonly<Record<string, string>>) => { forwardable(headers); returnable(headers, UPSTREAM) }],
  'anthropic-beta': [
    (size) => list(size, ',', (i) => `beta-${i}`),
    (names: string) => betasOf(upstreamConfig({ messages: { betas: ['a-*', 'b'] } } as never), names)],
  'x-forwarded-for': [
    (size) => list(size, ', ', () => '10.0.0.1'),
    (chain: string) => clientAddress({ address: '10.0.0.1', headers: { 'x-forwarded-for': chain } } as never,
      compileNetworks(['10.0.0.0/8']))],
  'x-forwarded-for, no address': [
    (size) => `"${'['.repeat(size)}`,
    (chain: string) => clientAddress({ address: '10.0.0.1', headers: { 'x-forwarded-for': chain } } as never,
      compileNetworks(['10.0.0.0/8']))],
  'user-agent': [
    (size) => 'claude-cli/'.repeat(size),
    (agent: string) => compilePattern('*cli*claude*x*')(agent)],
  cookies: [
    (size) => list(size, '; ', (i) => `gateway-session-${i}=x`),
    (cookies: string) => sessionIn(cookies, siteOf('127.0.0.1:1', [])!)],
  'one long cookie': [
    (size) => `${' '.repeat(size)};${'='.repeat(size)}`,
    (cookies: string) => sessionIn(cookies, siteOf('127.0.0.1:1', [])!)],
  host: [(size) => `${'a.'.repeat(size)}local`, (host: string) => siteOf(host, ['x'])],
  query: [
    (size) => new URLSearchParams(list(size, '&', (i) => `name${i}=x`)),
    (query: URLSearchParams) => readQuery(query, ['limit'])]
}

t.test('heads and fields', async (t) => {
  for (const [name, [input, run]] of Object.entries(ROWS)) {
    const caught = (made: unknown): unknown => {
      try { return run(made as never) } catch (thrown) { return thrown }
    }
    t.equal(await growsTooFast({ input, run: caught, from: FROM }), undefined, name)
  }
})

/** What a stream is made of, by number of its parts. */
const FRAMES: Readonly<Record<string, (size: number) => string>> = {
  'short events': (size) => 'data: x\n\n'.repeat(size),
  'one long line': (size) => `data: ${'x'.repeat(size)}\n\n`,
  'lines of one event': (size) => `${'data: x\n'.repeat(size)}\n`,
  'lines of one event, CRLF': (size) => `${'data: x\r\n'.repeat(size)}\r\n`,
  'ends of lines': (size) => '\r'.repeat(size),
  comments: (size) => ': x\n\n'.repeat(size),
  'other fields': (size) => `${'id: 1\nretry: 5\n'.repeat(size)}\n`,
  'no end': (size) => 'data'.repeat(size)
}

t.test('frames of streams, in pieces of every size', async (t) => {
  for (const [name, frames] of Object.entries(FRAMES)) {
    for (const bytes of [1, 7, 4096]) {
      const run = (stream: Buffer): void => {
        const decoder = new SseDecoder()
        try {
          for (let at = 0; at < stream.length; at += bytes) decoder.push(Buffer.from(stream.subarray(at, at + bytes)))
        } catch (thrown) {
          if (!isGatewayError(thrown) && !/bytes/.test(String(thrown))) throw thrown // a bound ends it
        }
      }
      t.equal(await growsTooFast({ input: (size) => Buffer.from(frames(size)), run, from: FROM }), undefined,
        `${name}, ${bytes} bytes at a time`)
    }
  }
})

const part = (name: string, value: string, more = ''): string =>
  `--b\r\nContent-Disposition: form-data; name="${name}"${more}\r\n\r\n${value}\r\n`

/** Forms by number of their parts, or characters of one. */
const FORMS: Readonly<Record<string, (size: number) => string>> = {
  fields: (size) => list(size, '', (i) => part(`field-${i}`, 'x')),
  'fields of one name': (size) => list(size, '', () => part('image[]', 'x')),
  'a long field': (size) => part('prompt', 'x'.repeat(size)),
  'a long name': (size) => part('x'.repeat(size), 'x'),
  'a name of many steps': (size) => part(`a${'[b]'.repeat(size)}`, 'x'),
  'a long head': (size) => part('a', 'x', `; x="${'\\"'.repeat(size)}"`),
  'lines of a head': (size) => `--b\r\n${'X-A: 1\r\n'.repeat(size)}\r\nx\r\n`,
  'a file': (size) => part('image', 'x'.repeat(size), '; filename="a.png"'),
  'what is nearly a boundary': (size) => part('image', '\r\n--\r\n-\r\n--c'.repeat(size), '; filename="a.png"'),
  'ends of lines': (size) => part('image', '\r\n'.repeat(size), '; filename="a.png"'),
  'before the first part': (size) => '\r\n--'.repeat(size)
}

t.test('forms', async (t) => {
  const live = snapshot(config({ upstreams: { u: upstreamConfig() }, models: [model('m1', { premium: 'u/v*1' })] }), [])
  const limits = { limit: 64 * 1024 * 1024, idle: 60_000, memory: new BodyMemory(1024 ** 3) }
  for (const [name, parts] of Object.entries(FORMS)) {
    for (const bytes of [7, 65_536]) {
      const input = (size: number): readonly Buffer[] => {
        const form = Buffer.from(`${parts(size)}--b--\r\n`)
        return many(Math.ceil(form.length / bytes), (i) => form.subarray(i * bytes, (i + 1) * bytes))
      }
      const run = async (chunks: readonly Buffer[]): Promise<void> => {
        const headers = { 'content-type': 'multipart/form-data; boundary=b' }
        const req = Object.assign(Readable.from(chunks), { headers })
        const made = exchange(live, { path: '/v1/messages' })
        await readForm(req as never, {} as never, limits, made).catch((thrown: unknown) => {
          if (!isGatewayError(thrown)) throw thrown
        })
      }
      t.equal(await growsTooFast({ input, run, from: 4000 }), undefined, `${name}, ${bytes} bytes at a time`)
    }
  }
})
