// The JSON Schema of gateway.yaml: the core's own part by hand, and each plugin's options from the plugin. The only
// place of defaults. A name is refused until the gateway implements it. Every property has a description: the
// reference.
import type { JsonSchema, PluginDescriptor } from './plugin-descriptor.ts'
import { accounts } from './sections/accounts.ts'
import { aliases, defaultModel } from './sections/aliases.ts'
import { keys } from './sections/keys.ts'
import { log } from './sections/log.ts'
import { models } from './sections/models.ts'
import { hookTimeout } from './sections/pipeline.ts'
import { routes } from './sections/routes.ts'
import { map } from './sections/schema.ts'
import { server } from './sections/server.ts'
import { store } from './sections/store.ts'
import { upstreams } from './sections/upstreams.ts'
import { videos } from './sections/videos.ts'

/** Refuses unknown keys in every map that lists its properties, unless the map says otherwise. */
function close (schema: JsonSchema): JsonSchema {
  const closed: Record<string, unknown> = { ...schema }
  if (isSchema(schema.properties)) {
    closed.properties = Object.fromEntries(
      Object.entries(schema.properties).map(([key, value]) => [key, isSchema(value) ? close(value) : value])
    )
    if (!('additionalProperties' in schema) && !('unevaluatedProperties' in schema)) {
      closed.additionalProperties = false
    }
  }
  if (isSchema(schema.items)) closed.items = close(schema.items)
  if (isSchema(schema.additionalProperties)) closed.additionalProperties = close(schema.additionalProperties)
  return closed
}

