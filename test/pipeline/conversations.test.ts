// Conversations that change style, upstream, key, account and form at any turn: whatever became of their thoughts, no
// request is refused, each thought goes to the account's own family, and none to any other.
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { startSimulator, type Simulator } from '../../src/simulator/simulator.ts'
import { type Style, styles } from '../support/client-styles.ts'
import { gateway, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'

type Json = Readonly<Record<string, unknown>>
interface Turn { readonly role: 'user' | 'assistant', readonly content: readonly Json[] }

/** Models by name, each of an upstream of its own; upstreams with the same letter are of one family. */
const MODELS = {
  a1: { thinking: 'budget', more: '' },
  a2: { thinking: 'budget', more: ', thinking_family: u0' },
  a3: { thinking: 'adaptive', more: ', thinking_family: u0' },
  b1: { thinking: 'budget', more: '' },
  b2: { thinking: 'adaptive', more: ', thinking_family: u3' },
  chat: { thinking: 'budget', more: ', chat: { reasoning_field: reasoning_content }' },
  silent: { thinking: 'none', more: '' },
  r1: { thinking: 'adaptive', more: '' },
  r2: { thinking: 'budget', more: ', thinking_family: u7' }
} as const
type ModelName = keyof typeof MODELS
const names = Object.keys(MODELS) as ModelName[]
const speaksChat = (name: ModelName): boolean => name === 'chat' || name === 'silent'
const speaksResponses = (name: ModelName): boolean => name.startsWith('r')

const KEYS = { acme: 'sk-gw-' + 'a'.repeat(32), acme2: 'sk-gw-' + 'b'.repeat(32), beta: 'sk-gw-' + 'c'.repeat(32) }
type KeyName = keyof typeof KEYS
const accountOf = (key: KeyName): string => key === 'beta' ? 'beta' : 'acme'

function config (simulators: readonly Simulator[]): string {
  const models = names.map((name, i) => `
  - id: ${name}
    provider: acme
    created: 2025-09-29
    context: 200000
    max_output: 64000
    accepts: [text]
    thinking: ${MODELS[name].thinking}
    channels: { premium: { price: { input: 3, output: 15 }, targets: [{ upstream: u${i}, model: vendor-${name} }] } }
`)
  let text = yaml(simulators.map(({ url }) => url), '',
    'auth, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize')
    .replace(/models:\n[^]*?accounts:/, `models:${models.join('')}accounts:`)
    .replace('accounts:\n', 'accounts:\n  - { id: beta, name: Beta, opening_balance_usd: 100 }\n')
  names.forEach((name, i) => {
    const dialect = speaksChat(name) ? 'chat' : speaksResponses(name) ? 'responses' : 'messages'
    text = text.replace(`u${i}: { url: "${simulators[i]!.url}", dialect: messages`,
      `u${i}: { url: "${simulators[i]!.url}", dialect: ${dialect}${MODELS[name].more}`)
      .replace(`x-api-key: "upstream-secret-${i}"`, '$&, authorization: "Bearer secret"')
  })
  return text + Object.entries(KEYS).map(([id, secret]) =>
    `  - { id: ${id}, account: ${accountOf(id as KeyName)}, secret: ${secret} }\n`).join('')
}

/** One turn of a conversation: who is asked, by whom, and how. */
interface Step {
  readonly model: ModelName
  readonly key: KeyName
  readonly style: Style
  readonly stream: boolean
  /** whether a chat client sends back the thoughts that it has with their signatures */
  readonly echoes: boolean
  readonly effort: 'low' | 'none' | undefined
  readonly display: 'omitted' | undefined
  /** so many calls of tools */
  readonly calls: 0 | 1 | 2
  /** words beside the results of tools */
  readonly says: boolean
}

const steps = fc.array(
  fc.record<Step>({
    model: fc.constantFrom(...names),
    key: fc.constantFrom(...Object.keys(KEYS) as KeyName[]),
    style: fc.constantFrom(...styles),
    stream: fc.boolean(),
    echoes: fc.boolean(),
    effort: fc.constantFrom('low', 'none', undefined),
    display: fc.constantFrom('omitted', undefined),
    calls: fc.constantFrom(0, 1, 1, 2),
    says: fc.boolean()
  }),
  { minLength: 2, maxLength: 9 }
)

const PLACE = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }

