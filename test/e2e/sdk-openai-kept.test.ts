// The official OpenAI SDKs, unmodified, with what the gateway keeps for them: the shipped gateway.yaml in front of the
// simulator.
import OpenAI from 'openai'
import * as last6 from 'openai-6'
import t from 'tap'
import { stage } from '../support/agents.ts'
import { KEY } from '../support/gateway.ts'
import { thrown } from '../support/sdk.ts'

const sdks = [['openai 7.55', OpenAI], ['openai 6.49', last6.default as unknown as typeof OpenAI]] as const

for (const [name, SDK] of sdks) {
  t.test(name, async (t) => {
    const { gw, simulator } = await stage(t)
    const { responses } = new SDK({ apiKey: KEY, baseURL: `${gw.url}/v1`, maxRetries: 0 })
    const model = 'claude-haiku'
    const sent = (): string => {
      const { body } = simulator.requests.filter(({ path }) => path.endsWith('/messages')).at(-1)!
      return JSON.stringify((body as { readonly messages: unknown }).messages)
    }

    await t.test('an answer is gone on from, found and deleted', async (t) => {
      const first = await responses.create({ model, input: 'My name is Ada' })
      t.match(first, { store: true })
      const second = await responses.stream({ model, input: 'Who am I?', previous_response_id: first.id }).finalResponse()
      t.equal(second.previous_response_id, first.id)
      t.match(sent(), 'My name is Ada')
      t.match(sent(), first.output_text.slice(0, 10))
      const found = await responses.retrieve(second.id)
      t.strictSame([found.id, found.status, found.output_text], [second.id, 'completed', second.output_text])
      const items = []
      for await (const item of responses.inputItems.list(second.id, { limit: 1, order: 'asc' })) items.push(item)
      t.match(items, [{ type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Who am I?' }] }])
      t.match(await thrown(responses.cancel(second.id)), { status: 400, code: 'invalid_request' })
      await responses.delete(first.id)
      t.match(await thrown(responses.retrieve(first.id)), { status: 404 })
      t.match(await thrown(responses.create({ model, input: 'And?', previous_response_id: second.id })),
        { status: 400, code: 'previous_response_not_found' })
    })

    await t.test('input items come page by page', async (t) => {
      const { id } = await responses.create({ model, input: [1, 2, 3, 4, 5].map((n) =>
        ({ role: 'user' as const, content: `n${n}` })) })
      const texts: string[] = []
      for await (const item of responses.inputItems.list(id, { limit: 2 })) texts.push(JSON.stringify(item))
      t.match(texts, ['n5', 'n4', 'n3', 'n2', 'n1'])
    })

    await t.test('store: false is the end of it', async (t) => {
      const unkept = await responses.create({ model, input: 'Hello', store: false })
      t.match(unkept, { store: false })
      t.match(await thrown(responses.retrieve(unkept.id)), { status: 404 })
    })

    await t.test('a conversation is compacted', async (t) => {
      const compacted = await responses.compact({ model, input: [{ role: 'user', content: 'Remember the milk' }] })
      t.match(compacted, { object: 'response.compaction', output: [{ type: 'compaction' }] })
      t.match(sent(), 'Remember the milk')
      const next = await responses.create({ model, input: [...compacted.output as OpenAI.Responses.ResponseInputItem[],
        { role: 'user', content: 'Go on' }] })
      t.equal(next.status, 'completed')
      t.match(sent(), 'Summary of the conversation so far')
    })
  })
}
