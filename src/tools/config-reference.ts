// The reference page of all names in gateway.yaml, made of the sections' schemas and the plugins' options: written by
// `npm run schema`.
import { restartSections } from '../config/config.ts'
import { composeSchema, editorSchema, optionsSchema } from '../config/schema.ts'
import type { JsonSchema, PluginDescriptor } from '../config/plugin-descriptor.ts'

const HEAD = `<!-- Written by "npm run schema". Do not edit. -->
# Every name of gateway.yaml

Made of the sections in \`src/config/sections\` and of what each plugin says of its options. How things are done is in
[the guide](guide.md), what each kind of upstream needs in [its page](upstreams.md).

- \`server.api.listen\` is \`listen\` in \`api\` in \`server\`; \`models[].id\` is the \`id\` of each item of the list
  \`models\`; in \`upstreams.NAME.url\` the name is yours.
- Options of a plugin stand beside its name in the list \`pipeline\`: \`rate-limit.default_rpm\` is written
  \`- rate-limit: { default_rpm: 60 }\`.
- The default holds where the name is left out; – is none, *required* is what must be written.
- A duration is written \`500ms\`, \`3s\`, \`2m\` or \`1h\`, a size \`512KB\`, \`32MB\` or \`1GB\` (of 1,024).
  Amounts are decimals of US dollars, read as they are written.
- Any value may be \`\${NAME}\`, \`\${NAME:-default}\` or \`\${file:path}\`.
- \`include: [FILE]\` pulls in more files, relative to this one: their lists are joined to these, their maps are merged.
`

interface Row { readonly name: string, readonly type: string, readonly standard: string, readonly meaning: string }

/** config/gateway.schema.json. */
export function schemaText (plugins: readonly PluginDescriptor[]): string {
  return JSON.stringify(editorSchema(plugins), null, 2) + '\n'
}

/** Markdown. */
export function configReference (plugins: readonly PluginDescriptor[]): string {
  const { properties } = composeSchema(plugins) as { readonly properties: Readonly<Record<string, JsonSchema>> }
  const sections = Object.entries(properties).map(([name, schema]) => section(name, schema, plugins))
  return [HEAD, ...sections].join('\n')
}

function section (name: string, schema: JsonSchema, plugins: readonly PluginDescriptor[]): string {
  const isStatic = (restartSections as readonly string[]).includes(name)
  const change = isStatic ? 'A change needs a restart.' : 'A reload applies a change.'
  const about = String(schema.description)
  const head = `## ${name}\n\n${fold(about.endsWith(change) ? about : `${about} ${change}`)}\n`
  if (name === 'pipeline') return [head, ...plugins.map(options)].join('\n')
  const inner = inside(name, schema).map((row) => ({ ...row, meaning: row.meaning + enforced(row.name, plugins) }))
  return `${head}\n${table(inner.length === 0 ? [rowOf(name, schema, false)] : inner)}`
}

/** Names the plugin that enforces a setting of keys. */
function enforced (name: string, plugins: readonly PluginDescriptor[]): string {
  const plugin = plugins.find(({ enforces = [] }) => enforces.some((setting) => name === `keys[].${setting}`))
  return plugin === undefined ? '' : ` Enforced by \`${plugin.name}\`.`
}

function options (plugin: PluginDescriptor): string {
  const rows = inside(plugin.name, optionsSchema(plugin.name, plugin))
  return `### ${plugin.name}\n\n${rows.length === 0 ? 'It takes no options.\n' : table(rows)}`
}

function table (list: readonly Row[]): string {
  const lines = list.map(({ name, type, standard, meaning }) => {
    return `| \`${name}\` | ${cell(type)} | ${cell(standard)} | ${cell(meaning)} |`
  })
  return ['| name | type | default | meaning |', '|---|---|---|---|', ...lines].join('\n') + '\n'
}

/** Wraps prose at 120 characters. */
function fold (text: string): string {
  const lines: string[] = []
  for (const word of text.split(' ')) {
    const last = lines.at(-1)
    if (last === undefined || last.length + word.length >= 118) lines.push(word)
    else lines[lines.length - 1] = `${last} ${word}`
  }
  return lines.join('\n')
}

function cell (text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('\n', ' ')
}

