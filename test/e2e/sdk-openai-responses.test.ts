// The official OpenAI SDKs, unmodified, as clients of /v1/responses: today's major and the one before it. Their
// requests pass the whole pipeline to the simulator, which refuses what the vendor of the messages style refuses.
import * as newest from 'openai'
import OpenAI from 'openai'
import * as last6 from 'openai-6'
import t, { type Test } from 'tap'
import { SseDecoder } from '../../src/core/sse.ts'
import { readResponse } from '../support/responses-reader.ts'
import { chargeOf, late, simulated, thrown as caught } from '../support/sdk.ts'
import { KEY } from '../support/gateway.ts'

type Sdk = typeof OpenAI
type ApiError = InstanceType<Sdk['APIError']>
type Body = Omit<OpenAI.Responses.ResponseCreateParamsNonStreaming, 'stream'>
type Item = OpenAI.Responses.ResponseInputItem
type Json = Readonly<Record<string, unknown>>

const hello: Body = { model: 'm1', input: 'Hello there' }
const sim = (directive: string): Body => ({ ...hello, input: `Hello [[sim: ${directive}]]` })

const place = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'],
  additionalProperties: false }
const weather = { type: 'function', name: 'weather', description: 'The weather', parameters: place, strict: true } as const
const clock = { type: 'function', name: 'clock', strict: false,
  parameters: { type: 'object', properties: { zone: { type: 'string' } } } } as const

const sdks: readonly { readonly name: string, readonly SDK: Sdk, readonly exported: Json }[] = [
  { name: 'openai 7.55', SDK: OpenAI, exported: newest },
  // The same calls; what its types lack or have more is not used here.
  { name: 'openai 6.49', SDK: last6.default as unknown as Sdk, exported: last6 }
]

const thrown = async (work: PromiseLike<unknown>): Promise<ApiError> => await caught(work) as ApiError

async function collect<T> (stream: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const one of stream) all.push(one)
  return all
}

/** A `fetch` that gives what it streams to the strict reader too. */
function watched (t: Test): { readonly fetch: typeof globalThis.fetch, readonly isWhole: () => Promise<void> } {
  let text: Promise<string> | undefined
  return {
    async fetch (input, init) {
      const response = await fetch(input, init)
      const [one, other] = response.body!.tee()
      text = new Response(other).text()
      return new Response(one, response)
    },
    async isWhole () {
      const events = new SseDecoder().push(Buffer.from(await text!))
      t.doesNotThrow(() => readResponse(events), 'and the strict reader takes it')
    }
  }
}

const silent = await late(t)

