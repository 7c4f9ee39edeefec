// OpenAI's Agents SDK, unmodified, on its default API and on the other: a runner of its own, as its page sets it up.
import { readFileSync } from 'node:fs'
import { Agent, run, setOpenAIAPI, tool } from '@openai/agents'
import t, { type Test } from 'tap'
import { thrown } from '../../support/sdk.ts'
import { desk, isPlayed, made, ownHands, promptFor, scenario, stage, steps, toolsAt,
  type Desk } from '../../support/agents.ts'

// One for both: the SDK keeps the first client that it was told.
const at = await stage(t)
await made('docs/customers/clients/openai-agents.md', at, ['client'])

function helper (on: Desk) {
  const { shell, write } = toolsAt(on)
  return new Agent({
    name: 'Helper', instructions: 'Help.', model: 'claude-sonnet', modelSettings: { reasoning: { effort: 'high' } },
    tools: [
      tool({ name: 'shell', description: shell.description, parameters: shell.parameters as never, strict: true,
        execute: shell.run as (input: unknown) => string }),
      tool({ name: 'write', description: write.description, parameters: write.parameters as never, strict: true,
        execute: write.run as (input: unknown) => string })
    ]
  })
}

function inputOf (on: Desk) {
  const image = `data:image/png;base64,${readFileSync(on.picture).toString('base64')}`
  const text = promptFor(scenario(on, ownHands))
  return [{ role: 'user' as const, content: [{ type: 'input_text' as const, text },
    { type: 'input_image' as const, image }] }]
}

const expected = { thinks: true, keepsThoughts: true, seesPicture: true } as const

t.test('a loop of tools, with a picture, long thoughts and a cut: streams', async (t: Test) => {
  const on = desk(t)
  const go = async (): Promise<string | undefined> => {
    const streamed = await run(helper(on), inputOf(on), { stream: true })
    await streamed.completed
    return streamed.finalOutput
  }
  t.match(await thrown(go()), { message: /response\.failed/ }, 'a cut is no end')
  t.equal(await go(), 'All is done.')
  await isPlayed(t, at, on, { ...expected, beginsAnew: true })
})

t.test('a loop of tools, with a picture, long thoughts and a cut: JSON', async (t: Test) => {
  const on = desk(t)
  const before = steps(at).length
  t.equal((await run(helper(on), inputOf(on))).finalOutput, 'All is done.')
  await isPlayed(t, at, on, { ...expected, before })
})

t.test('a loop of tools, with a picture and long thoughts, in chat completions', async (t: Test) => {
  setOpenAIAPI('chat_completions')
  const on = desk(t)
  const before = steps(at).length
  t.equal((await run(helper(on), inputOf(on))).finalOutput, 'All is done.')
  await isPlayed(t, at, on, { ...expected, keepsThoughts: false, before })
})

t.test('structured output and an error, on both APIs', async (t) => {
  const outputType = {
    type: 'json_schema' as const, name: 'place', strict: true as const,
    schema: { type: 'object' as const, properties: { city: { type: 'string' as const } }, required: ['city'],
      additionalProperties: false as const }
  }
  for (const api of ['responses', 'chat_completions'] as const) {
    setOpenAIAPI(api)
    const agent = new Agent({ name: 'Helper', instructions: 'Help.', model: 'claude-sonnet', outputType })
    t.strictSame((await run(agent, 'Where? I am in Rome')).finalOutput, { city: 'Rome' }, api)
    const wrong = new Agent({ name: 'Helper', instructions: 'Help.', model: 'no-such-model' })
    t.match(await thrown(run(wrong, 'Hello')), { status: 400, code: 'model_not_found' }, api)
  }
})
