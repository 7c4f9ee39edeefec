// Whether an answer is a stream of events or one JSON document. The bytes decide and not the label: vendors and proxies
// mislabel both, or leave the label out (RFC 9110, 8.3, allows examining the data).

export type Framing = 'events' | 'whole'

/** What a stream of events may begin with (WHATWG HTML, 9.2.6): the fields, and comments; `error:` is llama.cpp's. */
const FIELDS = ['data:', 'event:', 'id:', 'retry:', ':', 'error:'] as const
const MARK = Buffer.from('\uFEFF')
const UNDECIDED = [...FIELDS, MARK.toString('latin1')]
/** Characters behind blanks that decide. */
export const DECIDING = 6

/**
 * @param start of the body, without blanks and a byte order mark
 * @param label the content type
 * @returns undefined: more of it is needed
 */
export function framingOf (start: string, label: string | undefined): Framing | undefined {
  if (start.startsWith('{') || start.startsWith('[')) return 'whole'
  if (FIELDS.some((field) => start.startsWith(field))) return 'events'
  if (UNDECIDED.some((one) => one.startsWith(start))) return undefined
  return isEventStream(label) ? 'events' : 'whole'
}

function isEventStream (label: string | undefined): boolean {
  return label !== undefined && /^text\/event-stream\b/i.test(label)
}

/** What of a body's start is kept: no blanks, which some vendors send while they work, and no byte order mark. */
export function withoutBlanks (start: Buffer): Buffer {
  let from = start.subarray(0, MARK.length).equals(MARK) ? MARK.length : 0
  while (from < start.length && isBlank(start[from]!)) from++
  return start.subarray(from)
}

/** Space, tab, CR or LF. */
function isBlank (byte: number): boolean {
  return byte === 32 || byte === 9 || byte === 10 || byte === 13
}
