// Answers by chance for the fast lane's reader, which is held to Node's own parser: what the lane takes, Node takes
// with the same status, fields, body and end; and where the lane hands over, a parser that is given what it hands over
// goes on as one that has read everything.
import { AnswerHeads } from '../../src/upstream/transport/lane/answer-heads.ts'
import { AnswerReader } from '../../src/upstream/transport/lane/answer-reader.ts'
import { seededRandom } from '../../src/simulator/random.ts'
import { Chance } from './chance.ts'

type Headers = Record<string, string | string[]>
type OnHead = (major: number, minor: number, headers: readonly string[] | undefined, method: unknown, url: unknown,
  status: number, reason: string, isUpgrade: boolean, isKept: boolean) => number

/** The part of Node's parser that is used; it is no documented API. */
interface Parser {
  initialize (type: number, resource: object): void
  execute (bytes: Buffer): number | (Error & { readonly code: string })
  finish (): (Error & { readonly code: string }) | undefined
  [callback: number]: (...told: never[]) => unknown
}
interface ParserClass {
  new (): Parser
  readonly RESPONSE: number
  readonly kOnHeaders: number
  readonly kOnHeadersComplete: number
  readonly kOnBody: number
  readonly kOnMessageComplete: number
}
const { HTTPParser } = process.getBuiltinModule('_http_common') as unknown as { readonly HTTPParser: ParserClass }

/** One answer as Node reads it. */
class NodeReader {
  readonly #parser = new HTTPParser()
  #raw: string[] = []
  #trailers: string[] = []
  status = 0
  isKept = false
  hasHead = false
  isOver = false
  body = ''
  /** code of the error */
  error: string | undefined

