// Mastra in the arena: messages style in front of a vendor of chat completions, and the other way round.
import { ownHands, programAt, settings } from '../../support/agents.ts'
import { arena } from '../../support/arena.ts'

const page = 'docs/customers/clients/mastra.md'

/** A program that asks once, and prints what the model says at last. */
const ask = `
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createTool } from '@mastra/core/tools'
import { z } from 'zod'
const [prompt, resumes] = process.argv.slice(2)
const shell = createTool({ id: 'shell', description: 'Runs a command of the shell',
  inputSchema: z.object({ command: z.string() }),
  execute: async ({ command }) => execFileSync('bash', ['-c', command], { encoding: 'utf8' }) })
const write = createTool({ id: 'write', description: 'Writes a file',
  inputSchema: z.object({ path: z.string(), text: z.string() }),
  execute: async ({ path, text }) => { writeFileSync(path, text); return 'written' } })
const image = { type: 'file', data: readFileSync('cat.png').toString('base64'), mediaType: 'image/png' }
const before = resumes === 'true' && existsSync('said.json') ? JSON.parse(readFileSync('said.json', 'utf8')) : []
const asked = { role: 'user', content: [{ type: 'text', text: prompt }, image] }
const answer = await agentWith({ shell, write }).generate([...before, asked], { maxSteps: 30 })
console.log(answer.text, answer.finishReason, answer.error?.message ?? '')
writeFileSync('said.json', JSON.stringify([...before, asked, ...answer.response.messages ?? []]))
`

arena({
  name: 'Mastra',
  program: { path: process.execPath, skip: false },
  hands: ownHands,
  start: (_on, { url, model, prompt, resumes, vendor }) => ({
    program: [process.execPath, programAt(settings(page, 'js', url, vendor === 'chat' ? 1 : 0)
      .replace('claude-sonnet', model) + ask), prompt, String(resumes)]
  }),
  sees: (picture) => picture,
  beside: 0,
  errors: {
    context: { says: /Prompt is too long/, most: 1 },
    'wrong key': { says: /The API key is wrong/, most: 1 },
    'no money': { says: /balance of the account/, most: 1 },
    'no money at the vendor': { says: /service is unavailable/, most: 1 },
    'rate limit': { says: /1 request running/, most: 1 },
    'unknown model': { says: /There is no model/, most: 1 }
  }
})