function isSchema (value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The schema of a plugin's options: closed, and with an id of its own, so that its "#/..." references stay inside. */
export function optionsSchema (use: string, plugin: PluginDescriptor): JsonSchema {
  if (plugin.schema === undefined) {
    return { description: `Options of ${plugin.name}: it takes none.`, type: 'object', properties: {},
      additionalProperties: false }
  }
  return { $id: `plugin:${encodeURIComponent(use)}`, type: 'object', description: `Options of ${plugin.name}.`,
    ...close(plugin.schema) }
}

function item (use: string, plugin: PluginDescriptor): JsonSchema {
  return {
    type: 'object',
    required: ['use'],
    additionalProperties: false,
    properties: { use: { description: 'Which plugin.', const: use }, with: optionsSchema(use, plugin) }
  }
}

/**
 * The schema of the whole file after normalize().
 * @param own the user's own plugins, by their absolute path
 */
export function composeSchema (
  plugins: readonly PluginDescriptor[],
  own: ReadonlyMap<string, PluginDescriptor> = new Map()
): JsonSchema {
  const items = [...plugins.map((plugin) => item(plugin.name, plugin)),
    ...[...own].map(([path, plugin]) => item(path, plugin))]
  return withPipeline({
    description: 'What every request passes, top to bottom on the way to the upstream; the top is nearest the client.',
    type: 'array',
    // ajv checks only the branch that "use" names: one message for a mistake, not one per plugin
    items: items.length === 0
      ? { not: {} }
      : { type: 'object', required: ['use'], discriminator: { propertyName: 'use' }, oneOf: items }
  })
}

function withPipeline (pipeline: JsonSchema): JsonSchema {
  return map('Configuration of the model gateway.', {
    server, store, log, videos, hook_timeout: hookTimeout, pipeline, upstreams, models, aliases,
    default_model: defaultModel, routes, accounts, keys
  }, { required: ['pipeline'] }) as unknown as JsonSchema
}

/** A scalar may also be written as ${NAME}, whose value the editor does not know. */
const REPLACED: JsonSchema = { type: 'string', pattern: '\\$\\{' }

const DURATION: JsonSchema = { type: 'string', pattern: '^\\d{1,9}(\\.\\d{1,3})?(ms|s|m|h)$|\\$\\{' }
const SIZE: JsonSchema = { type: 'string', pattern: '^\\d{1,9}(B|KB|MB|GB)$|\\$\\{' }
const USD: JsonSchema = {
  anyOf: [{ type: 'number', minimum: 0 }, { type: 'string', pattern: '^\\d{1,15}(\\.\\d+)?$|\\$\\{' }]
}

/** Keywords that could refuse a value, and must not refuse a ${...} in its place. */
const STRICT = ['pattern', 'enum', 'const', 'format', 'minLength', 'maxLength']

/** The same rules in terms that an editor knows, for the file as written. */
function forEditor (schema: JsonSchema): JsonSchema {
  const {
    $id: _id,
    expected: _expected,
    hint: _hint,
    secret: _secret,
    duration: isDuration,
    size: isSize,
    usd: isUsd,
    word: isWord,
    description,
    ...rest
  } = schema
  const about = description === undefined ? {} : { description }
  const standard = 'default' in rest ? { default: rest.default } : {}
  if (isDuration !== undefined) return { ...about, ...standard, ...DURATION }
  if (isSize !== undefined) return { ...about, ...standard, ...SIZE }
  if (isUsd !== undefined) return { ...about, ...standard, ...USD }
  if (isWord !== undefined) return { ...about, ...standard, type: ['string', 'number'] }
  const plain: Record<string, unknown> = { ...rest }
  for (const word of ['properties', '$defs', 'patternProperties'] as const) {
    if (isSchema(rest[word])) {
      plain[word] = Object.fromEntries(
        Object.entries(rest[word]).map(([key, value]) => [key, isSchema(value) ? forEditor(value) : value])
      )
    }
  }
  for (const word of ['items', 'additionalProperties', 'if', 'then', 'else',
    'not'] as const) { if (isSchema(rest[word])) plain[word] = forEditor(rest[word]) }
  for (const word of ['anyOf', 'oneOf', 'allOf'] as const) {
    if (Array.isArray(rest[word])) plain[word] = rest[word].map((value: JsonSchema) => forEditor(value))
  }
  const isScalar = ['number', 'integer', 'boolean'].includes(String(rest.type)) ||
    (rest.type !== 'object' && rest.type !== 'array' && STRICT.some((word) => word in rest))
  if (!isScalar) return { ...about, ...plain }
  const { default: _default, ...judged } = plain
  return { ...about, ...standard, anyOf: [judged, REPLACED] }
}

/** The schema for editors: the file as written, the pipeline in its three forms. */
export function editorSchema (plugins: readonly PluginDescriptor[]): JsonSchema {
  const options = new Map(plugins.map((plugin) => [plugin.name, forEditor(optionsSchema(plugin.name, plugin))]))
  const optional = (schema: JsonSchema): JsonSchema => ({ anyOf: [schema, { type: 'null' }] })
  const { properties, ...root } = withPipeline({
    description: 'What every request passes, top to bottom on the way to the upstream; the top is nearest the client.',
    type: 'array'
  }) as { readonly properties: Record<string, JsonSchema> }
  const edited: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(properties)) edited[key] = optional(forEditor(value))
  edited.pipeline = {
    description: properties.pipeline!.description,
    type: 'array',
    items: {
      anyOf: [
        { description: 'A shipped plugin with its standard options.', enum: [...options.keys()] },
        ...[...options].map(([use, schema]) => ({
          description: `${use} with options.`,
          type: 'object',
          additionalProperties: false,
          required: [use],
          properties: { [use]: optional(schema) }
        })),
        {
          description: 'A plugin of your own, or a shipped one.',
          type: 'object',
          additionalProperties: false,
          required: ['use'],
          properties: {
            use: { description: 'The path of the file, relative to this one, or the name of a shipped plugin.',
              type: 'string' },
            with: { description: 'Its options.', type: ['object', 'null'] }
          }
        }
      ]
    }
  }
  edited.include = {
    description: 'More files, relative to this one: their lists are joined to these, their maps are merged.',
    type: ['array', 'null'],
    items: { description: 'Path of a YAML file.', type: 'string' }
  }
  return {
    $schema: 'http://json-schema.org/draft-07/schema#',
    $comment: 'Generated from the code by "npm run schema". Do not edit.',
    title: 'gateway.yaml',
    ...root,
    // required parts may be in an included file
    required: [],
    properties: edited
  }
}
