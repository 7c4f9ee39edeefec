// Sends an answer: its pace, and the faults in its bytes; not those in its content.
import type { Answer, Dialect, Emission, FileAnswer } from './dialect.ts'
import type { Faults } from './faults.ts'
import { type Habit, habitNamed } from './habits.ts'
import type { Ending, RequestLog, RequestRecord } from './request-log.ts'
import type { Wire } from './wire.ts'

export interface Delivery {
  readonly wire: Wire
  readonly log: RequestLog
  readonly record: RequestRecord
  readonly faults: Faults
  /** milliseconds before the head, and before each token */
  readonly firstDelayMs: number
  readonly tokenDelayMs: number
  /** headers of every answer */
  readonly headers: Readonly<Record<string, string | readonly string[]>>
  /** of the server, for a redirect */
  readonly url: string
}

/** Faults that replace the answer altogether. Undefined: the answer is to be sent. */
export async function misbehave ({ wire, record, faults, headers, url }: Delivery): Promise<Ending | undefined> {
  if (faults.first_delay !== undefined) await wire.wait(faults.first_delay)
  if (faults.stall === true) await wire.silence()
  if (faults.cut === true) {
    wire.cut()
    return 'cut'
  }
  const page = pageOf(faults, url)
  if (page === undefined) return undefined
  record.status = page.status
  wire.head(page.status, { ...headers, ...page.headers, 'content-length': String(Buffer.byteLength(page.body)) })
  await wire.write(Buffer.from(page.body))
  await wire.end()
  return 'error'
}

