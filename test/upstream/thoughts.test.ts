// Thoughts on their way to a client and back: sealed for its account and its upstream's family, opened for the attempt,
// and left out where they would be refused.
import t from 'tap'
import type { AccountConfig, UpstreamConfig } from '../../src/config/config.ts'
import { JsonGuard } from '../../src/base/json-limits.ts'
import { scratchSeals } from '../../src/base/seals.ts'
import type { BodyPieces } from '../../src/core/body-memory.ts'
import type { Routed } from '../../src/core/endpoint.ts'
import type { Exchange } from '../../src/core/exchange.ts'
import { Model } from '../../src/core/facts.ts'
import { base64In } from '../../src/core/large-strings.ts'
import { SseEvent } from '../../src/core/sse.ts'
import type { Upstream } from '../../src/core/upstream.ts'
import { parseBody } from '../../src/http/parse-body.ts'
import { dialects } from '../../src/upstream/dialects/index.ts'
import { textOf } from '../../src/upstream/dialects/passed-body.ts'
import { openThought, sealThought } from '../../src/upstream/dialects/thoughts.ts'
import { asking, config, model, snapshot, upstreamConfig } from '../support/exchange.ts'

type Json = Readonly<Record<string, unknown>>

const UPSTREAMS: Readonly<Record<string, Partial<UpstreamConfig>>> = {
  own: {}, other: {}, cloud: { thinking_family: 'own' }, chat: { dialect: 'chat' },
  chatter: { dialect: 'chat', thinking_family: 'own' }
}

const on = snapshot(config({
  upstreams: Object.fromEntries(Object.entries(UPSTREAMS).map(([name, more]) => [name, upstreamConfig(more)])),
  models: [model('m1', { premium: 'own/vendor-m1*1' }, { max_output: 64_000, thinking: 'budget', mid_system: true })]
}))

const upstreamOf = (name: string): Upstream => on.upstreams.get(name)!

function exchangeOf (account: Partial<AccountConfig> = {}, body: Json = {}): Routed {
  const made = asking(on, 'm1', { account })
  made.request = { body: { model: 'm1', max_tokens: 3000, ...body }, stream: false }
  return made
}

const sealed = (original: string, upstream = 'own', account: Partial<AccountConfig> = {}): string =>
  sealThought(exchangeOf(account), upstreamOf(upstream), original)

const thought = (signature: string, thinking = 'Hm.'): Json => ({ type: 'thinking', thinking, signature })
const redacted = (data: string): Json => ({ type: 'redacted_thinking', data })
const text = (said: string): Json => ({ type: 'text', text: said })
const call = (id: string): Json => ({ type: 'tool_use', id, name: 'f', input: {} })
const user = (...content: readonly Json[]): Json => ({ role: 'user', content })
const answer = (...content: readonly Json[]): Json => ({ role: 'assistant', content })
const result = (id: string): Json => user({ type: 'tool_result', tool_use_id: id, content: 'r' })
const question = user(text('Hello'))

/** What the upstream is sent of a body. */
function sent (body: Json, upstream = 'own', of: Exchange = exchangeOf({}, body)): Json {
  const sold = of.get(Model).channels.premium!
  const attempt = { upstream, model: 'vendor-m1', channel: 'premium', sold } as const
  return JSON.parse(textOf(dialects.messages.encode(of, attempt, upstreamOf(upstream)))) as Json
}

const BUDGET = { type: 'enabled', budget_tokens: 1024 }

t.test('what is sealed opens for the account and the family that it was sealed for', async (t) => {
  const of = exchangeOf()
  const made = sealThought(of, upstreamOf('own'), 'EqQB')
  t.equal(openThought(of, upstreamOf('own'), made), 'EqQB')
  t.equal(openThought(of, upstreamOf('cloud'), made), 'EqQB', 'the same family')
  t.equal(openThought(of, upstreamOf('other'), made), undefined)
  t.equal(openThought(of, upstreamOf('chatter'), made), undefined, 'the same word in another dialect')
  t.equal(openThought(exchangeOf({ id: 'beta' }), upstreamOf('own'), made), undefined)
  t.equal(openThought(of, upstreamOf('own'), 'EqQB'), undefined, 'not sealed')
  t.equal(openThought(of, upstreamOf('own'), scratchSeals().seal('thinking', 'acme', '["messages own","EqQB"]')),
    undefined, 'a secret that is gone')
  t.equal(openThought(of, upstreamOf('own'), on.services.seals.seal('reasoning', 'acme', '["messages own","EqQB"]')),
    undefined, 'another purpose')
})