  constructor () {
    this.#parser[HTTPParser.kOnHeaders] = (headers: readonly string[]) => {
      if (!this.isOver) (this.hasHead ? this.#trailers : this.#raw).push(...headers)
    }
    const onHead: OnHead = (...[, , headers, , , status, , , isKept]) => {
      if (this.isOver) return 0
      this.hasHead = true
      this.status = status
      this.isKept = isKept
      if (headers !== undefined) this.#raw.push(...headers)
      return 0
    }
    this.#parser[HTTPParser.kOnHeadersComplete] = onHead
    this.#parser[HTTPParser.kOnBody] = (bytes: Buffer) => {
      if (!this.isOver) this.body += bytes.toString('latin1')
    }
    this.#parser[HTTPParser.kOnMessageComplete] = () => { this.isOver = true }
  }

  begin (): void {
    this.#parser.initialize(HTTPParser.RESPONSE, {})
    this.#raw = []
    this.#trailers = []
    this.hasHead = this.isOver = false
    this.body = ''
    this.error = undefined
  }

  read (bytes: Buffer): void {
    if (this.error !== undefined || this.isOver || bytes.length === 0) return
    const read = this.#parser.execute(bytes)
    if (typeof read !== 'number') this.error = read.code
  }

  end (): void {
    if (this.error === undefined && !this.isOver) this.error = this.#parser.finish()?.code
  }

  /** as undici gives them */
  get headers (): Headers {
    const headers: Headers = {}
    for (let i = 0; i < this.#raw.length; i += 2) {
      const [name, value] = [this.#raw[i]!.toLowerCase(), this.#raw[i + 1]!]
      const known = headers[name]
      if (known === undefined) headers[name] = value
      else if (typeof known === 'string') headers[name] = [known, value]
      else known.push(value)
    }
    return headers
  }

  get said (): string {
    const { status, isKept, hasHead, isOver, error } = this
    return JSON.stringify({ status, isKept, hasHead, isOver, error, headers: this.headers,
      trailers: this.#trailers })
  }
}

const STARTS = ['HTTP/1.1 200 OK', 'HTTP/1.1 404 Not Found', 'HTTP/1.1 500 ', 'HTTP/1.1 503 Service\tUnavailable',
  'HTTP/1.1 201 \x80\xFF', 'HTTP/1.1 599 x']
const ODD_STARTS = ['HTTP/1.0 200 OK', 'HTTP/1.1 204 No Content', 'HTTP/1.1 304 Not Modified', 'HTTP/1.1 100 Continue',
  'HTTP/1.1 101 Switching Protocols', 'HTTP/1.1 200', 'HTTP/1.1  200 OK', 'HTTP/1.1 2000 OK', 'HTTP/1.1 20 OK',
  'http/1.1 200 OK', 'HTTP/2.0 200 OK', 'HTTP/1.1 200 O\0K', '\r\nHTTP/1.1 200 OK', 'HTTP/1.1\t200 OK', 'ICY 200 OK',
  'HTTP/1.1 600 x', 'HTTP/1.1 205 Reset Content', 'HTTP/1.1 103 Early Hints', 'HTTP/1.1 200 OK\r']
const FIELDS = ['Content-Type: application/json', 'x-a: b', 'X-A: c', 'date: Tue, 24 Nov 2026 06:00:00 GMT',
  'Connection: keep-alive', 'connection: close', 'Keep-Alive: timeout=5', 'keep-alive: timeout=5, max=100',
  'set-cookie: a=b', 'Set-Cookie: c=d; Path=/', 'server:nginx', 'x-obs: \x80\xFF', 'x-tab: a\tb', '!#$%&\'*+-.^_`|~: 1']
const ODD_FIELDS = ['x-empty:', 'x-spaces:  a', 'x-behind: a ', 'x-behind: a\t', 'X y: z', ' x: folded',
  'x-fold: a\r\n b', 'x-nul: a\0b', 'x-cr: a\rb', 'x-lf: a\nb', 'x-del: \x7F', 'x : a', ': a', 'x', 'connection: upgrade',
  'upgrade: websocket', 'connection: close, keep-alive', 'Proxy-Connection: close', 'trailer: x-a', '__proto__: a',
  'constructor: a', 'content-encoding: gzip', 'connection: Keep-Alive', 'connection: close ', '\x80: a']
const FRAMES = ['content-length: 3, 3', 'content-length: +3', 'content-length: 0x3', 'content-length: -1',
  'content-length: 3.0', 'Content-Length: 99999999999999999999', 'content-length: 18446744073709551617',
  'content-length: ', 'content-length: 1 2', 'transfer-encoding: gzip, chunked', 'transfer-encoding: chunked, chunked',
  'transfer-encoding: identity', 'Transfer-Encoding: xchunked', 'transfer-encoding:\tchunked',
  'transfer-encoding: chunked,', 'transfer-encoding : chunked', 'content-length\t: 3', 'transfer-encoding: CHUNKED']
const SPLINTERS = ['\r', '\n', '\r\n', '\n\r', '\0', ' ', '\t', ':', ';', ',', '0', '1', '9', 'a', 'F', 'g', '-', '+',
  '\x7F', '\x80', '\xFF', '\x0B', '\x0C', '\x85', '\xA0', '"', 'x', '\r\n\r\n', '0\r\n\r\n', '\r\n ', ';a=b', '0x']

function chunks (chance: Chance, body: string): string {
  let text = ''
  for (let at = 0; at < body.length;) {
    const size = Math.min(body.length - at, chance.between(1, 12))
    const hex = size.toString(16)
    text += chance.mostly(0.93, chance.is(0.8) ? hex : chance.is(0.5) ? hex.toUpperCase() : `00${hex}`,
      [`${hex};a=b`, ` ${hex}`, `${hex} `, `000000000${hex}`, `+${hex}`, `0x${hex}`, `F${'0'.repeat(16)}${hex}`, ''])
    text += chance.mostly(0.98, '\r\n', ['\n', '\r', '\r\r\n', ' \r\n'])
    text += body.slice(at, at + size) + chance.mostly(0.98, '\r\n', ['\n', '', '\r', '\n\n', 'x\r\n', '\r\nx'])
    at += size
  }
  return text + chance.mostly(0.9, '0\r\n\r\n', ['0\r\n', '00\r\n\r\n', '0\r\nx-a: b\r\n\r\n', '0;a\r\n\r\n', '0\n\n',
    '0\r\n\r', '0', '', '-0\r\n\r\n', '0\r\n \r\n', '0\r\n\n'])
}

/** As text of latin1. */
function answer (chance: Chance): string {
  const start = chance.mostly(0.95, chance.of(STARTS), ODD_STARTS)
  const fields = chance.times(chance.below(6), () => chance.mostly(0.96, chance.of(FIELDS), ODD_FIELDS))
  const body = String.fromCharCode(...chance.times(chance.below(40), () => chance.is(0.8) ? chance.between(97, 122)
    : chance.is(0.5) ? chance.of([13, 10, 48, 59, 0]) : chance.below(256)))
  const isChunked = chance.is(0.6)
  const frame = isChunked ? chance.of(['transfer-encoding: chunked', 'Transfer-Encoding: Chunked'])
    : chance.of([`content-length: ${body.length}`, `Content-Length: 00${body.length}`,
      `CONTENT-LENGTH:${body.length}`, `content-length: ${body.length}`])
  fields.splice(chance.below(fields.length + 1), 0, chance.mostly(0.97, frame, ['', ...FRAMES]))
  if (chance.is(0.02)) {
    fields.splice(chance.below(fields.length + 1), 0, chance.of([frame, 'content-length: 5', ...FRAMES]))
  }
  const head = [start, ...fields.filter((line) => line !== '')].map((line) =>
    line + chance.mostly(0.995, '\r\n', ['\n', '\r', '\r\r\n', '\n\r'])).join('')
  return head + chance.mostly(0.99, '\r\n', ['\n', '', '\r', ' \r\n']) + (isChunked ? chunks(chance, body) : body) +
    (chance.is(0.9) ? '' : chance.of(['\r\n', '\n', 'x', 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n', '\0']))
}

function wounded (chance: Chance, text: string): string {
  let now = text
  for (let left = chance.is(0.8) ? 1 : chance.between(2, 3); left > 0; left--) {
    const at = chance.below(now.length + 1)
    const [before, after] = [now.slice(0, at), now.slice(at)]
    const length = chance.is(0.7) ? 1 : chance.between(2, 20)
    switch (chance.below(6)) {
      case 0: now = before + chance.of(SPLINTERS) + after; break
      case 1: now = before + chance.of(SPLINTERS) + after.slice(1); break
      case 2: now = before + after.slice(length); break
      case 3: now = before + after.slice(0, length) + after; break
      case 4: now = before + String.fromCharCode(chance.below(256)) + after.slice(1); break
      case 5: now = before; break
    }
  }
  return now
}

/** Cut mostly behind the head, which the lane wants whole. */
function cut (chance: Chance, text: string): Buffer[] {
  const bytes = Buffer.from(text, 'latin1')
  if (chance.is(0.3)) return [bytes]
  const head = text.indexOf('\r\n\r\n') + 4
  const from = chance.is(0.97) && head > 3 ? head : 0
  const cuts = chance.times(chance.between(1, 6), () => from + chance.below(bytes.length - from + 1))
  return [0, ...cuts.sort((a, b) => a - b)].map((at, i) => bytes.subarray(at, cuts[i] ?? bytes.length))
    .filter((piece) => piece.length > 0)
}

export const outcomes = ['over', 'unfinished', 'head handed over', 'chunk handed over'] as const
export type Outcome = typeof outcomes[number]

const [whole, handed] = [new NodeReader(), new NodeReader()]

/**
 * @param before what the same connection has brought with one read before: an answer with much the same head
 * @returns how far the lane went, or what is wrong
 */
export function judge (pieces: readonly Buffer[], before?: Buffer): Outcome | { readonly wrong: string } {
  const reader = new AnswerReader(new AnswerHeads())
  if (before !== undefined) reader.read(before, before.length)
  reader.reset()
  let [body, read, i] = ['', 0, 0]
  let headers: unknown
  for (; i < pieces.length && reader.phase !== 'over' && reader.phase !== 'foreign'; i++) {
    // The socket's memory holds more than what was read.
    const memory = Buffer.concat([pieces[i]!, Buffer.from('\r\n\r\n')])
    reader.read(memory, pieces[i]!.length)
    memory.fill('?')
    headers ??= reader.headers
    body += reader.body?.toString('latin1') ?? ''
    reader.body = undefined
    read += pieces[i]!.length
  }
  const { phase, status, excess } = reader
  if (headers === undefined) return phase === 'foreign' ? 'head handed over' : 'unfinished'

  whole.begin()
  if (phase === 'foreign') {
    handed.begin()
    for (const piece of pieces) whole.read(piece)
    for (const bytes of [...reader.handed!.replay, ...pieces.slice(i)]) handed.read(bytes)
    whole.end()
    handed.end()
    if (whole.said !== handed.said) return { wrong: `handed over: ${handed.said} and not ${whole.said}` }
    const rest = handed.body.slice(reader.handed!.delivered)
    if (body + rest !== whole.body) {
      return { wrong: `handed over: the body ${JSON.stringify([body, rest, whole.body])}` }
    }
  } else {
    const end = read - excess
    let fed = 0
    for (const piece of pieces) {
      const last = piece.subarray(0, Math.max(0, end - fed))
      fed += last.length
      if (phase === 'over' && fed === end && last.length > 0) {
        whole.read(last.subarray(0, -1))
        if (whole.isOver) return { wrong: 'it was over before' }
        whole.read(last.subarray(-1))
      } else whole.read(last)
    }
    if (whole.error !== undefined) return { wrong: `Node refuses it: ${whole.error}` }
    if (whole.isOver !== (phase === 'over')) {
      return { wrong: `it is ${phase}, for Node ${whole.isOver ? '' : 'not '}over` }
    }
    if (body !== whole.body) return { wrong: `the body is ${JSON.stringify([body, whole.body])}` }
  }
  if (status !== whole.status || JSON.stringify(headers) !== JSON.stringify(whole.headers)) {
    return { wrong: `the head is ${status} ${JSON.stringify(headers)}, for Node ${whole.said}` }
  }
  if (reader.closes === whole.isKept) return { wrong: 'the connection is kept, or not' }
  return phase === 'foreign' ? 'chunk handed over' : phase === 'over' ? 'over' : 'unfinished'
}

/** The answer of this number, as the reads of a socket bring it. */
export function piecesOf (seed: number, number: number): Buffer[] {
  return inputOf(seed, number).pieces
}

/** @returns the answer of this number, and the one that the same connection brought before */
function inputOf (seed: number, number: number): { readonly pieces: Buffer[], readonly before: Buffer } {
  const chance = new Chance(seededRandom(Math.imul(seed ^ Math.imul(number, 0x9E3779B1), 0x85EBCA6B) ^ number))
  const text = answer(chance)
  const pieces = cut(chance, chance.is(0.5) ? text : wounded(chance, text))
  return { pieces, before: Buffer.from(chance.is(0.6) ? text : wounded(chance, text), 'latin1') }
}

export interface Found {
  readonly counts: ReadonlyMap<Outcome, number>
  /** what is wrong, by number of the input, with the answer before and its own pieces */
  readonly wrong: readonly string[]
}

/** @param from number of the first input: each is made from the seed and its own number */
export function fuzzLane (seed: number, count: number, from = 0, say?: (done: number) => void): Found {
  const counts = new Map<Outcome, number>(outcomes.map((outcome) => [outcome, 0]))
  const wrong: string[] = []
  for (let i = from; i < from + count && wrong.length < 10; i++) {
    const { pieces, before } = inputOf(seed, i)
    const told = judge(pieces, before)
    if (typeof told === 'string') counts.set(told, counts.get(told)! + 1)
    else wrong.push(`input ${i}: ${told.wrong}: ${JSON.stringify([before, ...pieces].map((read) => read.toString('latin1')))}`)
    if (i % 1_000_000 === 999_999) say?.(i + 1 - from)
  }
  return { counts, wrong }
}
