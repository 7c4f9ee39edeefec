// The faults of the simulator, and how they are set: by options, by the model's name, or in the prompt. The only list
// of them: `simulate --help` prints it, the parser reads it, the type is made from it.

interface Directive {
  readonly takes: 'nothing' | 'number' | 'word'
  /** a number that may be left out */
  readonly preset?: number
  readonly does: string
}

/** Events are counted from the head of the stream on: message_start is the first, the ping after it the second. */
export const directives = {
  first_delay: { takes: 'number', does: 'milliseconds before the head, also before an error' },
  delay: { takes: 'number', does: 'milliseconds before each token' },
  tokens: { takes: 'number', does: 'the text has exactly so many tokens (max_tokens still ends it)' },
  limit: { takes: 'number', does: 'the answer ends after so many tokens, as at max_tokens' },
  tool_calls: { takes: 'number', preset: 1, does: 'calls so many of the request\'s tools in parallel' },
  script: { takes: 'word',
    does: 'the answers from this prompt on, one after the other: a list as percent-encoded JSON (script.ts)' },

  status: { takes: 'number',
    does: 'an error with this status, in the vendor\'s words; 401 and 403 name an organization and a key' },
  retry_after: { takes: 'number', does: 'with status: a retry-after header of so many seconds' },
  html: { takes: 'number', preset: 502, does: 'an HTML page with this status, as a load balancer writes it' },
  redirect: { takes: 'nothing', does: '302 to /v1/echo of this simulator' },
  content_policy: { takes: 'nothing', does: '400: the answer was blocked by a content filter' },
  context: { takes: 'nothing', does: '400: input length and max_tokens exceed the context limit' },
  refuse: { takes: 'nothing', does: 'an answer with stop_reason refusal' },

  stall: { takes: 'nothing', does: 'silent before the head, until the client leaves' },
  stall_after: { takes: 'number',
    does: 'silent after so many events (JSON: after half of the body), until the client leaves' },
  cut: { takes: 'nothing', does: 'closes the connection before the head' },
  cut_after: { takes: 'number', does: 'closes the connection after so many events (JSON: after half of the body)' },
  cut_mid_event: { takes: 'number',
    does: 'closes the connection in the middle of the event after so many (JSON: of the body)' },
  end_after: { takes: 'number', does: 'ends the stream cleanly after so many events' },
  no_terminal: { takes: 'nothing',
    does: 'ends the stream cleanly without message_stop (chat: without [DONE]; responses: without ' +
      'response.completed)' },

  empty: { takes: 'nothing', does: 'a whole answer with no content' },
  empty_body: { takes: 'nothing', does: '200 with no byte in the body' },
  malformed: { takes: 'number', preset: 0, does: 'broken JSON: in the event after so many, or the body' },
  oversize: { takes: 'number', preset: 0,
    does: 'the event after so many (JSON: the body) has 200 MiB, nearly all of it white space' },
  error_event_first: { takes: 'nothing', does: 'the stream begins with an error event (JSON: status 529)' },
  error_event_after: { takes: 'number', does: 'an error event after so many events (JSON: status 529)' },
  error_type: { takes: 'word', does: 'with error_event_*: its type; overloaded_error otherwise' },
  unknown_event: { takes: 'nothing', does: 'an event of a type that nobody knows yet, after message_start' },

  usage_zero: { takes: 'nothing', does: 'all counters of usage are 0' },
  usage_late: { takes: 'nothing',
    does: 'message_start (chat: the first chunk) reports fewer input tokens than the last usage' },
  input_tokens: { takes: 'number', does: 'usage has so many tokens of input, whatever the prompt has' },
  usage_missing: { takes: 'nothing', does: 'no usage anywhere' },

  cached: { takes: 'number', does: 'chat and responses: so many tokens of the prompt were read from a cache' },
  reasoning_name: { takes: 'word', does: 'chat: the field of thoughts; reasoning_content otherwise' },
  finish_twice: { takes: 'nothing', does: 'chat: two chunks with a finish_reason, usage in the second only' },
  finish_null: { takes: 'nothing', does: 'chat: no finish_reason anywhere' },
  usage_null: { takes: 'nothing', does: 'chat: "usage": null in all chunks but the last' },
  usage_with_finish: { takes: 'nothing', does: 'chat: usage in the chunk of the finish_reason, not in one of its own' },
  usage_each: { takes: 'nothing', does: 'chat: usage so far in every chunk' },
  empty_frames: { takes: 'nothing', does: 'chat: records with nothing in them between the chunks' },
  noise: { takes: 'nothing', does: 'chat: records that are not JSON between the chunks' },
  tool_whole: { takes: 'nothing', does: 'chat: each tool call in one chunk' },
  tool_no_index: { takes: 'nothing', does: 'chat: pieces of tool calls without an index' },
  tool_no_id: { takes: 'nothing', does: 'chat: tool calls without an id' },
  tool_same_index: { takes: 'nothing', does: 'chat: every tool call has the index 0' },
  tool_turns: { takes: 'nothing', does: 'chat: pieces of parallel tool calls take turns' },

  failed_after: { takes: 'number',
    does: 'responses: response.failed after so many events, with error_type as its code (JSON: status failed)' },
  incomplete: { takes: 'word', does: 'responses: the answer ends as incomplete, for this reason' },
  summary_parts: { takes: 'number', preset: 2, does: 'responses: the summary of reasoning has so many parts' },
  reasoning_text: { takes: 'nothing', does: 'responses: the reasoning itself comes, and no summary' },
  id_changes: { takes: 'nothing', does: 'responses: an item that is done has another id than it had' },
  unknown_item: { takes: 'nothing', does: 'responses: the first item is of a type that nobody knows yet' },
  refuse_encrypted: { takes: 'nothing', does: 'responses: 400 for every encrypted_content, as for a foreign one' },
  code_null: { takes: 'nothing', does: 'responses: with refuse_encrypted: only the sentence says why' },

  images: { takes: 'number', does: 'so many images, whatever was asked for' },
  image_bytes: { takes: 'number', does: 'an image has so many bytes at least' },
  not_an_image: { takes: 'nothing', does: 'what comes as an image is HTML' },
  links: { takes: 'nothing', does: 'images come as links to this simulator' },
  link_to: { takes: 'word', does: 'images come as this link, percent-encoded' },

  task_time: { takes: 'number', does: 'a video takes so many milliseconds' },
  task_fails: { takes: 'nothing', does: 'a video ends as failed' },
  task_stalls: { takes: 'nothing', does: 'a video is in progress for ever' },
  task_status: { takes: 'word', does: 'a video ends with this word as its status' },
  task_vanishes: { takes: 'number', preset: 1, does: '404 for a video after its status was asked for so many times' },
  poll_status: { takes: 'number', does: 'an error with this status to whoever asks for a video\'s status' },
  poll_errors: { takes: 'number', does: 'with poll_status: only the first so many times' },
  file_bytes: { takes: 'number', does: 'the size of a video\'s file' },
  file_type: { takes: 'word', does: 'the content type of a video\'s file' },
  file_cut: { takes: 'number', does: 'closes the connection after so many bytes of a file' },
  file_expired: { takes: 'nothing', does: 'a video is done, and its file is gone' },

  crlf: { takes: 'nothing', does: 'lines of the stream end in CR LF' },
  chunk: { takes: 'number', does: 'writes so many bytes at a time' },
  trickle: { takes: 'number', does: 'milliseconds before each byte, or before each piece of `chunk`' },
  burst: { takes: 'nothing', does: 'writes all events at once' },
  habit: { takes: 'word', does: 'answers as vendors with this habit do, or with these: NAME+NAME; they are listed below' },
  vendor: { takes: 'word', does: 'refuses what this vendor refuses, in its words; the vendors are listed below' }
} as const satisfies Record<string, Directive>

