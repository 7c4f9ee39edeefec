// Text from outside costs at most n log n (rule growth): each row is a function with hostile input of growing size.
import t from 'tap'
import { imageType } from '../../src/media/image-type.ts'
import { explainUsd } from '../../src/config/check/keywords.ts'
import { saidIn } from '../../src/core/failed-attempt.ts'
import { errorIn } from '../../src/core/vendor-error.ts'
import { withoutQuotes } from '../../src/core/quotes.ts'
import { SseDecoder } from '../../src/core/sse.ts'
import { parsePrice } from '../../src/money/nanos.ts'
import { countTokens } from '../../src/simulator/tokens.ts'
import { readRow } from '../../src/store/transfer.ts'
import { parseInput, parseJson } from '../../src/base/json.ts'
import { scrub, scrubStart } from '../../src/base/redact.ts'
import { withSentIds } from '../../src/upstream/dialects/call-ids.ts'
import { shortNames } from '../../src/upstream/dialects/tool-names.ts'
import { readReport } from '../../src/upstream/dialects/videos/report.ts'
import { membersNamed } from '../../src/base/json-members.ts'
import { isPublicAddress } from '../../src/base/public-address.ts'
import { placeIn } from '../../src/config/load/user-plugin.ts'
import type { Upstream } from '../../src/core/upstream.ts'
import { upstreamConfig } from '../support/exchange.ts'
import { growsTooFast, type Grown, stepsOf } from '../support/growth.ts'

type Run = (input: never) => unknown

t.test('the measurement tells n and n log n from n to the power of 1.5, a square, and what never ends', async (t) => {
  const numbers = (size: number): readonly number[] => Array.from({ length: size }, (_, i) => (i * 7919) % size)
  const turns = (count: number): number => {
    let sum = 0
    for (let i = 0; i < count; i++) sum += i
    return sum
  }
  t.ok(await stepsOf(() => turns(1000)) >= 1000, 'turns of a loop are counted')

  const size = (of: number): number => of
  const well = async (from: number, run: Run, input: Grown['input'] = size): Promise<void> => {
    t.equal(await growsTooFast({ from, input, run }), undefined, run.toString())
  }
  const wrong = async (says: RegExp, from: number, run: Run, input: Grown['input'] = size): Promise<void> => {
    t.match(await growsTooFast({ from, input, run }), says, run.toString())
  }
  await well(1e5, turns)
  await well(1e5, (n: number) => turns(n * Math.log2(n)))
  await well(1e5, (of: readonly number[]) => of.toSorted((a, b) => a - b), numbers)
  await well(1e5, (text: string) => text.replaceAll('a', 'bb'), (n) => 'a'.repeat(n))
  await well(1e5, (n: number) => n < 2e5 ? 0 : turns(n))
  await wrong(/steps/, 1e4, (n: number) => turns(n ** 1.5))
  await wrong(/steps/, 1e3, (n: number) => turns(n ** 2))
  await wrong(/times the time/, 3000, (text: string) => text.replace(/0+$/, ''), (n) => `${'0'.repeat(n)}1`)
  await wrong(/times the time|s at/, 5000, (of: readonly number[]) => of.filter((n) => of.includes(-n - 1)), numbers)
  await wrong(/times the time|s at/, 16, (text: string) => /^(?:a|a)+$/.test(text),
    (n) => `${'a'.repeat(Math.min(n, 26))}b`)
})

const repeated = (text: string) => (size: number): string => text.repeat(Math.ceil(size / text.length)).slice(0, size)
const HOSTILE = ['\\', '\\n', '"', '\'', '`', ' ', '\n', '\r', '\r\n', '0', 'a', '<', '<!--', '<!---->', '<style>',
  '<script', '[', '{', '(', '.', ':', '/', '//', '@', 'a.', 'a@', '=', '-', '%', '?', '*', 'reda ', '[redacted]', 'é',
  '\ud83d', '\u0000', 'data:', 'data: \n', 'sk-', 'Bearer ', 'org_', '1.', '1:', 'http://', 'file://', 'file://a?v=', '1.0,',
  ',\t', '\\ud83d', '"input":{']

/**
 * The engine's own parser takes 16 times as long for 800,000 open brackets as for 400,000, and less than 3 times as
 * long for twice as many behind that (measured). An error of an upstream has 64 KB.
 */
const shorter = (text: string): string => text.slice(0, text.length / 4)

