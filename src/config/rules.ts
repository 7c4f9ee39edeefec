// What a schema cannot say: names that must exist, be unique and stand in order. Works on values that may not fit the schema,
// so that all mistakes are found at once.
import { findTree, formatPointer, problemAt } from './place.ts'
import type { Problem } from './problem.ts'
import type { Report, RuleInput } from './rules/input.ts'
import { checkAliases } from './rules/aliases.ts'
import { checkKeys } from './rules/keys.ts'
import { checkModels } from './rules/models.ts'
import { checkPipeline } from './rules/pipeline.ts'
import { checkRoutes } from './rules/routes.ts'
import { checkServer } from './rules/server.ts'
import { checkStore } from './rules/store.ts'
import { checkUpstreams } from './rules/upstreams.ts'

export interface Findings { readonly problems: Problem[], readonly warnings: Problem[] }

/** @param now milliseconds since the epoch: a price must hold already, and an alias stand for something */
export function applyRules (input: RuleInput, now: number): Findings {
  const problems: Problem[] = []
  const warnings: Problem[] = []
  const into = (target: Problem[]): Report => (path, message, hint, atKey = false) => {
    const { tree, exact } = findTree(input.tree, path)
    if (exact && tree.isBroken === true) return
    target.push(problemAt(atKey && exact ? tree.key ?? tree.at : tree.at, formatPointer(path), message, hint))
  }
  const report = into(problems)
  const warn = into(warnings)
  checkServer(input, report, warn)
  checkStore(input, report)
  checkUpstreams(input, report, warn)
  checkPipeline(input, report, warn)
  checkModels(input, now, report, warn)
  checkAliases(input, now, report)
  checkRoutes(input, report, warn)
  checkKeys(input, report, warn)
  return { problems, warnings }
}
