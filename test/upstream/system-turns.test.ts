// System turns among the messages, at upstreams of messages style that do not take them (rule system-turns).
import fc from 'fast-check'
import t from 'tap'
import { toolsInForce } from '../../src/upstream/dialects/tool-changes.ts'
import { withoutSystemTurns } from '../../src/upstream/dialects/messages/system-turns.ts'
import { client } from '../support/client.ts'
import { gateway, yaml } from '../support/gateway.ts'
import { answer, json, upstream } from '../support/upstream.ts'

type Json = Readonly<Record<string, unknown>>

const user = (content: unknown): Json => ({ role: 'user', content })
const model = (content: unknown): Json => ({ role: 'assistant', content })
const system = (content: unknown, more: Json = {}): Json => ({ role: 'system', content, ...more })
const text = (said: string, more: Json = {}): Json => ({ type: 'text', text: said, ...more })
const marked = (said: string, more: Json = {}): Json => text(`<system-reminder>\n${said}\n</system-reminder>`, more)
const result = (id: string): Json => ({ type: 'tool_result', tool_use_id: id, content: 'r' })
const cached = { cache_control: { type: 'ephemeral' } }

t.test('where the text of a system turn goes', (t) => {
  const rows: readonly (readonly [name: string, body: Json, changed: Json])[] = [
    ['none: nothing is touched', { messages: [user('a'), model('b')], system: 's' }, {}],
    ['no conversation', { messages: 'a' }, {}],
    ['before the first question: the system',
      { messages: [system('a'), system([text('b', cached)]), user('q')], system: 's' },
      { messages: [user('q')], system: [text('s'), text('a'), text('b', cached)] }],
    ['without a system', { messages: [system('a'), user('q')] }, { messages: [user('q')], system: [text('a')] }],
    ['before an answer', { messages: [system('a'), model('b')] }, { messages: [model('b')], system: [text('a')] }],
    ['behind a question: at its end', { messages: [user('q'), system([text('a', cached)]), model('b')] },
      { messages: [user([text('q'), marked('a', cached)]), model('b')] }],
    ['several behind a question', { messages: [user([text('q')]), system('a'), system('b')] },
      { messages: [user([text('q'), marked('a'), marked('b')])] }],
    ['behind an answer: into the next question', { messages: [user('q'), model('b'), system('a'), user('r')] },
      { messages: [user('q'), model('b'), user([marked('a'), text('r')])] }],
    ['between call and result: behind the results',
      { messages: [user('q'), model([{ type: 'tool_use', id: 'c' }]), system('a'), user([result('c'), text('r')])] },
      { messages: [user('q'), model([{ type: 'tool_use', id: 'c' }]), user([result('c'), marked('a'), text('r')])] }],
    ['between two answers', { messages: [user('q'), model('b'), system('a'), model('c')] },
      { messages: [user('q'), model('b'), user([marked('a')]), model('c')] }],
    ['at the end', { messages: [user('q'), model('b'), system('a')] },
      { messages: [user('q'), model('b'), user([marked('a')])] }],
    ['alone: it is the question', { messages: [system('a')], system: 's' }, { messages: [user([text('a')])] }],
    ['blank, empty, without content', { messages: [user('q'), system(' \n'), system([]), { role: 'system' }] },
      { messages: [user('q')] }],
    ['blocks that are none', { messages: [user([null, text('q')]), system([null, 1, text('a')]), system([null])] },
      { messages: [user([text('q'), marked('a')])] }],
    ['behind an empty question', { messages: [user(''), system('a')] }, { messages: [user([marked('a')])] }],
    ['for one question, which it is', { messages: [user('q'), system('a', { clear_at: 'next_user_message' })] },
      { messages: [user([text('q'), marked('a')])] }],
    ['for one question, which is over',
      { messages: [user('q'), system('a', { clear_at: 'next_user_message' }), model('b'), user('r')] },
      { messages: [user('q'), model('b'), user('r')] }],
    ['the effort of the last one', { messages: [user('q'), system('a', { output_config: { effort: 'low' } }),
      system('b', { output_config: {} })], output_config: { effort: 'high', format: 1 } },
    { messages: [user([text('q'), marked('a'), marked('b')])], output_config: { effort: 'low', format: 1 } }]
  ]
  for (const [name, body, changed] of rows) {
    const before = structuredClone(body)
    t.strictSame(withoutSystemTurns(body), changed, name)
    t.strictSame(body, before, `${name}: the body itself is as it was, for the next target`)
  }
  t.end()
})

