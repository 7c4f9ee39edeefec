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

t.test('A5: what servers write that have failed, without a field of events', async (t) => {
  const read = (text: string, before = ''): unknown => new SseDecoder().push(Buffer.concat([
    Buffer.from(`data: ${before}\n\n`, 'latin1'), Buffer.from(text)])).slice(1).map(({ event, data }) => [event, data])
  for (const before of ['a', '\u00FF']) {                      // as a text, and as bytes that are no UTF-8
    t.strictSame(read('error: {"code":500}\n\n', before), [['error', '{"code":500}']])
    t.strictSame(read('{"error":"x"}\n\n', before), [['', '{"error":"x"}']])
    t.strictSame(read('{"error":"x"}\ndata: [DONE]\n\n', before), [['', '{"error":"x"}'], ['', '[DONE]']])
    t.strictSame(read('data: b\n{"error":"x"}\n{"more":1}\n\n', before), [['', 'b'], ['', '{"error":"x"}']])
    t.strictSame(read('[{\n  "error": {\n    "code": 400\n  }\n}\n]\ndata: [DONE]\n\n', before),
      [['', '[{\n  "error": {\n    "code": 400\n  }\n}\n]\n\n'], ['', '[DONE]']], 'with the lines behind it')
    t.strictSame(read('event: error\n\n', before), [['error', '']])
    t.strictSame(read('what: {"error":"x"}\nid: 1\n: {"error":"x"}\n\nevent: x\n\nerror\n\n', before), [['error', '']])
  }
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

t.test('a piece of text is the same event as for a parser, whatever stands in it and around it', async (t) => {
  const words = ['{"type":"content_block_delta","index":', '0', '7', '12', '01', ',"delta":', '{"type":"', 'text_delta',
    'thinking_delta', 'input_json_delta', '","text":"', '","thinking":"', '"', '"}', '}', ' ', '\\', '\\"', '\\n', 'é',
    '😀', '\t', ',"x":1', '{', 'plain words']
  const usual = fc.record({ kind: fc.constantFrom('text', 'thinking'), index: fc.nat(12), said: fc.string(),
    pad: fc.nat(3) }).map(({ kind, index, said, pad }) =>
    `{"type":"content_block_delta","index":${index},"delta":{"type":"${kind}_delta","${kind}":${JSON.stringify(said)}}` +
      `${' '.repeat(pad)}}`)
  /** With a word put in, or with some characters left out. */
  const mutated = fc.tuple(usual, fc.nat(200), fc.nat(4), fc.constantFrom('', ...words)).map(([data, at, less, word]) =>
    data.slice(0, at) + word + data.slice(at + less))
  const made = fc.array(fc.constantFrom(...words), { maxLength: 12 }).map((parts) => parts.join(''))
  fc.assert(fc.property(fc.array(fc.oneof(usual, mutated, made), { minLength: 1, maxLength: 4 }), (all) => {
    const datas = all.filter((data) => !/[\r\n]/.test(data))
    const wire = Buffer.from(datas.map((data) => `event: content_block_delta\ndata: ${data}\n\n`).join(''))
    const events = new SseDecoder().push(wire)
    t.strictSame(events.map(({ event, data }) => [event, data]), datas.map((data) => ['content_block_delta', data]))
    t.strictSame(events.map(jsonOf), datas.map(parsed))
    t.strictSame(Buffer.concat(events.map(({ bytes }) => bytes)), wire)
    t.strictSame(Buffer.from(SseEvent.join(events)), wire)
    t.ok(events.every(({ size, data }) => size >= data.length))
  }), { numRuns: 2000 })
})

/** Its JSON as a text, so that the order of fields counts. */
function jsonOf (event: SseEvent): string | undefined {
  try {
    return JSON.stringify(event.json)
  } catch {
    return undefined
  }
}

function parsed (data: string): string | undefined {
  try {
    return JSON.stringify(JSON.parse(data))
  } catch {
    return undefined
  }
}

t.test('events are joined as they were read: a text where they can be, in the order of the events', async (t) => {
  const own = new SseEvent('own', 'é')
  const [ascii, latin] = new SseDecoder().push(Buffer.from('data: a\n\ndata: ü\n\n'))
  const [broken] = new SseDecoder().push(Buffer.concat([Buffer.from('data: '), Buffer.of(0xFF), Buffer.from('\n\n')]))
  t.equal(SseEvent.join([]), '')
  t.equal(SseEvent.join([ascii!, latin!, own]), 'data: a\n\ndata: ü\n\nevent: own\ndata: é\n\n')
  t.equal(SseEvent.join([latin!, ascii!]), 'data: ü\n\ndata: a\n\n')
  t.strictSame(SseEvent.join([own, broken!, ascii!]),
    Buffer.concat([own.bytes, Buffer.from('data: '), Buffer.of(0xFF), Buffer.from('\n\ndata: a\n\n')]),
    'what is no UTF-8 stays the bytes that came')
})
