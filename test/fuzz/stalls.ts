// Inputs whose shape has stopped a loop once: repeated pieces, long runs, many references, compression, cut images.
import zlib from 'node:zlib'
import type { Chance } from './chance.ts'
import { seededRandom } from '../../src/simulator/random.ts'
import { HOSTILE, request, type Input } from './request.ts'

const RUNS = ['reda', '[redacted]', '[redacted', '\\', '\\"', '[', ']', '{', '<!---->', '<!--', '-->', '0', ' ', '\n', '&', '<a ',
  'data:', '..', '\u00e9', '\u{1F600}', '${', '/*']

/** Parts of what stands for a quote: found again in their own replacement, they would make it grow without end. */
const REDACTED = ['reda', 'red', 'dact', 'cted', 'acted]', '[red', 'edac', '[redacted]', '[redacted']

/** Of every type of images that is known, and of none. */
const HEADS: readonly Buffer[] = [
  Buffer.alloc(0),
  Buffer.from('89504e470d0a1a0a0000000d49484452000004000000040008060000001f15c489', 'hex'),
  Buffer.from('ffd8ffe000104a46494600010100000100010000ffc00011080400040003012200021101031101', 'hex'),
  Buffer.from('47494638396100040004f70000ffffff', 'hex'),
  Buffer.from('52494646240000005745425056503820180000003001009d012a0004000400', 'hex'),
  Buffer.from('000000206674797061766966000000006176696661766973', 'hex'),
  Buffer.from('<?xml version="1.0"?><!-- x --><svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>')
]

const ENCODERS: Readonly<Record<string, (bytes: Buffer) => Buffer>> = {
  gzip: zlib.gzipSync, deflate: zlib.deflateSync, br: (bytes) => zlib.brotliCompressSync(bytes,
    { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 5 } }), zstd: zlib.zstdCompressSync
}

function run (chance: Chance): string {
  const piece = chance.of(RUNS)
  return piece.repeat(Math.ceil(2 ** chance.between(4, 18) / piece.length))
}

/** Cut at any byte. */
function image (chance: Chance): Buffer {
  const head = chance.of(HEADS)
  const whole = Buffer.concat([head, Buffer.from(head.length === 0 || chance.is(0.3) ? run(chance) : '')])
  return whole.subarray(0, chance.below(whole.length + 1))
}

/** Characters that repeat: the more, the lower the ratio; and what is much to parse. */
const FILLERS: Readonly<Record<string, () => string>> = {
  one: () => 'x', some: () => random(64), many: () => random(4096), all: () => random(2 ** 20),
  lists: () => '[[]],', texts: () => '"a",', marks: () => '\\"'
}
const MEGABYTES = [17, 24, 31, 33, 48] as const
const bombs = new Map<string, Buffer>()

function random (length: number): string {
  const next = seededRandom(length)
  return Array.from({ length }, () => String.fromCharCode(97 + Math.floor(next() * 26))).join('')
}

/** A compressed body of more than 16 MB. Each is made once: that takes up to a second. */
function bomb (chance: Chance): { readonly encoding: string, readonly bytes: Buffer } {
  const [encoding, filler] = [chance.of(Object.keys(ENCODERS)), chance.of(Object.keys(FILLERS))]
  const size = chance.of(MEGABYTES)
  const name = `${encoding} ${filler} ${size}`
  let bytes = bombs.get(name)
  if (bytes === undefined) {
    const text = FILLERS[filler]!()
    const filled = text.repeat(Math.ceil(size * 1024 * 1024 / text.length))
    const [before, after] = filler === 'lists' || filler === 'texts' ? ['[', '0]'] : ['"', '"']
    bombs.set(name, bytes = ENCODERS[encoding]!(Buffer.from('{"model":"good-text","max_tokens":5,' +
      `"max_output_tokens":16,"x":${before}${filled}${after},"input":"x","messages":[{"role":"user","content":"x"}]}`)))
  }
  return { encoding, bytes }
}

function answer (status: string, body: string): readonly Buffer[] {
  return [Buffer.from(`HTTP/1.1 ${status}\r\ncontent-type: application/json\r\nconnection: close\r\n` +
    `content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`)]
}

function post (path: string, body: string | Buffer, headers: Readonly<Record<string, string>> = {}): Buffer {
  return request(`POST ${path}`, { 'content-type': 'application/json', ...headers }, body)
}

/**
 * @param words by which the hostile upstream knows the input
 * @param link by which it knows the request for the link in its answer
 */