export type FaultName = keyof typeof directives

/** The faults of one request. */
export type Faults = {
  readonly [Name in FaultName]?: (typeof directives)[Name]['takes'] extends 'nothing' ? true
    : (typeof directives)[Name]['takes'] extends 'word' ? string
    : number
}

/** An unknown directive; the message names the known ones. */
export class UnknownDirective extends Error {}

const marker = /\[\[sim:([^[\]]*)\]\]/g

/**
 * The faults in `[[sim: name name=value]]`, wherever the text has it.
 * @throws {UnknownDirective}
 */
export function faultsInText (text: string): Faults {
  return Array.from(text.matchAll(marker)).reduce<Faults>(
    (faults, match) => ({ ...faults, ...parseFaults(match[1] ?? '') }),
    {}
  )
}

export function withoutDirectives (text: string): string {
  return text.replace(marker, '').trim()
}

/**
 * The faults in a model's name: `sim-error-529`, `sim-stall`, `sim-cut-after-5`. Another name has none.
 * @throws {UnknownDirective} the value does not fit
 */
export function faultsInModel (model: string): Faults {
  const match = /^sim-([a-z-]+?)(?:-(\d+))?$/.exec(model)
  if (match?.[1] === undefined) return {}
  const name = match[1] === 'error' ? 'status' : match[1].replaceAll('-', '_')
  return isName(name) ? parseFaults(match[2] === undefined ? name : `${name}=${match[2]}`) : {}
}

/**
 * Reads `name name=value ...`.
 * @throws {UnknownDirective}
 */
export function parseFaults (words: string): Faults {
  const faults: Record<string, string | number | true> = {}
  for (const word of words.split(/[\s,]+/)) {
    if (word === '') continue
    const [name = '', value] = word.split('=', 2)
    if (!isName(name)) {
      throw new UnknownDirective(
        `the simulator does not know the directive "${name}"; it knows ${Object.keys(directives).join(', ')}`
      )
    }
    faults[name] = readValue(name, value)
  }
  return faults as Faults
}

function readValue (name: FaultName, value: string | undefined): string | number | true {
  const directive: Directive = directives[name]
  if (directive.takes === 'nothing') {
    if (value !== undefined) throw new UnknownDirective(`the directive "${name}" takes no value`)
    return true
  }
  if (directive.takes === 'word') {
    if (!value) throw new UnknownDirective(`the directive "${name}" needs a value: ${name}=word`)
    return value
  }
  if (value === undefined && directive.preset !== undefined) return directive.preset
  if (value === undefined || !/^\d{1,9}$/.test(value)) {
    throw new UnknownDirective(`the directive "${name}" needs a whole number: ${name}=3`)
  }
  const number = Number(value)
  if (
    (name === 'status' || name === 'html' || name === 'poll_status') && (number < 400 || number > 599)
  ) throw new UnknownDirective(`the directive "${name}" needs a status from 400 to 599`)
  if (name === 'chunk' && number === 0) throw new UnknownDirective('the directive "chunk" needs at least 1 byte')
  return number
}

function isName (name: string): name is FaultName {
  return Object.hasOwn(directives, name)
}

/** For `simulate --help`. */
export function directiveTable (): string {
  const rows = Object.entries(directives).map(([name, directive]: [string, Directive]) => {
    const value = directive.takes === 'nothing'
      ? ''
      : directive.takes === 'word'
      ? '=WORD'
      : directive.preset === undefined
      ? '=N'
      : `[=N]`
    const preset = directive.preset === undefined ? '' : ` (N: ${directive.preset})`
    return [name + value, directive.does + preset] as const
  })
  const width = Math.max(...rows.map(([left]) => left.length))
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`).join('\n')
}
