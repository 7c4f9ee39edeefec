// What vendors refuse, as functions on a request: each finds the first value that breaks a rule. The words of each
// vendor are in vendors.ts.
import { isObject } from './dialect.ts'
import type { Call, Path, Placed, RequestView, Tool, Turn } from './request-view.ts'

type Fields = Readonly<Record<string, unknown>>

/** Undefined: nothing breaks the rule. */
export type Check = (request: RequestView) => Placed | undefined

/** Which values of a request a rule is about. */
type Select = (request: RequestView) => readonly Placed[]

const isText = (value: unknown): value is string => typeof value === 'string'
const calls = ({ turns }: RequestView): readonly Call[] => turns.flatMap((turn) => turn.calls)

export const callIds: Select = (request) => calls(request).map(({ id }) => id)
export const resultIds: Select = ({ turns }) => turns.flatMap(({ results }) => results)
export const toolNames: Select = ({ tools }) => tools.map(({ name }) => name)
export const calledNames: Select = (request) => calls(request).map(({ name }) => name)
const inputs: Select = (request) => calls(request).map(({ input }) => input)
const all = (...selects: readonly Select[]): Select => (request) => selects.flatMap((select) => select(request))
export const ids = all(callIds, resultIds)
export const names = all(toolNames, calledNames)
export const field = (name: string): Select => ({ body }) => [{ path: [name], value: body[name] }]

export const longer = (most: number, select: Select): Check => (request) =>
  select(request).find(({ value }) => isText(value) && value.length > most)

export const notLike = (pattern: RegExp, select: Select): Check => (request) =>
  select(request).find(({ value }) => isText(value) && !pattern.test(value))

/** Fields of the body with another name. */
export const unknownFields = (...known: readonly (readonly string[])[]): Check => {
  const names = new Set(known.flat())
  return ({ body }) => firstUnknown(body, names, [])
}

/** Fields of a message with another name. */
export const unknownInTurns = (known: readonly string[]): Check => {
  const names = new Set(known)
  return ({ turns }) => firstOf(turns, ({ message, path }) => firstUnknown(message, names, path))
}

function firstUnknown (fields: Fields, known: ReadonlySet<string>, path: Path): Placed | undefined {
  const name = Object.keys(fields).find((one) => !known.has(one))
  return name === undefined ? undefined : { path: [...path, name], value: fields[name] }
}

function firstOf<T> (list: readonly T[], find: (one: T, index: number) => Placed | undefined): Placed | undefined {
  for (const [i, one] of list.entries()) {
    const found = find(one, i)
    if (found !== undefined) return found
  }
  return undefined
}

/** @param models that the rule is for */
export const given = (name: string, models = /(?:)/, isAllowed: (value: unknown) => boolean = () => false): Check =>
  ({ body, model }) => body[name] === undefined || !models.test(model) || isAllowed(body[name]) ? undefined
    : { path: [name], value: body[name] }

export const together = (one: string, other: string, models = /(?:)/): Check => ({ body, model }) =>
  body[one] !== undefined && body[other] !== undefined && models.test(model) ? { path: [other], value: body[other] }
    : undefined

/** A field of the body, or of its tools, that is known only with a beta in the header. */
export const withoutBeta = (name: string, beta: RegExp): Check => ({ headers, body, tools }) => {
  if (beta.test(String(headers['anthropic-beta'] ?? ''))) return undefined
  if (body[name] !== undefined) return { path: [name], value: body[name] }
  const tool = tools.find(({ tool: { value } }) => value[name] !== undefined)
  return tool && { path: [...tool.tool.path, 'custom', name], value: tool.tool.value[name] }
}

const schemas = (find: (schema: unknown, tool: Tool) => Placed | undefined): Check => ({ tools }) =>
  firstOf(tools, (tool) => find(tool.schema.value, tool))

/** The value is the name of the tool. */
const ofTool = ({ schema, name }: Tool): Placed => ({ path: schema.path, value: name.value })

export const rootIsNoObject: Check = schemas((schema, tool) =>
  isObject(schema) && schema['type'] === 'object' ? undefined : schema === undefined ? undefined : ofTool(tool))

export const rootHasNoProperties: Check = schemas((schema, tool) =>
  isObject(schema) && !isObject(schema['properties']) ? ofTool(tool) : undefined)

