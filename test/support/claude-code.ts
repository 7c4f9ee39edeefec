// Requests of the shape in which Claude Code (2.1) sends them: fields, headers, tools and turns of its own, with other
// words in them.

type Json = Readonly<Record<string, unknown>>

/**
 * How it asks depends on the name of the model. `known`: one that takes no system turns. `unknown`: a name of ours.
 * `newest`: one that it controls turn by turn.
 */
export type Manner = 'known' | 'unknown' | 'newest'
export const manners: readonly Manner[] = ['known', 'unknown', 'newest']

const ENVIRONMENT = '# Environment\nPrimary working directory: /home/me/project\n\nThe following deferred tools are now ' +
  'available via ToolSearch:\nTaskCreate\nWebFetch\n'
const EPHEMERAL = { cache_control: { type: 'ephemeral' } }
const BETAS = ['claude-code-20250219', 'interleaved-thinking-2025-05-14', 'context-management-2025-06-27']
const LATER_BETAS = ['thinking-token-count-2026-05-13', 'advanced-tool-use-2025-11-20']

export function claudeCodeHeaders (manner: Manner): Record<string, string> {
  const turns = manner === 'known' ? []
    : [...(manner === 'newest' ? ['per-turn-control-2026-07-01'] : []), 'mid-conversation-tool-changes-2026-07-01']
  return {
    accept: 'application/json',
    'content-type': 'application/json',
    'user-agent': 'claude-cli/2.1.330 (external, sdk-cli)',
    'x-app': 'cli',
    'x-claude-code-session-id': '9c09f023-8c82-4cae-9e2f-c57e35ef8cc4',
    'x-stainless-lang': 'js', 'x-stainless-retry-count': '0', 'x-stainless-timeout': '600',
    'anthropic-dangerous-direct-browser-access': 'true',
    'anthropic-version': '2023-06-01',
    'anthropic-beta': [...BETAS, ...turns, ...LATER_BETAS, ...(manner === 'known' ? [] : ['effort-2025-11-24'])].join()
  }
}

const tool = (name: string, properties: Json, more: Json = {}): Json => ({
  name, description: `What ${name} does.`,
  input_schema: { $schema: 'https://json-schema.org/draft/2020-12/schema', type: 'object', properties,
    required: Object.keys(properties), additionalProperties: false },
  ...more
})

function toolsOf (isLoaded: boolean): readonly Json[] {
  return [
    tool('Bash', { command: { type: 'string' }, description: { type: 'string' } }),
    tool('Edit', { file_path: { type: 'string' }, replace_all: { type: 'boolean', default: false } }),
    tool('ToolSearch', { query: { type: 'string' }, max_results: { type: 'number', default: 5 } }),
    ...(isLoaded ? [tool('WebFetch', { url: { type: 'string', format: 'uri' } }, { defer_loading: true })] : []),
    { name: 'DeferredToolPlaceholder', description: 'Reserved; never call this tool.', defer_loading: true,
      input_schema: { type: 'object', properties: {} } }
  ]
}

const reminder = (text: string): Json => ({ type: 'text', text: `<system-reminder>\n${text}\n</system-reminder>` })
const call = (id: string, name: string, input: Json): Json => ({ type: 'tool_use', id, name, input })

/**
 * @param step 0: the first request; 1: with the result of a command; 2: with a tool that was loaded since
 */
export function claudeCodeRequest (model: string, manner: Manner, step: 0 | 1 | 2, stream = true): Json {
  const mark = (isLast: boolean): Json => isLast ? EPHEMERAL : {}
  const question = [
    ...(manner === 'known' ? [reminder(ENVIRONMENT)] : [reminder('Attribution for commits: none.')]),
    { type: 'text', text: 'run echo hi', ...mark(step === 0) }
  ]
  const turns: Json[] = [{ role: 'user', content: question }]
  if (manner !== 'known') {
    turns.push({ role: 'system', content: step === 0 ? [{ type: 'text', text: ENVIRONMENT }] : ENVIRONMENT,
      ...(manner === 'newest' && { output_config: { effort: 'medium' } }) })
  }
  if (step > 0) {
    turns.push({ role: 'assistant', content: [call('toolu_1', 'Bash', { command: 'echo hi', description: 'says hi' })] },
      { role: 'user',
        content: [{ tool_use_id: 'toolu_1', type: 'tool_result', content: 'hi', is_error: false, ...mark(step === 1) }] })
  }
  if (step > 1) {
    turns.push(
      { role: 'assistant', content: [call('toolu_2', 'ToolSearch', { query: 'select:WebFetch', max_results: 5 })] },
      { role: 'user', content: [
        { type: 'tool_result', tool_use_id: 'toolu_2', content: [{ type: 'tool_reference', tool_name: 'WebFetch' }] },
        { type: 'text', text: 'Tool loaded.' }, { ...reminder('14999981 tokens left'), ...EPHEMERAL }] })
  }
  return {
    model,
    messages: turns,
    system: [
      { type: 'text', text: 'x-anthropic-billing-header: cc_version=2.1.330.930; cc_entrypoint=sdk-cli;' },
      { type: 'text', text: 'You are an agent.', ...EPHEMERAL }, { type: 'text', text: 'Be careful.', ...EPHEMERAL }
    ],
    tools: toolsOf(step > 1),
    metadata: { user_id: JSON.stringify({ device_id: 'd98d778e', account_uuid: '', session_id: '9c09f023' }) },
    max_tokens: manner === 'newest' ? 128_000 : 32_000,
    thinking: manner === 'known' ? { budget_tokens: 31_999, type: 'enabled', display: 'omitted' }
      : { type: 'adaptive', display: 'omitted' },
    context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
    ...(manner !== 'known' && { output_config: { effort: manner === 'newest' ? 'medium' : 'high' } }),
    stream
  }
}
