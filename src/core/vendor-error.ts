// The one reader of an upstream's error, in whatever shape and place it comes: a body with a status, an error in a 200,
// an event of a stream. Vendors nest one error in another, wrap it in a list, or send it as text.
import { isGiven, isRecord, type Json, parseOr } from '../base/json.ts'
import { type Meaning, rowFor } from './error-meanings.ts'
import { DECIDING, framingOf } from './framing.ts'

export interface VendorError {
  /** the vendor's sentence, of the innermost error; '': none, or a page of HTML */
  readonly message: string
  /** types, codes and reasons of all layers, in lower case with `_`; some are only numbers */
  readonly words: ReadonlySet<string>
  /** the field of the request that is wrong */
  readonly param: string | undefined
  /** undefined: nothing but its status is known */
  readonly means: Meaning | undefined
  /**
   * of HTTP. Of an error that has none, or one that its words contradict ("no money" as 400), that of its meaning;
   * undefined: nothing says what it is
   */
  readonly status: number | undefined
  /** seconds, from the body; 0 is none */
  readonly retryAfter: number | undefined
  /** an API has made it; false: a text or a page, which may come from a firewall or a proxy */
  readonly isOfApi: boolean
}

/** A failure with words of the upstream; `body` is parsed JSON, or else the text (at most 64 KiB). */
export type ToldFailure =
  /** an answer with a status of 300 or more */
  | { readonly kind: 'status', readonly status: number,
    readonly headers: Readonly<Record<string, string | string[] | undefined>>, readonly body: unknown }
  /** an error in a stream, or as a whole answer with a status below 300 */
  | { readonly kind: 'error_event', readonly body: unknown }

/** Characters of a message that are read: an upstream may send 64 KiB. */
const LONGEST_READ = 8000
/** Layers and values of a body that are read. */
const DEEPEST = 8
const MOST_VALUES = 60
const MOST_ITEMS = 5

/** Fields that hold a further error. Others, such as `input` of FastAPI, may repeat the request. */
const INNER = ['error', 'errors', 'innererror', 'detail', 'details', 'base_resp', 'raw'] as const
/** Fields that hold a sentence; `status_msg` is MiniMax's, `error_msg` Baidu's. */
const TEXTS = ['message', 'msg', 'error_message', 'error_msg', 'status_msg', 'error', 'detail', 'raw'] as const
/** Fields that hold a word or a number for the kind of error; `__type` is Bedrock's. */
const WORDS = ['type', 'code', 'status', 'reason', 'error', 'error_type', 'error_code', 'status_code',
  '__type'] as const
const WAITS = ['retry_after', 'retryAfter', 'retryDelay', 'retry_after_seconds'] as const

export function readError (failure: ToldFailure): VendorError {
  return errorIn(failure.body, failure.kind === 'status' ? failure.status : undefined)
}

/** @param http the status of the answer; undefined: it was no error's */
export function errorIn (body: unknown, http?: number): VendorError {
  const layers = new Layers()
  layers.read(typeof body === 'string' ? eventIn(body) ?? body : body)
  const { words, param } = layers
  const message = layers.message.slice(0, LONGEST_READ)
  const said = http ?? layers.status
  const row = rowFor(words, message, said, layers.isOfSupplier)
  const status = row?.status ?? said
  return {
    message, words, param, status, means: row?.means, isOfApi: layers.isOfApi,
    retryAfter: layers.retryAfter ?? (status === 429 || status === 503 || status === 529 ? waitIn(message) : undefined)
  }
}

/** What all layers of an error say: inner ones first, which know more. */
class Layers {
  readonly words = new Set<string>()
  readonly #texts: string[] = []
  readonly #mistakes: string[] = []
  param: string | undefined
  /** of the outermost layer that has one: it is the vendor's own, others may be those of its suppliers */
  status: number | undefined
  retryAfter: number | undefined
  isOfApi = false
  /** a relay tells what its supplier has said */
  isOfSupplier = false
  #left = MOST_VALUES

