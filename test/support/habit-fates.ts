// What becomes of an answer with each habit of the simulator, where a second target is there to help.
import type { HabitName } from '../../src/simulator/habits.ts'

/**
 * What a client gets: the whole answer of the first target; that of the second one, because the first gave none; an
 * error, because the answer broke in the middle; or the refusal.
 */
export type Fate = 'whole' | 'elsewhere' | 'broken' | { readonly code: string }

export interface Case {
  readonly dialect: string
  readonly stream: boolean
  /** whether the answer has a call */
  readonly calls: boolean
}

/** Absent: whole. */
export const fates: Readonly<Partial<Record<HabitName, (of: Case) => Fate>>> = {
  error_in_200: () => 'elsewhere',
  error_other_shape: () => 'elsewhere',
  error_array: () => ({ code: 'invalid_request' }),
  error_array_delay: () => 'elsewhere',
  bad_key_400: () => 'elsewhere',
  no_money_400: () => 'elsewhere',
  no_quota_429: () => 'elsewhere',
  context_words: () => ({ code: 'context_length_exceeded' }),
  prompt_too_long: () => ({ code: 'context_length_exceeded' }),
  model_unknown_400: () => 'elsewhere',
  tool_use_failed: () => 'elsewhere',
  arguments_twice: ({ dialect, stream, calls }) => dialect === 'messages' && stream && calls ? 'broken' : 'whole',
  error_before_done: ({ dialect, stream }) => dialect === 'chat' && stream ? 'broken' : 'whole',
  ends_without_reason: ({ dialect, stream }) => dialect !== 'responses' && stream ? 'broken' : 'whole',
  two_messages: ({ dialect, stream }) => dialect === 'messages' && stream ? 'broken' : 'whole'
}
