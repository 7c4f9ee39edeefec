// What an upstream's message repeats of the request: it is taken out, and what tells what is wrong stays.
import fc from 'fast-check'
import t from 'tap'
import { saidIn } from '../../src/core/failed-attempt.ts'
import { withoutQuotes } from '../../src/core/quotes.ts'

const prompt = 'My account number is 4711 0815 and my mother was born in Utrecht, tell nobody.'
const body = { model: 'claude-sonnet-4-5-20250929', max_tokens: 5, system: 'You are a helpful clerk of the bank.',
  messages: [{ role: 'user', content: [{ type: 'text', text: prompt }] },
    { role: 'assistant', content: [{ type: 'tool_use', id: 'toolu_01ABCDEFGHIJKLMNOPQRSTUV', name: 'look_up_the_account',
      input: { who: 'Jan Jansen' } }] }] }

t.test('a message that tells what is wrong stays as it is', (t) => {
  for (const said of ['model: claude-sonnet-4-5-20250929 was not found', 'messages.1.content.0: `toolu_01ABCDEFGHIJKLMNO' +
    'PQRSTUV` has no result for look_up_the_account', 'input length and `max_tokens` exceed context limit: 199999 + 5',
  '{"type":"error","error":{"type":"invalid_request_error","message":"messages: roles must alternate\\n\\"user\\""}}', '']) {
    t.equal(withoutQuotes(said, body), said)
  }
  t.equal(withoutQuotes('of a body without texts', { model: 'm' }), 'of a body without texts')
  t.end()
})

t.test('what is quoted goes: whole, in part, in JSON, in JSON in a text, short texts and long ones', (t) => {
  t.equal(withoutQuotes(`can't take "${prompt}" here`, body), 'can\'t take "[redacted]" here')
  t.equal(withoutQuotes('unexpected: mother was born in Utrecht, tel', body), 'unexpected:[redacted]')
  t.equal(withoutQuotes('no such person: Jan Jansen', body), 'no such person: [redacted]')
  const lines = { messages: [{ role: 'user', content: 'one line\nof "quoted" text\nand another one' }] }
  for (const printed of [JSON.stringify({ detail: [{ msg: 'Field required', input: lines }] }),
    JSON.stringify({ message: `got ${JSON.stringify(lines)}` })]) {
    const clean = withoutQuotes(printed, lines)
    t.notMatch(clean, /one line|quoted|another/)
    t.match(clean, /\[redacted\]/)
  }
  const long = `${'A long document. '.repeat(5000)}${prompt}${' And more of it.'.repeat(5000)}`
  t.notMatch(withoutQuotes(long.slice(0, 300), { messages: [{ role: 'user', content: long }] }), /long document/)
  t.notMatch(withoutQuotes(`…${long.slice(-200)}`, { messages: [{ role: 'user', content: long }] }), /more of it/)
  t.end()
})

t.test('so do texts of tools and schemas, and names in them stay', (t) => {
  const tool = { name: 'look_up_the_weather_of_a_city', description: prompt,
    input_schema: { type: 'object', properties: { city: { type: 'string', description: 'Of the customer, as he says it' } } } }
  for (const [field, value] of Object.entries({ tools: [tool], functions: [tool], text: { format: { schema: tool } },
    response_format: { type: 'json_schema', json_schema: { schema: tool } } })) {
    t.equal(withoutQuotes(`look_up_the_weather_of_a_city: too long "${prompt}"`, { [field]: value }),
      'look_up_the_weather_of_a_city: too long "[redacted]"', field)
    t.equal(withoutQuotes('no: Of the customer, as he says it', { [field]: value }), 'no: [redacted]', field)
  }
  t.end()
})

t.test('where the body was not read, long texts in quotation marks go, and the rest stays', (t) => {
  const said = (body: unknown): string | undefined => saidIn({ kind: 'status', status: 400, headers: {}, body }, [])
  for (const mark of ['"', '\'', '`']) {
    const message = `The text ${mark}${prompt}${mark} isn't allowed, can't be, for ${mark}m${mark}`
    const clean = `The text [redacted] isn't allowed, can't be, for ${mark}m${mark}`
    t.equal(said(message), clean)
    t.equal(said({ error: { message, input: prompt } }), JSON.stringify({ error: { message: clean } }))
  }
  t.equal(said({ error: { message: 'Your credit balance is too low', type: 'invalid_request_error' } }),
    '{"error":{"message":"Your credit balance is too low","type":"invalid_request_error"}}')
  t.end()
})

t.test('of a body of very many values only some are read, because others wait meanwhile', (t) => {
  let read = 0
  const input = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`k${i}`, new Proxy(
    Object.fromEntries(Array.from({ length: 1000 }, (_, j) => [`n${j}`, j])),
    { ownKeys (of) { read++; return Reflect.ownKeys(of) } }
  )]))
  t.equal(withoutQuotes('no', { messages: [{ role: 'user', content: [{ type: 'tool_use', input }] }] }), 'no')
  t.ok(read > 10 && read < 100, String(read))
  t.end()
})

