// The simulator's Responses API as its users meet it: over sockets, and with the vendor's own SDKs.
import OpenAI from 'openai'
import OpenAI6 from 'openai-6'
import t, { type Test } from 'tap'
import { startSimulator, type Simulator, type SimulatorOptions } from '../../src/simulator/simulator.ts'
import { tokensOf } from '../../src/simulator/tokens.ts'
import { SseDecoder, type SseEvent } from '../../src/core/sse.ts'

type Fields = Readonly<Record<string, unknown>>

async function simulator (t: Test, options: SimulatorOptions = {}): Promise<Simulator> {
  const started = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0, ...options })
  t.teardown(() => started.close())
  return started
}

function post (url: string, body: Fields, key = 'k'): Promise<Response> {
  return fetch(`${url}/v1/responses`, { method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
    body: JSON.stringify({ model: 'm', input: 'Hello', ...body }) })
}

/** Reads a stream to its end, or to where it was cut. */
async function eventsOf (
  response: Response
): Promise<{ readonly events: readonly SseEvent[], readonly isCut: boolean }> {
  const decoder = new SseDecoder()
  const events: SseEvent[] = []
  try {
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      events.push(...decoder.push(Buffer.from(chunk)))
    }
  } catch {
    return { events, isCut: true }
  }
  return { events, isCut: false }
}

/** The last request, when it is over. */
function ended (vendor: Simulator, count = 1): Promise<Simulator['requests'][number]> {
  return vendor.until(() => {
    const record = vendor.requests[count - 1]
    return record?.ended !== undefined && record
  })
}

const INCLUDED = ['reasoning.encrypted_content'] as const
const weather = { type: 'function' as const, name: 'get_weather', strict: false,
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } }
const clock = { type: 'function' as const, name: 'clock', strict: false,
  parameters: { type: 'object', properties: { zone: { type: 'string' } } } }

const clients = [
  { name: 'openai 7', make: (baseURL: string) => new OpenAI({ apiKey: 'k', baseURL, maxRetries: 0 }) },
  { name: 'openai 6',
    make: (baseURL: string) => new OpenAI6({ apiKey: 'k', baseURL, maxRetries: 0 }) as unknown as OpenAI }
]

