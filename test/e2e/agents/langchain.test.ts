// LangChain as an agent is made with it: each of its models as its page shows it, through a loop of tools.
import { readFileSync } from 'node:fs'
import type { BaseChatModel } from '@langchain/core/language_models/chat_models'
import { createAgent, tool } from 'langchain'
import t from 'tap'
import { thrown } from '../../support/sdk.ts'
import { desk, isPlayed, made, ownHands, promptFor, scenario, settings, stage, toolsAt } from '../../support/agents.ts'

const page = 'docs/customers/clients/langchain.md'
const models = [['ChatAnthropic', true], ['ChatOpenAI', false], ['ChatOpenAI, useResponsesApi', true]] as const

for (const [nth, [name, keepsThoughts]] of models.entries()) {
  t.test(`${name}: a loop of tools, with a picture, long thoughts and a cut`, async (t) => {
    const at = await stage(t, { plugins: settings(page, 'yaml').replace('pipeline:\n', '') })
    const on = desk(t)
    const { model } = await made<{ readonly model: BaseChatModel }>(page, at, ['model'], { nth })
    const { shell, write } = toolsAt(on)
    const agent = createAgent({ model, tools: [
      tool(shell.run as (input: unknown) => string,
        { name: 'shell', description: shell.description, schema: shell.parameters }),
      tool(write.run as (input: unknown) => string,
        { name: 'write', description: write.description, schema: write.parameters })
    ] })
    const url = `data:image/png;base64,${readFileSync(on.picture).toString('base64')}`
    const content = [
      { type: 'text', text: promptFor(scenario(on, ownHands)) },
      { type: 'image_url', image_url: { url } }
    ]
    const run = async (): Promise<string> => {
      let last = ''
      const stream = await agent.stream({ messages: [{ role: 'user', content }] }, { streamMode: 'messages' })
      for await (const [message] of stream) last = message.type === 'ai' ? last + message.text : ''
      return last
    }
    t.match(await thrown(run()), { message: /Premature end/ }, 'a cut is no end')
    t.equal(await run(), 'All is done.')
    await isPlayed(t, at, on, { thinks: true, keepsThoughts, seesPicture: true, beginsAnew: true })
  })
}

for (const [nth, [name]] of models.entries()) {
  t.test(`${name}: structured output, and an error`, async (t) => {
    const at = await stage(t, { plugins: settings(page, 'yaml').replace('pipeline:\n', '') })
    const { model } = await made<{ readonly model: BaseChatModel }>(page, at, ['model'], { nth })
    const schema = { title: 'ferry', type: 'object', properties: { day: { type: 'string' } }, required: ['day'],
      additionalProperties: false }
    const found = await model.withStructuredOutput(schema, { method: 'jsonSchema' }).invoke('When does it leave?')
    t.type((found as { readonly day?: unknown }).day, 'string')
    t.match(await thrown(model.invoke('[[sim: status=400]] When?')), { status: 400 })
  })
}
