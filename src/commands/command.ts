// The parameters of every command.
import type { loadConfig } from '../config/load/load.ts'
import type { Plugin } from '../core/plugin.ts'

export interface CommandParts {
  /** the configuration, and the folder that store.path is relative to, by the value of --config */
  readonly locate: (config: string | undefined) => { readonly file: string, readonly base: string }
  /** the shipped plugins, and the module that exports them */
  readonly plugins: readonly Plugin[]
  readonly pluginsUrl: string
  /** loads the configuration; for tests */
  readonly load?: typeof loadConfig
}

export interface AdminAnswer {
  readonly status: number
  readonly body: Readonly<Record<string, unknown>>
}

/** The admin API of a running gateway, or on a data folder without one. */
export interface AdminClient {
  /** @param address path and query. @throws {Error} no answer: says what to do */
  ask (method: string, address: string, body?: unknown): Promise<AdminAnswer>
  /** address of the admin listener; absent: no gateway runs, and the data folder is used */
  readonly url?: string
  close (): Promise<void>
}