for (const { name, make } of clients) {
  t.test(`${name} takes it for its vendor`, async (t) => {
    const vendor = await simulator(t)
    const client = make(`${vendor.url}/v1`)

    t.test('create, and the stream helper', async (t) => {
      const asking = { model: 'm', input: 'Hello' }
      const whole = await client.responses.create(asking)
      t.match(whole, { object: 'response', status: 'completed', error: null, incomplete_details: null,
        output_text: /^You said: “Hello”\./, usage: { input_tokens: 1, input_tokens_details: { cached_tokens: 0 } } })
      t.equal(whole.usage?.output_tokens, tokensOf(whole.output_text).length)
      const types = new Set<string>()
      const stream = client.responses.stream(asking)
      for await (const { type } of stream) types.add(type)
      const streamed = await stream.finalResponse()
      t.strictSame([...types], ['response.created', 'response.in_progress', 'response.output_item.added',
        'response.content_part.added', 'response.output_text.delta', 'response.output_text.done',
        'response.content_part.done', 'response.output_item.done', 'response.completed'])
      t.equal(streamed.output_text, whole.output_text)
      t.strictSame(streamed.usage, whole.usage)
      t.match(await ended(vendor, vendor.requests.length), { ended: 'complete', text_sent: whole.output_text,
        usage: whole.usage })
    })

    t.test('parallel calls with reasoning, and the whole conversation sent back', async (t) => {
      const asking = { model: 'm', store: false, include: [...INCLUDED], tools: [weather, clock],
        reasoning: { effort: 'low' as const, summary: 'auto' as const } }
      const input: OpenAI.Responses.ResponseInputItem[] = [{ role: 'user',
        content: '[[sim: tool_calls=2 summary_parts]] The weather in Oslo?' }]
      const first = await client.responses.stream({ ...asking, input }).finalResponse()
      t.strictSame(first.output.map(({ type }) => type), ['reasoning', 'message', 'function_call', 'function_call'])
      const [thought, , ...calls] = first.output as [OpenAI.Responses.ResponseReasoningItem, unknown,
        ...OpenAI.Responses.ResponseFunctionToolCall[]]
      t.equal(thought.summary.length, 2)
      t.match(calls, [{ name: 'get_weather', arguments: '{"city":"Oslo"}', call_id: /^call_/, id: /^fc_/,
        status: 'completed' }, { name: 'clock' }])
      t.ok(first.usage!.output_tokens_details.reasoning_tokens > 0)
      // Ids of what was not stored must not come back, but for those of encrypted reasoning.
      const said = first.output.map((item) => item.type === 'reasoning' ? item : { ...item, id: undefined })
      const second = await client.responses.create({ ...asking, input: [...input,
        ...said as OpenAI.Responses.ResponseInputItem[],
        ...calls.map(({ call_id: id }) =>
          ({ type: 'function_call_output' as const, call_id: id, output: `from ${id}` }))] })
      for (const { call_id: id } of calls) t.match(second.output_text, `The tool answered: “from ${id}”`)
      t.match(second.output[0], { type: 'reasoning', summary: [{ text: /The tool has answered/ }] })
    })

    t.test('what it has stored it knows by its id', async (t) => {
      const { id, output } = await client.responses.create({ model: 'm', input: 'first' })
      const more = { model: 'm', input: 'second', previous_response_id: id }
      t.equal((await client.responses.create(more)).usage!.input_tokens,
        1 + tokensOf((output[0] as OpenAI.Responses.ResponseOutputMessage).content.map((part) =>
          part.type === 'output_text' ? part.text : '').join('')).length + 1)
      const referred = await client.responses.create({ model: 'm',
        input: [{ type: 'item_reference', id: output[0]!.id! }, { role: 'user', content: 'third' }] })
      t.match(referred.output_text, /third/)
      await t.rejects(client.responses.create({ ...more, previous_response_id: 'resp_unknown' }), { status: 400,
        code: 'previous_response_not_found', param: 'previous_response_id' })
      const unstored = await client.responses.create({ model: 'm', input: 'first', store: false })
      await t.rejects(client.responses.create({ ...more, previous_response_id: unstored.id }), /not found/)
      await t.rejects(client.responses.create({ model: 'm', input: [unstored.output[0]!, { role: 'user',
        content: 'x' }] as OpenAI.Responses.ResponseInput }), { status: 404, message: /Items are not persisted/ })
    })

    t.test('refusals of the model, and answers that are not complete', async (t) => {
      const say = (directive: string, more: object = {}): Promise<OpenAI.Responses.Response> =>
        client.responses.stream({ model: 'm', input: `[[sim: ${directive}]] Hello`, ...more }).finalResponse()
      t.match(await say('refuse'), { status: 'completed',
        output: [{ content: [{ type: 'refusal', refusal: 'I can not help with that.' }] }] })
      t.match(await say('tokens=40', { max_output_tokens: 16 }), { status: 'incomplete',
        incomplete_details: { reason: 'max_output_tokens' }, output: [{ status: 'incomplete' }],
        usage: { output_tokens: 16 } })
      t.match(await say('incomplete=content_filter'), { status: 'incomplete',
        incomplete_details: { reason: 'content_filter' } })
      t.match(await say('failed_after=5 error_type=rate_limit_exceeded'), { status: 'failed',
        error: { code: 'rate_limit_exceeded' } })
      await t.rejects(say('error_event_after=4'), /overloaded/)
      t.match(await client.responses.create({ model: 'm', input: '[[sim: failed_after=1]] Hello' }), { status: 'failed',
        output: [] })
    })
  })
}