for (const { name, SDK, exported } of sdks) {
  t.test(name, async (t) => {
    const { gw, lastBody } = await simulated(t)
    const watch = watched(t)
    const clientOf = (apiKey: string): OpenAI =>
      new SDK({ apiKey, baseURL: `${gw.url}/v1`, maxRetries: 0, fetch: watch.fetch })
    const { responses } = clientOf(KEY)

    await t.test('create', async (t) => {
      const { data, response, request_id: id } = await responses.create({ ...hello, instructions: 'Be brief.' })
        .withResponse()
      t.match(data, { object: 'response', model: 'm1', status: 'completed', error: null, instructions: 'Be brief.' })
      t.match(data.output_text, /^You said: “Hello there”/)
      t.equal(data.id, `resp_${id!.slice('req_'.length)}`)
      t.ok(Math.abs(data.created_at - Date.now() / 1000) < 60)
      const { input_tokens: input, output_tokens: output, total_tokens: total } = data.usage!
      t.equal(total, input + output)
      const { nanos } = await chargeOf(gw, id)
      t.equal(-nanos, BigInt(input) * 3000n + BigInt(output) * 15_000n)
      t.equal(Number(response.headers.get('x-gateway-cost-usd')), Number(-nanos) / 1e9)
      t.match(lastBody(), { model: 'vendor-m1', system: [{ text: 'Be brief.' }],
        messages: [{ role: 'user', content: [{ type: 'text', text: 'Hello there' }] }] })
    })

    await t.test('create({ stream: true }) and stream() say the same, and it costs the same', async (t) => {
      const whole = await responses.create(hello)
      const { data, request_id: id } = await responses.create({ ...hello, stream: true }).withResponse()
      const events = await collect(data)
      await watch.isWhole()
      t.equal(events.map((event) => event.type === 'response.output_text.delta' ? event.delta : '').join(''),
        whole.output_text)
      t.ok(events.length > 20, 'it came in pieces')
      t.equal((await chargeOf(gw, id)).nanos, (await chargeOf(gw, whole._request_id)).nanos)

      const stream = responses.stream({ ...hello })
      const pieces: string[] = []
      stream.on('response.output_text.delta', ({ delta }) => { pieces.push(delta) })
      const final = await stream.finalResponse()
      t.equal(pieces.join(''), whole.output_text)
      t.equal(final.output_text, whole.output_text)
      t.strictSame(final.output.map(({ type }) => type), ['message'])
      const { charged_usd: told, ...usage } = final.usage as unknown as Json
      t.strictSame(usage, whole.usage)
      t.equal(told, `${Number(-(await chargeOf(gw, whole._request_id)).nanos) / 1e9}`)
    })

    await t.test('tools, two at once, there and back, by all that the answer has', async (t) => {
      for (const isStream of [false, true]) {
        const tools = [weather, clock]
        const input: Item[] = [{ role: 'user', content: 'Look [[sim: tool_calls=2]]' }]
        const ask = async (body: Body): Promise<OpenAI.Responses.Response> => isStream
          ? await responses.stream({ ...body, stream: true }).finalResponse() : await responses.create(body)
        const asking = { model: 'm1', tools, reasoning: { effort: 'high', summary: 'auto' } } as const
        const first = await ask({ ...asking, input })
        if (isStream) await watch.isWhole()
        const calls = first.output.filter((item) => item.type === 'function_call')
        t.match(calls, [{ name: 'weather', arguments: '{"city":"Oslo"}', status: 'completed' }, { name: 'clock' }])
        t.equal(first.output[0]!.type, 'reasoning')
        t.ok((first.output[0] as OpenAI.Responses.ResponseReasoningItem).summary[0]!.text.length > 0)
        const results = calls.map(({ call_id: id, name }): Item =>
          ({ type: 'function_call_output', call_id: id, output: `${name} result` }))
        const again: Item[] = [{ role: 'user', content: 'Look' }, ...first.output as Item[], ...results]
        const second = await ask({ ...asking, input: again })
        t.match(second.output_text, /The tool answered: “weather result”\. The tool answered: “clock result”/)
        t.match(lastBody().messages, [{}, { role: 'assistant', content: [{ type: 'thinking', signature: /./ }] },
          { content: [{ type: 'tool_result', tool_use_id: calls[0]!.call_id }, { type: 'tool_result' }] }])
      }
    })

    await t.test('parse, of a model that has structured outputs and of one that has not', async (t) => {
      for (const model of ['m1', 'plain']) {
        const format = { type: 'json_schema', name: 'place', schema: place, strict: true } as const
        const parsed = await responses.parse({ model, input: 'Where?', text: { format } })
        t.type((parsed.output_parsed as unknown as { city: unknown }).city, 'string', model)
        const streamed = await responses.stream({ model, input: 'Where?', text: { format } }).finalResponse()
        t.equal(streamed.output_text, parsed.output_text)
      }
    })

    await t.test('an answer that a limit cuts is incomplete', async (t) => {
      const cut = { ...hello, max_output_tokens: 16 }
      for (const got of [await responses.create(cut), await responses.stream(cut).finalResponse()]) {
        t.match(got, { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' },
          output: [{ status: 'incomplete' }] })
      }
      t.match(await responses.create(sim('refuse')), { incomplete_details: { reason: 'content_filter' } })
    })

    await t.test('an answer that breaks off has failed, with the half of its text', async (t) => {
      for (const [directive, code] of [['cut_after=8', 'upstream_stream_interrupted'],
        ['error_event_after=8', 'rate_limit_exceeded'], ['end_after=8', 'stream_incomplete']] as const) {
        const final = await responses.stream({ ...sim(directive) }).finalResponse()
        await watch.isWhole()
        t.match(final, { status: 'failed', error: { code, message: / Request ID: req_\w{24}$/ } }, directive)
        t.ok(final.output_text.length > 0)
      }
    })

    await t.test('errors before the answer are its classes', async (t) => {
      const refused = [
        [clientOf('sk-gw-nonsense').responses.create(hello), 'AuthenticationError', 'authentication_error'],
        [responses.create({ ...hello, model: 'nobody' }), 'BadRequestError', 'model_not_found'],
        [responses.create({ ...hello, previous_response_id: 'resp_1' }), 'BadRequestError',
          'previous_response_not_found'],
        [responses.stream(sim('status=529')).finalResponse(), 'InternalServerError', 'model_overloaded']
      ] as const
      for (const [work, cls, code] of refused) {
        const error = await thrown(work)
        t.equal(error.constructor, exported[cls], code)
        t.equal(error.code, code)
        t.ok(error.message.endsWith(` Request ID: ${error.requestID}`))
      }
    })

    await t.test('pings go unnoticed, and an error behind them is a response that failed', async (t) => {
      const { url, fetch } = silent
      const { responses } = new SDK({ apiKey: KEY, baseURL: `${url}/v1`, fetch })
      t.equal((await responses.stream({ ...hello, max_output_tokens: 200 }).finalResponse()).output_text, 'At last')
      const failed = await responses.stream({ ...hello }).finalResponse()
      t.match(failed, { status: 'failed', error: { code: 'rate_limit_exceeded', charged_usd: '0' } })
    })
  })
}
