// Tiers: targets by priority, without those that are in maintenance.
import type { ChannelConfig, Config, TargetConfig } from '../../src/config/config.ts'

/** Targets of equal priority, the lowest number first; each tier in the order of the file. */
export type Tiers = readonly (readonly TargetConfig[])[]

/** @returns none where the channel, or every upstream of it, is in maintenance */
export function tiersOf ({ maintenance, targets }: ChannelConfig, upstreams: Config['upstreams']): Tiers {
  const inService = maintenance ? [] : targets.filter(({ upstream }) => upstreams[upstream]?.maintenance !== true)
  return [...Map.groupBy(inService, ({ priority }) => priority)].sort(([a], [b]) => a - b).map(([, tier]) => tier)
}