  get message (): string {
    return (this.#mistakes.length > 0 ? this.#mistakes.join('; ') : this.#texts[0] ?? '').trim()
  }

  read (value: unknown, depth = 0): void {
    if (depth > DEEPEST || this.#left-- <= 0) return
    if (typeof value === 'string') this.#readText(value, depth)
    else if (Array.isArray(value)) for (const one of value.slice(0, MOST_ITEMS)) this.read(one, depth + 1)
    else if (isRecord(value)) this.#readLayer(value, depth)
  }

  /** Some send another error's JSON as their sentence. */
  #readText (text: string, depth: number): void {
    const inner = /^\s*[{[]/.test(text) ? parseOr(text) : text
    if (typeof inner !== 'string') this.read(inner, depth + 1)
    else if (!isPage(inner) && inner.trim() !== '') this.#texts.push(inner)
  }

  #readLayer (layer: Json, depth: number): void {
    for (const name of INNER) if (typeof layer[name] === 'object') this.read(layer[name], depth + 1)
    // OpenRouter: the supplier's error. Its other fields may hold the prompt.
    if (isRecord(layer.metadata) && isGiven(layer.metadata.raw)) {
      this.isOfSupplier = true
      this.read(layer.metadata.raw, depth + 1)
    }
    this.isOfApi ||= isRecord(layer.error)
    for (const name of WORDS) this.#readWord(name, layer[name])
    for (const name of WAITS) this.retryAfter ??= secondsOf(layer[name])
    if (typeof layer.param === 'string') this.param ??= layer.param
    if (typeof layer.msg === 'string') { this.#mistakes.push(mistake(layer)); return }
    for (const name of TEXTS) this.read(typeof layer[name] === 'string' ? layer[name] : undefined, depth + 1)
  }

  #readWord (field: string, said: unknown): void {
    if (typeof said !== 'number' && typeof said !== 'string') return
    const word = String(said).slice(0, 100)
    this.isOfApi ||= field !== 'error'
    if (/^[1-5]\d\d$/.test(word)) {
      if (Number(word) >= 400) this.status = Number(word)
      return
    }
    if (!/^\S+$/.test(word)) return
    // MiniMax's numbers are not those of others.
    if (field === 'status_code') { this.words.add(`status_${word}`); return }
    // Zhipu's are strings in `code`; of others numbers say nothing here.
    if (/^\d+$/.test(word) && field !== 'code') return
    const whole = word.replace(/^.*#/, '').replaceAll('-', '_').toLowerCase()
    for (const one of [whole, ...whole.split('.')]) this.words.add(one)
  }
}

/** `{loc: ['body', 'input'], msg: 'Field required'}` of FastAPI, with its path in the shape of a body. */
function mistake ({ loc, msg }: Json): string {
  const place = (Array.isArray(loc) ? loc as readonly unknown[] : [])
    .filter((step) => typeof step === 'string' || typeof step === 'number').join('.')
  return place === '' ? String(msg) : `${place}: ${String(msg)}`
}

/** DashScope's messages begin with `<400>`. */
function isPage (text: string): boolean {
  return /^\s*<[!?a-z]/i.test(text)
}

/** The error in a body that is a stream, though its status is an error's (DashScope, Groq). A page may quote one. */
function eventIn (text: string): unknown {
  if (framingOf(text.trimStart().slice(0, DECIDING), undefined) !== 'events') return undefined
  const data = /^(?:data|error):[ \t]*([[{].*)$/m.exec(text)?.[1]
  return data === undefined ? undefined : parseOr(data)
}

/** A number, or Google's `37s`. */
function secondsOf (said: unknown): number | undefined {
  const seconds = typeof said === 'string' && /^\d{1,9}(?:\.\d{1,9})?s?$/.test(said) ? Number.parseFloat(said) : said
  return typeof seconds === 'number' && seconds > 0 ? seconds : undefined
}

/** "Please try again in 1m7.5s" of OpenAI and Groq, "in 1.5s", "in 20ms", "after 3 seconds". */
const WAIT =
  /\b(?:try again|retry) (?:in|after) (?:(\d{1,3})h)?(?:(\d{1,4})m(?!s))?(?:(\d{1,6}(?:\.\d{1,9})?) ?(ms|s|seconds?)\b)?/i

/** Seconds; whoever waits for them bounds them. */
function waitIn (message: string): number | undefined {
  const [, hours = 0, minutes = 0, rest = 0, unit] = WAIT.exec(message) ?? []
  return Number(hours) * 3600 + Number(minutes) * 60 + Number(rest) / (unit === 'ms' ? 1000 : 1) || undefined
}

/** Fields of an answer, or of a part of one. */
const ANSWERS = ['choices', 'content', 'output', 'data'] as const

/**
 * Whether a JSON value in the place of an answer, or of an event of a stream, is an error: one that says so, or one
 * with the fields of an error and nothing of an answer.
 */
export function isErrorBody (value: unknown): boolean {
  if (Array.isArray(value)) return isErrorBody(value[0])
  if (!isRecord(value)) return false
  const { type, object, error, errors, base_resp: own, detail } = value
  if (type === 'error' || object === 'error' || isFault(error)) return true
  if (ANSWERS.some((name) => isGiven(value[name]) && !isEmptyList(value[name]))) return false
  if (isRecord(own) && Boolean(own.status_code)) return true
  if (Array.isArray(errors) ? errors.length > 0 : isGiven(detail)) return true
  return TEXTS.some((name) => typeof value[name] === 'string' && value[name] !== '') &&
    (CODES.some((name) => isCodeOfFault(value[name])) || SAYS_SO.test(`${String(type)} ${String(value.status)}`))
}

const CODES = ['code', 'error_code', 'error_type', 'status_code', '__type'] as const
const SAYS_SO = /error|exception|fail|\b[45]\d\d\b/i

function isEmptyList (value: unknown): boolean {
  return Array.isArray(value) && value.length === 0
}

/** A few vendors send the field with each answer, and say in it that there is none. */
function isFault (error: unknown): boolean {
  if (Array.isArray(error)) return error.length > 0
  return isRecord(error) ? Object.values(error).some(saysFault) : saysFault(error)
}

function saysFault (value: unknown): boolean {
  return typeof value === 'number' || typeof value === 'string' ? isCodeOfFault(value) : Boolean(value)
}

function isCodeOfFault (code: unknown): boolean {
  if (typeof code === 'number') return code !== 0 && !(code >= 100 && code < 400)
  return typeof code === 'string' && code !== '' && !/^(?:0|[123]\d\d|success|ok)$/i.test(code)
}
