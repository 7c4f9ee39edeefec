// Well-known clients and how to tell them, for allowed_clients (src/README.md#soft-clients). A soft control: what a
// client says of itself can be forged. Only facts are here: clients that can't be told, such as Cursor or aider, are
// missing.
import type { ClientRequest } from '../../src/core/exchange.ts'
import { compilePattern } from './pattern.ts'

/** It is the client when one of its patterns fits the user agent, or one of its headers is there and fits. */
export interface Client {
  readonly id: string
  readonly match: readonly string[]
  readonly headers: readonly { readonly name: string, readonly match: string }[]
}

export const presets: readonly Client[] = [
  // Its start-up probes carry the name of a minified class as their user agent, and the session all the same.
  client('claude-code', ['claude-cli/*'], { 'x-claude-code-session-id': '*' }),
  client('codex', ['codex_*', 'codex-*', 'codex/*', 'codex *'], { originator: 'codex_*' }),
  client('cline', ['Cline/*'], { 'http-referer': 'https://cline.bot*', 'x-title': 'Cline' }),
  client('roo-code', ['RooCode/*'], { 'http-referer': 'https://github.com/RooVetGit/Roo-Cline*',
    'x-title': 'Roo Code' }),
  client('continue', ['Continue/*'], { 'x-continue-provider': '*' }),
  client('zed', ['Zed/*']),
  client('opencode', ['opencode/*'], { 'x-opencode-session': '*' }),
  client('openai-js', ['OpenAI/JS *']),
  client('openai-python', ['OpenAI/Python *', 'AsyncOpenAI/Python *']),
  client('anthropic-js', ['Anthropic/JS *']),
  client('anthropic-python', ['Anthropic/Python *', 'AsyncAnthropic/Python *']),
  // Behind the name of the program that uses it, or of its own package `ai`.
  client('ai-sdk', ['ai-sdk*', '* ai-sdk*']),
  client('curl', ['curl/*']),
  client('python-httpx', ['python-httpx/*']),
  client('python-requests', ['python-requests/*']),
  client('node', ['node']),
  client('go-http-client', ['Go-http-client/*'])
]

function client (id: string, match: readonly string[], headers: Readonly<Record<string, string>> = {}): Client {
  return { id, match, headers: Object.entries(headers).map(([name, pattern]) => ({ name, match: pattern })) }
}

/** A pattern for user agents, or undefined: the entry can only be meant as the name of a client. */
export function readPattern (entry: string): Client | undefined {
  return /[*/ A-Z]/.test(entry) ? client(entry, [entry]) : undefined
}

export type ClientTest = (headers: ClientRequest['headers']) => boolean

export function compileClients (clients: readonly Client[]): ClientTest {
  const agents = clients.flatMap(({ match }) => match).map(compilePattern)
  const signs = clients.flatMap(({ headers }) => headers)
    .map(({ name, match }) => ({ name: name.toLowerCase(), matches: compilePattern(match) }))
  return function isOneOf (headers) {
    const { 'user-agent': said } = headers
    const agent = typeof said === 'string' ? said.toLowerCase() : ''
    if (agents.some((matches) => matches(agent))) return true
    return signs.some(({ name, matches }) => {
      const value = headers[name]
      return typeof value === 'string' && matches(value.toLowerCase())
    })
  }
}