interface Got { readonly status: number, readonly text: string, readonly turn: Turn }

/**
 * A client that keeps its conversation in the blocks of messages style, whatever it speaks: what of a thought only the
 * gateway can read is its signature, of whichever style it was.
 */
class Client {
  readonly turns: Turn[] = []
  readonly #gw: TestGateway

  constructor (gw: TestGateway) {
    this.#gw = gw
  }

  async ask (step: Step, mark: string): Promise<Got> {
    this.turns.push(this.#next(step, mark))
    const got = step.style === 'messages' ? await this.#messages(step)
      : step.style === 'chat' ? await this.#chat(step) : await this.#responses(step)
    if (got.status === 200) this.turns.push(got.turn)
    return got
  }

  #next ({ calls, says }: Step, mark: string): Turn {
    const said = { type: 'text', text: `${mark} [[sim: tool_calls=${calls}]]` }
    const open = this.turns.at(-1)?.content.filter(({ type }) => type === 'tool_use') ?? []
    const results = open.map(({ id }) => ({ type: 'tool_result', tool_use_id: id, content: 'snow' }))
    return { role: 'user', content: results.length > 0 && !says ? results : [...results, said] }
  }

  async #post (path: string, { key }: Step, body: Json): Promise<{ readonly status: number, readonly text: string }> {
    const response = await fetch(this.#gw.url + path, { method: 'POST', body: JSON.stringify(body),
      headers: { 'content-type': 'application/json', authorization: `Bearer ${KEYS[key]}` } })
    return { status: response.status, text: await response.text() }
  }

  async #messages (step: Step): Promise<Got> {
    const { model, stream, display } = step
    const { thinking } = MODELS[model]
    const got = await this.#post('/v1/messages', step, { model, stream, max_tokens: 3000, messages: this.turns,
      tools: [{ name: 'weather', input_schema: PLACE }],
      ...(thinking !== 'none' && { thinking: {
        ...thinking === 'budget' ? { type: 'enabled', budget_tokens: 1024 } : { type: 'adaptive' },
        ...(display !== undefined && !speaksChat(model) && { display }) } }) })
    const content = got.status !== 200 ? [] : stream
      ? heard(got.text)
      : (JSON.parse(got.text) as { content: Json[] }).content
    return { ...got, turn: { role: 'assistant', content } }
  }

  async #chat (step: Step): Promise<Got> {
    const { model, stream, echoes, effort } = step
    const got = await this.#post('/v1/chat/completions', step, { model, stream, max_completion_tokens: 3000,
      messages: this.turns.flatMap((turn) => chatTurn(turn, echoes)),
      tools: [{ type: 'function', function: { name: 'weather', parameters: PLACE } }],
      ...(effort !== undefined && MODELS[model].thinking !== 'none' && { reasoning_effort: effort }) })
    const message = got.status !== 200 ? {} : stream
      ? heardChat(got.text)
      : (JSON.parse(got.text) as { choices: { message: ChatMessage }[] }).choices[0]!.message
    return { ...got, turn: blocksOf(message) }
  }

  async #responses (step: Step): Promise<Got> {
    const { model, stream, effort } = step
    const got = await this.#post('/v1/responses', step, { model, stream, max_output_tokens: 3000, store: false,
      input: this.turns.flatMap(itemsOf), tools: [{ type: 'function', name: 'weather', parameters: PLACE }],
      reasoning: { summary: 'auto', ...effort !== undefined && { effort } } })
    const { status, error, output } = got.status !== 200 ? { status: '', output: [] } : stream ? lastOf(got.text)
      : JSON.parse(got.text) as ResponseObject
    if (got.status === 200 && status !== 'completed') throw new Error(JSON.stringify(error))
    return { ...got, turn: { role: 'assistant', content: output.map(blockOf) } }
  }
}