export const rootCombines = (...keywords: readonly string[]): Check => schemas((schema, tool) =>
  isObject(schema) && keywords.some((keyword) => schema[keyword] !== undefined) ? ofTool(tool) : undefined)

export const propertyNotLike = (pattern: RegExp): Check => schemas((schema, { schema: { path } }) => {
  const properties = isObject(schema) && isObject(schema['properties']) ? schema['properties'] : {}
  const key = Object.keys(properties).find((name) => !pattern.test(name))
  return key === undefined ? undefined : { path: [...path, 'properties'], value: key }
})

/** Below the root: a schema of an array that says nothing of its items. The value is the name of the tool. */
export const arrayWithoutItems: Check = schemas((schema, tool) => schemaIn(schema, tool.schema.path, (one) =>
  one['type'] === 'array' && one['items'] === undefined) && ofTool(tool))

/** The schema of a property without a type. The value is the place in the schema. */
export const propertyWithoutType: Check = schemas((schema, { schema: { path } }) => {
  const found = schemaIn(schema, [], (one, at) => at.at(-2) === 'properties' && one['type'] === undefined &&
    !['anyOf', 'oneOf', 'allOf', '$ref', 'enum', 'const'].some((keyword) => one[keyword] !== undefined))
  return found && { path, value: found.join('.') }
})

function schemaIn (value: unknown, path: Path, isIt: (schema: Fields, path: Path) => boolean): Path | undefined {
  const open: { readonly value: unknown, readonly path: Path }[] = [{ value, path }]
  for (const { value: one, path: at } of open) {
    if (Array.isArray(one)) for (const [i, inner] of one.entries()) open.push({ value: inner, path: [...at, i] })
    if (!isObject(one)) continue
    if (isIt(one, at)) return at
    for (const [name, inner] of Object.entries(one)) {
      if (name !== 'enum' && name !== 'const' && name !== 'default' && name !== 'examples') {
        open.push({ value: inner, path: [...at, name] })
      }
    }
  }
  return undefined
}

/** The value is the id. */
export const repeatedId: Check = (request) => {
  const seen = new Set<unknown>()
  return callIds(request).find(({ value }) => seen.size === seen.add(value).size)
}

/** A result whose call is not in the last turn of the model. */
export const orphanedResult: Check = ({ turns }) => {
  let open = new Set<unknown>()
  return firstOf(turns, (turn) => {
    const orphan = turn.results.find(({ value }) => !open.has(value))
    if (orphan !== undefined) return orphan
    if (turn.role === 'assistant') open = new Set(turn.calls.map(({ id }) => id.value))
    else if (turn.results.length === 0) open = new Set()
    return undefined
  })
}

/** The same call answered twice. */
export const secondResult: Check = ({ turns }) => {
  let answered = new Set<unknown>()
  return firstOf(turns, ({ role, results }) => {
    if (role === 'assistant') answered = new Set()
    return results.find(({ value }) => answered.size === answered.add(value).size)
  })
}

/** Calls that the next turn, or the messages of results behind them, do not answer. The value has all their ids. */
export const openCalls: Check = ({ turns }) => firstOf(turns, ({ calls, path }, at) => {
  if (calls.length === 0) return undefined
  const answered = new Set<unknown>()
  for (const turn of turns.slice(at + 1)) {
    if (turn.results.length === 0) break
    for (const { value } of turn.results) answered.add(value)
  }
  const open = calls.map(({ id }) => id.value).filter((id) => !answered.has(id))
  return open.length === 0 ? undefined : { path, value: open.join(', ') }
})

/** In any order, as for items: the calls of the whole request, and their results. The value is the id. */
export const unpairedItem = (side: 'call' | 'result'): Check => (request) => {
  const [own, other] = side === 'call' ? [callIds, resultIds] : [resultIds, callIds]
  const known = new Set(other(request).map(({ value }) => value))
  return own(request).find(({ value }) => !known.has(value))
}

/** The value is the role that came before. */
export const roleAfter = (role: string, before: string): Check => ({ turns }) => {
  const at = turns.findIndex((turn, i) => turn.role === role && turns[i - 1]?.role === before)
  return at === -1 ? undefined : { path: turns[at]!.path, value: before }
}

