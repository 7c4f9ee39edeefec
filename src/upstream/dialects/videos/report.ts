// What an upstream says about a video task. Vendors wrap the same few facts in different objects, so the facts are
// looked for by the names of their fields in the objects that may hold them, and nowhere else: `input` and `urls` hold
// links too. test/fixtures/vendors/videos.json has an answer of each vendor.
import { isRecord } from '../../../base/json.ts'
import { errorOf, type TaskReport, type VideoStatus } from '../../../core/task-report.ts'
import { isAcknowledgement, lettersOf, statusOf } from './statuses.ts'

/** Fields around a task or its result, by their letters. */
const ENVELOPES = new Set(['data', 'output', 'outputs', 'result', 'results', 'response', 'task', 'taskinfo',
  'taskresult', 'job', 'prediction', 'operation'])
/** Fields around a file. */
const FILES = new Set(['video', 'videos', 'videoresult', 'videoinfo', 'content', 'assets', 'file', 'files', 'metadata',
  'generations', 'creations', 'generatedvideos', 'generatedsamples', 'generatevideoresponse', 'samples', 'usage',
  'output', 'outputs', 'result', 'results', 'taskresult'])
const STATUS = new Set(['status', 'state', 'taskstatus', 'jobstatus', 'videostatus', 'taskstate'])
const PROGRESS = new Set(['progress', 'progresspercent', 'percent', 'taskprogress'])
/** Fields that are there, and not empty, only where a task has failed. */
const ERROR = new Set(['error', 'errors', 'failreason', 'failurereason', 'failure', 'failmsg', 'errormessage',
  'errormsg', 'errordetail', 'failurecode', 'errorcode', 'baseresp'])
/** Fields that say why a task has failed, and may be there for other reasons. */
const REASON = new Set(['code', 'message', 'msg', 'reason', 'taskstatusmsg', 'statusmsg', 'detail', 'details'])
/** Fields with the link of a file, wherever they stand; beside files also URL and URI. */
const LINK = new Set(['videourl', 'videouri', 'downloadurl', 'fileurl', 'resulturl', 'outputurl', 'mediaurl',
  'videourls', 'resulturls', 'outputurls', 'unsignedurls', 'sample', 'video', 'videos', 'output', 'outputs', 'result',
  'failreason'])
/** Fields that say that there is a file, without its link. */
const NO_LINK = new Set(['fileid', 'bytesbaseencoded', 'videobase', 'bjson', 'gcsuri'])
/** The length of what was delivered, in seconds. */
const SECONDS = new Set(['seconds', 'duration', 'durationseconds', 'videoduration', 'outputvideoduration',
  'outputseconds', 'secondsdelivered'])

/** Objects, levels and items of a list that are looked into. */
const MOST_PARTS = 64
const MOST_LEVELS = 6
const MOST_ITEMS = 8
const MOST_LINK = 8192

interface Part {
  readonly fields: ReadonlyMap<string, unknown>
  readonly isTask: boolean
  /** an `output` or a `result` may be both */
  readonly isFile: boolean
  readonly level: number
}

/**
 * A status in words counts; without one that is known, a file means completed and an error means failed, so that an
 * unknown word holds no money.
 * @throws {Error} the answer says nothing of a task, or is an error about the question
 */
export function readReport (body: unknown): TaskReport {
  const parts = partsOf(body)
  const word = wordIn(parts)
  const error = textIn(parts, ERROR)
  const link = linkIn(parts)
  const hasFile = link !== undefined || parts.some(({ fields }) => [...fields].some(([name, value]) =>
    NO_LINK.has(name) && typeof value === 'string' && value !== ''
  ))
  const known = word === undefined ? doneIn(parts) : statusOf(word)
  if (word === undefined && known === undefined && error !== '' && isAboutQuestion(error)) {
    throw new Error('the answer is an error about the question')
  }
  if (word === undefined && known === undefined && error === '' && !hasFile) {
    throw new Error('the answer is no video task')
  }
  const isWithheld = wasWithheld(parts, hasFile)
  const status = decide(known, { hasFile, hasError: error !== '', isWithheld })
  const seconds = secondsIn(parts)
  const expires = numberIn(parts, 'expiresat')
  return {
    status,
    progress: progressIn(parts),
    ...(expires !== undefined && expires > 0 && { expires: expires < 1e11 ? expires * 1000 : expires }),
    ...(status === 'completed' && seconds !== undefined && { seconds }),
    ...(status === 'completed' && link !== undefined && { link }),
    ...(word !== undefined && known === undefined && { word: word.slice(0, 100) }),
    ...(status === 'failed' && {
      error: errorOf({ code: isWithheld ? 'moderation' : word, message: `${error} ${textIn(parts, REASON)}` })
    })
  }
}

