// The `ai` package as a program is made with it: each provider as its page shows it, through a loop of tools.
import { readFileSync } from 'node:fs'
import { isStepCount, jsonSchema, streamText, tool, type LanguageModel } from 'ai'
import t from 'tap'
import { desk, isPlayed, made, ownHands, promptFor, scenario, stage, toolsAt } from '../../support/agents.ts'

Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false })

const page = 'docs/customers/clients/vercel-ai.md'
/** By the page: whether the model is to think, and whether its thoughts come back to it. */
const providers = [['@ai-sdk/anthropic', true, true], ['openai.chat', true, false],
  ['@ai-sdk/openai-compatible', true, false], ['@ai-sdk/open-responses', true, true], ['openai', false, false],
  ['openai with store: false', true, true]] as const
/** One that `openai` knows as a model that thinks: it names thoughts that were kept instead of sending them. */
const THINKER = 'gpt-5.5'

for (const [nth, name, thinks, keepsThoughts, id] of [
  ...providers.map((provider, nth) => [nth, ...provider, 'claude-sonnet'] as const),
  [4, `openai, as ${THINKER}`, true, true, THINKER]
] as const) {
  t.test(`${name}: a loop of tools, with a picture, long thoughts and a cut`, async (t) => {
    const at = await stage(t, { clamps: true, more: 'default_model: claude-sonnet' })
    const on = desk(t)
    const { model } = await made<{ readonly model: LanguageModel }>(page, at, ['model'],
      { nth, change: (code) => code.replace(/(?<=gateway.*)claude-sonnet/, id) })
    const { shell, write } = toolsAt(on)
    const content = [
      { type: 'text', text: promptFor(scenario(on, ownHands)) },
      { type: 'file', mediaType: 'image/png', data: readFileSync(on.picture) }
    ] as const
    const run = () => {
      const errors: unknown[] = []
      const stream = streamText({
        model, messages: [{ role: 'user', content: [...content] }], reasoning: 'high', stopWhen: isStepCount(5),
        tools: {
          shell: tool({ description: shell.description, inputSchema: jsonSchema<{ command: string }>(shell.parameters),
            execute: shell.run }),
          write: tool({ description: write.description,
            inputSchema: jsonSchema<{ path: string, text: string }>(write.parameters), execute: write.run })
        },
        onError: ({ error }) => { errors.push(error) }
      })
      return { stream, errors }
    }
    const broken = run()
    t.equal(await broken.stream.finishReason, 'error', 'a cut is no end')
    t.match(broken.errors, [{ message: /Premature end/ }])
    const whole = run()
    t.equal(await whole.stream.text, 'All is done.')
    t.match((await whole.stream.steps).map(({ toolCalls }) => toolCalls.length), [2, 1, 0])
    t.strictSame(whole.errors, [])
    await isPlayed(t, at, on, { thinks, keepsThoughts, seesPicture: true, beginsAnew: true })
  })
}
