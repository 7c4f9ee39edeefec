// What the configuration knows of a plugin, by what the plugin says of itself: the check names none. Not how it does
// it.
import type { Path } from './yaml/position.ts'

/**
 * A JSON Schema (draft 2020-12 as ajv reads it) of a plugin's options. Give every property a `description` and a
 * `default`.
 */
export type JsonSchema = Readonly<Record<string, unknown>>

/** What prices, routes and keys need a plugin for. */
export type Role = 'identity' | 'routing' | 'billing' | 'chat-completions'

/** @param atKey the key is wrong, not its value */
export type Report = (path: Path, message: string, hint?: string, atKey?: boolean) => void

export interface PluginDescriptor {
  /** file name = name in gateway.yaml = metric label */
  readonly name: string
  /** of the options; unknown keys are refused, defaults are filled in. Absent: the plugin takes no options. */
  readonly schema?: JsonSchema
  /** Facts that it reads; the loader checks that a plugin above it (or the core) writes them. */
  readonly reads?: readonly { readonly name: string }[]
  /** Facts that it writes; no other plugin may. */
  readonly writes?: readonly { readonly name: string }[]
  /** What it is needed for; the first that provides something is the one that sentences name. */
  readonly provides?: readonly Role[]
  /** Settings of a key that limit nothing while it is not in the pipeline. */
  readonly enforces?: readonly string[]
  /** It runs on every route, whatever the route's own `pipeline` leaves out. */
  readonly always?: true
  /**
   * The style of clients that it turns into the inner language: the endpoint of that style is there because of it. It
   * runs on the routes of the style, also where gateway.yaml does not name it: it takes no options then.
   */
  readonly translates?: { readonly endpoint: { readonly serve: string, readonly match: string } }
  /**
   * What its schema cannot say. Called at each check of a configuration, synchronously. No I/O.
   * @param options its own, as they are written: they may not fit the schema
   * @param config the whole of gateway.yaml, which may not fit its schema either
   * @param report refuses the configuration; its path begins at the options
   * @param warn says it only
   */
  check?(
    options: Readonly<Record<string, unknown>>,
    config: Readonly<Record<string, unknown>>,
    report: Report,
    warn: Report
  ): void
}

/** A user's own, as it was loaded: how it is created, and what it is then, is the business of who does it. */
export interface LoadedPlugin extends PluginDescriptor {
  create (...args: never[]): unknown
}