/**
 * The answer to a question about a task. 202 means that it is not over (RFC 9110 15.3.3), whatever the body. Some
 * vendors send a failed task with the status of a refusal.
 * @throws {Error} the answer says nothing of the task
 */
export function readPoll ({ status, body }: { readonly status: number, readonly body: unknown }): TaskReport {
  if (status === 400 || status === 422) {
    const word = wordIn(partsOf(body))
    if (word === undefined || statusOf(word) !== 'failed') throw new Error(`status ${status}`)
  } else if (status < 200 || status > 299) throw new Error(`status ${status}`)
  if (status !== 202) return readReport(body)
  try {
    const report = readReport(body)
    return report.status === 'unheard' ? NOT_OVER : report
  } catch {
    return NOT_OVER
  }
}

const NOT_OVER: TaskReport = { status: 'in_progress', progress: 0 }

/** Whether an answer holds the error of a vendor, as `{"error": {…}}` and `{"base_resp": {"status_code": 1004}}` do. */
export function saysError (body: unknown): boolean {
  return textIn(partsOf(body), ERROR) !== ''
}

/** Whether an answer says how a task stands. */
export function hasStatus (body: unknown): boolean {
  return wordIn(partsOf(body)) !== undefined
}

/**
 * What an upstream says about a task with its acceptance. "success" without a file says that the task was accepted.
 * @returns undefined: nothing, so the task is to be asked for
 */
export function readAcceptance (body: unknown): TaskReport | undefined {
  try {
    const report = readReport(body)
    const word = wordIn(partsOf(body))
    const isSure = report.link !== undefined || word === undefined || !isAcknowledgement(word)
    return report.status === 'completed' && !isSure ? undefined : report
  } catch {
    return undefined
  }
}

function decide (
  known: VideoStatus | undefined,
  { hasFile, hasError, isWithheld }: {
    readonly hasFile: boolean, readonly hasError: boolean, readonly isWithheld: boolean
  }
): TaskReport['status'] {
  if (known === 'queued' || known === 'in_progress' || known === 'failed') return known
  if (isWithheld || (hasError && !hasFile)) return 'failed'
  return hasFile ? 'completed' : known ?? 'unheard'
}

/** The objects that may speak of the task, outer ones first. */
function partsOf (body: unknown): readonly Part[] {
  const parts: Part[] = []
  const add = (value: unknown, around: Omit<Part, 'fields'>): void => {
    if (Array.isArray(value)) {
      for (const item of value.slice(0, MOST_ITEMS)) if (!Array.isArray(item)) add(item, around)
    } else if (isRecord(value) && parts.length < MOST_PARTS) {
      parts.push({ ...around, fields: new Map(Object.entries(value).map(([name, of]) => [lettersOf(name), of])) })
    }
  }
  add(body, { isTask: true, isFile: false, level: 0 })
  // The list grows while it is read.
  for (const { fields, isTask, level } of parts) {
    if (level === MOST_LEVELS) continue
    for (const [name, value] of fields) {
      const isFile = FILES.has(name)
      if (isFile || ENVELOPES.has(name)) add(value, { isTask: isTask && ENVELOPES.has(name), isFile, level: level + 1 })
    }
  }
  return parts
}

/**
 * The status of the task: the innermost that is known, else the innermost. One around the task may be about the answer:
 * there "success" says nothing.
 */
function wordIn (parts: readonly Part[]): string | undefined {
  const task = parts.filter(({ isTask }) => isTask)
  const own = wordsIn(task)
  const words = own.length > 0 ? own : wordsIn(parts)
  const depth = task.findLast(({ fields, isFile }) => !isFile && (fields.has('id') || fields.has('taskid')))?.level ?? 0
  const lastLevel = words.at(-1)?.level
  const beginOfLast = words.findLastIndex(({ level }) => level !== lastLevel) + 1
  const counted = words.filter(({ word, level }, i) => !isAcknowledgement(word) || (level >= depth && i >= beginOfLast))
  return (counted.findLast(({ word }) => statusOf(word) !== undefined) ?? counted.at(-1))?.word
}

