// What vendors refuse of a request: long names of users, fields whose beta they do not get, marks with a life, and the
// line that makes each prompt another one.
import t, { type Test } from 'tap'
import { dialectsOf } from '../../src/config/sections/dialects.ts'
import { removalFor, withoutFields } from '../../src/upstream/dialects/messages/beta-fields.ts'
import { ask, type Got } from '../support/billing-client.ts'
import { claudeCodeHeaders, claudeCodeRequest } from '../support/claude-code.ts'
import { clientStyles, styles } from '../support/client-styles.ts'
import { gateway, type GatewayTestOptions, KEY, yaml } from '../support/gateway.ts'
import { json, type Received, upstream } from '../support/upstream.ts'
import { answersWith } from '../support/vendor-calls.ts'

type Json = Readonly<Record<string, unknown>>

const DIALECTS = dialectsOf('text')
const list = (value: unknown): readonly Json[] => Array.isArray(value) ? value as readonly Json[] : []
const record = (value: unknown): Json => (value ?? {}) as Json

const PLACES: readonly (readonly [where: string, options: GatewayTestOptions, server: string])[] = [
  ['on the loop', {}, ''], ['in threads', { largeBody: 1 }, ''], ['without the fast lanes', {}, '  fast_lane: off\n']]

interface World {
  readonly url: string
  ask (path: string, body: Json, headers?: Readonly<Record<string, string>>): Promise<Got>
  /** the body that the vendor got last */
  sent (): Json
  last (): Received
}

/** @param upstreams by name, the settings of upstreams, each with a model of its name */
async function startWorld (
  t: Test, upstreams: Readonly<Record<string, string>>, options: GatewayTestOptions = {}, server = '', more = ''
): Promise<World> {
  const vendor = await upstream(t, ({ path, body }) => {
    if (path.endsWith('/count_tokens')) return json({ input_tokens: 7 })
    const dialect = DIALECTS.find((one) => path.includes(one === 'chat' ? '/chat/' : `/${one}`))!
    return answersWith[dialect]([{ id: 'call_1', name: 'run' }], body!['stream'] === true)
  })
  const text = yaml([]).replace(/upstreams:\n[^]*(?=accounts:)/, `upstreams:\n${Object.entries(upstreams)
    .map(([name, settings]) => `  ${name}: { url: "${vendor.url}", ${settings} }\n`).join('')}models:\n${
    Object.keys(upstreams).map((name) => `  - { id: ${name}, provider: acme, created: 2025-01-01, context: 200000,
    max_output: 200000${more}, channels: { premium: { price: { input: 1, output: 10 },
    targets: [{ upstream: ${name}, model: v }] } } }\n`).join('')}`).replace('server:\n', `server:\n${server}`)
  const { url } = await gateway(t, text, options)
  return {
    url,
    async ask (path, body, headers = {}) {
      const got = await ask(url + path, body, { headers: { ...headers, authorization: `Bearer ${KEY}` } })
      t.equal(got.status, 200, JSON.stringify(got.body ?? {}).slice(0, 300))
      return got
    },
    sent: () => vendor.requests.at(-1)!.body!,
    last: () => vendor.requests.at(-1)!
  }
}

/** The user's name in a body to a vendor. */
const userIn = (body: Json): unknown => body['user'] ?? body['safety_identifier'] ?? record(body['metadata'])['user_id']

