// The JSON Schemas of request bodies: read and compiled once per process, when the first configuration uses the plugin.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import type { Body } from '../../src/facts.ts'
import { packageRoot } from '../../src/package-root.ts'
import type { RequestSchema } from '../../src/routes.ts'
import { refusalOf } from './refusal.ts'

/** What is sure of a body that fits its schema, as far as the limits look at it. */
export interface Request {
  readonly messages: readonly Turn[]
  readonly max_tokens?: number | null
  readonly max_completion_tokens?: number | null
  readonly thinking?: { readonly type: string, readonly budget_tokens?: number } | null
  readonly stop_sequences?: unknown
  readonly context_management?: unknown
}

interface Turn {
  readonly role: string
  readonly content?: unknown
}

type Requests = Readonly<Record<RequestSchema, ValidateFunction<Request>>>

let compiled: Requests | undefined

/** 60 ms of work, the first time. */
export function compileRequests (): Requests {
  return compiled ??= compile()
}

function compile (): Requests {
  const ajv = new Ajv2020({
    // It stops at the first error: all those of a body with a million values would be an attack.
    allErrors: false,
    verbose: true,
    strict: true, strictTypes: false, strictRequired: false, allowUnionTypes: true,
    // Twice as fast to compile; that they are schemas is tested, and what comes out runs no slower (measured).
    validateSchema: false, meta: false, code: { optimize: false }
  })
  // For sentences: what was expected, and what to do about it.
  ajv.addKeyword({ keyword: 'expected', valid: true })
  ajv.addKeyword({ keyword: 'hint', valid: true })
  const load = (name: RequestSchema): ValidateFunction<Request> =>
    ajv.compile<Request>(JSON.parse(readFileSync(join(packageRoot, 'config', 'requests', `${name}.json`), 'utf8')) as object)
  // In this order: the others refer to the first.
  return { messages: load('messages'), 'count-tokens': load('count-tokens'), 'chat-completions': load('chat-completions'), 'images-generations': load('images-generations'), 'images-edits': load('images-edits'), videos: load('videos') }
}

/** @throws {GatewayError} invalid_request: the first mistake, with its path */
export function checkRequest (validate: ValidateFunction<Request>, body: Body): Request {
  if (validate(body)) return body
  const errors = validate.errors!
  const refusal = refusalOf(errors[0]!)
  // ajv keeps them until the same part of a schema fails again, and with them what may be most of a large body.
  for (const error of errors) error.data = undefined
  throw refusal
}
