// GET /openapi.json: the API of clients as OpenAPI 3.1, made of the routes of the snapshot, the schemas of request
// bodies and the table of errors.
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isRecord } from '../base/json.ts'
import { packageRoot, version } from '../base/package.ts'
import type { CompiledRoute, Routed } from '../core/endpoint.ts'
import type { BytesReply } from '../core/reply.ts'
import type { LeasedSnapshot } from '../core/endpoint.ts'
import type { Style } from '../core/style.ts'
import { catalogue, type ErrorCode, GatewayError } from '../errors.ts'
import { sendOnce, served, valuesOf } from './docs.ts'

type Schema = Readonly<Record<string, unknown>>

const documents = new WeakMap<LeasedSnapshot, Promise<ReturnType<typeof served>>>()

export async function sendOpenApi (exchange: Routed): Promise<BytesReply> {
  const { snapshot } = exchange
  let made = documents.get(snapshot)
  if (made === undefined) {
    documents.set(snapshot, made = describeApi(snapshot).then((document) => served(JSON.stringify(document))))
    made.catch(() => { documents.delete(snapshot) })
  }
  return sendOnce(exchange, await made, {
    'content-type': 'application/json; charset=utf-8',
    'cache-control': 'public, max-age=60',
    'access-control-allow-origin': '*',
    'x-content-type-options': 'nosniff'
  })
}

async function describeApi (snapshot: LeasedSnapshot): Promise<object> {
  const { name, baseUrl, publicUrl } = valuesOf(snapshot)
  // A route for everything below a path has no operation that a document could describe.
  const own = snapshot.routes.all.filter(({ path }) => !path.endsWith('/*'))
  const open = snapshot.publicRoutes.all
  const bodies = new Set(own.flatMap(({ endpoint }) => schemaOf(endpoint) ?? []))
  const styles = new Set([...own, ...open].map(({ style }) => style))
  const paths: Record<string, Record<string, unknown>> = {}
  const add = (route: CompiledRoute, isPublic: boolean): void => {
    const path = route.path.replace(/\/\*$/, '/{path}')
    for (const method of route.methods) {
      // Earlier routes win.
      (paths[path] ??= isPublic ? { servers: [{ url: publicUrl }] } : {})[method.toLowerCase()] ??=
        operation(route, method, path, isPublic)
    }
  }
  for (const route of own) add(route, false)
  for (const route of open) add(route, true)
  return {
    openapi: '3.1.0',
    info: { title: name, version, description: `The pages for developers are at ${publicUrl}/docs/.` },
    servers: [{ url: baseUrl }],
    security: [{ bearer: [] }, { 'x-api-key': [] }],
    tags: [
      { name: 'api', description: 'Requests that need an API key.' },
      { name: 'public', description: 'Requests that need no API key.' }
    ],
    paths,
    components: {
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        'x-api-key': { type: 'apiKey', in: 'header', name: 'x-api-key' }
      },
      schemas: {
        ...await readSchemas(bodies),
        ...Object.fromEntries([...styles].map((style) => [errorName(style), errorSchema(style)]))
      },
      responses: Object.fromEntries([...styles].flatMap((style) => [...errorsByStatus()].map(([status, errors]) =>
        [`${errorName(style)}-${status}`, {
          description: errors.map(({ code, message }) => `- \`${code}\`: ${message}`).join('\n'),
          content: { 'application/json': { schema: { $ref: `#/components/schemas/${errorName(style)}` } } }
        }])))
    }
  }
}

