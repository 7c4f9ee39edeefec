// Judges every answer of an admin API by its own document: the status, the headers and the body have to be there. Tests
// of the admin listener do this without saying so, because gateway() does it for them.
import { subscribe } from 'node:diagnostics_channel'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import type { Test } from 'tap'
import { AdminApi } from '../../src/admin/api/api.ts'
import type { ApiParts } from '../../src/admin/api/operation.ts'

interface Content { readonly schema: { readonly contentSchema?: object } }

interface Response {
  readonly $ref?: string
  readonly headers?: Readonly<Record<string, object>>
  readonly content?: Readonly<Record<string, Content>>
}

interface Described { readonly operationId: string, readonly responses: Readonly<Record<string, Response>> }

export interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Described>>>>
  readonly components: {
    readonly schemas: Readonly<Record<string, object>>
    readonly responses: Readonly<Record<string, Response>>
  }
}

interface Answer {
  readonly method: string
  readonly path: string
  readonly status: number
  readonly headers: Readonly<Record<string, unknown>>
  readonly text: string
}

/** Stands for every part: the table of operations is the same whatever they work on. */
const whatever: unknown = new Proxy(() => {}, { get: () => whatever, apply: () => whatever })

/** Of an API with all operations. */
export const document = new AdminApi(whatever as ApiParts).document as unknown as Document

const ajv = new Ajv2020({ strict: false, allErrors: true })
ajv.addFormat('date-time', /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,3})?Z$/)
const compiled = new WeakMap<object, ValidateFunction>()

/** @returns what is wrong */
function misfit (schema: object, body: unknown): string | undefined {
  let fits = compiled.get(schema)
  if (fits === undefined) compiled.set(schema, fits = ajv.compile({ ...schema, components: document.components }))
  return fits(body) ? undefined : ajv.errorsText(fits.errors, { dataVar: 'body' })
}

function operationOf (method: string, path: string): Described | undefined {
  const steps = path.split('/')
  const pattern = Object.keys(document.paths).find((one) => {
    const wanted = one.split('/')
    return wanted.length === steps.length && wanted.every((step, i) => step === '{id}' || step === steps[i])
  })
  return document.paths[pattern ?? '']?.[(method === 'HEAD' ? 'GET' : method).toLowerCase()]
}

const ERROR = { $ref: '#/components/schemas/Error' }
/** Statuses where no operation is: body and token are looked at before the method. */
const NOWHERE = [400, 401, 404, 405, 413]

/** @returns what is wrong; undefined: nothing */
export function judge ({ method, path, status, headers, text }: Answer): string | undefined {
  const operation = operationOf(method, path)
  if (operation === undefined) {
    if (!NOWHERE.includes(status)) return `it has the status ${status}, and no operation is there`
    return method === 'HEAD' ? undefined : misfit(ERROR, JSON.parse(text))
  }
  const named = operation.responses[status]
  if (named === undefined) return `${operation.operationId} does not say that its status may be ${status}`
  const { headers: known = {}, content = {} } = named.$ref === undefined
    ? named
    : document.components.responses[named.$ref.split('/').at(-1)!]!
  const odd = ['etag', 'retry-after', 'allow', 'www-authenticate'].find((name) =>
    headers[name] !== undefined && !Object.keys(known).some((one) => one.toLowerCase() === name)
  )
  if (odd !== undefined) return `${operation.operationId} does not say that ${status} has the header ${odd}`
  if (headers['x-request-id'] === undefined) return 'it has no request id'
  const type = String(headers['content-type']).split(';')[0]!
  const described = content[type]
  if (described === undefined) return `${operation.operationId} does not say that ${status} may be ${type}`
  if (method === 'HEAD') return undefined
  const { contentSchema } = described.schema
  if (type === 'application/json') return misfit(described.schema, JSON.parse(text))
  if (contentSchema === undefined) return misfit(described.schema, text)
  return text.split('\n').filter((line) => line.startsWith('data: '))
    .map((line) => misfit(contentSchema, JSON.parse(line.slice('data: '.length)))).find((wrong) => wrong !== undefined)
}

/** Tests by the port of their admin listener. */
const judged = new Map<number, Test>()
let isListening = false

/** Judges each answer of an admin listener of this process until the end of the test, which fails for a wrong one. */
export function judgeAnswers (t: Test, url: string): void {
  const port = Number(new URL(url).port)
  judged.set(port, t)
  t.teardown(() => { judged.delete(port) })
  if (isListening) return
  isListening = true
  subscribe('http.server.request.start', (message) => {
    const { request, response } = message as { readonly request: IncomingMessage, readonly response: ServerResponse }
    const test = judged.get(request.socket.localPort ?? 0)
    const path = (request.url ?? '').split('?', 1)[0]!
    if (test === undefined || !path.startsWith('/admin/v1')) return
    let text = ''
    let sent: Readonly<Record<string, unknown>> = {}
    const note = (chunk: unknown): void => {
      if (typeof chunk === 'string' || Buffer.isBuffer(chunk)) text += String(chunk)
    }
    const look = (): void => {
      const wrong = judge({ method: request.method!, path, status: response.statusCode, headers: sent, text })
      if (wrong !== undefined) test.fail(`${request.method} ${path}: ${wrong}: ${text.slice(0, 1000)}`)
    }
    const { writeHead, write, end } = response
    response.writeHead = function (this: ServerResponse, ...args: unknown[]) {
      sent = args.at(-1) as typeof sent
      return Reflect.apply(writeHead, this, args) as ServerResponse
    } as ServerResponse['writeHead']
    response.write = function (this: ServerResponse, ...args: unknown[]) {
      note(args[0])
      // A stream has no end to wait for.
      if (sent['content-type'] === 'text/event-stream') {
        look()
        text = ''
      }
      return Reflect.apply(write, this, args) as boolean
    } as ServerResponse['write']
    response.end = function (this: ServerResponse, ...args: unknown[]) {
      note(args[0])
      look()
      return Reflect.apply(end, this, args) as ServerResponse
    } as ServerResponse['end']
  })
}
