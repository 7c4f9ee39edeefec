// pipeline: the order of the plugins by what they read and write, and options that name other parts of the file.
import type { PluginDescriptor } from '../plugin-descriptor.ts'
import { findTree, isMap, type Path, printSpot } from '../yaml/position.ts'
import { nearest } from '../check/suggest.ts'
import { at, items, providerOf, type Report, type RuleInput } from './input.ts'
import { duration } from './schema.ts'

export const hookTimeout = duration(
  'The longest that one plugin hook may take before the request fails.', '5s', { max: '1h' }
)

export interface PipelineItem {
  /** a shipped plugin's name, or the path of a user's own, absolute once loaded */
  readonly use: string
  readonly with: Readonly<Record<string, unknown>>
  /** of a user's own plugin: a hash of its code and of what it imports by relative path */
  readonly version?: string
}

/** Facts written by the core, not by a plugin (core/facts.ts). */
export const CORE_FACTS = ['body', 'model']

/**
 * The plugins of the pipeline. A misspelt name counts as the plugin that was meant: the mistake is reported once, where
 * it stands.
 */
export function pluginsInOrder (
  { value, plugins }: RuleInput
): { readonly plugin: PluginDescriptor, readonly path: Path }[] {
  const uses = items(value.pipeline, 'pipeline').flatMap(({ item, path }) =>
    typeof item.use === 'string' ? [{ use: item.use, path: [...path, 'use'] }] : []
  )
  const written = new Set(uses.map(({ use }) => use))
  return uses.flatMap(({ use, path }) => {
    const meant = nearest(use, [...plugins.keys()].filter((name) => !written.has(name)))
    const plugin = plugins.get(use) ?? (meant === undefined ? undefined : plugins.get(meant))
    return plugin === undefined ? [] : [{ plugin, path }]
  })
}

/** Whether a plugin could not be loaded, or is unknown: then its facts and its roles are unknown too. */
export function hasUnknown (input: RuleInput): boolean {
  return Array.isArray(input.value.pipeline) && pluginsInOrder(input).length < input.value.pipeline.length
}

export function checkPipeline (input: RuleInput, report: Report, warn: Report): void {
  const list = pluginsInOrder(input)
  const names = new Map<string, Path>()
  const writers = new Map<string, number>()
  for (const [index, { plugin, path }] of list.entries()) {
    const first = names.get(plugin.name)
    if (first !== undefined) {
      report(
        path,
        `the plugin ${plugin.name} is in the pipeline twice; the other is at ` +
        `${printSpot(findTree(input.tree, first).tree.at)}`
      )
      continue
    }
    names.set(plugin.name, path)
    for (const { name } of plugin.writes ?? []) {
      const other = writers.get(name)
      if (CORE_FACTS.includes(name)) { report(path, `${plugin.name} writes ${name}, which only the core may write`) }
      else if (other !== undefined) {
        report(path,
          `${plugin.name} writes ${name}, which ${list[other]!.plugin.name} writes too; a fact has one writer`,
          'remove one of them')
      } else { writers.set(name, index) }
    }
  }
  checkBilling(input, list.map(({ plugin }) => plugin), report)
  for (const { plugin, path } of list) {
    if (names.get(plugin.name) === path) checkOptions(plugin, path, input, report, warn)
  }
  /**
   * facts and roles that are missed, without a known plugin that provides them: reported where they are missed first
   */
  const missed = new Set<string>()
  for (const [index, { plugin, path }] of list.entries()) {
    if (names.get(plugin.name) !== path) continue
    for (const { name } of plugin.reads ?? []) {
      const writer = writers.get(name)
      if (CORE_FACTS.includes(name) || (writer !== undefined && writer < index)) continue
      if (writer === index) { report(path, `${plugin.name} reads ${name} before it writes it`) }
      else if (writer !== undefined) {
        report(path, `${plugin.name} reads ${name}, which ${list[writer]!.plugin.name} writes later`,
          `move ${list[writer]!.plugin.name} above it`)
      } else {
        const who = writerOf(name, input.plugins)
        if (missed.has(who ?? name) || (who === undefined && hasUnknown(input))) continue
        missed.add(who ?? name)
        report(path, `${plugin.name} reads ${name}, which nothing above it writes`, who && `add ${who} above it`)
      }
    }
  }
}

/** Checks that prices are charged. */
function checkBilling (input: RuleInput, used: readonly PluginDescriptor[], report: Report): void {
  const { value, plugins } = input
  const bills = ({ provides }: PluginDescriptor): boolean => provides?.includes('billing') === true
  if (![...plugins.values()].some(bills) || used.some(bills) || !Array.isArray(value.pipeline)) return
  const channels = items(value.models, 'models').flatMap(({ item }) =>
    isMap(item.channels) ? Object.values(item.channels) : []
  )
  const sold = [...channels, ...items(value.routes, 'routes').map(({ item }) => item)]
  if (!sold.some((one) => typeof at(one, 'price') === 'object')) return
  const meter = providerOf('billing', input)
  report(['pipeline'], `lacks ${meter}: there are prices, and nobody would be charged`,
    `add ${meter} below ${providerOf('routing', input)}`)
}

/** Runs the plugin's own checks of its options, and of the configuration. */
function checkOptions (plugin: PluginDescriptor, use: Path, { value }: RuleInput, report: Report, warn: Report): void {
  const path = [...use.slice(0, -1), 'with']
  const written = at(items(value.pipeline, 'pipeline').find((one) => one.path[1] === use[1])?.item, 'with')
  const below = (to: Report): Report => (inner, ...said) => { to([...path, ...inner], ...said) }
  try {
    plugin.check?.(isMap(written) ? written : {}, value, below(report), below(warn))
  } catch (thrown) {
    report(use,
      `the "check" of the plugin ${plugin.name} threw: ${thrown instanceof Error ? thrown.message : String(thrown)}`)
  }
}

function writerOf (fact: string, plugins: ReadonlyMap<string, PluginDescriptor>): string | undefined {
  return [...plugins.values()].find(({ writes }) => writes?.some(({ name }) => name === fact) === true)?.name
}
