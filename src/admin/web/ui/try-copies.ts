// The request of the page as a program: for a shell, and for the SDKs of both vendors. The key is a variable of the
// environment: the secret is never written into a text that is made to be passed on. Indentation is made at run time,
// because that of this file is taken out for browsers.
import { anthropicWay, imageWay, openaiWay, type Request, responsesWay, videoWay, type Way, type Wish } from './try-ways.ts'

interface Copy {
  readonly name: string
  /** whether the request can be said so */
  readonly takes: (way: Way) => boolean
  readonly text: (base: string, way: Way, wish: Wish) => string
}

export const copies: readonly Copy[] = [
  { name: 'curl', takes: () => true, text: curl },
  { name: 'OpenAI SDK, JavaScript', takes: () => true, text: openaiScript },
  { name: 'OpenAI SDK, Python', takes: () => true, text: openaiPython },
  { name: 'Anthropic SDK, JavaScript', takes: ({ kind }) => kind === anthropicWay.kind, text: anthropicScript },
  { name: 'Anthropic SDK, Python', takes: ({ kind }) => kind === anthropicWay.kind, text: anthropicPython }
]

function curl (base: string, way: Way, wish: Wish): string {
  const heads = way === anthropicWay
    ? `-H "x-api-key: $GATEWAY_KEY" -H 'anthropic-version: 2023-06-01'`
    : '-H "authorization: Bearer $GATEWAY_KEY"'
  return lines(`curl ${wish.isStream ? '-N ' : ''}${forShell(base + way.path)} \\`,
    inner(`${heads} -H 'content-type: application/json' \\`),
    inner(`-d ${forShell(JSON.stringify(way.body(wish), null, 2))}`))
}

/** How OpenAI's SDKs call the address; a request in Anthropic's words is said as a chat completion. */
interface Call {
  readonly way: Way
  readonly method: string
  /** of JavaScript, and of Python; then what both do with an answer */
  readonly imports: readonly [script: string, python: string]
  readonly script: (isStream: boolean) => string
  readonly python: (isStream: boolean) => string
}

const calls: readonly Call[] = [
  {
    way: openaiWay,
    method: 'chat.completions.create',
    imports: ['', ''],
    script: (isStream) => isStream ? scriptLoop("part.choices[0]?.delta.content ?? ''")
      : 'console.log(answer.choices[0].message.content)',
    python: (isStream) => isStream ? pythonLoop('part.choices', 'part.choices[0].delta.content or ""')
      : 'print(answer.choices[0].message.content)'
  },
  {
    way: responsesWay,
    method: 'responses.create',
    imports: ['', ''],
    script: (isStream) => isStream ? scriptLoop("part.type === 'response.output_text.delta' ? part.delta : ''")
      : 'console.log(answer.output_text)',
    python: (isStream) => isStream ? pythonLoop('part.type == "response.output_text.delta"', 'part.delta')
      : 'print(answer.output_text)'
  },
  {
    way: imageWay,
    method: 'images.generate',
    imports: ["import { writeFile } from 'node:fs/promises'", 'import base64'],
    script: () => "await writeFile('image.png', Buffer.from(answer.data[0].b64_json, 'base64'))",
    python: () => lines('with open("image.png", "wb") as file:', inner('file.write(base64.b64decode(answer.data[0].b64_json))'))
  },
  {
    way: videoWay,
    method: 'videos.create',
    imports: ["import { setTimeout } from 'node:timers/promises'", 'import time'],
    script: () => lines('let video = answer',
      "for (; ['queued', 'in_progress'].includes(video.status); video = await client.videos.retrieve(video.id)) await setTimeout(5000)",
      'console.log(video.status, video.id)'),
    python: () => lines('video = answer', 'while video.status in ("queued", "in_progress"):', inner('time.sleep(5)'),
      inner('video = client.videos.retrieve(video.id)'), 'print(video.status, video.id)')
  }
]