t.test('tools of every kind are called as their kind', async (t) => {
  const vendor = await simulator(t)
  const said = async (tool: Fields, name: string): Promise<unknown> => {
    const body = { tools: [tool], input: `[[sim: tool_calls]] Call ${name}`, store: false }
    const { events } = await eventsOf(await post(vendor.url, { ...body, stream: true }))
    const { response } = events.at(-1)!.json as { response: { output: Fields[] } }
    const { output } = await (await post(vendor.url, body)).json() as { output: Fields[] }
    const own = ({ id: _i, call_id: _c, ...item }: Fields): Fields => item
    t.strictSame(output.map(own), response.output.map(own))
    return output.at(-1)
  }
  const done = { status: 'completed', call_id: /^call_/ }
  t.match(await said(weather, 'get_weather'), { type: 'function_call', id: /^fc_/, name: 'get_weather', ...done })
  t.match(await said({ type: 'custom', name: 'patch' }, 'patch'), { type: 'custom_tool_call', id: /^ctc_/,
    name: 'patch', input: 'Call patch', ...done })
  t.match(await said({ type: 'namespace', name: 'fs', description: 'Files', tools: [clock] }, 'fs.clock'), {
    type: 'function_call', name: 'clock', namespace: 'fs', ...done })
  t.match(await said({ type: 'tool_search', execution: 'client', parameters: weather.parameters }, 'tool_search'), {
    type: 'tool_search_call', id: /^tsc_/, execution: 'client', arguments: { city: 'Oslo' }, ...done })
})

t.test('reasoning: real only when it is done, and only where it was asked for', async (t) => {
  const vendor = await simulator(t, { key: 'one' })
  const other = await simulator(t, { key: 'another' })
  const asking = { reasoning: { effort: 'high', summary: null }, include: INCLUDED, store: false, stream: true }
  const { events } = await eventsOf(await post(vendor.url, asking, 'one'))
  const items = events.filter(({ event }) => event.startsWith('response.output_item.')).map(({ json }) =>
    (json as { item: Fields }).item)
  const [placeholder, sealed] = items.filter(({ type }) => type === 'reasoning').map((item) =>
    item['encrypted_content'])
  t.not(placeholder, sealed)
  t.strictSame(items[1]!['summary'], [], 'no summary was asked for')

  const back = (url: string, key: string, content: unknown): Promise<Response> =>
    post(url, { ...asking, stream: false, input: [{ type: 'reasoning', id: 'rs_1', summary: [],
      encrypted_content: content }, { role: 'assistant', content: 'Hi' }, { role: 'user', content: 'Hello' }] }, key)
  t.equal((await back(vendor.url, 'one', sealed)).status, 200)
  const text = String(sealed)
  const changed = text.slice(0, -3) + (text.at(-3) === 'A' ? 'B' : 'A') + text.slice(-2)
  for (const [what, answered] of [
    ['a placeholder', back(vendor.url, 'one', placeholder)],
    ['changed by a character', back(vendor.url, 'one', changed)],
    ['foreign', back(other.url, 'another', sealed)]
  ] as const) {
    const response = await answered
    t.match([response.status, await response.json()], [400, { error: { code: 'invalid_encrypted_content',
      message: /could not be verified/ } }], what)
  }
  const directed = async (directive: string): Promise<unknown> => {
    const input = [{ type: 'reasoning', summary: [], encrypted_content: sealed }, { role: 'assistant', content: 'Hi' },
      { role: 'user', content: `[[sim: ${directive}]]` }]
    return (await (await post(vendor.url, { input }, 'one')).json() as Fields)['error']
  }
  t.match(await directed('refuse_encrypted'), { code: 'invalid_encrypted_content' })
  t.match(await directed('refuse_encrypted code_null'), { code: null, message: /could not be verified/ })

  const { output: [plain] } = await (await post(vendor.url, { reasoning: { summary: 'auto' } }, 'one')).json() as {
    output: Fields[] }
  t.match(plain, { type: 'reasoning', summary: [{ type: 'summary_text' }] })
  t.notOk('encrypted_content' in plain!)
  const { output: [raw] } = await (await post(vendor.url, { reasoning: { effort: 'low' },
    input: '[[sim: reasoning_text]] Hello' }, 'one')).json() as { output: Fields[] }
  t.match(raw, { summary: [], content: [{ type: 'reasoning_text', text: /The user says/ }] })
})