t.test('an answer: signatures and redacted thoughts are sealed, and nothing else is changed', async (t) => {
  const of = exchangeOf()
  const content = [thought('EqQB'), redacted('b3BhcXVl'), thought(''), redacted(''), text('Hi'), call('c1'),
    { type: 'server_tool_use', id: 's', name: 'x', input: {}, signature: 'kept' }]
  const said = { id: 'msg_1', type: 'message', role: 'assistant', model: 'vendor-m1', content, stop_reason: 'end_turn',
    stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } }
  const message = dialects.messages.decodeReply(structuredClone(said), of, upstreamOf('own')) as { content: Json[] }
  const [first, second, ...others] = message.content
  t.strictSame(others, content.slice(2))
  t.match(first, { type: 'thinking', thinking: 'Hm.', signature: /^gwseal1_/ })
  t.match(second, { type: 'redacted_thinking', data: /^gwseal1_/ })
  const result = { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c1', content: 'At nine.' }] }
  const back = sent({ messages: [question, answer(...message.content), result] })
  t.strictSame(back['messages'], [question, answer(...content.filter((block) => block !== content[2])), result])
})

/** The events that a client gets of the vendor's. */
function decode (of: Exchange, events: readonly Json[]): Json[] {
  const decoder = dialects.messages.decodeStream(of, upstreamOf('own'))
  return events.flatMap((data) => [decoder.event(SseEvent.of(String(data['type']), data)) ?? []].flat())
    .map(({ json }) => json as Json)
}

const start = (index: number, block: Json): Json => ({ type: 'content_block_start', index, content_block: block })
const delta = (index: number, said: Json): Json => ({ type: 'content_block_delta', index, delta: said })
const signs = (index: number, signature: string): Json => delta(index, { type: 'signature_delta', signature })
const thinks = (index: number, thinking: string): Json => delta(index, { type: 'thinking_delta', thinking })
const stop = (index: number): Json => ({ type: 'content_block_stop', index })
const END: readonly Json[] = [
  { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: { output_tokens: 2 } },
  { type: 'message_stop' }
]
const BEGIN: Json = { type: 'message_start', message: { id: 'm', type: 'message', role: 'assistant', model: 'v',
  content: [], stop_reason: null, stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } } }
const EMPTY = thought('', '')

const streams: Readonly<Record<string, readonly Json[]>> = {
  'whole, as vendors send it': [BEGIN, start(0, EMPTY), thinks(0, 'Hm.'), signs(0, 'EqQBCk'), stop(0), ...END],
  'in pieces': [BEGIN, start(0, EMPTY), thinks(0, 'Hm.'), signs(0, 'Eq'), signs(0, ''), signs(0, 'QBCk'), stop(0),
    ...END],
  'in pieces between which something else comes': [BEGIN, start(0, EMPTY), signs(0, 'EqQ'), { type: 'ping' },
    thinks(0, 'Hm.'), signs(0, 'BCk'), stop(0), ...END],
  'in the start of its block': [BEGIN, start(0, thought('EqQBCk')), stop(0), ...END],
  'in the start, and again behind it': [BEGIN, start(0, thought('EqQBCk')), signs(0, 'EqQBCk'), stop(0), ...END],
  'without an end of its block': [BEGIN, start(0, EMPTY), thinks(0, 'Hm.'), signs(0, 'EqQBCk'), ...END],
  'without a start of its block': [BEGIN, thinks(0, 'Hm.'), signs(0, 'EqQBCk'), stop(0), ...END],
  'without an end, before another block': [BEGIN, start(0, EMPTY), thinks(0, 'Hm.'), signs(0, 'EqQBCk'),
    start(1, text('')), stop(1), ...END],
  'with the start of the message': [{ ...BEGIN, message: { ...BEGIN['message'] as Json, content: [thought('EqQBCk')] } },
    ...END],
  'with another index': [BEGIN, start(7, EMPTY), thinks(7, 'Hm.'), signs(7, 'EqQBCk'), stop(7), ...END]
}