function callOf (way: Way): Call {
  return calls.find((one) => one.way === way) ?? calls[0]!
}

function openaiScript (base: string, asked: Way, wish: Wish): string {
  const { way, method, imports: [more], script: then } = callOf(asked)
  return lines(...more === '' ? [] : [more], "import OpenAI from 'openai'", '',
    `const client = new OpenAI({ baseURL: ${script(`${base}/v1`)}, apiKey: process.env.GATEWAY_KEY })`,
    `const answer = await client.${method}(${script(way.body(wish))})`, then(wish.isStream))
}

function anthropicScript (base: string, _way: Way, wish: Wish): string {
  return lines("import Anthropic from '@anthropic-ai/sdk'", '',
    `const client = new Anthropic({ baseURL: ${script(base)}, apiKey: process.env.GATEWAY_KEY })`,
    `const answer = await client.messages.create(${script(anthropicWay.body(wish))})`,
    wish.isStream ? scriptLoop("part.type === 'content_block_delta' ? part.delta.text ?? '' : ''")
      : "console.log(answer.content.map((block) => block.text ?? '').join(''))")
}

function scriptLoop (words: string): string {
  return `for await (const part of answer) process.stdout.write(${words})`
}

/** Fields that the SDK for Python knows of requests for images and videos; others go beside them. */
const KNOWN = ['model', 'prompt', 'size', 'seconds', 'quality', 'response_format']

function openaiPython (base: string, asked: Way, wish: Wish): string {
  const { way, method, imports: [, more], python: then } = callOf(asked)
  const fields = Object.entries(way.body(wish))
  const extra = way.kind === openaiWay.kind ? [] : fields.filter(([name]) => !KNOWN.includes(name))
  return lines(...more === '' ? [] : [more], 'import os', 'from openai import OpenAI', '',
    `client = OpenAI(base_url=${python(`${base}/v1`)}, api_key=os.environ["GATEWAY_KEY"])`,
    `answer = client.${method}(`, ...keywords(fields.filter((field) => !extra.includes(field))),
    ...extra.length === 0 ? [] : keywords([['extra_body', Object.fromEntries(extra)]]), ')', then(wish.isStream))
}

function anthropicPython (base: string, _way: Way, wish: Wish): string {
  return lines('import os', 'from anthropic import Anthropic', '',
    `client = Anthropic(base_url=${python(base)}, api_key=os.environ["GATEWAY_KEY"])`, 'answer = client.messages.create(',
    ...keywords(Object.entries(anthropicWay.body(wish))), ')',
    wish.isStream
      ? pythonLoop('part.type == "content_block_delta" and part.delta.type == "text_delta"', 'part.delta.text')
      : 'print("".join(block.text for block in answer.content if block.type == "text"))')
}

function pythonLoop (condition: string, words: string): string {
  return lines('for part in answer:', inner(`if ${condition}:`), inner(inner(`print(${words}, end="", flush=True)`)))
}

function keywords (fields: readonly (readonly [name: string, value: unknown])[]): readonly string[] {
  return fields.map(([name, value]) => inner(`${name}=${python(value)},`))
}

function lines (...all: readonly string[]): string {
  return all.join('\n')
}

function inner (line: string): string {
  return ' '.repeat(4) + line
}

/** A value as JavaScript writes it: JSON, with names without quotes. */
function script (value: string | Request): string {
  return JSON.stringify(value, null, 2).replace(/^( *)"([a-z_]\w*)":/gm, '$1$2:')
}

/** A value as Python writes it. */
function python (value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(python).join(', ')}]`
  if (typeof value === 'object' && value !== null) {
    return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${python(one)}`).join(', ')}}`
  }
  return value === true ? 'True' : value === false ? 'False' : value === null ? 'None' : JSON.stringify(value)
}

/** A word of a shell, in quotes where it needs them. */
function forShell (text: string): string {
  return /^[\w:/.@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}