export const roleNotIn = (...roles: readonly string[]): Check => ({ turns }) => {
  const turn = turns.find(({ role }) => !roles.includes(role))
  return turn && { path: [...turn.path, 'role'], value: turn.role }
}

export const lastRoleNotIn = (...roles: readonly string[]): Check => ({ turns }) => {
  const last = turns.findLast(({ role }) => role !== 'system')
  return last === undefined || roles.includes(last.role) ? undefined : { path: last.path, value: last.role }
}

/** A turn with calls that follows neither a question nor a result. */
export const callsAtStart: Check = ({ turns }) => {
  const at = turns.findIndex(({ calls }) => calls.length > 0)
  const before = turns[at - 1]?.role
  return at === -1 || before === 'user' || before === 'tool' ? undefined : { path: turns[at]!.path, value: before }
}

/** Undefined, null, no part, or nothing but white space. */
function isEmpty ({ content: { value }, texts, calls }: Turn): boolean {
  if (calls.length > 0) return false
  if (Array.isArray(value) && value.length > texts.length) return false
  return texts.every(({ value: text }) => isText(text) && text.trim() === '')
}

export const emptyTurn = (...roles: readonly string[]): Check => ({ turns }) => {
  const turn = turns.find((one) => roles.includes(one.role) && isEmpty(one))
  return turn && { path: turn.path, value: turn.role }
}

/** A text of nothing, or of white space; one that is the whole content of the last turn may be empty. */
export const emptyText: Check = ({ turns, body }) => {
  const system = Array.isArray(body['system']) ? body['system'].findIndex((block: unknown) =>
    isObject(block) && isText(block['text']) && block['text'].trim() === '') : -1
  if (system !== -1) return { path: ['system', system, 'text'], value: '' }
  return firstOf(turns, ({ texts }) => texts.find(({ value }) => isText(value) && value.trim() === ''))
}

export const contentIsNull: Check = ({ turns }) => {
  const turn = turns.find(({ content, calls }) => content.value === null && calls.length === 0)
  return turn && { path: turn.content.path, value: null }
}

/** White space behind the last text of the model, where the conversation ends with it. */
export const endSpace: Check = ({ turns }) => {
  const last = turns.at(-1)
  const text = last?.role === 'assistant' && last.calls.length === 0 ? last.texts.at(-1) : undefined
  return text !== undefined && isText(text.value) && text.value !== text.value.trimEnd() ? text : undefined
}

/** Arguments that are no JSON, or no object. */
export const brokenArguments: Check = (request) => inputs(request).find(({ value }) => {
  if (isObject(value)) return false
  try {
    return !isObject(JSON.parse(String(value)))
  } catch {
    return true
  }
})

export const imageTypeNotIn = (...types: readonly string[]): Check => ({ turns }) => turns
  .flatMap(({ images }) => images).find(({ value }) => value !== undefined && !types.includes(value))

/** A text or name with half a character. */
export const halfCharacter: Check = ({ body }) => {
  const open: Placed[] = [{ path: [], value: body }]
  for (const { path, value } of open) {
    if (isText(value) && !value.isWellFormed()) return { path, value }
    if (typeof value !== 'object' || value === null) continue
    for (const [name, inner] of Object.entries(value)) {
      if (!name.isWellFormed()) return { path: [...path, name], value: name }
      open.push({ path: [...path, Array.isArray(value) ? Number(name) : name], value: inner })
    }
  }
  return undefined
}

/** Calls without the thoughts that led to them, where the model thinks. */
export const callsWithoutThoughts = (name: string, isThinking: (request: RequestView) => boolean): Check =>
  (request) => {
    const turn = isThinking(request) ? request.turns.find(({ calls, message }) =>
      calls.length > 0 && message[name] === undefined) : undefined
    return turn && { path: turn.path, value: turn.path.at(-1) }
  }

/** Something before the results of calls in their turn. */
export const resultBehindOther: Check = ({ turns }) => firstOf(turns, ({ message: { content }, path }) => {
  const blocks: readonly unknown[] = Array.isArray(content) ? content : []
  const isResult = (block: unknown): boolean => isObject(block) && block['type'] === 'tool_result'
  return isResult(blocks[0]) || !blocks.some(isResult) ? undefined : { path, value: 'tool_result' }
})
