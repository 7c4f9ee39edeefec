// Composes the simulated model's answers: the same request gets the same answer, token by token. Knows neither events
// nor sockets.
import { createHmac, randomBytes } from 'node:crypto'
import { isObject, VendorError } from './dialect.ts'
import { withoutDirectives, type Faults } from './faults.ts'
import { exampleOf } from './schema-example.ts'
import { answerIn, sceneIn, type ScriptedAnswer } from './script.ts'
import { blocksOf, lastTurn, textOf, type Block, type MessagesBody, type Tool } from './messages-body.ts'
import { tokensOf } from './tokens.ts'

/** A block of the answer, in its streamed pieces; each piece is one output token. */
export type Part =
  | { readonly kind: 'thinking', readonly tokens: readonly string[], readonly signature: string,
    readonly isShown: boolean }
  | { readonly kind: 'text', readonly tokens: readonly string[] }
  | { readonly kind: 'tool_use', readonly tokens: readonly string[], readonly id: string, readonly name: string }

export interface Composition {
  readonly parts: readonly Part[]
  readonly stopReason: 'end_turn' | 'max_tokens' | 'stop_sequence' | 'tool_use' | 'refusal'
  readonly stopSequence: string | null
  readonly outputTokens: number
  readonly thinkingTokens: number
}

export function compose (asked: MessagesBody, faults: Faults): Composition {
  const { max_tokens: most } = asked
  const body = faults.limit === undefined ? asked : { ...asked, max_tokens: Math.min(most, faults.limit) }
  if (faults.empty === true) return finish([], 'end_turn', null)
  const scripted = scriptedAnswer(body, faults)
  if (scripted !== undefined) return play(body, scripted)
  const turn = lastTurn(body)
  const thinking = think(body, turn)
  if (faults.refuse === true) return finish([...thinking, text('I can not help with that.')], 'refusal', null)

  const tools = toolsToCall(body, turn, faults)
  if (tools.length > 0) {
    // A forced call has no text before it, as with the vendor.
    const isForced = body.tool_choice?.type === 'any' || body.tool_choice?.type === 'tool'
    const words = isForced ? [] : [text(`I will call ${tools.map(({ name }) => name).join(' and ')}.`)]
    const calls = tools.map(({ name, input_schema: schema }) => call(name, exampleOf(schema, promptOf(turn))))
    return limit([...thinking, ...words, ...calls], 'tool_use', null, body.max_tokens)
  }

  const { said, stopSequence } = untilStop(sayTo(body, turn, faults), body.stop_sequences ?? [])
  return limit([...thinking, text(said)], stopSequence === null ? 'end_turn' : 'stop_sequence', stopSequence,
    body.max_tokens)
}

/** Undefined too where it calls a tool that the request does not have: what asks for a title is no step of a loop. */
function scriptedAnswer (body: MessagesBody, faults: Faults): ScriptedAnswer | undefined {
  const scene = faults.script === undefined ? undefined : sceneIn(body)
  const answer = scene === undefined ? undefined : answerIn(scene)
  const known = new Set((body.tools ?? []).map(({ name }) => name))
  return answer?.calls?.every(({ name }) => known.has(name)) === false ? undefined : answer
}

function play (body: MessagesBody, { think: tokens = 0, say = '', calls = [] }: ScriptedAnswer): Composition {
  const thinking = canThink(body) ? [thought(body, fill(tokens))] : []
  const parts = [...thinking, text(say), ...calls.map(({ name, input }) => call(name, input))]
  return limit(parts, calls.length > 0 ? 'tool_use' : 'end_turn', null, body.max_tokens)
}

/** 24 random characters, in the format of the vendor's ids. */
export function token24 (): string {
  return randomBytes(18).toString('base64url').replaceAll(/[-_]/g, 'x')
}

/**
 * Thinking must come back as it was sent, or the vendor refuses the turn (src/README.md#signatures).
 * @throws {VendorError}
 */
export function checkSignatures (body: MessagesBody): void {
  for (const [index, message] of body.messages.entries()) {
    if (message.role !== 'assistant') continue
    for (const [at, block] of blocksOf(message).entries()) {
      if (block.type !== 'thinking') continue
      // Thinking that was not shown comes back empty: only its signature can be checked.
      const isOmitted = block['thinking'] === '' && String(block['signature']).startsWith(omitted)
      if (!isOmitted && block['signature'] !== sign(String(block['thinking']))) {
        throw new VendorError(400, `messages.${index}.content.${at}: Invalid \`signature\` in \`thinking\` block`)
      }
    }
  }
}

const omitted = 'T21pdHRlZC'

function sign (thinking: string): string {
  return createHmac('sha256', 'the simulator').update(thinking).digest('base64')
}

function think (body: MessagesBody, turn: readonly Block[]): Part[] {
  const hasResults = turn.some((block) => block.type === 'tool_result')
  if (!canThink(body) || (body.thinking?.type === 'between_tools' && !hasResults)) return []
  return [thought(body, `The user says “${shorten(promptOf(turn))}”. ` +
    `${hasResults ? 'The tool has answered, so I can too.' : 'I answer in a sentence or two.'}`)]
}

function canThink (body: MessagesBody): boolean {
  return (body.thinking?.type ?? 'disabled') !== 'disabled'
}

function thought (body: MessagesBody, words: string): Part {
  const isShown = body.thinking?.display !== 'omitted'
  return { kind: 'thinking', tokens: tokensOf(words), signature: isShown ? sign(words) : omitted + sign(words), isShown }
}