/** A response that is no answer of an API. */
interface Page {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

function pageOf (faults: Faults, url: string): Page | undefined {
  if (faults.html !== undefined) {
    return { status: faults.html, headers: { 'content-type': 'text/html; charset=UTF-8' },
      body:
        `<html>\n<head><title>${faults.html}</title></head>\n<body><center><h1>${faults.html}</h1></center><hr>` +
        '<center>cloudflare</center></body>\n</html>\n' }
  }
  if (faults.redirect === true) return { status: 302, headers: { location: `${url}/v1/echo` }, body: '' }
  if (faults.empty_body === true) return { status: 200, headers: { 'content-type': 'application/json' }, body: '' }
  return undefined
}

/** Faults of a stream in its events, not in its bytes. */
export function spoil (
  emissions: readonly Emission[],
  faults: Faults,
  dialect: Dialect,
  requestId: string
): { readonly emissions: readonly Emission[], readonly ending: Ending } {
  const errorAfter = faults.error_event_first === true ? 0 : faults.error_event_after
  if (errorAfter !== undefined) {
    return {
      emissions: [...emissions.slice(0, errorAfter),
        dialect.errorEvent(faults.error_type ?? 'overloaded_error', requestId)],
      ending: 'error'
    }
  }
  if (faults.malformed !== undefined) {
    return { emissions: [...emissions.slice(0, faults.malformed), dialect.brokenEvent()], ending: 'error' }
  }
  if (faults.end_after !== undefined && faults.end_after < emissions.length) {
    return { emissions: emissions.slice(0, faults.end_after), ending: 'cut' }
  }
  if (faults.no_terminal === true) return { emissions: emissions.slice(0, -1), ending: 'cut' }
  if (faults.unknown_event === true) {
    return { emissions: emissions.toSpliced(1, 0, dialect.unknownEvent()), ending: 'complete' }
  }
  return { emissions, ending: 'complete' }
}

export async function deliverEvents (
  emissions: readonly Emission[],
  { wire, log, record, faults, firstDelayMs, tokenDelayMs, headers }: Delivery
): Promise<'whole' | 'cut'> {
  let held: Emission[] = []
  async function flush (): Promise<void> {
    const sending = held
    held = []
    if (sending.length === 0) return
    const bytes = Buffer.concat(sending.map((emission) => bytesOf(emission, faults)))
    await write(bytes, wire, faults)
    for (const emission of sending) log.sent(record, emission)
  }

  await wire.wait(firstDelayMs)
  record.status = 200
  const habit = await openWith(wire, faults, { ...headers, 'cache-control': 'no-cache' }, 200,
    'text/event-stream; charset=utf-8')
  for (const [index, emission] of emissions.entries()) {
    if (index === faults.stall_after) {
      await flush()
      await wire.silence()
    }
    if (index === faults.cut_after || index === faults.cut_mid_event) {
      await flush()
      const bytes = bytesOf(emission, faults)
      if (index === faults.cut_mid_event) await write(bytes.subarray(0, bytes.length >> 1), wire, faults)
      wire.cut()
      return 'cut'
    }
    if (emission.text !== undefined && faults.burst !== true) await wire.wait(tokenDelayMs)
    if (index === faults.oversize) {
      await flush()
      const bytes = bytesOf(emission, faults)
      const json = bytes.indexOf('data: ') + 'data: '.length
      await wire.write(bytes.subarray(0, json))
      await swell(wire)
      await wire.write(bytes.subarray(json))
      log.sent(record, emission)
      continue
    }
    held.push(emission)
    if (faults.burst !== true) await flush()
  }
  await flush()
  if (habit?.staysOpen === true) await wire.silence().catch(() => {})
  else await wire.end()
  return 'whole'
}

export async function deliverJson (
  answer: Extract<Answer, { kind: 'json' }>,
  { wire, log, record, faults, firstDelayMs, tokenDelayMs, headers }: Delivery
): Promise<'whole' | 'cut' | 'broken'> {
  const whole = Buffer.from(JSON.stringify(answer.body))
  const half = whole.subarray(0, whole.length >> 1)
  const isBroken = faults.malformed !== undefined && answer.status < 400
  const isCut = faults.cut_after !== undefined || faults.cut_mid_event !== undefined
  const isStalled = faults.stall_after !== undefined
  const isOversize = faults.oversize !== undefined && answer.status < 400
  const bytes = isBroken || isCut || isStalled ? half : whole
  const length = (isBroken ? half.length : whole.length) + (isOversize ? OVERSIZE : 0) +
    Buffer.byteLength(habitOf(faults)?.beginning ?? '')

  // A model that streams a token every 20 ms needs as long for them when it sends them in one piece. An error comes at
  // once.
  if (answer.status < 400) await wire.wait(firstDelayMs + (answer.tokens ?? 0) * tokenDelayMs)
  record.status = answer.status
  await openWith(wire, faults, { ...headers, ...answer.headers, 'content-length': String(length) }, answer.status,
    'application/json')
  if (isOversize) await swell(wire)
  await write(bytes, wire, faults)
  if (isStalled) await wire.silence()
  if (isCut) {
    wire.cut()
    return 'cut'
  }
  // Before the end, because a client that has the last byte may read the log at once.
  if (!isBroken) log.sent(record, answer, 0)
  await wire.end()
  return isBroken ? 'broken' : 'whole'
}

function habitOf ({ habit }: Faults): Habit | undefined {
  return habit === undefined ? undefined : habitNamed(habit)
}

/** The head, with what a vendor's habit puts before it, into it and behind it. */
async function openWith (
  wire: Wire, faults: Faults, headers: Delivery['headers'], status: number, type: string
): Promise<Habit | undefined> {
  const habit = habitOf(faults)
  for (const interim of habit?.interim ?? []) wire.interim(interim)
  const label = habit?.type === undefined ? type : habit.type
  wire.head(status, { ...headers, ...habit?.headers, ...(label !== null && { 'content-type': label }) })
  if (habit?.beginning !== undefined) await write(Buffer.from(habit.beginning), wire, faults)
  return habit
}

/** Bytes that are made and written at a time. */
const SLICE = 64 * 1024

/** In slices, each when the socket has taken the one before: a file of any size takes no memory. */
export async function deliverFile (
  { type, size, etag, range, ifRange, cutAfter, read }: FileAnswer,
  method: string,
  { wire, record, faults, firstDelayMs, headers }: Delivery
): Promise<Ending> {
  const part = ifRange === undefined || ifRange === etag ? partOf(range, size) : 'whole'
  const about = { ...headers, etag, 'accept-ranges': 'bytes', 'content-disposition': 'attachment; filename="download"' }
  await wire.wait(firstDelayMs)
  if (part === 'none') {
    record.status = 416
    wire.head(416, { ...about, 'content-range': `bytes */${size}`, 'content-length': '0' })
    await wire.end()
    return 'error'
  }
  const { from, to } = part === 'whole' ? { from: 0, to: size } : part
  record.status = part === 'whole' ? 200 : 206
  wire.head(record.status, { ...about, 'content-type': type, 'content-length': String(to - from),
    ...(part !== 'whole' && { 'content-range': `bytes ${from}-${to - 1}/${size}` }) })
  for (let at = from; method !== 'HEAD' && at < to;) {
    const end = Math.min(to, at + SLICE, from + (cutAfter ?? Infinity))
    await write(read(at, end - at), wire, faults)
    at = end
    if (cutAfter === undefined || at < from + cutAfter || at >= to) continue
    wire.cut()
    return 'cut'
  }
  await wire.end()
  return 'complete'
}

/** A single range; for several or an invalid one the whole may be sent (RFC 9110 14.2). */
function partOf (
  range: string | undefined,
  size: number
): { readonly from: number, readonly to: number } | 'whole' | 'none' {
  const [, first = '', last = ''] = /^bytes=(\d*)-(\d*)$/.exec(range ?? '') ?? []
  if (first === '' && last === '') return 'whole'
  const from = first === '' ? Math.max(0, size - Number(last)) : Number(first)
  const to = first === '' || last === '' ? size : Math.min(size, Number(last) + 1)
  return from >= size || to <= from ? 'none' : { from, to }
}

async function write (bytes: Buffer, wire: Wire, { chunk, trickle }: Faults): Promise<void> {
  await wire.write(bytes, chunk ?? (trickle === undefined ? undefined : 1), trickle)
}

/** Bytes beyond every reader's limit of an event, or of an answer of text or images. */
const OVERSIZE = 200 * 1024 * 1024
const BLANK = Buffer.alloc(SLICE, ' ')

/** White space, which is valid before JSON (RFC 8259 2): only the size of the answer is wrong. */
async function swell (wire: Wire): Promise<void> {
  for (let bytes = 0; bytes < OVERSIZE; bytes += BLANK.length) await wire.write(BLANK)
}

function bytesOf ({ event }: Emission, faults: Faults): Buffer {
  return faults.crlf === true ? Buffer.from(event.bytes.toString().replaceAll('\n', '\r\n')) : event.bytes
}
