// A conversation that is written down beforehand: what the simulated model thinks, says and calls, answer by answer. A
// program that runs tools in a loop needs calls that mean something to it, and each of its requests shows how far the
// conversation has come: nothing is remembered of it here.
import { isObject } from './dialect.ts'
import { UnknownDirective } from './faults.ts'

type Fields = Readonly<Record<string, unknown>>

/** One answer. What it leaves out does not come. */
export interface ScriptedAnswer {
  /** words of the last turn of the user that this is the answer to, in whatever place of the list it stands */
  readonly when?: string
  /** tokens of thoughts, where the request lets the model think */
  readonly think?: number
  readonly say?: string
  /** made at once; `name` is that of a tool as the vendor is told it */
  readonly calls?: readonly { readonly name: string, readonly input: Fields }[]
  /** directives for the first time that this answer is asked for, the second, …; then it comes whole */
  readonly faults?: readonly string[]
}

/** What a prompt holds so that the answers to it are these, in this order. */
export function scriptDirective (answers: readonly ScriptedAnswer[]): string {
  return `[[sim: script=${encodeURIComponent(JSON.stringify(answers))}]]`
}

/** A script, and how many of its answers the conversation has. */
export interface Scene {
  /** as in the directive */
  readonly script: string
  readonly played: number
  /** what the user has said last, without directives */
  readonly last: string
}

const marked = /\[\[sim:[^[\]]*\]\]/g
const directive = /\[\[sim:[^[\]]*\bscript=([^\]\s,]+)/g

/**
 * The last script counts, also one that the model has said: an agent that compacts a conversation puts the summary in
 * the place of what it stands for, some as the model's words.
 * @param body of a request, of any dialect; undefined: it has no script
 */
export function sceneIn (body: unknown): Scene | undefined {
  const entries = entriesOf(body)
  const at = entries.findLastIndex((entry) => scriptOf(entry) !== undefined)
  const script = scriptOf(entries[at])
  return script === undefined ? undefined : { script, played: answersIn(entries.slice(at + 1)),
    last: textOf(entries.findLast((entry) => isObject(entry) && entry['role'] === 'user'))
      .replaceAll(marked, '') }
}

/**
 * The answer that comes next; undefined: the script is over.
 * @throws {UnknownDirective} it is no script
 */
export function answerIn ({ script, played, last }: Scene): ScriptedAnswer | undefined {
  const answers = parseScript(script)
  return answers.find(({ when }) => when !== undefined && last.includes(when)) ??
    answers.filter(({ when }) => when === undefined)[played]
}

/** @throws {UnknownDirective} */
function parseScript (script: string): readonly ScriptedAnswer[] {
  let answers: unknown
  try {
    answers = JSON.parse(decodeURIComponent(script))
  } catch {
    answers = undefined
  }
  if (Array.isArray(answers) && answers.every(isAnswer)) return answers as readonly ScriptedAnswer[]
  throw new UnknownDirective('the directive "script" needs a list of answers, as percent-encoded JSON: ' +
    '[{"when":"words","think":tokens,"say":"text","calls":[{"name":"tool","input":{}}],"faults":["directives"]}]')
}

function isAnswer (value: unknown): boolean {
  if (!isObject(value)) return false
  const { when, think, say, calls, faults } = value
  return (when === undefined || typeof when === 'string') &&
    (think === undefined || (Number.isSafeInteger(think) && (think as number) >= 0)) &&
    (say === undefined || typeof say === 'string') &&
    (calls === undefined || (Array.isArray(calls) && calls.every(isCall))) &&
    (faults === undefined || (Array.isArray(faults) && faults.every((fault) => typeof fault === 'string')))
}

function isCall (value: unknown): boolean {
  return isObject(value) && typeof value['name'] === 'string' && isObject(value['input'])
}

/** Messages, or items of input. Runs before the body is checked, so it takes anything. */
function entriesOf (body: unknown): readonly unknown[] {
  if (!isObject(body)) return []
  const { messages, input } = body
  if (Array.isArray(messages)) return messages
  return Array.isArray(input) ? input : typeof input === 'string' ? [{ role: 'user', content: input }] : []
}

function scriptOf (entry: unknown): string | undefined {
  if (!isObject(entry) || (entry['role'] !== 'user' && entry['role'] !== 'assistant')) return undefined
  return [...textOf(entry).matchAll(directive)].at(-1)?.[1]
}

/** Of a message or an item. */
function textOf (entry: unknown): string {
  if (!isObject(entry)) return ''
  const { content } = entry
  return Array.isArray(content)
    ? content.map((part) => isObject(part) && typeof part['text'] === 'string' ? part['text'] : '').join('\n')
    : typeof content === 'string' ? content : ''
}

/** An answer may be several items in a row: thoughts, texts and calls. */
function answersIn (entries: readonly unknown[]): number {
  return entries.filter((entry, index) => isAnswered(entry) && !isAnswered(entries[index - 1])).length
}

function isAnswered (entry: unknown): boolean {
  return isObject(entry) && (entry['role'] === 'assistant' || /^reasoning$|_call$/.test(String(entry['type'])))
}