for (const [where, options, server] of PLACES) {
  t.test(`T8: a user's name that is longer than a vendor takes, ${where}`, async (t) => {
    const world = await startWorld(t, {
      ...Object.fromEntries(DIALECTS.map((dialect) => [dialect, `dialect: ${dialect}`])),
      pass: 'messages: { user_id: pass }', hash: 'messages: { user_id: hash }', drop: 'messages: { user_id: drop }'
    }, options, server)
    const [short, long] = ['u'.repeat(64), `${'u'.repeat(149)}1`]
    const other = `${'u'.repeat(149)}2`
    for (const style of styles) {
      const say = async (model: string, user: string, stream: boolean): Promise<unknown> => {
        const { path, asking } = clientStyles[style]
        const named = style === 'messages' ? { metadata: { user_id: user, more: 1 } }
          : style === 'chat' ? { user } : { safety_identifier: user }
        await world.ask(path, { ...asking({ model, max_tokens: 100, stream,
          messages: [{ role: 'user', content: 'Hello' }] }), ...named })
        return userIn(world.sent())
      }
      for (const stream of [true, false]) {
        for (const model of ['chat', 'responses']) {
          const about = `a ${style} client, ${model}`
          t.equal(await say(model, short, stream), short, about)
          const hashed = await say(model, long, stream)
          t.match(hashed, /^[\w-]{43}$/, about)
          t.equal(await say(model, long, stream), hashed, 'the same each time')
          t.not(await say(model, other, stream), hashed, 'another for another')
        }
        for (const model of ['messages', 'pass']) t.equal(await say(model, long, stream), long, `a ${style} client`)
        t.match(await say('hash', long, stream), /^[\w-]{43}$/)
        t.match(await say('hash', short, stream), /^[\w-]{43}$/, 'also one that is short')
        if (style === 'messages') t.equal(record(world.sent()['metadata'])['more'], 1, 'nothing else changes')
        t.equal(await say('drop', short, stream), undefined)
        if (style !== 'messages') t.notOk('metadata' in world.sent(), 'no empty record')
      }
    }
  })

  t.test(`T9: fields whose beta the vendor does not get, ${where}`, async (t) => {
    const settings = 'count_tokens: true'
    const world = await startWorld(t, { all: settings, none: `${settings}, messages: { betas: [] }`,
      some: `${settings}, messages: { betas: ["context-management-*"] }`,
      own: `${settings}, messages: { betas: [] }, headers: { anthropic-beta: "context-management-2025-06-27" }` },
    options, server, ', thinking: budget')
    const body = (model: string, stream: boolean): Json => ({ ...claudeCodeRequest(model, 'unknown', 2, stream),
      thinking: { type: 'disabled' } })
    for (const [path, stream] of [['/v1/messages', true], ['/v1/messages', false],
      ['/v1/messages/count_tokens', false]] as const) {
      const say = async (model: string): Promise<Json> => {
        const { max_tokens: most, stream: _, ...counted } = body(model, stream)
        await world.ask(path, path.endsWith('tokens') ? counted : { ...counted, max_tokens: most, stream },
          claudeCodeHeaders('unknown'))
        return world.sent()
      }
      const all = await say('all')
      t.match(all, { context_management: { edits: [{ type: 'clear_thinking_20251015' }] },
        output_config: { effort: 'high' } })
      t.match(JSON.stringify(all), /"defer_loading":true.*tool_reference|tool_reference.*"defer_loading":true/s)
      for (const [model, hasManagement] of [['none', false], ['some', true], ['own', true]] as const) {
        const sent = await say(model)
        t.equal('context_management' in sent, hasManagement, model)
        t.notOk('output_config' in sent, `${model}: its effort too`)
        t.equal(list(sent['tools']).length, list(all['tools']).length, 'the tools stay')
        t.notMatch(JSON.stringify(sent), /defer_loading|"tool_reference"/, model)
        t.match(JSON.stringify(sent['messages']), /Tool loaded: WebFetch/)
      }
    }
  })

  t.test(`T9: cache_ttl and attribution of imitations, ${where}`, async (t) => {
    const world = await startWorld(t, { usual: 'messages: {}', absent: 'dialect: messages',
      ttl: 'messages: { cache_ttl: false }', line: 'messages: { attribution: false }' }, options, server)
    const mark = { cache_control: { type: 'ephemeral', ttl: '1h' } }
    const LINE = 'x-anthropic-billing-header: cc_version=2.1; cch=1;'
    const body = (model: string, system: unknown): Json => ({ model, max_tokens: 100, ...mark, system,
      tools: [{ name: 'run', input_schema: { type: 'object' }, ...mark }],
      messages: [{ role: 'user', content: [{ type: 'text', text: 'Go.', ...mark }] },
        { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'run', input: mark }] },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c', ...mark,
          content: [{ type: 'text', text: 'done', ...mark }] }] }] })
    const blocks = [{ type: 'text', text: LINE }, { type: 'text', text: 'Be kind.', ...mark }]
    const count = (text: string, what: RegExp): number => [...text.matchAll(what)].length
    for (const model of ['usual', 'absent']) {
      await world.ask('/v1/messages', body(model, blocks))
      t.strictSame(world.sent(), { ...body(model, blocks), model: 'v' }, 'as it came')
    }
    await world.ask('/v1/messages', body('ttl', blocks))
    const text = JSON.stringify(world.sent())
    t.equal(count(text, /"ttl"/g), 1, 'an input of a call is no mark')
    t.equal(count(text, /"cache_control":\{"type":"ephemeral"/g), 7)
    t.match(text, /"input":\{"cache_control":\{"type":"ephemeral","ttl":"1h"\}\}/)
    for (const [system, kept] of [[blocks, blocks.slice(1)], [[blocks[0]], undefined], [LINE, undefined],
      [`${LINE}\nBe kind.`, 'Be kind.'], ['Be kind.', 'Be kind.'], [undefined, undefined],
      [[{ type: 'text', text: `${LINE}\n\nBe kind.`, ...mark }], [{ type: 'text', text: 'Be kind.', ...mark }]]]) {
      await world.ask('/v1/messages', body('line', system))
      t.strictSame(world.sent()['system'], kept, JSON.stringify(system))
    }
    for (const style of styles.filter((one) => one !== 'messages')) {
      const { path, asking } = clientStyles[style]
      const messages = [{ role: 'system', content: [{ type: 'text', text: `${LINE}` }] },
        { role: 'user', content: [{ type: 'text', text: 'Go.', ...mark }] }]
      await world.ask(path, asking({ model: 'ttl', max_tokens: 100, messages }))
      t.match(JSON.stringify(world.sent()), /"cache_control":\{"type":"ephemeral"\}/, style)
      await world.ask(path, asking({ model: 'line', max_tokens: 100, messages }))
      t.notMatch(JSON.stringify(world.sent()['system'] ?? ''), /billing/, style)
    }
  })
}

