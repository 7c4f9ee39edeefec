// pipeline: the order of the plugins by what they read and write, and options that name other parts of the file.
import type { Plugin } from '../../plugin.ts'
import { findTree, isMap, type Path, printSpot } from '../place.ts'
import { quote } from '../sentence.ts'
import { nearest, suggest } from '../suggest.ts'
import { at, items, type Report, type RuleInput } from './input.ts'

/** Written by the core, not by a plugin (facts.ts). */
export const CORE_FACTS = ['body', 'model']
const METER = 'billing-meter'

/** A name that is not quite one counts as the plugin that was meant: that it is wrong is said where it stands, and once. */
export function pluginsInOrder ({ value, plugins }: RuleInput): { readonly plugin: Plugin, readonly path: Path }[] {
  const uses = items(value.pipeline, 'pipeline').flatMap(({ item, path }) => typeof item.use === 'string' ? [{ use: item.use, path: [...path, 'use'] }] : [])
  const written = new Set(uses.map(({ use }) => use))
  return uses.flatMap(({ use, path }) => {
    const meant = nearest(use, [...plugins.keys()].filter((name) => !written.has(name)))
    const plugin = plugins.get(use) ?? (meant === undefined ? undefined : plugins.get(meant))
    return plugin === undefined ? [] : [{ plugin, path }]
  })
}

/** Some of the pipeline could not be loaded, or is not known: what it would write, and how it is called, nobody knows. */
export function hasUnknown (input: RuleInput): boolean {
  return Array.isArray(input.value.pipeline) && pluginsInOrder(input).length < input.value.pipeline.length
}

export function checkPipeline (input: RuleInput, report: Report, warn: Report): void {
  const list = pluginsInOrder(input)
  const names = new Map<string, Path>()
  const writers = new Map<string, number>()
  for (const [index, { plugin, path }] of list.entries()) {
    const first = names.get(plugin.name)
    if (first !== undefined) { report(path, `the plugin ${plugin.name} is in the pipeline twice; the other is at ${printSpot(findTree(input.tree, first).tree.at)}`); continue }
    names.set(plugin.name, path)
    for (const { name } of plugin.writes ?? []) {
      const other = writers.get(name)
      if (CORE_FACTS.includes(name)) report(path, `${plugin.name} writes ${name}, which only the core may write`)
      else if (other !== undefined) report(path, `${plugin.name} writes ${name}, which ${list[other]!.plugin.name} writes too; a fact has one writer`, 'remove one of them')
      else writers.set(name, index)
    }
  }
  checkMeter(input, names, report)
  checkFamilies(input, warn)
  /** who is missed, or what, where nobody is known who writes it: said where it is missed first */
  const missed = new Set<string>()
  for (const [index, { plugin, path }] of list.entries()) {
    if (names.get(plugin.name) !== path) continue
    for (const { name } of plugin.reads ?? []) {
      const writer = writers.get(name)
      if (CORE_FACTS.includes(name) || (writer !== undefined && writer < index)) continue
      if (writer === index) report(path, `${plugin.name} reads ${name} before it writes it`)
      else if (writer !== undefined) report(path, `${plugin.name} reads ${name}, which ${list[writer]!.plugin.name} writes later`, `move ${list[writer]!.plugin.name} above it`)
      else {
        const who = writerOf(name, input.plugins)
        if (missed.has(who ?? name) || (who === undefined && hasUnknown(input))) continue
        missed.add(who ?? name)
        report(path, `${plugin.name} reads ${name}, which nothing above it writes`, who && `add ${who} above it`)
      }
    }
  }
}

/** What has a price must be charged for (lesson 28). */
function checkMeter ({ value, plugins }: RuleInput, names: ReadonlyMap<string, Path>, report: Report): void {
  const isShipped = [...plugins.values()].some(({ name }) => name === METER)
  if (!isShipped || names.has(METER) || !Array.isArray(value.pipeline)) return
  const channels = items(value.models, 'models').flatMap(({ item }) => isMap(item.channels) ? Object.values(item.channels) : [])
  const isPriced = [...channels, ...items(value.routes, 'routes').map(({ item }) => item)].some((sold) => typeof at(sold, 'price') === 'object')
  if (isPriced) report(['pipeline'], `lacks ${METER}: there are prices, and nobody would be charged`, `add ${METER} below channel-router`)
}

function writerOf (fact: string, plugins: ReadonlyMap<string, Plugin>): string | undefined {
  return [...plugins.values()].find(({ writes }) => writes?.some(({ name }) => name === fact) === true)?.name
}

/** A limit of a family that no model belongs to limits nothing. */
function checkFamilies ({ value }: RuleInput, warn: Report): void {
  const limiter = items(value.pipeline, 'pipeline').find(({ item }) => item.use === 'rate-limit')
  const limits = at(limiter?.item, 'with', 'families')
  const known = new Set(items(value.models, 'models').flatMap(({ item }) => typeof item.family === 'string' ? [item.family] : []))
  for (const family of Object.keys(isMap(limits) ? limits : {})) {
    if (!known.has(family)) warn([...limiter!.path, 'with', 'families', family], `no model has the family ${quote(family)}`, suggest(family, [...known]), true)
  }
}
