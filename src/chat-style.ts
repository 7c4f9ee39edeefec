// What the two translations between chat and messages style share: the plugin's for clients, the dialect's for upstreams.

/** From messages style (protocol.md B4). Of several stop reasons with one finish reason the first is what that one means. */
export const FINISH_REASONS: ReadonlyMap<unknown, string> = new Map([
  ['end_turn', 'stop'],
  ['stop_sequence', 'stop'],
  ['max_tokens', 'length'],
  ['model_context_window_exceeded', 'length'],
  ['tool_use', 'tool_calls'],
  ['pause_turn', 'stop'],
  ['refusal', 'content_filter'],
  ['compaction', 'length']
])

/** From chat style (protocol.md B6), with the words that vendors have beside the official ones. */
export const STOP_REASONS: ReadonlyMap<unknown, string> = new Map([
  ...[...FINISH_REASONS].reverse().map(([stop, finish]) => [finish, stop as string] as const),
  ['function_call', 'tool_use'],
  ['max_tokens', 'max_tokens'],
  ['model_length', 'max_tokens']
])

/**
 * Fields of an answer that only chat style has, on their way from an upstream that speaks it to a client that does: of a JSON answer
 * under this symbol, which is never written, so no other client sees them; of a stream as events of that name.
 */
export const chatFields = Symbol('chat fields')
export const CHAT_DELTA = 'chat_delta'