t.test('it refuses what its vendor refuses', async (t) => {
  const vendor = await simulator(t, { key: 'right' })
  const say = async (body: Fields, key = 'right'): Promise<Fields> => {
    const response = await post(vendor.url, body, key)
    return { status: response.status, ...(await response.json() as { error: Fields }).error }
  }
  t.match(await say({}, 'wrong'), { status: 401, code: 'invalid_api_key' })
  const user = { role: 'user', content: 'x' }
  const call = { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' }
  const result = { type: 'function_call_output', call_id: 'c', output: 'x' }
  const table: readonly (readonly [Fields, RegExp])[] = [
    [{ messages: [] }, /Unknown parameter: 'messages'/],
    [{ stop: ['x'] }, /Unknown parameter: 'stop'/],
    [{ model: '' }, /'model'/],
    [{ max_output_tokens: 15 }, /Expected a value >= 16, but got 15/],
    [{ temperature: 3 }, /temperature/],
    [{ stream: 'yes' }, /'stream'/],
    [{ instructions: ['x'] }, /'instructions'/],
    [{ reasoning: { effort: 'much' } }, /'reasoning\.effort': got 'much'/],
    [{ reasoning: { summary: true } }, /'reasoning\.summary'/],
    [{ include: 'all' }, /'include'/],
    [{ text: { format: { type: 'json_schema', schema: {} } } }, /'text\.format\.name'/],
    [{ text: { format: { type: 'json_schema', name: 'x' } } }, /'text\.format\.schema'/],
    [{ tools: [{ type: 'function', function: { name: 'f' } }] }, /'tools\[0\]\.name'/],
    [{ tools: [{ type: 'function', name: 'a b' }] }, /'tools\[0\]\.name'/],
    [{ tools: [{ ...weather, strict: true }] }, /additionalProperties/],
    [{ tools: [{ type: 'function', name: 'f', parameters: { type: 'object' } }] }, /additionalProperties/],
    [{ tool_choice: 'required' }, /'required'/],
    [{ tool_choice: { type: 'function', name: 'f' }, tools: [weather] }, /not found in 'tools'/],
    [{ input: [] }, /'input'/],
    [{ input: undefined }, /Missing required parameter: 'input'/],
    [{ input: [{ role: 'human', content: 'x' }] }, /'human'/],
    [{ input: [{ role: 'user', content: [{ type: 'text', text: 'x' }] }] }, /input\[0\]\.content\[0\]/],
    [{ input: [{ role: 'user', content: [{ type: 'output_text', text: 'x' }] }] }, /input\[0\]\.content\[0\]/],
    [{ input: [{ role: 'assistant', content: [{ type: 'input_text', text: 'x' }] }] }, /input\[0\]\.content\[0\]/],
    [{ input: [{ type: 'web_fetch_call' }] }, /'input\[0\]\.type'/],
    [{ input: [user, call] }, /No tool output found for function call c/],
    [{ input: [user, result] }, /No tool call found for function call output with call_id c/],
    [{ input: [user, { ...call, arguments: {} }, result] }, /'input\[1\]\.arguments'/],
    [{ input: [user, { ...call, call_id: '' }, result] }, /'input\[1\]\.call_id'/],
    [{ input: [user, call, { ...result, output: [{ type: 'output_text', text: 'x' }] }] }, /input\[2\]\.output\[0\]/],
    [{ input: [user, { type: 'reasoning', summary: [] }] }, /without its required following item/],
    [{ input: [user, { type: 'reasoning' }, { role: 'assistant', content: 'x' }] }, /'input\[1\]\.summary'/],
    [{ input: [user, { type: 'custom_tool_call', call_id: 'c', name: 'p', input: 'x' }, result], x: 1 }, /'x'/]
  ]
  for (const [body, message] of table) {
    t.match(await say(body), { status: 400, type: 'invalid_request_error', message }, JSON.stringify(body))
  }
  t.match(await say({ input: [user, { ...call, id: 'fc_1' }, result] }), { status: 404, param: 'input[1].id' })
  t.match(await say({ input: [{ type: 'item_reference', id: 'rs_1' }, user] }), { status: 404 })
  for (const [directive, wanted] of [['context', { status: 400, code: 'context_length_exceeded' }],
    ['content_policy', { status: 400, code: 'invalid_prompt' }],
    ['status=429', { status: 429, code: 'rate_limit_exceeded' }],
    ['status=500', { status: 500, type: 'server_error' }]] as const) {
    t.match(await say({ input: `[[sim: ${directive}]]` }), wanted, directive)
  }
})

t.test('its cache: what was read under a key need not be read again', async (t) => {
  const vendor = await simulator(t)
  const usage = async (body: Fields): Promise<unknown> =>
    (await (await post(vendor.url, body)).json() as Fields)['usage']
  const first = { role: 'user', content: 'one two three' }
  const second = { role: 'assistant', content: 'four' }
  const third = { role: 'user', content: 'five six' }
  t.match(await usage({ input: [first] }), { input_tokens: 3,
    input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 } })
  t.match(await usage({ input: [first], prompt_cache_key: 'a' }), { input_tokens: 3,
    input_tokens_details: { cached_tokens: 0, cache_write_tokens: 3 } })
  t.match(await usage({ input: [first, second, third], prompt_cache_key: 'a' }), { input_tokens: 6,
    input_tokens_details: { cached_tokens: 3, cache_write_tokens: 3 } })
  t.match(await usage({ input: [first], prompt_cache_key: 'b' }), { input_tokens_details: { cached_tokens: 0 } })
  t.match(await usage({ input: '[[sim: cached=2]] a b c' }), { input_tokens_details: { cached_tokens: 2 } })
  t.match(await usage({ input: '[[sim: usage_zero]] a' }), { input_tokens: 0, output_tokens: 0, total_tokens: 0 })
  t.equal(await usage({ input: '[[sim: usage_missing]] a' }), null)
})

