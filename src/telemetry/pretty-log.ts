// Prints lines of the log for a person at a terminal. Programs read the JSON.
import { isRecord } from '../base/json.ts'

const COLORS: Readonly<Record<string, string>> = { trace: '90', debug: '90', info: '32', warn: '33', error: '31',
  fatal: '41' }
/** Texts that need no quotes: JSON would not escape them, and they have no separator. */
const PLAIN = /^[\w.:/@+*%~-]+$/
/** Characters that a terminal might execute, or that hide what is there; JSON escapes only the first thirty-two. */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu

export class Pretty {
  readonly #hasColors: boolean

  constructor (hasColors: boolean) {
    this.#hasColors = hasColors && process.env['NO_COLOR'] === undefined && process.env['TERM'] !== 'dumb'
  }

  /** @param text whole lines of JSON; other lines are kept, without unsafe characters */
  lines (text: string): string {
    let out = ''
    for (const line of text.split('\n')) if (line !== '') out += this.#line(line) + '\n'
    return out
  }

  #line (line: string): string {
    const read = parse(line)
    if (read === undefined) return safe(line)
    const { time, level, msg, err, ...fields } = read
    const name = String(level ?? '')
    const parts = [clockOf(time), this.#color(COLORS[name], name.toUpperCase().padEnd(5)), safe(String(msg ?? ''))]
    for (const field in fields) parts.push(this.#color('90', `${safe(field)}=`) + shown(fields[field]))
    return parts.join(' ') + (err === undefined ? '' : stackOf(err))
  }

  #color (code: string | undefined, text: string): string {
    return this.#hasColors && code !== undefined ? `\u001b[${code}m${text}\u001b[39;49m` : text
  }
}

function parse (line: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(line)
    return isRecord(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** The local time of day. */
function clockOf (time: unknown): string {
  const date = new Date(String(time))
  if (Number.isNaN(date.getTime())) return '--:--:--.---'
  const parts = [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, '0'))
  return `${parts.join(':')}.${String(date.getMilliseconds()).padStart(3, '0')}`
}

function shown (value: unknown): string {
  if (typeof value === 'string' && PLAIN.test(value)) return value
  return safe(JSON.stringify(value))
}

/** An error with its stack, line by line. */
function stackOf (err: unknown): string {
  const { type, message, stack, ...more } = isRecord(err) ? err : { message: JSON.stringify(err) }
  const text = typeof stack === 'string' ? stack : `${String(type ?? 'Error')}: ${String(message)}`
  const lines = text.split('\n')
  for (const field in more) lines.push(`${field}=${shown(more[field])}`)
  return lines.map((line) => `\n    ${safe(line)}`).join('')
}

function safe (text: string): string {
  return text.replace(UNSAFE, (character) => `\\u${character.codePointAt(0)!.toString(16).padStart(4, '0')}`)
}
