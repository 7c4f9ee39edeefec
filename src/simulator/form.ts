// Parses a multipart/form-data body into an object: fields as text, and of files what a test needs. Small and whole in
// memory: independent of the gateway's own parser.
import { createHash } from 'node:crypto'

/** An uploaded file. */
export interface FormFile {
  readonly filename: string
  readonly content_type: string
  readonly bytes: number
  readonly sha256: string
}

/** @returns undefined: it is no form, or a broken one */
export function parseForm (
  contentType: string | undefined, body: Buffer
): Readonly<Record<string, unknown>> | undefined {
  const [, quoted, plain] =
    /^multipart\/form-data\s*;.*?boundary=(?:"([^"]+)"|([^\s;]+))/i.exec(contentType ?? '') ?? []
  const boundary = quoted ?? plain
  if (boundary === undefined) return undefined
  const fields: Record<string, unknown> = {}
  const delimiter = Buffer.from(`\r\n--${boundary}`)
  // The first has no line before it.
  const whole = Buffer.concat([Buffer.from('\r\n'), body])
  let at = whole.indexOf(delimiter)
  for (;;) {
    if (at === -1) return undefined
    const start = at + delimiter.length
    if (whole.toString('latin1', start, start + 2) === '--') return fields
    const next = whole.indexOf(delimiter, start)
    const blank = whole.indexOf('\r\n\r\n', start)
    if (next === -1 || blank === -1 || blank > next) return undefined
    add(fields, whole.toString('utf8', start, blank), whole.subarray(blank + 4, next))
    at = next
  }
}

function add (fields: Record<string, unknown>, head: string, value: Buffer): void {
  const name = /\bname="([^"]*)"/i.exec(head)?.[1] ?? ''
  const filename = /\bfilename="([^"]*)"/i.exec(head)?.[1]
  const read: string | FormFile = filename === undefined ? value.toString('utf8') : {
    filename,
    content_type: /^content-type: *(\S+)/im.exec(head)?.[1] ?? '',
    bytes: value.length,
    sha256: createHash('sha256').update(value).digest('hex')
  }
  if (!name.endsWith('[]')) { fields[name] = read; return }
  const list = fields[name]
  fields[name] = Array.isArray(list) ? [...list as unknown[], read] : [read]
}
