// The distributed trace that a request is a part of (W3C Trace Context, https://www.w3.org/TR/trace-context/).
import { randomFillSync } from 'node:crypto'

type Said = string | readonly string[] | undefined

export interface Trace {
  /** 32 hexadecimal digits: the client's, or made here */
  readonly trace_id: string
  /** 16 hexadecimal digits: this request's part, the parent of what its upstreams do */
  readonly span_id: string
  /** two hexadecimal digits; 01: somebody keeps it */
  readonly flags: string
  /** what vendors of tracers say to each other; undefined: nothing */
  readonly state: string | undefined
}

/** Version, trace, parent, flags; a later version may say more behind them. */
const PARENT = /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(-|$)/
/** A member of the state: key and value. */
const MEMBER = /^[a-z0-9][a-z0-9_*/@-]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/
const MOST_MEMBERS = 32
/** Flags that mean something in this version: kept, and a trace id that is random. */
const KNOWN_FLAGS = 0b11
/** Of a trace that begins here: its line in the log is always written, and its id is random. */
const OWN_FLAGS = '03'

const TRACE_BYTES = 16
const SPAN_BYTES = 8
const pool = Buffer.alloc((TRACE_BYTES + SPAN_BYTES) * 256)
let used = pool.length

/** Goes on with the client's trace; one that is absent or malformed is begun. @param headers of the client */
export function traceOf (
  { traceparent, tracestate }: { readonly traceparent?: Said, readonly tracestate?: Said }
): Trace {
  const found = typeof traceparent === 'string' ? PARENT.exec(traceparent.trim()) : null
  // Version 00 ends with its flags.
  if (found === null || (found[1] === '00' && found[4] === '-')) {
    return { trace_id: randomHex(TRACE_BYTES), span_id: randomHex(SPAN_BYTES), flags: OWN_FLAGS, state: undefined }
  }
  const flags = (parseInt(found[3]!, 16) & KNOWN_FLAGS).toString().padStart(2, '0')
  return { trace_id: found[2]!, span_id: randomHex(SPAN_BYTES), flags, state: readState(tracestate) }
}

/** Headers of a request to an upstream that takes part. */
export function traceHeaders ({ trace_id: id, span_id: span, flags, state }: Trace): Readonly<Record<string, string>> {
  return { traceparent: `00-${id}-${span}-${flags}`, ...(state !== undefined && { tracestate: state }) }
}

/** As a whole or not at all: half a state may mislead. */
function readState (said: Said): string | undefined {
  if (said === undefined) return undefined
  const members = (typeof said === 'string' ? said : said.join()).split(',').map((member) => member.trim())
    .filter((member) => member !== '')
  const isWhole = members.length > 0 && members.length <= MOST_MEMBERS && members.every((one) => MEMBER.test(one))
  return isWhole ? members.join() : undefined
}

function randomHex (bytes: number): string {
  if (used + bytes > pool.length) { randomFillSync(pool); used = 0 }
  return pool.toString('hex', used, used += bytes)
}