interface ResponseObject {
  readonly status: string
  readonly error?: unknown
  readonly output: readonly Json[]
}

/** The last event of a stream. */
function lastOf (text: string): ResponseObject {
  const [, json] = [...text.matchAll(/^data: (.*)$/gm)].at(-1)!
  return (JSON.parse(json!) as { readonly response: ResponseObject }).response
}

function itemsOf ({ role, content }: Turn): Json[] {
  return content.map((block) => {
    const { type, text, thinking, signature, id, name, input, tool_use_id: call, content: output } = block
    switch (type) {
      case 'text': return { role, content: [{ type: role === 'user' ? 'input_text' : 'output_text', text }] }
      case 'thinking': return { type: 'reasoning', id: 'rs_1', encrypted_content: signature,
        summary: thinking === '' ? [] : [{ type: 'summary_text', text: thinking }] }
      case 'tool_use': return { type: 'function_call', call_id: id, name, arguments: JSON.stringify(input) }
      case 'tool_result': return { type: 'function_call_output', call_id: call, output }
      default: throw new Error(`unexpected: ${JSON.stringify(block)}`)
    }
  })
}

function blockOf (item: Json): Json {
  const { type, content, summary, encrypted_content: signature, call_id: id, name, arguments: json } = item
  const textOf = (parts: unknown): string => (parts as readonly Json[]).map(({ text }) => text).join('')
  if (type === 'message') return { type: 'text', text: textOf(content) }
  if (type === 'reasoning') return { type: 'thinking', thinking: textOf(summary), signature }
  return { type: 'tool_use', id, name, input: JSON.parse(String(json)) as unknown }
}

function chatTurn ({ role, content }: Turn, echoes: boolean): Json[] {
  const of = (...types: readonly string[]): Json[] => content.filter(({ type }) => types.includes(type as string))
  const text = of('text').map((block) => block['text']).join('')
  if (role === 'user') {
    return [...of('tool_result').map((block) => ({ role: 'tool', tool_call_id: block['tool_use_id'],
      content: block['content'] })), ...text === '' ? [] : [{ role, content: text }]]
  }
  const calls = of('tool_use').map(({ id, name, input }) =>
    ({ id, type: 'function', function: { name, arguments: JSON.stringify(input) } })
  )
  return [{ role, content: text === '' ? null : text, ...(calls.length > 0 && { tool_calls: calls }),
    ...(echoes && { thinking_blocks: of('thinking', 'redacted_thinking') }) }]
}

interface ChatMessage {
  readonly content?: string | null
  readonly reasoning_content?: string
  readonly tool_calls?: readonly { readonly id: string,
    readonly function: { readonly name: string, readonly arguments: string } }[]
}

function blocksOf ({ content, reasoning_content: thinking, tool_calls: calls = [] }: ChatMessage): Turn {
  return { role: 'assistant', content: [
    ...thinking === undefined || thinking === '' ? [] : [{ type: 'thinking', thinking, signature: '' }],
    ...content === undefined || content === null || content === '' ? [] : [{ type: 'text', text: content }],
    ...calls.map(({ id, function: { name, arguments: input } }) =>
      ({ type: 'tool_use', id, name, input: JSON.parse(input) as unknown })
    )
  ] }
}

