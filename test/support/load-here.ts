// How a test loads a configuration whose thread is not the point.
import type { Config } from '../../src/config/config.ts'
import { resultOf, type loadConfig } from '../../src/config/load/load.ts'
import { readConfig } from '../../src/config/load/read-config.ts'

/**
 * Reads and checks in the test's own thread: a thread of its own for each gateway costs a second of a processor, most
 * of it for loading again the modules that the test has loaded. Modules that were loaded once stay as they were: a
 * plugin that is written again needs the real way.
 */
export const loadHere: typeof loadConfig = async (
  file, { pluginsUrl, env = process.env, now, sent, forAccess = false }
) => {
  const stamps = new Map<string, string>()
  const input = { file, env: { ...env }, pluginsUrl: String(pluginsUrl), ...(now !== undefined && { now }),
    ...(sent !== undefined && { sent }), forAccess }
  const verdict = await readConfig(input, (name, stamp) => { if (!stamps.has(name)) stamps.set(name, stamp) })
  const result = await resultOf(verdict, stamps)
  return result.kind === 'valid' && process.env['FAST_LANE'] === 'off' ? { ...result, config: withoutLane(result.config) }
    : result
}

/** What the variable FAST_LANE=off makes of each configuration. */
function withoutLane (config: Config): Config {
  return Object.freeze({ ...config, server: Object.freeze({ ...config.server, fast_lane: 'off' as const }) })
}
