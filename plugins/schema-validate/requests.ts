// The JSON Schemas of request bodies: read and compiled once per process, when the first configuration uses the plugin.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv, type ValidateFunction } from 'ajv'
import type { Body } from '../../src/core/facts.ts'
import { packageRoot } from '../../src/base/package.ts'
import type { OutputLimits, Style } from '../../src/core/style.ts'
import { isRecord } from '../../src/base/json.ts'
import { addKeywords, OPTIONAL } from './keywords.ts'
import { refusalOf } from './refusal.ts'

/** The part of a valid body that the limits read. */
export interface Request extends OutputLimits {
  readonly messages?: readonly Turn[]
  readonly input?: readonly Turn[] | string
  readonly thinking?: { readonly type: string, readonly budget_tokens?: number } | null
  readonly stop_sequences?: unknown
  readonly context_management?: unknown
}

export interface Turn {
  readonly role?: string
  readonly content?: unknown
  /** the result of a tool, where that is a turn of its own */
  readonly output?: unknown
}

/** The conversation of a valid body, wherever its style has it. */
export function turnsOf (request: Request, field: Style['conversation']): readonly Turn[] {
  const found = request[field]
  return typeof found === 'string' ? [{ role: 'user', content: found }] : found ?? []
}

/** by the schema's file name */
type Requests = ReadonlyMap<string, ValidateFunction<Request>>

let compiled: Requests | undefined

/** Takes 60 ms, the first time. */
export function compileRequests (): Requests {
  return compiled ??= compile()
}

function compile (): Requests {
  // Not `Ajv2020`: the schemas have nothing that is new there, and for it each check would note the fields that it saw.
  const ajv = new Ajv({
    // Stops at the first error: all errors of a body with a million values would be an attack.
    allErrors: false,
    verbose: true,
    strict: true, strictTypes: false, strictRequired: false, allowUnionTypes: true,
    // Twice as fast to compile; the schemas are validated by a test, and the compiled code runs no slower (measured).
    validateSchema: false, meta: false, code: { optimize: false }
  })
  addKeywords(ajv)
  const folder = join(packageRoot, 'config', 'requests')
  const files = readdirSync(folder).filter((file) => file.endsWith('.json'))
  // All are added before the first is compiled, because they refer to each other.
  for (const file of files) {
    ajv.addSchema(JSON.parse(readFileSync(join(folder, file), 'utf8'), nameOptional) as object)
  }
  return new Map(files.map((file) => [file.replace(/\.json$/, ''), ajv.getSchema<Request>(file)!]))
}

/** A reviver: adds `optional` to each schema with properties. */
function nameOptional (_key: string, schema: unknown): unknown {
  if (!isRecord(schema) || !isRecord(schema.properties)) return schema
  const required: readonly unknown[] = Array.isArray(schema.required) ? schema.required : []
  const names = Object.keys(schema.properties).filter((name) => !required.includes(name))
  return names.length === 0 ? schema : { ...schema, [OPTIONAL]: names }
}

/** @throws {GatewayError} invalid_request: the first mistake, with its path */
export function checkRequest (validate: ValidateFunction<Request>, body: Body): Request {
  if (validate(body)) return body
  const errors = validate.errors!
  const refusal = refusalOf(errors[0]!)
  // ajv keeps the errors until the same part of a schema fails again, and with them what may be most of a large body.
  for (const error of errors) error.data = undefined
  throw refusal
}