/** The blocks of a stream, put together as the vendor's SDK does. */
function heard (text: string): Json[] {
  const blocks: Record<string, unknown>[] = []
  for (const [, json] of text.matchAll(/^data: (.*)$/gm)) {
    const { type, index, content_block: block, delta } = JSON.parse(json!) as { readonly type: string,
      readonly index: number, readonly content_block: Json, readonly delta: Readonly<Record<string, string>> }
    if (type === 'error') throw new Error(json)
    if (type === 'content_block_start') blocks[index] = { ...block, json: '' }
    if (type !== 'content_block_delta') continue
    const open = blocks[index]!
    if (delta['type'] === 'signature_delta') open['signature'] = delta['signature']
    else if (delta['type'] === 'input_json_delta') open['json'] = String(open['json']) + delta['partial_json']!
    else if (delta['type'] === 'thinking_delta') open['thinking'] = String(open['thinking']) + delta['thinking']!
    else open['text'] = String(open['text']) + delta['text']!
  }
  return blocks.map(({ json, ...block }) =>
    block['type'] === 'tool_use' ? { ...block, input: JSON.parse(json === '' ? '{}' : String(json)) as unknown } : block
  )
}

function heardChat (text: string): ChatMessage {
  const calls: { id: string, function: { name: string, arguments: string } }[] = []
  let [content, thinking] = ['', '']
  for (const [, json] of text.matchAll(/^data: (\{.*)$/gm)) {
    const { choices, error } = JSON.parse(json!) as { readonly error?: unknown, readonly choices?: readonly {
      readonly delta: ChatMessage & { readonly tool_calls?: readonly { readonly index: number }[] } }[] }
    if (error !== undefined) throw new Error(json)
    const delta = choices?.[0]?.delta
    content += delta?.content ?? ''
    thinking += delta?.reasoning_content ?? ''
    for (const call of delta?.tool_calls ?? []) {
      const { index } = call as unknown as { readonly index: number }
      if (call.id !== undefined) calls[index] = { id: call.id, function: { name: call.function.name, arguments: '' } }
      calls[index]!.function.arguments += call.function.arguments
    }
  }
  return { content, reasoning_content: thinking, tool_calls: calls }
}

async function simulators (t: Test): Promise<readonly Simulator[]> {
  return await Promise.all(names.map(async () => {
    const simulator = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0, keepBodyBytes: 1e6 })
    t.teardown(() => simulator.close())
    return simulator
  }))
}

/** An answer of the conversation so far. */
interface Answered {
  readonly step: Step
  /** index of its turn */
  readonly at: number
  /** the words of its thought; undefined: it has none, or they are not told from others, or it is not signed */
  readonly thought: string | undefined
  readonly isSigned: boolean
}

function answered (step: Step, at: number, { content }: Turn): Answered {
  const [first] = content
  const { type, thinking, signature } = first ?? {}
  const isSigned = type === 'thinking' && signature !== ''
  return { step, at, thought: isSigned && String(thinking).includes('mark-') ? String(thinking) : undefined, isSigned }
}

/** A long talk with one model, which gets each of its thoughts back: chance alone makes few of these. */
const faithful: readonly Step[] = Array.from({ length: 6 }, () => ({ model: 'a1', key: 'acme', style: 'messages',
  stream: false, echoes: true, effort: undefined, display: undefined, calls: 0, says: true }))

/** How often each of these was seen. */
const seen = { own: 0, foreign: 0, off: 0, items: 0 }

/** Whether the asker of an answer has its thought in a form that the gateway can read now. */
function isLegible ({ step: { style } }: Answered, now: Step): boolean {
  return style === now.style && style !== 'chat'
}

/** Without thinking, thoughts of the last answer are not sent for a client of the Responses API. */
function isThinking ({ style, effort }: Step): boolean {
  return style === 'messages' || effort === 'low'
}

function isOwn ({ step: { model, key } }: Answered, now: Step): boolean {
  return !speaksChat(model) && model[0] === now.model[0] && accountOf(key) === accountOf(now.key)
}