const tool = (name: string, more: Json = {}): Json => ({ name, input_schema: { type: 'object' }, ...more })
const reference = (name: string): Json => ({ type: 'tool_reference', name })
const adds = (named: Json): Json => ({ type: 'tool_addition', tool: named })
const removes = (name: string): Json => ({ type: 'tool_removal', tool: reference(name) })
const defines = (definition: Json): Json => adds({ type: 'tool_definition', definition })

t.test('changes of the tools are made in the list of tools', (t) => {
  const tools = [tool('a'), tool('b'), { type: 'web_search_20250305', name: 'web_search' }]
  const after = (...content: Json[]): unknown => toolsInForce({ tools, messages: [user('q'), system(content)] })
  const namesAfter = (...content: Json[]): unknown[] => (after(...content) as Json[]).map(({ name }) => name)
  t.equal(after(text('x')), tools, 'the same where nothing changes')
  t.strictSame(namesAfter(adds(reference('b'))), ['a', 'b', 'web_search'])
  t.strictSame(namesAfter(removes('b')), ['a', 'web_search'])
  t.strictSame(namesAfter(removes('b'), adds(reference('b'))), ['a', 'b', 'web_search'])
  t.strictSame(namesAfter(defines(tool('c'))), ['a', 'b', 'web_search', 'c'])
  t.strictSame(after(defines(tool('b', { description: 'new' }))), [tools[0], tools[2], tool('b', { description: 'new' })])
  t.strictSame(namesAfter(defines(tool('c')), removes('c')), ['a', 'b', 'web_search'])
  t.strictSame(toolsInForce({ messages: [system([defines(tool('c'))])] }), [tool('c')])
  for (const broken of [{ type: 'tool_addition' }, adds({}), { type: 'tool_removal', tool: null }]) {
    t.same(after(broken), tools)
  }
  t.strictSame(withoutSystemTurns({ messages: [user('q'), system([removes('a'), text('x')])], tools: [tool('a')] }),
    { messages: [user([text('q'), marked('x')])], tools: undefined }, 'an empty list would be refused')
  t.end()
})

t.test('whatever the conversation, no system turn is left, no word lost, and no other turn changed', (t) => {
  const block = fc.oneof(fc.string({ minLength: 1 }).map((said) => text(`t${said}`)), fc.constant(result('c')))
  const turn = fc.oneof(
    fc.oneof(fc.string(), fc.array(block, { maxLength: 3 })).map(user),
    fc.array(block, { maxLength: 3 }).map(model),
    fc.nat().map((n) => system(`instruction ${n}.`)))
  fc.assert(fc.property(fc.array(turn, { minLength: 1, maxLength: 12 }), (messages) => {
    const { messages: folded = messages, system: above } = withoutSystemTurns({ messages }) as
      { messages?: readonly Json[], system?: readonly Json[] }
    const rolesOf = (turns: readonly Json[], role: string): Json[] => turns.filter((one) => one['role'] === role)
    if (folded.length === 0 || rolesOf(folded, 'system').length > 0) return false
    const all = JSON.stringify([above, folded])
    const isKept = rolesOf(messages, 'system').every(({ content }) => all.includes(String(content)))
    const wordsOf = (turns: readonly Json[]): string => turns.flatMap(({ content }) =>
      typeof content === 'string' ? [content] : (content as Json[]).flatMap((one) =>
        one['type'] === 'text' && !/^<system-reminder>|^instruction/.test(String(one['text'])) ? [one['text']] : [])).join('')
    const resultsFirst = rolesOf(folded, 'user').every(({ content }, i, users) => {
      const kinds = typeof content === 'string' ? [] : (content as Json[])
      const reminder = kinds.findIndex((one) => String(one['text']).startsWith('<system-reminder>'))
      const behind = kinds.slice(reminder + 1).some(({ type }) => type === 'tool_result')
      return reminder === -1 || !behind || i >= users.length
    })
    return isKept && resultsFirst && wordsOf(rolesOf(folded, 'user')) === wordsOf(rolesOf(messages, 'user')) &&
      JSON.stringify(rolesOf(folded, 'assistant')) === JSON.stringify(rolesOf(messages, 'assistant'))
  }), { numRuns: 2000 })
  t.end()
})