t.test('a stream: a signature comes once, whole, sealed, before the end of its block', async (t) => {
  for (const [name, events] of Object.entries(streams)) {
    await t.test(name, async (t) => {
      const of = exchangeOf()
      const got = decode(of, events)
      const at = got.findIndex((event) => (event['delta'] as Json | undefined)?.['type'] === 'signature_delta')
      const { signature } = got[at]!['delta'] as { signature: string }
      t.equal(openThought(of, upstreamOf('own'), signature), 'EqQBCk')
      t.strictSame(got[at + 1], stop(0))
      t.strictSame(got.filter((event) => JSON.stringify(event).includes('signature":"')).length, 2,
        'in the start, where it is empty, and here')
      t.notMatch(JSON.stringify(got), /"EqQ/)
      const said = got.map((event) => (event['delta'] as { thinking?: string } | undefined)?.thinking ?? '').join('')
      t.equal(said, 'Hm.')
    })
  }
})

t.test('a stream: redacted thoughts come sealed, unsigned ones as they are', async (t) => {
  const of = exchangeOf()
  const whole = [BEGIN, start(0, redacted('b3BhcXVl')), stop(0), start(1, EMPTY), thinks(1, 'Hm.'), signs(1, ''), stop(1),
    ...END]
  const got = decode(of, whole)
  const { data } = got[1]!['content_block'] as { data: string }
  t.equal(openThought(of, upstreamOf('own'), data), 'b3BhcXVl')
  t.strictSame(got.slice(2, -2), whole.slice(2, -2))
})

t.test('a signature without an end breaks the stream', async (t) => {
  const piece = signs(0, 'x'.repeat(1024 * 1024))
  t.throws(() => decode(exchangeOf(), [BEGIN, start(0, EMPTY), ...Array.from({ length: 5 }, (_, i) =>
    signs(0, `${i}${'x'.repeat(1024 * 1024)}`))]), /no end/)
  t.doesNotThrow(() => decode(exchangeOf(), [BEGIN, start(0, EMPTY), piece, stop(0), ...END]))
})

interface Case {
  readonly messages: readonly Json[]
  /** as the upstream gets them */
  readonly sent: readonly Json[]
  /** undefined: as it was asked for */
  readonly thinking?: Json
  readonly asked?: Json
}

const OFF = { type: 'disabled' }
const [own, foreign, alien, broken] = [sealed('EqQB'), sealed('EqQB', 'other'), sealed('EqQB', 'own', { id: 'beta' }),
  sealed('EqQB').slice(0, -1)]

const cases: Readonly<Record<string, Case>> = {
  'its own is opened, from all turns': {
    messages: [question, answer(thought(own), text('a')), question, answer(redacted(own), text('b')), question],
    sent: [question, answer(thought('EqQB'), text('a')), question, answer(redacted('EqQB'), text('b')), question]
  },
  'of another family, another account, or changed, it is left out': {
    messages: [question, answer(thought(foreign), text('a')), question, answer(redacted(alien), text('b')), question,
      answer(thought(broken), thought(''), text('c')), question],
    sent: [question, answer(text('a')), question, answer(text('b')), question, answer(text('c')), question]
  },
  'a turn of nothing else is left out': {
    messages: [question, answer(thought(foreign), redacted(foreign)), question],
    sent: [question, question]
  },
  'a thought behind one that is left out goes too: the vendor wants one in front': {
    messages: [question, answer(thought(foreign), text('a'), thought(own), text('b')), question],
    sent: [question, answer(text('a'), text('b')), question]
  },
  'one in front stays without those behind it': {
    messages: [question, answer(thought(own), text('a'), thought(foreign), text('b')), question],
    sent: [question, answer(thought('EqQB'), text('a'), text('b')), question]
  },
  'what is not sealed goes on as it is': {
    messages: [question, answer(thought('EqQB'), redacted('x'), text('a')), question],
    sent: [question, answer(thought('EqQB'), redacted('x'), text('a')), question]
  },
  'an open tool loop whose first thought is there': {
    messages: [question, answer(thought(own), call('c1')), result('c1'), answer(call('c2')), result('c2')],
    sent: [question, answer(thought('EqQB'), call('c1')), result('c1'), answer(call('c2')), result('c2')]
  },
  'an open tool loop whose first thought is left out: there is no thinking, and no thought in it': {
    messages: [question, answer(thought(own), text('a')), question, answer(thought(foreign), call('c1')), result('c1'),
      answer(thought(own), call('c2')), result('c2')],
    sent: [question, answer(thought('EqQB'), text('a')), question, answer(call('c1')), result('c1'),
      answer(call('c2')), result('c2')],
    thinking: OFF
  },
  'with words beside the results, and results in several turns': {
    messages: [question, answer(redacted(foreign), call('c1'), call('c2')), result('c1'), result('c2'), user(text('!'))],
    sent: [question, answer(call('c1'), call('c2')), result('c1'), result('c2'), user(text('!'))],
    thinking: OFF
  },
  'with a system turn before the results, and one behind them': {
    messages: [question, answer(thought(foreign), call('c1')), { role: 'system', content: 's' }, result('c1'),
      { role: 'system', content: 's' }],
    sent: [question, answer(call('c1')), { role: 'system', content: 's' }, result('c1'),
      { role: 'system', content: 's' }],
    thinking: OFF
  },
  'two answers in a row, of which the first has its thought': {
    messages: [question, answer(thought(own), text('a')), answer(thought(foreign), call('c1')), result('c1')],
    sent: [question, answer(thought('EqQB'), text('a')), answer(call('c1')), result('c1')]
  },
  'a loop that began at a vendor that did not think': {
    messages: [question, answer(call('c1')), result('c1')],
    sent: [question, answer(call('c1')), result('c1')],
    thinking: OFF
  },
  'a turn in the loop of nothing but thoughts': {
    messages: [question, answer(thought(foreign)), answer(thought(own), call('c1')), result('c1')],
    sent: [question, answer(thought('EqQB'), call('c1')), result('c1')]
  },
  'adaptive thinking goes on without': {
    asked: { type: 'adaptive' },
    messages: [question, answer(thought(foreign), call('c1')), result('c1')],
    sent: [question, answer(call('c1')), result('c1')]
  },
  'a loop that is closed needs none': {
    messages: [question, answer(thought(foreign), call('c1')), result('c1'), answer(thought(foreign), text('b')),
      question],
    sent: [question, answer(call('c1')), result('c1'), answer(text('b')), question]
  },
  'contents that are no lists, and blocks that are no thoughts': {
    messages: [question, { role: 'assistant', content: 'a' }, user(thought(foreign)),
      answer({ type: 'constructor', signature: foreign }, { type: '__proto__', data: foreign }), question],
    sent: [question, { role: 'assistant', content: 'a' }, user(thought(foreign)),
      answer({ type: 'constructor', signature: foreign }, { type: '__proto__', data: foreign }), question]
  }
}

t.test('a request: each thought goes to the upstreams of its family, and nowhere else', async (t) => {
  for (const [name, { messages, sent: expected, thinking, asked = BUDGET }] of Object.entries(cases)) {
    await t.test(name, async (t) => {
      const body = { thinking: asked, messages }
      const before = structuredClone(body)
      const got = sent(body)
      t.strictSame(got['messages'], expected)
      t.strictSame(got['thinking'], thinking ?? asked)
      t.strictSame(body, before, 'the body is not changed: another attempt may have others')
    })
  }
})

t.test('each attempt opens what is its own', async (t) => {
  const body = { thinking: BUDGET, messages: [question, answer(thought(own), call('c1')), result('c1')] }
  const of = exchangeOf({}, body)
  t.match(sent(body, 'own', of), { thinking: BUDGET, messages: [{}, { content: [{ signature: 'EqQB' }, {}] }, {}] })
  t.match(sent(body, 'other', of), { thinking: OFF, messages: [{}, { content: [{ type: 'tool_use' }] }, {}] })
  t.match(sent(body, 'cloud', of), { thinking: BUDGET, messages: [{}, { content: [{ signature: 'EqQB' }, {}] }, {}] })
})

t.test('without thinking nothing is left that wants it', async (t) => {
  const messages = [question, answer(thought(foreign), call('c1')), result('c1')]
  const [clear, tools] = [{ type: 'clear_thinking_20251015', keep: 'all' }, { type: 'clear_tool_uses_20250919' }]
  const odd = [{ type: { toString: 1 } }, null]
  for (
    const [management, expected] of [[{ edits: [clear] }, undefined], [{ edits: [clear, tools] }, { edits: [tools] }],
      [{ edits: [clear], more: 1 }, { edits: [], more: 1 }], [{ edits: [tools, ...odd] }, { edits: [tools, ...odd] }],
      [{}, {}], [{ edits: 1 }, { edits: 1 }]] as const
  ) {
    const body = { thinking: BUDGET, messages, context_management: management }
    t.strictSame(sent(body)['context_management'], expected)
    t.strictSame(sent({ ...body, messages: [question] })['context_management'], management)
  }
})

t.test('a body without anything of the kind is not copied', async (t) => {
  const messages = [question, answer(thought('EqQB'), text('a')), question]
  const of = exchangeOf({}, { thinking: BUDGET, messages })
  const { body } = dialects.messages.encode(of, { upstream: 'own', model: 'v', channel: 'premium',
    sold: of.get(Model).channels.premium! }, upstreamOf('own'))
  t.equal(body['messages'], messages)
})

t.test('of redacted thoughts the sealed ones are read however long they are, and others stay bytes', async (t) => {
  const [original, theirs] = ['b3BhcXVl'.repeat(20_000), 'YWxpZW4='.repeat(20_000)]
  for (const [upstream, expected] of [['own', [redacted(original), redacted(theirs), text('a')]],
    ['other', [redacted(theirs), text('a')]]] as const) {
    const of = exchangeOf()
    const received = Buffer.from(JSON.stringify({ ...of.request.body,
      messages: [question, answer(redacted(sealed(original)), redacted(theirs), text('a')), question] }))
    const guard = new JsonGuard()
    guard.push(received)
    of.request = { body: parseBody([received], base64In([received], guard.longStrings), of.blobs), stream: false }
    t.equal(of.blobs.bytes, theirs.length)
    const sold = of.get(Model).channels.premium!
    const made = dialects.messages.encode(of, { upstream, model: 'v', channel: 'premium', sold }, upstreamOf(upstream))
    const json = Buffer.concat((of.blobs.join(textOf(made)) as BodyPieces).pieces)
    t.strictSame((JSON.parse(json.toString()) as { messages: Json[] }).messages[1], answer(...expected))
  }
})

t.test('of very many the last ones are opened', async (t) => {
  const many = Array.from({ length: 2100 }, (_, i) => sealed(`s${i}`))
  const messages = [question, ...many.map((signature, i) => answer(thought(signature), text(`a${i}`))), question]
  const kept = sent({ messages })['messages'] as readonly { content: Json[] }[]
  t.equal(kept.length, messages.length)
  t.strictSame(kept[1]!.content, [text('a0')])
  t.strictSame(kept[100]!.content, [text('a99')])
  t.strictSame(kept[101]!.content, [thought('s100'), text('a100')])
  t.strictSame(kept[2100]!.content, [thought('s2099'), text('a2099')])
})

t.test('counts of tokens are asked with the same', async (t) => {
  const of = exchangeOf({}, { messages: cases['its own is opened, from all turns']!.messages })
  const attempt = { upstream: 'own', model: 'v', channel: 'premium', sold: of.get(Model).channels.premium! } as const
  const counted = dialects.messages.countTokens!.encode(of, attempt, upstreamOf('own'))
  t.strictSame(counted.body['messages'], cases['its own is opened, from all turns']!.sent)
})

t.test('an upstream of chat style gets no sealed thought', async (t) => {
  const body = { messages: cases['its own is opened, from all turns']!.messages }
  const of = exchangeOf({}, body)
  const attempt = { upstream: 'chat', model: 'v', channel: 'premium', sold: of.get(Model).channels.premium! } as const
  for (const name of ['chat', 'chatter']) {
    const { body: chat } = dialects.chat.encode(of, attempt, upstreamOf(name))
    t.notMatch(JSON.stringify(chat), /gwseal1_|EqQB|Hm\./)
  }
})
