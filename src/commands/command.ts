// What the command line gives to each command.
import type { loadConfig } from '../config/load/load.ts'
import type { Plugin } from '../core/plugin.ts'

export interface CommandParts {
  /** the configuration and what store.path is relative to, by what --config says */
  readonly locate: (config: string | undefined) => { readonly file: string, readonly base: string }
  /** the shipped plugins, and the module that exports them */
  readonly plugins: readonly Plugin[]
  readonly pluginsUrl: string
  /** how a file becomes a configuration; tests bring their own */
  readonly load?: typeof loadConfig
}