/** The same of a vendor of the Responses API, which was asked so often for this answer. */
function wrongItems (
  { input }: Json, now: Step, turns: readonly Turn[], before: readonly Answered[], asked: number
): string | undefined {
  if (asked !== 1) return `it was asked ${asked} times: it refused somebody else's thought`
  const thoughts = (input as readonly Json[]).filter(({ type }) => type === 'reasoning').length
  const own = before.filter((answer) => answer.isSigned && isOwn(answer, now))
  const most = own.filter((answer) => isLegible(answer, now) || (answer.step.style === 'messages' && now.echoes)).length
  if (thoughts > most) return `${thoughts} thoughts were sent, and ${most} are its own`
  const question = isThinking(now) ? lastQuestion(turns) : -1
  const closed = own.filter((answer) => isLegible(answer, now) && answer.at < question).length
  seen.items += closed
  return thoughts < closed ? `only ${thoughts} thoughts of ${closed} were sent` : undefined
}

function lastQuestion (turns: readonly Turn[]): number {
  return turns.findLastIndex(({ role, content }) =>
    role === 'user' && !content.some(({ type }) => type === 'tool_result')
  )
}

/** Why what a vendor of messages style was sent is wrong. Undefined: it is right. */
function wrong (body: Json, now: Step, turns: readonly Turn[], before: readonly Answered[]): string | undefined {
  const sent = (body['messages'] as readonly Turn[]).flatMap(({ role, content }) =>
    role === 'assistant' && Array.isArray(content) ? content as readonly Json[] : []
  ).flatMap(({ thinking }) => thinking ?? [])
  const question = lastQuestion(turns)
  const [first] = before.filter(({ at }) => at > question)
  const isGiven = first !== undefined && isOwn(first, now) && first.thought !== undefined && isLegible(first, now)
  const isWhole = first === undefined || isGiven
  const isBudget = now.style === 'messages' && MODELS[now.model].thinking === 'budget'
  const isOff = (body['thinking'] as Json | undefined)?.['type'] === 'disabled'
  if (isBudget && isOff) {
    seen.off++
    if (isGiven) return 'it should think'
  }
  for (const answer of before) {
    if (answer.thought === undefined) continue
    const isSent = sent.includes(answer.thought)
    if (!isOwn(answer, now)) {
      seen.foreign++
      if (isSent) return `a thought of ${answer.step.model} and ${answer.step.key} was sent`
    } else if (isLegible(answer, now) && isThinking(now) &&
      (answer.at < question || (now.style === 'messages' && (isWhole || !isBudget)))) {
      seen.own++
      if (!isSent) return `its own thought of turn ${answer.at} is missing`
    }
  }
  return undefined
}

t.test('a conversation may change style, upstream, key, account and form at any turn', async (t) => {
  const vendors = await simulators(t)
  const gw = await gateway(t, config(vendors))
  let count = 0
  await fc.assert(fc.asyncProperty(steps, async (all) => {
    const client = new Client(gw)
    const before: Answered[] = []
    for (const step of all) {
      const vendor = vendors[names.indexOf(step.model)]!
      const { length: asked } = vendor.requests
      const got = await client.ask(step, `mark-${count++}-`)
      const body = (vendor.requests.at(-1)?.body ?? {}) as Json
      const told = JSON.stringify({ step, turns: client.turns, body })
      if (got.status !== 200) throw new Error(`${got.status} ${got.text}\n${told}`)
      if (JSON.stringify(body).includes('gwseal1_')) throw new Error(`a sealed text was sent\n${told}`)
      const turns = client.turns.slice(0, -1)
      const why = speaksChat(step.model) ? undefined : speaksResponses(step.model)
        ? wrongItems(body, step, turns, before, vendor.requests.length - asked)
        : wrong(body, step, turns, before)
      if (why !== undefined) throw new Error(`${why}\n${told}`)
      before.push(answered(step, client.turns.length - 1, client.turns.at(-1)!))
    }
  }), { numRuns: 90, examples: [[[...faithful]], [faithful.map((step) => ({ ...step, style: 'responses', effort: 'low' }))],
    [faithful.map((step) => ({ ...step, model: 'r1' }))]] })
  for (const [name, times] of Object.entries(seen)) t.ok(times > 5, `${name}: ${times}`)
  await until(async () => (await gw.services.store.balance('acme')).held === 0n)
})