t.test('whatever is asked, and wherever it is quoted: no twenty characters of it are in the first 300', (t) => {
  const words = fc.array(fc.stringMatching(/^[a-z]{1,9}$/), { minLength: 1, maxLength: 60, size: 'max' }).map((all) => all.join(' '))
  const texts = fc.array(words, { minLength: 1, maxLength: 6 })
  fc.assert(fc.property(texts, fc.nat(), fc.nat(), fc.nat({ max: 350 }), fc.constantFrom('text', 'json', 'echo'),
    (asked, which, from, pad, how) => {
      const request = { messages: asked.map((content) => ({ role: 'user', content })) }
      const one = asked[which % asked.length]!
      const quote = one.slice(from % one.length)
      const front = '#'.repeat(pad)
      const said = how === 'text' ? `${front} ${quote} .` : how === 'json'
        ? { error: { message: `${front} "${quote}"` } } : { detail: [{ loc: [front], msg: 'no', input: request }] }
      const shown = saidIn({ kind: 'status', status: 422, headers: {}, body: said }, [], request) ?? ''
      t.ok(shown.length <= 300)
      for (const text of asked) {
        for (let at = 0; at + 20 <= text.length; at++) {
          const part = text.slice(at, at + 20)
          if (shown.includes(part)) throw new Error(`"${part}" in ${shown}`)
        }
      }
    }), { numRuns: 1000 })
  t.end()
})

t.test('a large request is not read whole', (t) => {
  let read = 0
  const item = { get content () { read++; return 'x'.repeat(10_000) } }
  withoutQuotes('y'.repeat(300), { messages: Array.from({ length: 100_000 }, () => item) })
  t.ok(read <= 16, `${read} messages`)
  t.end()
})

t.test('N1: what stands in place of a quote is not searched for others', (t) => {
  const pieces = ['reda', 'redact', 'dact', 'cted', 'acted]', '[red', '[redacted]', 'edac']
  const request = { messages: Array.from({ length: 16 }, () => ({ role: 'user',
    content: Array.from({ length: 2000 }, (_, i) => ({ type: 'text', text: pieces[i % pieces.length] })) })) }
  t.equal(withoutQuotes('no reda, no cted', request), 'no [redacted], no [redacted]')
  t.equal(withoutQuotes('reda'.repeat(300), request), '[redacted]', 'spans that touch are one')
  const said = withoutQuotes('reda.'.repeat(240), request)
  t.equal(said.length, 240 * '[redacted].'.length)
  t.end()
})

t.test('N1: a short text is found wherever it stands, and the longest one at each place', (t) => {
  const alphabet = fc.stringMatching(/^[red[\]]{1,8}$/)
  fc.assert(fc.property(fc.array(alphabet, { maxLength: 12 }), fc.array(alphabet, { maxLength: 30 }), (texts, said) => {
    const message = said.join('')
    const clean = withoutQuotes(message, { messages: texts.map((content) => ({ role: 'user', content })) })
    const spans: Array<[number, number]> = []
    for (let at = 0; at < message.length; at++) {
      const found = texts.filter((text) => text.length >= 4 && message.startsWith(text, at))
      if (found.length === 0) continue
      const end = at + Math.max(...found.map(({ length }) => length))
      const last = spans.at(-1)
      if (last !== undefined && last[1] === at) last[1] = end
      else spans.push([at, end])
      at = end - 1
    }
    let [expected, done] = ['', 0]
    for (const [start, end] of spans) {
      expected += message.slice(done, start) + '[redacted]'
      done = end
    }
    t.equal(clean, spans.length === 0 ? message : expected + message.slice(done))
  }), { numRuns: 1000 })
  t.end()
})

t.test('N1, N3: hostile texts cost about what ordinary ones of their length do', (t) => {
  const shapes: Readonly<Record<string, (length: number) => string>> = {
    backslashes: (length) => '\\'.repeat(length),
    escapes: (length) => '\\n'.repeat(length / 2),
    'one letter': (length) => 'a'.repeat(length),
    'one letter, and another at the end': (length) => `${'a'.repeat(length - 1)}b`,
    spaces: (length) => `x${' '.repeat(length - 2)}x`,
    'quotation marks': (length) => '"'.repeat(length),
    'prefixes of the replacement': (length) => 'reda cted '.repeat(length / 10)
  }
  /** CPU time in µs: the least of five runs. */
  const cost = (text: (length: number) => string): number => Math.min(...Array.from({ length: 5 }, () => {
    const short = Array.from({ length: 2000 }, (_, i) => ({ type: 'text', text: text(40).slice(0, 4 + i % 9) }))
    const request = { messages: [{ role: 'user', content: Array.from({ length: 8 }, () => text(8000)) },
      ...Array.from({ length: 7 }, () => ({ role: 'user', content: short }))] }
    const before = process.threadCpuUsage()
    withoutQuotes(text(1200), request)
    const { user, system } = process.threadCpuUsage(before)
    return user + system
  }))
  const ordinary = cost((length) => 'some words of a letter, '.repeat(Math.ceil(length / 24)).slice(0, length))
  for (const [name, shape] of Object.entries(shapes)) t.ok(cost(shape) < 40 * Math.max(ordinary, 1000), name)
  t.end()
})
