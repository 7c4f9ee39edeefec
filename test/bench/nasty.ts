// Bodies that are small to send and much to read: what one client may make the gateway do before everybody else has a
// turn. And answers, with which an upstream may.
import { gzipSync } from 'node:zlib'
import { dialectsOf } from '../../src/config/sections/dialects.ts'
import { type DialectName, dialects, message, publicModel, toWire } from './payloads.ts'

export interface Nasty {
  readonly name: string
  /** a whole request, ready for the socket */
  request (): Buffer
}

export interface NastyAnswer {
  readonly name: string
  /** what its client speaks */
  readonly dialect: DialectName
  /** content blocks, as JSON */
  content (): string
}

const MEGABYTE = 1024 * 1024

/** A request in messages style with these fields beside the model, and one short message where they bring none. */
function messages (fields: string): Buffer {
  const own = fields.includes('"messages":') ? '' : '"messages":[{"role":"user","content":"Hello"}],'
  return toWire(dialects.messages.path, `{"model":"${publicModel}","max_tokens":16,${own}${fields}}`)
}

function chat (fields: string): Buffer {
  const own = fields.includes('"messages":') ? '' : '"messages":[{"role":"user","content":"Hello"}],'
  return toWire(dialects.chat.path, `{"model":"${publicModel}","max_tokens":16,${own}${fields}}`)
}

/** What would that cost? */
function quote (fields: string): Buffer {
  return toWire('/v1/quote', `{"path":"/v1/messages","body":{"model":"${publicModel}","max_tokens":16,${fields}}}`)
}

function list (count: number, make: (i: number) => string): string {
  return Array.from({ length: count }, (_, i) => make(i)).join(',')
}

function said (json: string): string {
  return `"messages":[{"role":"user","content":${json}}]`
}

/** So many names that no other object has. */
function names (count: number, first = 0): string {
  return list(count, (i) => `"k${(first + i).toString(36)}":1`)
}

