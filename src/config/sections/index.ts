// Rules beyond the schema: names that must exist, be unique and stand in order. They work on values that may not fit
// the schema, so that all mistakes are found at once.
import { findTree, formatPointer, problemAt } from '../yaml/position.ts'
import type { Problem } from '../problem.ts'
import type { Report, RuleInput } from './input.ts'
import { checkAliases, checkDefaultModel } from './aliases.ts'
import { checkKeys } from './keys.ts'
import { checkModels } from './models.ts'
import { checkPipeline } from './pipeline.ts'
import { checkRoutes } from './routes.ts'
import { checkServer } from './server.ts'
import { checkStore } from './store.ts'
import { checkUpstreams } from './upstreams.ts'

export interface Findings { readonly problems: Problem[], readonly warnings: Problem[] }

/** @param now milliseconds since the epoch: a price must be in force, and an alias must have a model */
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
  checkStore(input, report, warn)
  checkUpstreams(input, report, warn)
  checkPipeline(input, report, warn)
  checkModels(input, now, report, warn)
  checkAliases(input, now, report)
  checkDefaultModel(input, report)
  checkRoutes(input, report, warn)
  checkKeys(input, report, warn)
  return { problems, warnings }
}
