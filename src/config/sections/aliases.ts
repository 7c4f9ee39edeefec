// aliases: further names of existing models; all models of an alias are of one kind.
import { findTree, type Path, printSpot } from '../yaml/position.ts'
import { quote } from '../check/messages.ts'
import { suggest } from '../check/suggest.ts'
import { at, checkUnique, type Item, items, type Report, type RuleInput, text } from './input.ts'
import { checkStages, instant, type StageWords } from './schedule.ts'
import { id, list, map, type Of, typed } from './schema.ts'

const stagedModel = map('A model, from a day or an instant on.', {
  from: instant(
    'When it begins to answer, without a reload: a day (midnight in UTC), or an instant with its zone; absent, in ' +
    'the first of a list only: always.'
  ),
  model: { description: 'Its id.', type: 'string' }
}, { required: ['model'] })

const alias = map('Another name of a model.', {
  id: id('What clients send as "model".'),
  model: typed<string | readonly Of<typeof stagedModel>[]>({
    description: 'The id of the model that answers; or a list of models that follow each other, of which the last ' +
      'that has begun answers.',
    if: { type: 'array' },
    then: { type: 'array', minItems: 1, items: stagedModel },
    else: { type: 'string', expected: 'the id of a model, or a list of { from, model }' }
  })
}, { required: ['id', 'model'] })

export const aliases = list('Other names of models, such as claude-latest.', alias, { default: [] })

export type AliasConfig = Of<typeof alias>
/** Only the first of a list may be without `from`. */
export type StagedModel = Of<typeof stagedModel>

const words: StageWords = { one: 'model', many: 'models', without: 'the alias would stand for nothing',
  dated: () => 'add "from: 2027-01-31"' }

/** @param now milliseconds since the epoch */
export function checkAliases (input: RuleInput, now: number, report: Report): void {
  const { value, tree } = input
  const models = new Map(
    items(value.models, 'models').flatMap((entry) =>
      typeof entry.item.id === 'string' ? [[entry.item.id, entry] as const] : []
    )
  )
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