function call (name: string, input: unknown): Part {
  return { kind: 'tool_use', tokens: tokensOf(JSON.stringify(input)), id: `toolu_${token24()}`, name }
}

/** The tools to be called: forced, by a directive, or because the prompt suggests one and no result came yet. */
function toolsToCall (body: MessagesBody, turn: readonly Block[], faults: Faults): readonly Tool[] {
  const choice = body.tool_choice
  const tools = (body.tools ?? []).filter((tool) => isObject(tool.input_schema))
  const [first] = tools
  if (first === undefined || choice?.type === 'none') return []
  if (choice?.type === 'tool') return tools.filter(({ name }) => name === choice.name).slice(0, 1)
  if (faults.tool_calls !== undefined) {
    return Array.from({ length: faults.tool_calls }, (_, index) => tools[index % tools.length] ?? first)
  }
  // A gateway's tool for answers of a certain shape, where a vendor has no field for it.
  const answering = tools.find(({ description }) => /\bAlways answer by calling it\b/.test(String(description)))
  const hasResults = turn.some((block) => block.type === 'tool_result')
  if (choice?.type === 'any') return [hasResults ? answering ?? first : first]
  if (hasResults) return answering === undefined ? [] : [answering]
  const prompt = textOf(turn).toLowerCase()
  const named = tools.find(({ name }) => prompt.includes(name.toLowerCase()))
  if (named !== undefined) return [named]
  const use = prompt.search(/\b(?:use|call)\b/)
  const isUseful = (use >= 0 && /\btools?\b/.test(prompt.slice(use))) || /\bweather\b/.test(prompt)
  return isUseful ? [first] : answering === undefined ? [] : [answering]
}

function sayTo (body: MessagesBody, turn: readonly Block[], faults: Faults): string {
  if (faults.tokens !== undefined) return fill(faults.tokens)
  const schema = body.output_config?.format?.schema
  if (schema !== undefined) return JSON.stringify(exampleOf(schema, promptOf(turn)))
  const words = wordsTo(turn)
  return isJsonWanted(body) ? JSON.stringify({ answer: words }) : words
}

/** By the vendor's field, or by a system prompt that says so, as gateways write it for vendors without the field. */
function isJsonWanted ({ output_config: output, system = [] }: MessagesBody): boolean {
  const told = typeof system === 'string' ? system : textOf(system)
  return output?.format?.type === 'json_object' || /^Answer with one JSON object and nothing else\b/m.test(told)
}

function wordsTo (turn: readonly Block[]): string {
  const results = turn.filter((block) => block.type === 'tool_result')
  const images = turn.filter((block) => block.type === 'image').length
  const sentences = [`You said: “${shorten(promptOf(turn))}”.`]
  if (images > 0) sentences.push(`I see ${images === 1 ? '1 image' : `${images} images`}.`)
  for (const result of results) {
    const { content } = result
    const answer = typeof content === 'string' ? content : textOf((content ?? []) as readonly Block[])
    sentences.push(`The tool ${result['is_error'] === true ? 'failed' : 'answered'}: “${shorten(answer)}”.`)
  }
  sentences.push(
    'I am the simulator that is built into this gateway: this answer came word by word, like a real one, but no ' +
    'model was asked and no provider charges for it.'
  )
  return sentences.join(' ')
}

/** Each has at most 8 characters, so each is one token. */
const filler = ['one', 'more', 'word', 'of', 'many', 'that', 'mean', 'nothing', 'at', 'all,', 'naïve', 'or', 'not.']

function fill (tokens: number): string {
  return Array.from({ length: tokens }, (_, index) => filler[index % filler.length]).join(' ')
}

function promptOf (turn: readonly Block[]): string {
  return withoutDirectives(textOf(turn))
}

function shorten (words: string, limit = 200): string {
  const characters = Array.from(words.slice(0, limit * 2).replaceAll(/\s+/g, ' '))
  return characters.length <= limit ? characters.join('') : characters.slice(0, limit).join('') + '…'
}

function untilStop (
  words: string,
  sequences: readonly string[]
): { readonly said: string, readonly stopSequence: string | null } {
  const [first] = sequences
    .map((sequence) => ({ sequence, at: words.indexOf(sequence) }))
    .filter(({ at }) => at !== -1)
    .toSorted((a, b) => a.at - b.at)
  return first === undefined
    ? { said: words, stopSequence: null }
    : { said: words.slice(0, first.at), stopSequence: first.sequence }
}

function text (words: string): Part {
  return { kind: 'text', tokens: tokensOf(words) }
}

/** Ends the answer where max_tokens are used up. */
function limit (
  parts: readonly Part[],
  stopReason: Composition['stopReason'],
  stopSequence: string | null,
  maxTokens: number
): Composition {
  const kept: Part[] = []
  let left = maxTokens
  for (const part of parts) {
    if (part.tokens.length > left) {
      if (left > 0) kept.push({ ...part, tokens: part.tokens.slice(0, left) })
      return finish(kept, 'max_tokens', null)
    }
    left -= part.tokens.length
    kept.push(part)
  }
  return finish(kept, stopReason, stopSequence)
}

function finish (
  parts: readonly Part[],
  stopReason: Composition['stopReason'],
  stopSequence: string | null
): Composition {
  return {
    parts: parts.filter((part) => part.tokens.length > 0),
    stopReason,
    stopSequence,
    outputTokens: parts.reduce((sum, { tokens }) => sum + tokens.length, 0),
    thinkingTokens: parts.reduce((sum, { kind, tokens }) => sum + (kind === 'thinking' ? tokens.length : 0), 0)
  }
}
