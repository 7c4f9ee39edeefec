// Requests by chance for the lane's reader: good ones, and what smugglers do to them.
import type { Chance } from './chance.ts'

const METHODS = ['post', 'GET', 'POST ', ' POST', 'PO\0ST', 'POST\t', 'HEAD', 'PRI', '', '\r\nPOST', 'XPOST']
const TARGETS = ['/v1/messages', '/v1/chat/completions', '/v1/responses?x=1', '/', '/a//b/../c', '/%00',
  '/~!$&\'()*+,;=:@',
  '/v1/messages/', '/"<>[\\]^`{|}']
const WRONG_TARGETS = ['http://a/v1/messages', '*', 'v1', '/a b', '/a#b', '/\x7f', '/é', '/a\tb', '/a\rb', '/a\nb',
  '/\0',
  'a:443', '', '//', '/\x80']
const VERSIONS = ['HTTP/1.0', 'HTTP/2.0', 'http/1.1', 'HTTP/1.1 ', 'HTTP/1.11', 'HTTP/01.1', 'HTTP/1,1', 'HTTP/', '',
  'ICE/1.1',
  'HTTP/1.1\0']
const ENDS = ['\n', '\r', '\r\r\n', '\n\r', '', '\r\n ', '\r\n\t', '\0', ' \r\n', '\r\n\r\n', '\x0b\r\n', '\x0c']
const COLONS = [':', ' : ', ':\t', ': \t ', ' :', ';', '', '::', '\t:', ':\0', ':\r\n ', ':\r', ':\n']
const SPACES = ['', ' ', '\t', ' \t ', '\r', '\n', '\0', '\x0b', '\xa0']
/** Names and values that all kinds of clients send. */
const PLAIN: readonly (readonly [string, string])[] = [['x-api-key', 'sk-gw-xyz'], ['Authorization', 'Bearer a.b-c'],
  ['User-Agent', 'curl/8.7.1'], ['accept', '*/*'], ['Content-Type', 'application/json'], ['connection', 'keep-alive'],
  ['content-type', 'application/json; charset=utf-8'], ['Cookie', 'a=b; c=d'], ['x-empty', ''], ['anthropic-version',
  '2023-06-01'], ['origin', 'https://a.example'], ['accept-encoding', 'gzip, deflate, br'], ['x-latin',
  'caf\xe9 \x80\xff'],
  ['traceparent', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'], ['x-stainless-lang', 'js'],
  ['X_under', 'a\tb  c'], ['!#$%&\'*+-.^_`|~', 'token'], ['referer', 'x'], ['age', '1'], ['etag', '"x"'], ['from',
  'a@b'],
  ['date', 'x'], ['expires', '0'], ['Keep-Alive-ish', '1'], ['forwarded', 'for=1.2.3.4']]
const WRONG: readonly (readonly [string, string])[] = [['transfer-encoding', 'chunked'], ['Transfer-Encoding',
  'identity'],
  ['transfer-encoding', 'gzip, chunked'], ['TRANSFER-ENCODING', ''], ['transfer_encoding', 'chunked'], ['te',
  'trailers'],
  ['content-length', '3'], ['Content-Length', '0'], ['content-length', '3, 3'], ['content-length ', '3'],
  ['content_length', '9'], ['expect', '100-continue'], ['upgrade', 'websocket'], ['Upgrade', 'h2c'], ['connection',
  'close'],
  ['connection', 'Upgrade'], ['connection', 'keep-alive, upgrade'], ['Connection', 'content-length'],
  ['proxy-connection',
  'close'], ['trailer', 'x'], ['content-encoding', 'gzip'], ['host', 'b'], ['Host', ''], ['content-type', 'text/plain'],
  ['content-type', 'multipart/form-data; boundary=x'], ['set-cookie', 'a=b'], ['__proto__', 'x'], ['constructor', 'x'],
  ['x', 'a\rb'], ['x', 'a\nb'], ['x', 'a\0b'], ['x', 'a\x7fb'], ['x', 'a\x01'], ['', 'x'], ['x y', 'z'], ['\xe9', 'z'],
  ['x\0', 'z'], ['(x)', 'z'], ['x', '\xa0'], ['http2-settings', 'AAMA'], ['keep-alive', '5'], ['x', '\r\n y'],
  ['toString', 'x'], ['hasOwnProperty', 'x'], ['x-api-key', 'another'], ['cookie', 'e=f'], ['user-agent', 'again']]
const OTHER_LENGTHS = ['+5', '-0', '0x5', '5,5', '5 5', '05', '000', '1e1', '', ' ', '65537',
  '99999999999999999999', '4294967301', '18446744073709551621', '５', '5\0', '5;', '"5"', '5.', '.5', '٣', '\xb2']
const SPLINTERS = ['\r', '\n', '\r\n', '\r\n\r\n', '\0', ' ', '\t', ':', ',', 'chunked',
  'Transfer-Encoding: chunked\r\n',
  'Content-Length: 1\r\n', 'POST / HTTP/1.1\r\n', '0\r\n\r\n', '\x7f', '\xff', '\x80', '0', '9', '-', '+', '_',
  '\x0b', '\x0c']

/** Spellings of a length, which some readers take for it. */
function lengths (length: number): readonly string[] {
  return [`+${length}`, `0${length}`, `-${length}`, `${length},${length}`, `${length} ${length}`,
    `0x${length.toString(16)}`, `${length}\0`, `${length};`, `${length}.0`, `"${length}"`, String(length + 1),
    String(length - 1), `${length}\r\n ${length}`, ...OTHER_LENGTHS]
}

/** @returns latin1 text */
export function laneInput (chance: Chance): string {
  // Most inputs have one thing that is wrong, or none: what is wrong in five ways is refused by anybody.
  const good = chance.of([0.9, 0.97, 0.99, 1])
  const end = (): string => chance.mostly(good, '\r\n', ENDS)
  const body = 'x'.repeat(chance.of([0, 1, 2, 5, 13, 200])).replace(/^xx?/, (some) => '{}'.slice(0, some.length))
  const lines = chance.times(chance.below(7), () => chance.is(good) ? chance.of(PLAIN) : chance.of(WRONG))
  if (chance.is(0.99)) lines.push([chance.of(['host', 'Host', 'HOST']), 'a'])
  lines.push([chance.of(['content-length', 'Content-Length', 'CONTENT-LENGTH']),
    chance.is(good) ? String(body.length) : chance.of(lengths(body.length))])
  let head = `${chance.mostly(good, 'POST', METHODS)} ${chance.mostly(good, chance.of(TARGETS), WRONG_TARGETS)} ` +
    chance.mostly(good, 'HTTP/1.1', VERSIONS) + end()
  for (const [name, value] of shuffled(chance, lines)) {
    head += `${name}${chance.mostly(good, ': ', COLONS)}${value}${chance.mostly(good, '', SPACES)}${end()}`
  }
  const text = `${head}${end()}${body}`
  return chance.is(0.6) ? text : wounded(chance, text)
}

/** The same client's next request: the head again, with another length, and now and then another sign. */
export function nextInput (chance: Chance, before: string): string {
  const body = 'y'.repeat(chance.below(30))
  const text = before.replace(/(content-length: )\d+(.*\r\n\r\n).*$/is, (_, name: string, rest: string) =>
    `${name}${chance.is(0.9) ? String(body.length) : chance.of(lengths(body.length))}${rest}${body}`)
  return chance.is(0.7) ? text : wounded(chance, text)
}

function wounded (chance: Chance, text: string): string {
  let now = text
  for (let left = chance.between(1, 2); left > 0; left--) {
    const at = chance.below(now.length + 1)
    const length = chance.between(1, chance.is(0.8) ? 2 : 40)
    const piece = now.slice(at, at + length)
    const put = chance.below(5)
    now = now.slice(0, at) + (put === 0 ? '' : put === 1 ? piece + piece : put === 2
      ? String.fromCharCode(piece.charCodeAt(0) & 255 ^ (1 << chance.below(8))) + piece.slice(1)
      : put === 3 ? chance.of(SPLINTERS) + piece : chance.of(SPLINTERS)) + now.slice(at + length)
  }
  return now
}

function shuffled<T> (chance: Chance, all: readonly T[]): T[] {
  const mixed = [...all]
  for (let i = mixed.length - 1; i > 0; i--) {
    const j = chance.below(i + 1)
    ;[mixed[i], mixed[j]] = [mixed[j]!, mixed[i]!]
  }
  return mixed
}