function operation ({ name, style, endpoint }: CompiledRoute, method: string, path: string, isPublic: boolean): object {
  const schema = schemaOf(endpoint)
  const parameters = [...path.matchAll(/\{(\w+)\}/g)].map(([, parameter]) =>
    ({ name: parameter, in: 'path', required: true, schema: { type: 'string' } }))
  const hasBody = method === 'POST' && endpoint.kind !== 'forward' &&
    (endpoint.kind === 'model' || (endpoint.kind === 'local' && endpoint.reads !== undefined))
  const json = { schema: schema === undefined ? { type: 'object' } : { $ref: `#/components/schemas/${schema}` } }
  return {
    operationId: `${method}${path}`.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/-$/, ''),
    summary: ('summary' in endpoint ? endpoint.summary : undefined) ?? name,
    tags: [isPublic ? 'public' : 'api'],
    ...(isPublic && { security: [] }),
    ...(parameters.length > 0 && { parameters }),
    ...(hasBody && { requestBody: { required: true, content: {
      'application/json': json,
      ...(endpoint.kind === 'model' && endpoint.form === true && { 'multipart/form-data': { schema: { type: 'object' } } })
    } } }),
    responses: {
      200: { description: 'Success.', content: contentOf(endpoint) },
      ...Object.fromEntries([...errorsByStatus().keys()].map((status) =>
        [status, { $ref: `#/components/responses/${errorName(style)}-${status}` }]))
    }
  }
}

function contentOf (endpoint: CompiledRoute['endpoint']): object {
  const type = 'type' in endpoint ? endpoint.type : undefined
  if (type !== undefined) return { [type]: {} }
  if (endpoint.kind === 'download' || endpoint.kind === 'forward') return { '*/*': {} }
  const isStreamed = endpoint.kind === 'model' && endpoint.modality === 'text' && endpoint.compacts !== true
  return {
    'application/json': { schema: { type: 'object' } },
    ...(isStreamed && { 'text/event-stream': { schema: { type: 'string' } } })
  }
}

function schemaOf (endpoint: CompiledRoute['endpoint']): string | undefined {
  return endpoint.kind === 'model' || endpoint.kind === 'local' ? endpoint.schema : undefined
}

function errorName (style: Style): string {
  return `error-${style.name}`
}

function errorsByStatus (): ReadonlyMap<string, readonly GatewayError[]> {
  const errors = (Object.keys(catalogue) as ErrorCode[]).filter((code) => code !== 'client_closed')
    .map((code) => new GatewayError(code))
  return Map.groupBy(errors, ({ status }) => String(status))
}

/** Of what a style really writes, so that no one has to keep it current. */
function errorSchema (style: Style): Schema {
  return shapeOf(style.errorBody(new GatewayError('not_found'),
    { message: 'Message.', charged: '0', requestId: 'req_1' }))
}

function shapeOf (value: unknown): Schema {
  if (value === null) return { type: ['string', 'null'] }
  if (!isRecord(value)) return { type: typeof value }
  return { type: 'object', required: Object.keys(value),
    properties: Object.fromEntries(Object.entries(value).map(([name, field]) => [name, shapeOf(field)])) }
}

/** With the schemas that they refer to. */
async function readSchemas (wanted: ReadonlySet<string>): Promise<Readonly<Record<string, unknown>>> {
  const found: Record<string, unknown> = {}
  const pending = [...wanted]
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    if (found[name] !== undefined) continue
    const text = await readFile(join(packageRoot, 'config', 'requests', `${name}.json`), 'utf8')
    found[name] = standard(JSON.parse(text), name, pending)
  }
  return found
}

/** Keywords that OpenAPI does not know, or has one of for the whole document. */
const LEFT_OUT: ReadonlySet<string> = new Set(['expected', 'hint', '$schema', '$id'])

/** A schema without the gateway's own keywords, with references that hold in the document. */
function standard (schema: unknown, name: string, pending: string[]): unknown {
  if (Array.isArray(schema)) return schema.map((item) => standard(item, name, pending))
  if (!isRecord(schema)) return schema
  return Object.fromEntries(Object.entries(schema).filter(([key]) => !LEFT_OUT.has(key)).map(([key, value]) => {
    if (key === '$ref') {
      const [file = '', pointer = ''] = String(value).split('#')
      const to = file === '' ? name : file.replace(/\.json$/, '')
      pending.push(to)
      return [key, `#/components/schemas/${to}${pointer}`]
    }
    if ((key === 'properties' || key === '$defs') && isRecord(value)) {
      return [key, Object.fromEntries(Object.entries(value).map(([own, of]) => [own, standard(of, name, pending)]))]
    }
    return [key, key === 'const' || key === 'enum' ? value : standard(value, name, pending)]
  }))
}
