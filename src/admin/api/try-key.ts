// Would every plugin in use take this key? Asks them as a snapshot of the configuration would, and throws the hooks
// away.
import type { Config } from '../../config/config.ts'
import type { Plugin } from '../../core/plugin.ts'
import type { Services } from '../../core/services.ts'

/** @throws {PartError} one refuses it */
export function tryKeyOn (plugins: ReadonlyMap<string, Plugin>, services: Services): (config: Config) => void {
  return (config) => {
    for (const { use, with: options } of config.pipeline) {
      // A user's own may do anything in `create`; it does when the configuration goes live, and not for every key.
      const hooks = plugins.get(use)?.create(options, config, services)
      void hooks?.close?.()
    }
  }
}