/** What is over a limit is refused while it comes; what stays just below all of them is read to its end. */
export const nasties: readonly Nasty[] = [
  { name: '990,000 keys in one object', request: () => messages(`"x":{${names(990_000)}}`) },
  { name: '990,000 fields of a body', request: () => messages(names(990_000)) },
  { name: '990,000 fields of a tool',
    request: () => chat(`"tools":[{"type":"function","function":{"name":"t","parameters":{${names(990_000)}}}}]`) },
  { name: '9,900 fields of a body', request: () => messages(names(9900)) },
  {
    name: '49 objects of 10,000 keys',
    request: () => messages(`"x":[${list(49, (i) => `{${names(10_000, i * 10_000)}}`)}]`)
  },
  {
    name: '480 tools of 1,000 properties',
    request: () => chat(
      `"tools":[${list(480, (i) => `{"type":"function","function":{"name":"t${i}","strict":true,"parameters":{"type":"object","properties":{${names(1000, i * 1000)}}}}}`)}]`
    )
  },
  { name: '30 MB of \\"', request: () => messages(said(`"${'\\"'.repeat(15 * MEGABYTE)}"`)) },
  { name: '30 MB of \\" for chat', request: () => chat(said(`"${'\\"'.repeat(15 * MEGABYTE)}"`)) },
  { name: '30 MB of \\u escapes', request: () => messages(said(`"${'\\u0416'.repeat(5 * MEGABYTE)}"`)) },
  { name: '30 MB of words', request: () => messages(said(`"${'a '.repeat(15 * MEGABYTE)}"`)) },
  { name: 'a number of 30 MB', request: () => messages(`"x":{"user_id":1${'0'.repeat(30 * MEGABYTE)}}`) },
  { name: '30 MB of spaces, in gzip', request: () => packed(messages(said(`"${' '.repeat(30 * MEGABYTE)}"`))) },
  {
    name: '300,000 content blocks',
    request: () => messages(said(`[${list(300_000, () => '{"type":"text","text":"a"}')}]`))
  },
  {
    name: '240,000 content blocks',
    request: () => messages(said(`[${list(240_000, () => '{"type":"text","text":"a"}')}]`))
  },
  {
    name: '240,000 content blocks for chat',
    request: () => chat(said(`[${list(240_000, () => '{"type":"text","text":"a"}')}]`))
  },
  {
    name: '100,000 messages',
    request: () => messages(
      `"messages":[${list(100_000, (i) => `{"role":"${i % 2 === 0 ? 'user' : 'assistant'}","content":"a"}`)}]`
    )
  },
  {
    name: '100,000 messages for chat',
    request: () => chat(
      `"messages":[${list(100_000, (i) => `{"role":"${i % 2 === 0 ? 'user' : 'assistant'}","content":"a"}`)}]`
    )
  },
  {
    name: '45,000 calls and results',
    request: () => chat(
      `"messages":[${list(45_000, (i) => `{"role":"assistant","tool_calls":[{"id":"c${i}","type":"function","function":{"name":"t","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c${i}","content":"a"}`)}]`
    )
  },
  {
    name: '16,000 nests of 55',
    request: () => messages(`"x":[${list(16_000, () => '['.repeat(55) + ']'.repeat(55))}]`)
  },
  {
    name: '12,000 nests of objects',
    request: () => messages(`"x":[${list(12_000, () => '{"a":'.repeat(40) + '1' + '}'.repeat(40))}]`)
  },
  { name: '990,000 values', request: () => messages(`"x":[${list(990_000, () => '1')}]`) },
  { name: '100,000 tools',
    request: () => messages(`"tools":[${list(100_000, (i) => `{"name":"t${i}","input_schema":{"type":"object"}}`)}]`) },
  { name: '100,000 tools for chat',
    request: () => chat(`"tools":[${list(100_000, (i) => `{"type":"function","function":{"name":"t${i}"}}`)}]`) },
  { name: '900,000 stop sequences', request: () => messages(`"stop_sequences":[${list(900_000, () => '"a"')}]`) },
  { name: '485,000 fields in a quote',
    request: () => quote(`${said('"Hello"')},${names(485_000)}`) },
  { name: '30 MB of words in a quote', request: () => quote(said(`"${'a '.repeat(15 * MEGABYTE)}"`)) },
  { name: 'a wrong last message of 100,000',
    request: () => messages(`"messages":[${list(100_000, () => '{"role":"user","content":"a"}')},{"role":"user"}]`) }
]

/** A text, as JSON, that says so many times the same. */
function text (said: string, times: number): string {
  return `{"type":"text","text":"${said.repeat(times)}"}`
}

/** Whole answers of models of text, in messages style. */
export const nastyAnswers: readonly NastyAnswer[] = dialectsOf('text').flatMap((dialect) => [
  { name: `5 MB of words for ${dialect}`, dialect, content: () => text('so on ', 5 * MEGABYTE / 6) },
  { name: `20 MB of \\" for ${dialect}`, dialect, content: () => text('\\"', 10 * MEGABYTE) },
  { name: `100,000 blocks for ${dialect}`, dialect, content: () => list(100_000, () => text('a', 1)) },
  { name: `a call of 400,000 keys for ${dialect}`, dialect,
    content: () => `{"type":"tool_use","id":"toolu_1","name":"t","input":{${names(400_000)}}}` }
])

/** Ready for the socket, by the words that ask for it: made before anybody waits. */
const made = new Map<string, Buffer>()

/** @returns the words of a request to be answered so: the upstream of the bench reads them */
export function asking (answer: NastyAnswer): string {
  const words = `nasty answer ${nastyAnswers.indexOf(answer)}.`
  const json = JSON.stringify({ ...message, content: [], stop_reason: 'end_turn' })
    .replace('"content":[]', () => `"content":[${answer.content()}]`)
  const head = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${json.length}\r\n\r\n`
  made.clear()
  made.set(words, Buffer.from(head + json, 'latin1'))
  return words
}

/** The answer that a request asks for. Undefined: another. */
export function nastyAnswerTo (body: string): Buffer | undefined {
  for (const [words, answer] of made) if (body.includes(words)) return answer
}

function packed (request: Buffer): Buffer {
  const at = request.indexOf('\r\n\r\n') + 4
  const body = gzipSync(request.subarray(at))
  const head = request.toString('latin1', 0, at).replace(/content-length: \d+/,
    `content-encoding: gzip\r\ncontent-length: ${body.length}`)
  return Buffer.concat([Buffer.from(head, 'latin1'), body])
}