t.test('T9: each beta takes its own fields with it, and none that another one allows', (t) => {
  const body = {
    context_management: { edits: [{ type: 'clear_tool_uses_20250919' }, { type: 'compact_20260112' }] },
    output_config: { effort: 'low', task_budget: { total: 9 }, format: 1 }, output_format: {}, speed: 'fast',
    mcp_servers: [{}], tool_choice: { type: 'tool', name: 'search' },
    tools: [{ type: 'tool_search_tool_regex_20251119', name: 'search' }, { name: 'f', defer_loading: true, strict: true,
      allowed_callers: [], input_examples: [], eager_input_streaming: true,
      cache_control: { type: 'ephemeral', ttl: '1h', scope: 'global' } }, { type: 'mcp_toolset' }],
    messages: [{ role: 'user', content: 'q' }, { role: 'assistant', content: [
      { type: 'server_tool_use', id: 's', name: 'tool_search_tool_regex' },
      { type: 'tool_search_tool_result', tool_use_id: 's' }] },
    { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'f', input: { caller: 1 }, caller: { type: 'direct' } }] }]
  }
  const sent = (wanted: string, given: string): Json => {
    const removal = removalFor(wanted, given)
    return removal === undefined ? body : { ...body, ...withoutFields(body, {}, removal) }
  }
  const without = (beta: string, given = ''): string => JSON.stringify(sent(`${beta},${given}`, given))
  const rows: readonly (readonly [beta: string, gone: RegExp])[] = [
    ['context-management-2025-06-27', /context_management/], ['compact-2026-01-12', /context_management/],
    ['advanced-tool-use-2025-11-20', /defer_loading|allowed_callers|input_examples|tool_search|"direct"|tool_choice/],
    ['tool-search-tool-2025-10-19', /defer_loading|tool_search|tool_choice/], ['tool-examples-2025-10-29', /input_examples/],
    ['fine-grained-tool-streaming-2025-05-14', /eager_input/], ['structured-outputs-2025-11-13', /output_format|strict/],
    ['effort-2025-11-24', /effort/], ['task-budgets-2026-03-13', /task_budget/], ['fast-mode-2026-02-01', /speed/],
    ['mcp-client-2025-11-20', /mcp_/], ['extended-cache-ttl-2025-04-11', /"ttl"/], ['prompt-caching-scope-2026-01-05', /"scope"/]]
  for (const [beta, gone] of rows) {
    t.match(JSON.stringify(body), gone)
    t.notMatch(without(beta), gone, beta)
    t.equal(sent(beta, beta), body, `${beta} passes`)
    t.match(without(beta), /"format":1/)
    t.match(without(beta), /"input":\{"caller":1\}/)
  }
  t.match(without('context-management-2025-06-27', 'compact-2026-01-12'), /\[\{"type":"compact_20260112"\}\]/)
  t.match(without('compact-2026-01-12', 'context-management-2025-06-27'), /\[\{"type":"clear_tool_uses_20250919"\}\]/)
  t.match(without('tool-search-tool-2025-10-19', 'advanced-tool-use-2025-11-20'), /defer_loading.*tool_search_tool_result/)
  t.equal(list(sent('advanced-tool-use-2025-11-20', '')['messages']).length, 2, 'no empty turn is left')
  t.equal(sent('interleaved-thinking-2025-05-14,unknown', ''), body, 'those without fields')
  t.equal(removalFor(undefined, ''), undefined)
  t.end()
})
