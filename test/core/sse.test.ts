// The SSE decoder: the same events, however the bytes were cut and whatever the line endings.
import t from 'tap'
import fc from 'fast-check'
import { SseDecoder, SseEvent } from '../../src/core/sse.ts'

const stream = 'event: message_start\ndata: {"type":"message_start","x":"héllo 🌍 ‰"}\n\n' +
  ': a comment\n\n' +
  'data: no name\n\n' +
  'event: two\ndata: line one\ndata: line two\n\n' +
  '\n\n' +
  'id: 7\nretry: 10\nevent:tight\ndata:tight too\n\n' +
  'event: no data\n\n' +
  'event: message_stop\ndata: {"type":"message_stop"}\n\n'

const expected = [
  ['message_start', '{"type":"message_start","x":"héllo 🌍 ‰"}'],
  ['', 'no name'],
  ['two', 'line one\nline two'],
  ['tight', 'tight too'],
  ['message_stop', '{"type":"message_stop"}']
]

function decode (chunks: readonly Buffer[]): { events: string[][], bytes: string, isBetweenEvents: boolean } {
  const decoder = new SseDecoder()
  const events = chunks.flatMap((chunk) => decoder.push(chunk))
  return {
    events: events.map(({ event, data }) => [event, data]),
    bytes: Buffer.concat(events.map(({ bytes }) => bytes)).toString('utf8'),
    isBetweenEvents: decoder.isBetweenEvents
  }
}

/** Cuts at the given places. */
function cut (bytes: Buffer, places: readonly number[]): Buffer[] {
  const sorted = [0, ...places.map((place) => place % (bytes.length + 1)).sort((a, b) => a - b), bytes.length]
  return sorted.slice(1).map((end, i) => bytes.subarray(sorted[i], end))
}

const forms = {
  LF: stream,
  CRLF: stream.replaceAll('\n', '\r\n'),
  CR: stream.replaceAll('\n', '\r'),
  BOM: '\uFEFF' + stream
}

for (const [form, text] of Object.entries(forms)) {
  t.test(`${form}: whole, byte by byte and cut anywhere give the same events and the same bytes`, async (t) => {
    const bytes = Buffer.from(text)
    const whole = decode([bytes])
    t.strictSame(whole.events, expected)
    t.ok(whole.isBetweenEvents)
    t.strictSame(decode([...bytes].map((byte) => Buffer.from([byte]))), whole, 'byte by byte')
    t.equal(whole.bytes, decode([Buffer.from(stream)]).bytes, 'what we write does not depend on the line endings')
    fc.assert(fc.property(fc.array(fc.nat(bytes.length), { maxLength: 8 }), (places) => {
      t.strictSame(decode(cut(bytes, places)), whole)
    }), { numRuns: 200 })
  })
}

t.test('an event that nobody replaces is written as the bytes that came', async (t) => {
  const raw = Buffer.from('event: a\ndata: {"spaced" :  1}\n\n')
  t.strictSame(new SseDecoder().push(raw)[0]!.bytes, raw)
})

t.test('an event of ours reads back as itself', async (t) => {
  fc.assert(fc.property(fc.stringMatching(/^[a-z_.]{0,12}$/), fc.json(), (name, data) => {
    const [event] = new SseDecoder().push(new SseEvent(name, data).bytes)
    t.strictSame([event!.event, event!.data, event!.json], [name, data, JSON.parse(data)])
  }))
})

t.test('an unfinished event is known', async (t) => {
  const decoder = new SseDecoder()
  t.equal(decoder.push(Buffer.from('event: a\ndata: {}\n\nevent: b\nda')).length, 1)
  t.notOk(decoder.isBetweenEvents)
})

t.test('an event without end is refused, and what came before it is not lost', async (t) => {
  const decoder = new SseDecoder(100)
  t.equal(decoder.push(Buffer.from('data: 1\n\ndata: ' + 'x'.repeat(200))).length, 1)
  t.throws(() => decoder.push(Buffer.from('x')), { message: /more than 100 bytes/ })
})
