// GET /v1/models and /v1/models/{id} as the official SDKs of both vendors read them: today's majors and those before.
import Anthropic from '@anthropic-ai/sdk'
import * as last0 from 'anthropic-sdk-0'
import OpenAI from 'openai'
import OpenAI6 from 'openai-6'
import t from 'tap'
import { gateway, KEY, yaml } from '../support/gateway.ts'

/** What the SDKs of both vendors have. */
interface Lister {
  readonly models: {
    list (): AsyncIterable<{ readonly id: string }>
    retrieve (id: string): PromiseLike<unknown>
  }
}

const LIMITED = 'sk-gw-' + 'l'.repeat(32)

t.test('the official SDKs list and retrieve what the key may call, with ids that hold a slash', async (t) => {
  const gw = await gateway(t,
    yaml(['http://127.0.0.1:9'], `  - { id: limited, account: acme, secret: ${LIMITED}, allowed_models: ["acme/*"] }\n`,
      'auth, key-policy, channel-router, billing-meter, error-normalize')
      .replace('models:\n', `models:
  - { id: acme/large:v1, name: Large, provider: acme, kind: text, created: 2025-10-01, context: 1000, max_output: 100, accepts: [text], channels: { premium: { price: free, targets: [{ upstream: u0, model: x }] } } }
`))
  const options = { baseURL: gw.url, maxRetries: 0 }
  for (const [apiKey, expected] of [[KEY, ['acme/large:v1', 'm1']], [LIMITED, ['acme/large:v1']]] as const) {
    const atV1 = { ...options, apiKey, baseURL: gw.url + '/v1' }
    const clients: readonly Lister[] = [new Anthropic({ ...options, apiKey }),
      new last0.default({ ...options, apiKey }), new OpenAI(atV1), new OpenAI6(atV1)]
    for (const client of clients) {
      const listed: string[] = []
      for await (const { id } of client.models.list()) listed.push(id)
      t.strictSame(listed, expected)
      t.match(await client.models.retrieve('acme/large:v1'), { id: 'acme/large:v1' })
      if (apiKey === LIMITED) await t.rejects(Promise.resolve(client.models.retrieve('m1')), { message: /^404 / })
    }
  }
})

t.test('what coding agents read of the list, as they ask for it', async (t) => {
  const gw = await gateway(t, yaml(['http://127.0.0.1:9'], `aliases: [{ id: claude-ours, model: m1 }, { id: "claude-*", model: m1 }]
`))
  // Claude Code: with a redirect it would give up, and of what it finds it keeps these ids
  const found = await fetch(gw.url + '/v1/models?limit=1000', { redirect: 'error',
    headers: { authorization: `Bearer ${KEY}`, 'anthropic-version': '2023-06-01' } })
  t.equal(found.status, 200)
  const { data } = await found.json() as { readonly data: readonly { id: string, display_name: string }[] }
  t.strictSame(data.filter(({ id }) => /^(?:claude|anthropic)/.test(id)).map(({ id, display_name: name }) => [id, name]),
    [['claude-ours', 'Model One']])
  // Codex: a list of its own kind, which is there and empty
  const asked = await fetch(gw.url + '/v1/models?client_version=0.169.0', { headers: { authorization: `Bearer ${KEY}` } })
  t.strictSame((await asked.json() as { readonly models: unknown }).models, [])
})