t.test('a hundred thousand system turns are folded in one pass', (t) => {
  const messages = [user('q'), ...Array.from({ length: 100_000 }, () => system('a'))]
  const { messages: folded } = withoutSystemTurns({ messages }) as { messages: readonly { content: unknown[] }[] }
  t.strictSame(folded.map(({ content }) => content.length), [100_001])
  t.end()
})

const hello = { model: 'm1', max_tokens: 100, messages: [user('q'), system('be brief')] }

t.test('each model as it is configured, answers and counts alike', async (t) => {
  const up = await upstream(t, ({ path }) => path.endsWith('count_tokens') ? json({ input_tokens: 5 }) : answer('Hi'))
  const text = yaml([up.url]).replace('dialect: messages', 'dialect: messages, count_tokens: true')
  const gw = await gateway(t, text)
  const http = client(t, gw)
  const counting = client(t, gw, '/v1/messages/count_tokens')
  const sent = (): unknown => up.requests.at(-1)!.body!['messages']
  for (const http_ of [http, counting]) {
    t.equal((await http_.post(hello).whole()).status, 200)
    t.strictSame(sent(), [user([{ type: 'text', text: 'q' }, marked('be brief')])])
  }
  await gw.rewrite(text.replace('accepts: [text, image]', 'accepts: [text, image]\n    mid_system: true'))
  for (const http_ of [http, counting]) {
    t.equal((await http_.post(hello).whole()).status, 200)
    t.strictSame(sent(), hello.messages)
  }
})

t.test('betas: an upstream gets those that it knows, and its own', async (t) => {
  const up = await upstream(t, answer('Hi'))
  const asked = 'interleaved-thinking-2025-05-14, context-management-2025-06-27,,fast-mode-2026-02-01'
  const rows = [
    ['', 'interleaved-thinking-2025-05-14,context-management-2025-06-27,fast-mode-2026-02-01'],
    ['messages: {}, ', 'interleaved-thinking-2025-05-14,context-management-2025-06-27,fast-mode-2026-02-01'],
    ['messages: { betas: [] }, ', undefined],
    ['messages: { betas: ["interleaved-*", fast-mode-2026-02] }, ', 'interleaved-thinking-2025-05-14'],
    ['messages: { betas: [context-management-2025-06-27] }, ', 'context-management-2025-06-27']
  ] as const
  for (const [option, expected] of rows) {
    const text = yaml([up.url]).replace('dialect: messages, ', `dialect: messages, ${option}`)
    const gw = await gateway(t, text)
    t.equal((await client(t, gw).post(hello, { 'anthropic-beta': asked }).whole()).status, 200)
    t.equal(up.requests.at(-1)!.headers['anthropic-beta'], expected, option)
    await gw.rewrite(text.replace('headers: { ', 'headers: { anthropic-beta: ours-1, '))
    t.equal((await client(t, gw).post(hello, { 'anthropic-beta': asked }).whole()).status, 200)
    t.equal(up.requests.at(-1)!.headers['anthropic-beta'], ['ours-1', ...(expected === undefined ? [] : [expected])].join())
  }
})

t.test('what a beta would make dearer is refused with the field that it needs', async (t) => {
  const up = await upstream(t, answer('Hi'))
  const gw = await gateway(t, yaml([up.url]))
  const got = await client(t, gw).post({ ...hello, speed: 'fast' }, { 'anthropic-beta': 'fast-mode-2026-02-01' }).whole()
  t.equal(got.status, 400)
  t.match(got.text, /The field \\"speed\\" changes the price/)
  t.equal(up.requests.length, 0)
})
