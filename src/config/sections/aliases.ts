// aliases: further names of existing models, one by one or by their beginning; all models of an alias are of one kind.
// default_model: the model of all other names.
import { findTree, type Path, printSpot } from '../yaml/position.ts'
import { quote } from '../check/messages.ts'
import { suggest } from '../check/suggest.ts'
import { at, checkUnique, type Item, items, type Report, type RuleInput, text } from './input.ts'
import { checkStages, instant, type StageWords } from './schedule.ts'
import { isSoldByTokens } from './modalities.ts'
import { list, map, nameOfMany, type Of, typed } from './schema.ts'

const stagedModel = map('A model, from a day or an instant on.', {
  from: instant(
    'When it begins to answer, without a reload: a day (midnight in UTC), or an instant with its zone; absent, in ' +
    'the first of a list only: always.'
  ),
  model: { description: 'Its id.', type: 'string' }
}, { required: ['model'] })

const alias = map('Another name of a model.', {
  id: nameOfMany('What clients send as "model", or with "*" at its end the beginning of it.'),
  model: typed<string | readonly Of<typeof stagedModel>[]>({
    description: 'The id of the model that answers; or a list of models that follow each other, of which the last ' +
      'that has begun answers.',
    if: { type: 'array' },
    then: { type: 'array', minItems: 1, items: stagedModel },
    else: { type: 'string', expected: 'the id of a model, or a list of { from, model }' }
  })
}, { required: ['id', 'model'] })

export const aliases = list('Other names of models, such as claude-latest or claude-*. Ids come before aliases, whole names ' +
  'before beginnings, and of those the longest counts.', alias, { default: [] })

export const defaultModel = {
  description: 'The id of a text model, which answers requests for text that name no model and no alias; absent: they ' +
    'are refused. A key with allowed_models may use it only if they hold that id.',
  type: 'string'
} as const

/** The beginning of the names that an alias catches. Undefined: it is one name. */
export function stemOf (alias: string): string | undefined {
  return alias.endsWith('*') ? alias.slice(0, -1) : undefined
}

export type AliasConfig = Of<typeof alias>
/** Only the first of a list may be without `from`. */
export type StagedModel = Of<typeof stagedModel>

const words: StageWords = { one: 'model', many: 'models', without: 'the alias would stand for nothing',
  dated: () => 'add "from: 2027-01-31"' }

/** @param now milliseconds since the epoch */
export function checkAliases (input: RuleInput, now: number, report: Report): void {
  const { value, tree } = input
  const models = modelsIn(value)
  const aliases = items(value.aliases, 'aliases')
  const names = checkUnique(aliases, 'id', 'aliases', input, report)
  for (const { item, path } of aliases) {
    const id = text(item.id, tree, [...path, 'id'])
    const namesake = id === undefined ? undefined : models.get(id)
    if (namesake !== undefined) {
      report([...path, 'id'], `is the id of a model, at ${spotOf(namesake, input)}: an alias is another name`)
    }
    const { model } = item
    if (Array.isArray(model)) checkStages(model, [...path, 'model'], words, input, now, report)
    let first: Item | undefined
    for (const { name, here } of namedIn(model, [...path, 'model'], input)) {
      const found = models.get(name)
      if (found === undefined) {
        if (names.has(name)) report(here, `${quote(name)} is an alias itself`, 'name the model')
        else report(here, `there is no model ${quote(name)}`, suggest(name, [...models.keys()]) ?? 'add it to models:')
        continue
      }
      first ??= found
      if (found.item.kind !== first.item.kind) {
        report(
          here,
          `is of kind ${String(found.item.kind)}, and ${quote(String(first.item.id))} is of kind ` +
          `${String(first.item.kind)}`,
          'the models of an alias are of one kind'
        )
      }
    }
  }
}

function namedIn (model: unknown, path: Path, { tree }: RuleInput): { readonly name: string, readonly here: Path }[] {
  const written = Array.isArray(model)
    ? (model as readonly unknown[]).map((item, index) => ({
      value: at(item, 'model'),
      here: [...path, index, 'model']
    }))
    : [{ value: model, here: path }]
  return written.flatMap(({ value, here }) => {
    const name = text(value, tree, here)
    return name === undefined ? [] : [{ name, here }]
  })
}

function spotOf ({ path }: Item, { tree }: RuleInput): string {
  return printSpot(findTree(tree, [...path, 'id']).tree.at)
}

/** The models of the file, by id. */
function modelsIn (value: RuleInput['value']): ReadonlyMap<string, Item> {
  return new Map(
    items(value.models, 'models').flatMap((entry) =>
      typeof entry.item.id === 'string' ? [[entry.item.id, entry] as const] : []
    )
  )
}

export function checkDefaultModel ({ value, tree }: RuleInput, report: Report): void {
  const path = ['default_model']
  const name = text(value.default_model, tree, path)
  if (name === undefined) return
  const models = modelsIn(value)
  const found = models.get(name)
  if (found === undefined) {
    const isAlias = items(value.aliases, 'aliases').some(({ item }) => item.id === name)
    if (isAlias) report(path, `${quote(name)} is an alias`, 'name the model')
    else report(path, `there is no model ${quote(name)}`, suggest(name, [...models.keys()]) ?? 'add it to models:')
  } else if (!isSoldByTokens(found.item.kind)) {
    report(path, `${quote(name)} is of kind ${String(found.item.kind)}: it can't answer requests for text`,
      'name a text model')
  }
}
