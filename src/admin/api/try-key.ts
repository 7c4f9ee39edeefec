// Checks whether every plugin in use accepts a key: creates them as a snapshot of the configuration would, and discards
// the hooks.
import type { Config } from '../../config/config.ts'
import type { Plugin } from '../../core/plugin.ts'
import type { Services } from '../../core/services.ts'

/** @throws {PartError} a plugin refuses the key */
export function tryKeyOn (plugins: ReadonlyMap<string, Plugin>, services: Services): (config: Config) => void {
  return (config) => {
    for (const { use, with: options } of config.pipeline) {
      // Not for a user's own plugins, whose `create` may have effects: those run when the configuration goes live, and
      // not for every key.
      const hooks = plugins.get(use)?.create(options, config, services)
      void hooks?.close?.()
    }
  }
}