/** Rows that take a text: each runs on every hostile one of 100,000 and 800,000 characters, with another at the end. */
const TEXTS: Readonly<Record<string, (text: string) => unknown>> = {
  'N1, N3: withoutQuotes, message': (text) => withoutQuotes(text.slice(0, 1200), { messages: [{ content: text }] }),
  'N1, N3: withoutQuotes, request': (text) => withoutQuotes(text.slice(0, 1200), { messages: text.match(/[^]{1,9}/g) }),
  'saidIn, text': (text) => saidIn({ kind: 'status', status: 400, headers: {}, body: text }, ['secret-of-ours']),
  'saidIn, JSON': (text) =>
    saidIn({ kind: 'status', status: 400, headers: {}, body: { error: { message: text } } }, []),
  'saidIn, page': (text) => saidIn({ kind: 'status', status: 400, headers: {}, body: `<html>${text}` }, []),
  'errorIn, text': (text) => errorIn(shorter(text), 400),
  'errorIn, JSON': (text) => errorIn({ error: { message: shorter(text), type: text, param: text } }),
  'SseDecoder, a record of lines': (text) =>
    new SseDecoder().push(Buffer.from(`data: x\n\n${`${text.slice(0, 40)}\n`.repeat(text.length / 41)}\n`)),
  'N2: imageType': (text) => imageType(Buffer.from(text)),
  scrub: (text) => scrub(text, ['secret-of-ours']),
  scrubStart: (text) => scrubStart(text, ['secret-of-ours'], 1200),
  isPublicAddress: (text) => isPublicAddress(text),
  placeIn: (text) => placeIn(text),
  readReport: (text) => readReport({ id: '1', status: text, error: text, duration: text, video: { url: `http://${text}` },
    [text]: { data: text } }),
  'parseJson, text': (text) => caught(() => parseJson(`{"input":{"a":1.0,"b":"${text}`)),
  'parseInput, values': (text) => caught(() => parseInput(`{"a":[1.0,${shorter(text)}`)),
  countTokens: (text) => countTokens(text),
  'N16: membersNamed': (text) => membersNamed('a', Buffer.from(`{${text}`)).catch(() => {}),
  'SseDecoder, whole': (text) => new SseDecoder().push(Buffer.from(`${text}\n\n`)),
  'SseDecoder, in pieces of 8 bytes': (text) => {
    const decoder = new SseDecoder()
    const bytes = Buffer.from(text)
    for (let at = 0; at < bytes.length; at += 8) decoder.push(bytes.subarray(at, at + 8))
  }
}

function caught (work: () => unknown): unknown {
  try {
    return work()
  } catch (thrown) {
    return thrown
  }
}

t.test('functions of a text', async (t) => {
  for (const [name, run] of Object.entries(TEXTS)) {
    t.comment(name)                                           // the last line of a run that never ends
    const slow: string[] = []
    for (const text of HOSTILE) {
      const found = await growsTooFast({ input: (size) => `${repeated(text)(size)}x`, run, from: 100_000 })
      if (found !== undefined) slow.push(`${JSON.stringify(text)}: ${found}`)
    }
    t.strictSame(slow, [], name)
  }
})

// Digits alone reach what reads an amount: another character at the end is refused before that.
t.test('N9: amounts of many digits', async (t) => {
  const rows: Readonly<Record<string, (zeros: string) => unknown>> = {
    parsePrice: (zeros) => caught(() => parsePrice(`0.${zeros}1`)),
    explainUsd: (zeros) => explainUsd(`0.${zeros}1`, 9)
  }
  for (const [name, run] of Object.entries(rows)) {
    t.equal(await growsTooFast({ input: (size) => '0'.repeat(size), run, from: 100_000 }), undefined, name)
  }
  for (const row of [(nanos: string) => ({ entry: { nanos } }), (nanos: string) => ({ task: { nanos } }),
    (shortfall: string) => ({ entry: { nanos: '1', shortfall } })]) {
    t.ok(readRow(JSON.stringify(row('9'.repeat(19)))), '19 digits')
    t.throws(() => readRow(JSON.stringify(row('9'.repeat(20)))), /no amount/, '20 digits')
  }
})

t.test('T1, T3: ids of calls and names of tools', async (t) => {
  const upstream = { name: 'own', config: upstreamConfig() } as unknown as Upstream
  const sent = (ids: readonly string[]): unknown => withSentIds([{ role: 'assistant',
    content: ids.map((id) => ({ type: 'tool_use', id, name: 'run', input: {} })) }], upstream)
  const rows: Readonly<Record<string, (i: number) => string>> = {
    'the same': () => 'call_0', 'numbers of others': (i) => i % 2 === 0 ? 'call_0' : `call_0_${i}`,
    'long, with one beginning': (i) => `${'a'.repeat(56)}${String(i >> 1).padStart(8, '0')}`
  }
  for (const [name, id] of Object.entries(rows)) {
    t.equal(await growsTooFast({ input: (size) => Array.from({ length: size }, (_, i) => id(i)), run: sent,
      from: 5000 }), undefined, name)
  }
  t.equal(await growsTooFast({ input: (size) => Array.from({ length: size }, (_, i) => ({ name: `a.${i}` })),
    run: (tools: readonly unknown[]) => shortNames({ tools }), from: 5000 }), undefined, 'names')
})
