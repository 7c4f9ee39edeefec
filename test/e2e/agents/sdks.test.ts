// The official SDKs with their own loops of tools, each as its page shows it: today's major and the one before it.
import { readFileSync } from 'node:fs'
import type Anthropic from '@anthropic-ai/sdk'
import type OpenAI from 'openai'
import t from 'tap'
import { thrown } from '../../support/sdk.ts'
import { desk, isPlayed, made, ownHands, promptFor, scenario, stage, toolsAt, type Desk } from '../../support/agents.ts'

const OPENAI = 'docs/customers/clients/openai.md'
const ANTHROPIC = 'docs/customers/clients/anthropic.md'

for (const name of ['openai', 'openai-6']) {
  t.test(`${name}, chat completions: a loop of tools, with a picture, long thoughts and a cut`, async (t) => {
    const at = await stage(t)
    const on = desk(t)
    const { openai, completion } = await made<{ openai: OpenAI, completion: OpenAI.ChatCompletion }>(OPENAI, at,
      ['openai', 'completion'], { nth: 0, change: (code) => code.replace('from \'openai\'', `from '${name}'`) })
    t.match(completion.choices[0]!.message.content, /^You said: “Hello!”/)
    const { shell, write } = toolsAt(on)
    const url = `data:image/png;base64,${readFileSync(on.picture).toString('base64')}`
    const run = async (): Promise<string | null> =>
      await openai.chat.completions.runTools({
        model: 'claude-sonnet', stream: true, reasoning_effort: 'high',
        messages: [{ role: 'user', content: [{ type: 'text', text: promptFor(scenario(on, ownHands)) },
          { type: 'image_url', image_url: { url } }] }],
        tools: [
          { type: 'function', function: { name: 'shell', description: shell.description, parameters: shell.parameters,
            parse: JSON.parse, function: shell.run } },
          { type: 'function', function: { name: 'write', description: write.description, parameters: write.parameters,
            parse: JSON.parse, function: write.run } }
        ]
      }).finalContent()
    t.match(await thrown(run()), { code: 'upstream_stream_interrupted' }, 'a cut is no end')
    t.equal(await run(), 'All is done.')
    await isPlayed(t, at, on, { thinks: true, keepsThoughts: false, seesPicture: true, beginsAnew: true })
  })
}

/** It has no loop of its own for this API: a program writes it. */
async function loop (openai: OpenAI, on: Desk): Promise<string> {
  const { shell, write } = toolsAt(on)
  const image = `data:image/png;base64,${readFileSync(on.picture).toString('base64')}`
  const input: OpenAI.Responses.ResponseInput = [{ role: 'user', content: [
    { type: 'input_text', text: promptFor(scenario(on, ownHands)) },
    { type: 'input_image', image_url: image, detail: 'auto' }] }]
  for (;;) {
    const { output, output_text: text, status } = await openai.responses.stream({
      model: 'claude-sonnet', input, reasoning: { effort: 'high', summary: 'auto' }, store: false,
      tools: [{ type: 'function', name: 'shell', description: shell.description, parameters: shell.parameters, strict: true },
        { type: 'function', name: 'write', description: write.description, parameters: write.parameters, strict: true }]
    }).finalResponse()
    if (status !== 'completed') throw new Error(`it is ${status}`)
    input.push(...output as OpenAI.Responses.ResponseInput)
    const calls = output.filter((item) => item.type === 'function_call')
    if (calls.length === 0) return text
    for (const { name, arguments: json, call_id } of calls) {
      const run = (name === 'shell' ? shell.run : write.run) as (input: unknown) => string
      input.push({ type: 'function_call_output', call_id, output: run(JSON.parse(json)) })
    }
  }
}

for (const name of ['openai', 'openai-6']) {
  t.test(`${name}, responses: a loop of tools, with a picture, long thoughts and a cut`, async (t) => {
    const at = await stage(t)
    const on = desk(t)
    const { openai, response } = await made<{ openai: OpenAI, response: OpenAI.Responses.Response }>(OPENAI, at,
      ['openai', 'response'], { nth: 1, change: (code) => code.replace('from \'openai\'', `from '${name}'`) })
    t.match(response.output_text, /^You said: “Hello!”/)
    t.match(await thrown(loop(openai, on)), { message: 'it is failed' }, 'a cut is no end')
    t.equal(await loop(openai, on), 'All is done.')
    await isPlayed(t, at, on, { thinks: true, keepsThoughts: true, seesPicture: true, beginsAnew: true })
  })
}

for (const name of ['@anthropic-ai/sdk', 'anthropic-sdk-0']) {
  t.test(`${name}: a loop of tools, with a picture, long thoughts and a cut`, async (t) => {
    const at = await stage(t)
    const on = desk(t)
    const { anthropic, message } = await made<{ anthropic: Anthropic, message: Anthropic.Message }>(ANTHROPIC, at,
      ['anthropic', 'message'], { nth: 0, change: (code) => code.replace('@anthropic-ai/sdk', name) })
    t.match(message.content, [{ type: 'text', text: /^You said: “Hello!”/ }])
    const { shell, write } = toolsAt(on)
    const data = readFileSync(on.picture).toString('base64')
    const run = async (): Promise<string> => {
      const runner = anthropic.beta.messages.toolRunner({
        model: 'claude-sonnet', max_tokens: 16_000, stream: true, thinking: { type: 'enabled', budget_tokens: 8000 },
        messages: [{ role: 'user', content: [{ type: 'text', text: promptFor(scenario(on, ownHands)) },
          { type: 'image', source: { type: 'base64', media_type: 'image/png', data } }] }],
        tools: [
          { name: 'shell', description: shell.description, input_schema: shell.parameters,
            parse: (input) => input as { command: string }, run: shell.run },
          { name: 'write', description: write.description, input_schema: write.parameters,
            parse: (input) => input as { path: string, text: string }, run: write.run }
        ]
      })
      let text = ''
      for await (const stream of runner) text = await stream.finalText()
      return text
    }
    t.match(await thrown(run()), { message: /Premature end/ }, 'a cut is no end')
    t.equal(await run(), 'All is done.')
    await isPlayed(t, at, on, { thinks: true, keepsThoughts: true, seesPicture: true, beginsAnew: true })
  })
}