function wordsIn (parts: readonly Part[]): ReadonlyArray<{ readonly word: string, readonly level: number }> {
  return parts.flatMap(({ fields, level }) => [...fields].flatMap(([name, word]) =>
    STATUS.has(name) && typeof word === 'string' && word !== '' ? [{ word, level }] : []
  ))
}

/** Of Google's operations, which have no status. */
function doneIn (parts: readonly Part[]): VideoStatus | undefined {
  const done = parts.find(({ fields }) => typeof fields.get('done') === 'boolean')?.fields.get('done')
  return done === undefined ? undefined : done === true ? 'completed' : 'in_progress'
}

/** Whether the vendor has made a video and withholds it, as xAI and Google say it. */
function wasWithheld (parts: readonly Part[], hasFile: boolean): boolean {
  return parts.some(({ fields }) => fields.get('respectmoderation') === false ||
    (!hasFile && Number(fields.get('raimediafilteredcount') ?? 0) > 0))
}

function textIn (parts: readonly Part[], names: ReadonlySet<string>): string {
  return parts.flatMap(({ fields }) => [...fields].map(([name, value]) => names.has(name) ? saying(value) : ''))
    .filter((text) => text !== '').join(' ')
}

/** What an error that is none says in the place of one, as `{"code": 0, "message": "success"}` does. */
const NO_ERROR = /^(?:none|null|ok|success|no error|n\/a|0|200)?$/i

/** The words of an error; '' where it says that there is none. */
function saying (value: unknown, levels = 2): string {
  switch (typeof value) {
    case 'string': {
      const text = value.slice(0, 300)
      return NO_ERROR.test(text.trim()) || isLink(value) ? '' : text
    }
    case 'number': return NO_ERROR.test(String(value)) ? '' : String(value)
    case 'boolean': return value ? 'true' : ''
    case 'object':
      return value === null || levels === 0
        ? ''
        : Object.values(value).slice(0, MOST_ITEMS).map((inner) => saying(inner, levels - 1))
          .filter((text) => text !== '').join(' ')
    default: return ''
  }
}

/** Whether an error without a status is about the question, not about the task. */
function isAboutQuestion (error: string): boolean {
  return /\b(?:401|403|408|429|502|503|504)\b|rate.?limit|too many requests|overloaded|unavailable/i.test(error) ||
    /api.?key|unauthori[sz]|authenticat/i.test(error)
}

function linkIn (parts: readonly Part[]): string | undefined {
  for (const { fields, isFile } of parts) {
    for (const [name, value] of fields) {
      if (!LINK.has(name) && !(isFile && (name === 'url' || name === 'uri'))) continue
      const items: readonly unknown[] = Array.isArray(value) ? value.slice(0, MOST_ITEMS) : [value]
      const link = items.find(isLink)
      if (link !== undefined) return link
    }
  }
  return undefined
}

function isLink (value: unknown): value is string {
  return typeof value === 'string' && value.length <= MOST_LINK && /^https?:\/\/[^\s]+$/i.test(value)
}

/** Rounded to whole seconds: encoders make a clip of five seconds 5.04 s long. The least of several, one at least. */
function secondsIn (parts: readonly Part[]): number | undefined {
  const found = parts.flatMap(({ fields }) => [...fields].flatMap(([name, value]) =>
    SECONDS.has(name) ? [readSeconds(value)] : []
  )).filter((seconds) => seconds > 0)
  return found.length === 0 ? undefined : Math.max(1, Math.round(Math.min(...found)))
}

/** 0: none. */
function readSeconds (value: unknown): number {
  if (typeof value === 'number') return Number.isFinite(value) ? value : 0
  const digits = typeof value === 'string' ? /^(\d{1,6}(?:\.\d{1,9})?) ?(?:s|secs?|seconds?)?$/i.exec(value) : null
  return digits === null ? 0 : Number(digits[1])
}

function numberIn (parts: readonly Part[], name: string): number | undefined {
  const value = parts.find(({ fields }) => typeof fields.get(name) === 'number')?.fields.get(name)
  return value as number | undefined
}

/** Percent. Some vendors send a part of 1, some a text with a sign. */
function progressIn (parts: readonly Part[]): number {
  for (const { fields } of parts) {
    for (const [name, value] of fields) {
      if (!PROGRESS.has(name)) continue
      const part = typeof value === 'string' ? Number.parseFloat(value.slice(0, 20)) : value
      if (typeof part === 'number' && part >= 0) return part < 1 ? part * 100 : part
    }
  }
  return 0
}
