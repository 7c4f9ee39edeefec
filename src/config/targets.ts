// The targets of a configuration: what may be asked at each upstream.
import type { Config } from './config.ts'

/** By the name of the upstream: models as it calls them, and routes that are forwarded there. */
export function targetsIn ({ models, routes }: Pick<Config, 'models' | 'routes'>): ReadonlyMap<
  string,
  ReadonlySet<string>
> {
  const found = new Map<string, Set<string>>()
  const add = (upstream: string, model: string): void => {
    found.set(upstream, (found.get(upstream) ?? new Set()).add(model))
  }
  for (const { forward, match } of routes) { if (forward !== undefined) add(forward, match) }
  for (const { channels } of models) {
    for (const { targets } of Object.values(channels)) {
      for (const { upstream, model } of targets) add(upstream, model)
    }
  }
  return found
}