t.test('faults in a stream, each as the table says, and the log says what was sent', async (t) => {
  const vendor = await simulator(t)
  const table = [
    { directive: 'tokens=2', count: 10, last: 'response.completed', ending: 'complete' },
    { directive: 'cut_mid_event=4', count: 4, isCut: true, last: 'response.content_part.added', ending: 'cut' },
    { directive: 'end_after=5', count: 5, last: 'response.output_text.delta', ending: 'cut' },
    { directive: 'tokens=2 no_terminal', count: 9, last: 'response.output_item.done', ending: 'cut' },
    { directive: 'error_event_first', count: 1, last: 'error', ending: 'error' },
    { directive: 'error_event_after=3 error_type=server_error', count: 4, last: 'error', ending: 'error' },
    { directive: 'failed_after=5', count: 6, last: 'response.failed', ending: 'complete' },
    { directive: 'malformed=2', count: 3, last: 'response.created', ending: 'error' },
    { directive: 'empty', count: 3, last: 'response.completed', ending: 'complete' },
    { directive: 'tokens=2 unknown_event', count: 11, last: 'response.completed', ending: 'complete' },
    { directive: 'tokens=2 unknown_item', count: 12, last: 'response.completed', ending: 'complete' }
  ]
  for (const [index, { directive, count, isCut = false, last, ending }] of table.entries()) {
    const got = await eventsOf(await post(vendor.url, { input: `[[sim: ${directive}]] Hello`, stream: true }))
    t.strictSame([got.events.length, got.events.at(-1)?.event, got.isCut], [count, last, isCut], directive)
    const record = await ended(vendor, index + 1)
    t.match(record, { ended: ending, events_sent: count }, directive)
    const text = got.events.filter(({ event }) => event === 'response.output_text.delta').map(({ json }) =>
      (json as { delta: string }).delta).join('')
    t.equal(record.text_sent, text, directive)
  }
})

t.test('the events are numbered, in order, and can be cut between any two', async (t) => {
  const vendor = await simulator(t)
  const ask = (directive: string): Promise<Response> =>
    post(vendor.url, { input: `[[sim: tool_calls=2 ${directive}]] Oslo?`, stream: true, tools: [weather, clock],
      reasoning: { summary: 'auto' }, include: INCLUDED })
  const whole = await eventsOf(await ask('id_changes'))
  t.strictSame(whole.events.map(({ json }) => (json as Fields)['sequence_number']), whole.events.map((_, at) => at))
  const ids = whole.events.filter(({ event }) => /output_item/.test(event)).map(({ json }) =>
    (json as { item: Fields }).item['id'])
  t.equal(new Set(ids).size, ids.length, 'each item has two ids')
  for (let at = 1; at < whole.events.length; at++) {
    const { events, isCut } = await eventsOf(await ask(`cut_after=${at}`))
    if (events.length !== at || !isCut) t.fail(`cut after ${events.length}, and not ${at}`)
  }
  t.ok(whole.events.length > 30)
})