export function stallOf (chance: Chance, words: string, link: string): Input {
  const text = `${words} ${run(chance)}`
  const messages = { model: 'bad-text', max_tokens: 100, messages: [{ role: 'user', content: text }] }
  const makes: readonly (() => Input)[] = [
    // An upstream that refuses, and quotes what it got.
    () => ({ send: [post('/v1/messages', JSON.stringify({ ...messages, system: run(chance).slice(0, 50_000),
      metadata: { user_id: 'reda' }, stop_sequences: chance.times(4, () => chance.of(RUNS)) }))],
    answer: answer('400 Bad Request', JSON.stringify({ type: 'error', error: { type: 'invalid_request_error',
      message: `wrong: ${text}${chance.is(0.5) ? '[redacted] reda' : ''}` } })) }),
    // The same with thousands of short texts.
    () => ({ send: [post('/v1/messages', JSON.stringify({ ...messages, messages: [{ role: 'user',
      content: chance.times(2 ** chance.between(1, 13), () => ({ type: 'text', text: chance.of(REDACTED) })) }] }))],
    answer: answer('400 Bad Request', JSON.stringify({ type: 'error', error: { type: 'invalid_request_error',
      message: `wrong: ${words} ${chance.times(100, () => chance.of(REDACTED)).join(' ')}` } })) }),
    // Numbers with many digits, in a body and in an amount.
    () => ({ send: [post('/v1/messages', `{"model":"good-text","max_tokens":${chance.of(['1', '0.', '1e', '-'])}` +
      `${'0'.repeat(2 ** chance.between(1, 18))}1,"messages":[{"role":"user","content":"x"}]}`)] }),
    // References, wide and deep.
    () => ({ send: [post('/v1/responses', JSON.stringify({ model: 'good-responses',
      ...(chance.is(0.5) && { previous_response_id: `resp_${run(chance)}` }),
      input: chance.times(2 ** chance.between(1, 14), (i) => ({ type: 'item_reference', id: `msg_${i % 7}` })) }))] }),
    () => ({ send: [post('/v1/messages', `{"model":"good-text","max_tokens":5,"messages":` +
      `${'[{"a":'.repeat(2 ** chance.between(1, 12))}1${chance.of(['', '}]'])}`)] }),
    // Compressed: any ratio and any encoding, whole, cut or of another encoding.
    () => {
      const name = chance.of(Object.keys(ENCODERS))
      const plain = Buffer.from(JSON.stringify({ ...messages, model: 'good-text',
        messages: [{ role: 'user', content: chance.is(0.5) ? text : 'x'.repeat(2 ** chance.between(8, 24)) }] }))
      const bytes = ENCODERS[name]!(plain)
      const cut = chance.is(0.3) ? bytes.subarray(0, chance.below(bytes.length + 1)) : bytes
      return { send: [post('/v1/messages', cut, { 'content-encoding': chance.mostly(0.9, name, ['gzip', 'br']) })] }
    },
    // Images cut at any byte: of an upstream, and in a data: URL.
    () => ({ send: [post('/v1/images/generations', JSON.stringify({ model: 'bad-image', prompt: words }))],
      answer: answer('200 OK', JSON.stringify({ created: 1, data: [{ b64_json: image(chance).toString('base64') }] })) }),
    () => ({ send: [post('/v1/chat/completions', JSON.stringify({ model: 'good-chat', max_tokens: 5,
      messages: [{ role: 'user', content: [{ type: 'text', text: 'x' }, { type: 'image_url', image_url: {
        url: `data:image/${chance.of(['png', 'jpeg', 'svg+xml', 'x'])};base64,${image(chance).toString('base64')}` } }] }] }))] }),
    // And behind a link, which the gateway fetches.
    () => ({ send: [post('/v1/images/generations', JSON.stringify({ model: 'mirror-image', prompt: words }))],
      answer: [Buffer.from('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n' +
        JSON.stringify({ created: 1, data: [{ url: `${HOSTILE}/${link}.png` }] }))],
      linked: [Buffer.from(`HTTP/1.1 200 OK\r\ncontent-type: ${chance.of(['image/png', 'image/svg+xml', 'text/html',
        'application/octet-stream'])}\r\nconnection: close\r\n\r\n`), image(chance)] }),
    // Bombs: to each style, and from an upstream.
    () => {
      const { encoding, bytes } = bomb(chance)
      const path = chance.of(['/v1/messages', '/v1/chat/completions', '/v1/responses', '/v1/images/generations'])
      return { send: [post(path, bytes, { 'content-encoding': encoding })] }
    },
    () => {
      const { encoding, bytes } = bomb(chance)
      return { send: [post('/v1/messages', JSON.stringify(messages))],
        answer: [Buffer.from('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n' +
          `content-encoding: ${encoding}\r\ncontent-length: ${bytes.length}\r\n\r\n`), bytes] }
    }
  ]
  return chance.of(makes)()
}
