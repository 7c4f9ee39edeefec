// The OpenAPI document of the admin API, made from the table of operations and the schemas that validate bodies. Data
// only.
import type { JsonSchema } from '../../config/plugin-descriptor.ts'
import type { Operation } from './operation.ts'
import { toPlain } from './schemas.ts'

const PARAMETERS: Readonly<Record<string, JsonSchema>> = {
  account: { name: 'account', in: 'query', description: 'Only what belongs to this account.',
    schema: { type: 'string' } },
  key: { name: 'key', in: 'query', description: 'Only what belongs to this key.', schema: { type: 'string' } },
  after: { name: 'after', in: 'query', description: '`next` of the page before.', schema: { type: 'string' } },
  limit: { name: 'limit', in: 'query', description: 'Rows at most.',
    schema: { type: 'integer', minimum: 1, maximum: 1000, default: 100 } }
}
const ID = { name: 'id', in: 'path', required: true, schema: { type: 'string' } }
const IF_MATCH = { name: 'If-Match', in: 'header',
  description: 'The ETag of what was read: refused with 412 if it was changed since.', schema: { type: 'string' } }
const ERROR = {
  description: 'What is wrong, and what to do.',
  content: {
    'application/json': {
      schema: {
        type: 'object',
        properties: {
          error: {
            type: 'object',
            required: ['message', 'type', 'code'],
            properties: {
              message: { type: 'string' },
              type: { type: 'string' },
              code: { type: 'string' },
              param: { type: ['string', 'null'] },
              request_id: { type: 'string' },
              mistakes: { type: 'array',
                items: { type: 'object',
                  properties: { path: { type: 'string' }, message: { type: 'string' }, hint: { type: 'string' } } } }
            }
          }
        }
      }
    }
  }
}

export function openapi (operations: readonly Operation[], version: string): unknown {
  const paths: Record<string, Record<string, unknown>> = {}
  for (const { method, path, name, summary, query = [], takes } of operations) {
    const isChange = method === 'PATCH' || method === 'DELETE' || path.endsWith('/rotate')
    const parameters = [...(path.includes('{id}') ? [ID] : []), ...query.map((one) => PARAMETERS[one]),
      ...(isChange ? [IF_MATCH] : [])]
    paths[`/admin/v1${path}`] = {
      ...paths[`/admin/v1${path}`],
      [method.toLowerCase()]: {
        operationId: name,
        summary,
        parameters,
        ...(takes !== undefined &&
          {
            requestBody: { required: !path.endsWith('/rotate'),
              content: { 'application/json': { schema: toPlain(takes) } } }
          }),
        responses: { '2XX': { description: 'Done.', content: { 'application/json': { schema: { type: 'object' } } } },
          default: ERROR }
      }
    }
  }
  return {
    openapi: '3.1.0',
    info: { title: 'Admin API of the model gateway', version },
    security: [{ token: [] }],
    components: { securitySchemes: { token: { type: 'http', scheme: 'bearer' } } },
    paths
  }
}
