// What a key's settings mean to the official SDKs: they are told by how they come (key-policy), and wait as they are
// told (rate-limit).
import Anthropic from '@anthropic-ai/sdk'
import { createAnthropic } from '@ai-sdk/anthropic'
import { generateText } from 'ai'
import OpenAI from 'openai'
import t, { type Test } from 'tap'
import { gateway, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, upstream } from '../support/upstream.ts'

const PIPELINE = 'auth, key-policy, rate-limit, chat-to-messages, channel-router, billing-meter, error-normalize'

function secretOf (key: string): string {
  return 'sk-gw-' + key.replaceAll('-', '').padStart(32, 'k')
}

/** A gateway whose keys have these settings, by id. */
async function keyed (t: Test, keys: Readonly<Record<string, string>>, now = Date.now): Promise<TestGateway> {
  const up = await upstream(t, answer('Hello'))
  const lines = Object.entries(keys).map(([id, settings]) =>
    `  - { id: ${id}, account: acme, secret: ${secretOf(id)}, ${settings} }\n`
  )
  return await gateway(t, yaml([up.url], lines.join(''), PIPELINE), { now })
}

t.test('the official SDKs are told as they come', async (t) => {
  const { url } = await keyed(t, { 'anthropic-js': 'allowed_clients: [anthropic-js]',
    'openai-js': 'allowed_clients: [openai-js]', 'ai-sdk': 'allowed_clients: [ai-sdk]',
    node: 'allowed_clients: [Node]' })
  const anthropic = (apiKey: string): PromiseLike<unknown> =>
    new Anthropic({ baseURL: url, apiKey }).messages.create({ model: 'm1', max_tokens: 10,
      messages: [{ role: 'user', content: 'Hello' }] })
  const openai = (apiKey: string): PromiseLike<unknown> => new OpenAI({ baseURL: url + '/v1', apiKey }).models.list()
  t.match(await anthropic(secretOf('anthropic-js')), { content: [{ text: 'Hello' }] })
  t.match(await openai(secretOf('openai-js')), { data: [{ id: 'm1' }] })
  t.match(
    await generateText({ model: createAnthropic({ baseURL: url + '/v1', apiKey: secretOf('ai-sdk') })('m1'),
      prompt: 'Hello', maxRetries: 0, maxOutputTokens: 10 }),
    { text: 'Hello' }
  )
  t.equal((await fetch(url + '/v1/models', { headers: { 'x-api-key': secretOf('node') } })).status, 200)
  const refusal = (work: PromiseLike<unknown>): PromiseLike<unknown> =>
    work.then(() => 'none', (thrown: unknown) => thrown)
  t.match(await refusal(anthropic(secretOf('openai-js'))), { status: 403, type: 'permission_error' })
  t.match(await refusal(openai(secretOf('anthropic-js'))), { status: 403, code: 'client_not_allowed' })
})

t.test('unmodified SDKs wait as they are told, and succeed', async (t) => {
  const clock = { time: 1_800_000_000_400 }
  const gw = await keyed(t, { anthropic: 'rate_limit: 1', openai: 'rate_limit: 1' }, () => clock.time)
  const anthropic = new Anthropic({ baseURL: gw.url, apiKey: secretOf('anthropic'), maxRetries: 1 })
  const openai = new OpenAI({ baseURL: `${gw.url}/v1`, apiKey: secretOf('openai'), maxRetries: 1 })
  const calls: Readonly<Record<string, () => Promise<unknown>>> = {
    anthropic: () =>
      anthropic.messages.create({ model: 'm1', max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }] }),
    openai: () => openai.chat.completions.create({ model: 'm1', messages: [{ role: 'user', content: 'Hello' }] })
  }
  for (const [sdk, call] of Object.entries(calls)) {
    const before = gw.logged.length
    const statuses = (): unknown[] =>
      gw.logged.slice(before).filter(({ msg }) => msg === 'request').map(({ status }) => status)
    await call()
    clock.time += 59_700
    const again = call()
    await until(() => statuses().includes(429))
    clock.time += 300                                    // what it is told to wait for
    await again
    await until(() => statuses().length === 3)
    t.strictSame(statuses(), [200, 429, 200], sdk)
  }
})
