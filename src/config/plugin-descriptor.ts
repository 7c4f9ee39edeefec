// The description of a plugin by itself, for checks of the configuration: they name no plugin.
import type { Path } from './yaml/position.ts'

/**
 * A JSON Schema (draft 2020-12 as ajv reads it) of a plugin's options. Give every property a `description` and a
 * `default`.
 */
export type JsonSchema = Readonly<Record<string, unknown>>

/** Roles of plugins that prices, routes and keys require. */
export type Role = 'identity' | 'routing' | 'billing' | 'chat-completions'

/** @param atKey the key is wrong, not its value */
export type Report = (path: Path, message: string, hint?: string, atKey?: boolean) => void

export interface PluginDescriptor {
  /** name of its file or folder, in gateway.yaml, and in metrics; of a user's own: the metric label */
  readonly name: string
  /** of the options; unknown keys are refused, defaults are filled in. Absent: the plugin takes no options. */
  readonly schema?: JsonSchema
  /** Facts that it reads; the loader checks that a plugin above it (or the core) writes them. */
  readonly reads?: readonly { readonly name: string }[]
  /** Facts that it writes; no other plugin may. */
  readonly writes?: readonly { readonly name: string }[]
  /** Roles that it has; messages name the first plugin with a role. */
  readonly provides?: readonly Role[]
  /** Settings of a key that have no effect while it is not in the pipeline. */
  readonly enforces?: readonly string[]
  /** true: it runs on every route, whatever the route's own `pipeline` leaves out */
  readonly always?: true
  /**
   * The style of clients that it translates into the inner language, whose endpoint exists because of it. It runs on
   * the routes of the style and on those that take its bodies too, also where gateway.yaml does not name it: without
   * options then.
   */
  readonly translates?: { readonly endpoint: { readonly serve: string, readonly match: string } }
  /**
   * Checks beyond its schema. Called at each check of a configuration, synchronously. No I/O.
   * @param options its own, as written: they may not fit the schema
   * @param config the whole of gateway.yaml, which may not fit its schema either
   * @param report refuses the configuration; its path begins at the options
   * @param warn only warns
   */
  check?(
    options: Readonly<Record<string, unknown>>,
    config: Readonly<Record<string, unknown>>,
    report: Report,
    warn: Report
  ): void
}

/** A user's own plugin as loaded; its caller knows how it is created and what `create` returns. */
export interface LoadedPlugin extends PluginDescriptor {
  create (...args: never[]): unknown
}
