// An upstream of the Responses API behind unmodified SDKs of all three styles: its newest models, with all that its
// vendor may do to a stream, give each a valid answer, at the price of what the vendor reported.
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, isStepCount, jsonSchema, streamText, tool } from 'ai'
import t, { type Test } from 'tap'
import type { RequestRecord } from '../../src/simulator/request-log.ts'
import { chargeOf, simulate, thrown } from '../support/sdk.ts'
import { gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'
import { clientsOf, place, ways, type Asking, type Got } from './ways.ts'

type Json = Readonly<Record<string, unknown>>

const PIPELINE = 'auth, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize'

async function world (t: Test): Promise<{ gw: TestGateway, simulator: Awaited<ReturnType<typeof simulate>> }> {
  const simulator = await simulate(t, 'upstream-secret-0')
  const gw = await gateway(t, yaml([simulator.url], '', PIPELINE).replace('dialect: messages', 'dialect: responses')
    .replace('accepts: [text, image]', 'accepts: [text, image]\n    thinking: adaptive\n    structured_outputs: true'))
  return { gw, simulator }
}

interface Quirk extends Asking {
  readonly usage?: 'zero' | 'missing'
}

const quirks: readonly Quirk[] = [
  { directive: 'tokens=12' },
  { directive: 'usage_missing', usage: 'missing' },
  { directive: 'usage_zero', usage: 'zero' },
  { directive: 'cached=7' },
  { directive: 'unknown_item unknown_event' },
  { directive: 'crlf chunk=1 tokens=3 id_changes' },
  { directive: 'burst' },
  { directive: 'tokens=5', thinks: true },
  { directive: 'reasoning_text tokens=5', thinks: true },
  { directive: 'tokens=5 chunk=7 id_changes unknown_item', thinks: true },
  { directive: 'tool_calls=3', tools: true },
  { directive: 'tool_calls=3 id_changes unknown_item', tools: true },
  { directive: 'tool_calls=3', tools: true, thinks: true },
  { directive: 'tool_calls=3 usage_missing chunk=3', tools: true, thinks: true, usage: 'missing' }
]

t.test('all that the vendor does, for each client', async (t) => {
  const { gw, simulator } = await world(t)
  for (const [way, askBy] of Object.entries(ways(clientsOf(gw)))) {
    for (const quirk of quirks) {
      await t.test(`${way}: ${quirk.directive}${quirk.thinks === true ? ', thinking' : ''}`, async (t) => {
        const got = await askBy(quirk)
        const record = simulator.requests.at(-1)!
        await simulator.until(() => record.ended)
        t.match(record, { path: '/v1/responses', ended: 'complete', stream: way.endsWith('stream') })
        isWhole(t, got, record, quirk)
        await isPaid(t, gw, got, record, quirk)
      })
    }
  }
})

function isWhole (t: Test, got: Got, record: RequestRecord, { tools, thinks }: Quirk): void {
  t.equal(got.thought !== '', thinks === true)
  t.equal(got.reason, tools === true ? 'tool_calls' : 'stop')
  if (tools !== true) {
    t.equal(got.thought + got.text, record.text_sent, 'nothing is lost, and nothing said twice')
    return
  }
  t.equal(got.text, 'I will call weather and clock and weather.')
  t.match(got.calls, [{ name: 'weather', input: { city: 'Tromsø' } }, { name: 'clock',
    input: { list: [{ 'a "b" \\ {': /Tromsø, \{“naïve” 🙂/ }] } }, { name: 'weather', input: { city: 'Tromsø' } }])
  t.equal(new Set(got.calls.map(({ id }) => id)).size, 3)
}

async function isPaid (t: Test, gw: TestGateway, got: Got, record: RequestRecord, { usage }: Quirk): Promise<void> {
  const { nanos, usage: counted, usage_source: source } = await chargeOf(gw, got.id)
  t.equal(-nanos, BigInt(counted!.input) * 3000n + BigInt(counted!.cache_read) * 300n +
    BigInt(counted!.cache_write_5m) * 3750n + BigInt(counted!.output) * 15_000n)
  // Zeros beside content are no report.
  const isReported = usage !== 'missing' && usage !== 'zero'
  t.equal(source, isReported ? 'provider' : 'estimated')
  if (!isReported) {
    t.ok(counted!.input > 0 && counted!.output > 0, 'it is not free because nobody counted')
    return
  }
  const { input_tokens: input, output_tokens: output, input_tokens_details: details } = record.usage as unknown as {
    input_tokens: number, output_tokens: number,
    input_tokens_details: { cached_tokens: number, cache_write_tokens: number } }
  const { cached_tokens: read, cache_write_tokens: written } = details
  t.match(counted, { input: input - read - written, cache_read: read, cache_write_5m: written, output })
  t.strictSame([got.cached, got.output], [read, output])
}

t.test('the `ai` package: thoughts, two steps of tools, JSON and streams', async (t) => {
  Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false })
  const { gw, simulator } = await world(t)
  const access = { apiKey: KEY, baseURL: `${gw.url}/v1` }
  for (const [name, model] of [['anthropic', createAnthropic(access)('m1')], ['openai-compatible',
    createOpenAICompatible({ name: 'gateway', includeUsage: true, ...access })('m1')]] as const) {
    await t.test(name, async (t) => {
      const asking = {
        model,
        tools: {
          weather: tool({ description: 'The weather', inputSchema: jsonSchema<{ city: string }>(place as object),
            execute: ({ city }) => `snow in ${city}` })
        },
        maxRetries: 0,
        maxOutputTokens: 900,
        stopWhen: isStepCount(3),
        prompt: 'What is the weather in Tromsø?',
        providerOptions: { anthropic: { effort: 'low' }, gateway: { reasoningEffort: 'low' } }
      } as const
      const whole = await generateText(asking)
      t.match(whole.text, /The tool answered: “snow in Tromsø”/)
      t.match(whole.steps[0]!.reasoningText, /weather in Tromsø/)
      const stream = streamText(asking)
      t.equal(await stream.text, whole.text)
      t.equal((await stream.totalUsage).outputTokens, whole.totalUsage.outputTokens)
      const { input } = simulator.requests.at(-1)!.body as { readonly input: readonly Json[] }
      // A chat client has no place for what is encrypted.
      t.strictSame(input.map(({ type }) => type), ['message', ...name === 'anthropic' ? ['reasoning'] : [], 'message',
        'function_call', 'function_call_output'])
    })
  }
})

t.test('errors are those of the SDKs', async (t) => {
  const { gw } = await world(t)
  for (const [way, askBy] of Object.entries(ways(clientsOf(gw)))) {
    for (const [directive, wanted] of [['context', { status: 400 }], ['status=401', { status: 503 }],
      ['failed_after=3 error_type=invalid_prompt', { status: 400 }]] as const) {
      gw.heal()
      t.match(await thrown(askBy({ directive })), wanted, `${way}: ${directive}`)
    }
    gw.heal()
    if (way.endsWith('stream')) t.ok(await thrown(askBy({ directive: 'cut_after=9' })) instanceof Error, way)
  }
})
