// response_format: what the answer must be.
import { isRecord } from '../../src/base/json.ts'
import type { Format } from '../../src/translation/answer-tool.ts'
import { invalid } from '../../src/translation/reads.ts'

/** @returns 'object': any JSON object; undefined: text */
export function readFormat (format: unknown): Format | 'object' | undefined {
  if (!isRecord(format)) return undefined
  if (format.type === 'json_object') return 'object'
  if (format.type !== 'json_schema') return undefined
  const path = 'response_format.json_schema'
  if (!isRecord(format.json_schema)) throw invalid(path, 'must be an object')
  const { schema, description } = format.json_schema
  if (schema === undefined || schema === null) return 'object'
  if (!isRecord(schema)) throw invalid(`${path}.schema`, 'must be a JSON Schema object')
  return { schema, description: typeof description === 'string' ? description : undefined }
}