function rowOf (name: string, schema: JsonSchema, isRequired: boolean): Row {
  const meaning = String(schema.description ?? '')
  return { name, type: typeOf(schema), standard: standardOf(schema, isRequired), meaning }
}

/** The rows of a map or a list, by their full names. */
function inside (name: string, schema: JsonSchema): Row[] {
  const { properties, additionalProperties: other, items, required } = schema
  const forms = formsOf(schema)
  if (forms.length > 0) return forms.flatMap((form) => inside(name, form))
  if (isSchema(properties)) {
    const isRequired = (key: string): boolean => Array.isArray(required) && required.includes(key)
    return alike(properties as Readonly<Record<string, JsonSchema>>).flatMap(([keys, child]) => {
      const whole = `${name}.${keys.length === 1 ? keys[0]! : `{${keys.join(',')}}`}`
      return [rowOf(whole, child, isRequired(keys[0]!)), ...inside(whole, child)]
    })
  }
  if (isSchema(other)) return inside(`${name}.NAME`, other)
  return isSchema(items) ? inside(`${name}[]`, items) : []
}

/** The channels of a model are two names for one schema. */
function alike (properties: Readonly<Record<string, JsonSchema>>): [keys: readonly string[], schema: JsonSchema][] {
  return [...Map.groupBy(Object.keys(properties), (key) => properties[key]!)].map(([schema, keys]) => [keys, schema])
}

function standardOf (schema: JsonSchema, isRequired: boolean): string {
  const { default: standard } = schema
  if (isRequired) return '*required*'
  if (standard === undefined || JSON.stringify(standard) === '[]' || JSON.stringify(standard) === '{}') return '–'
  return `\`${typeof standard === 'string' && standard !== '' ? standard : JSON.stringify(standard)}\``
}

const plainTypes: Readonly<Record<string, string>> = {
  object: 'map', array: 'list', string: 'text', number: 'number', integer: 'whole number', boolean: 'true or false'
}

function typeOf (schema: JsonSchema): string {
  const { enum: values, const: value, duration, size, usd, word, items, expected, additionalProperties: other } = schema
  if (Array.isArray(values)) return values.map((one) => `\`${String(one)}\``).join(', ')
  if (value !== undefined) return `\`${String(value)}\``
  if (duration !== undefined) return `duration${limits(duration)}`
  if (size !== undefined) return `size${limits(size)}`
  if (usd !== undefined) return 'US dollars'
  if (word !== undefined) return 'text or number'
  const forms = formsOf(schema)
  if (forms.length > 0) return [...new Set(forms.map(typeOf))].join(' or ')
  if (typeof expected === 'string' && schema.type === 'string') return expected
  if (schema.type === 'array' && isSchema(items)) return `list${ofScalars(items)}`
  if (schema.type === 'object' && isSchema(other)) return `map by name${ofScalars(other)}`
  return [schema.type].flat().map((type) => plainTypes[String(type)] ?? String(type)).join(' or ') + range(schema)
}

/** Maps in a list have rows of their own. */
function ofScalars (items: JsonSchema): string {
  return items.type === 'object' || formsOf(items).length > 0 ? '' : `: ${typeOf(items)}`
}

/** The alternatives of a value that may be written in several ways. */
function formsOf (schema: JsonSchema): JsonSchema[] {
  for (const word of ['anyOf', 'oneOf'] as const) if (Array.isArray(schema[word])) return schema[word].filter(isSchema)
  const forms = schema.if === undefined ? [] : [schema.then, schema.else].filter(isSchema)
  return forms.flatMap((form) => form.if === undefined ? [form] : formsOf(form))
}

function range ({ minimum, maximum }: JsonSchema): string {
  if (minimum === undefined && maximum === undefined) return ''
  return maximum === undefined ? `, at least ${count(minimum)}` : `, ${count(minimum)} to ${count(maximum)}`
}

function limits (of: unknown): string {
  if (!isSchema(of)) return ''
  const { min, max } = of
  if (min === undefined) return `, at most ${String(max)}`
  return max === undefined ? `, at least ${String(min)}` : `, ${String(min)} to ${String(max)}`
}

function count (value: unknown): string {
  return Number(value ?? 0).toLocaleString('en-US')
}

function isSchema (value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
