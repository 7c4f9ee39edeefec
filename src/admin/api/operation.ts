// An operation of the admin API: its address, its parameters, and the function that answers. A table of them is the
// router and the documentation.
import type { Config, KeyConfig } from '../../config/config.ts'
import type { Directory } from '../../accounts/directory.ts'
import { suggest } from '../../config/check/suggest.ts'
import type { FleetProcess } from '../../cluster/heartbeat.ts'
import type { Plugin } from '../../core/plugin.ts'
import type { JsonSchema } from '../../config/plugin-descriptor.ts'
import type { Question, Rehearsal } from '../../pipeline/dry-run.ts'
import type { Services } from '../../core/services.ts'
import type { Store } from '../../store/store.ts'
import type { Upstream } from '../../core/upstream.ts'
import type { UpstreamView } from '../../upstream/limits/status.ts'
import { Refusal } from './refusal.ts'

export interface ApiParts {
  readonly services: Pick<Services, 'now'> & { readonly store: Store, readonly directory: Directory }
  /** the audit log */
  readonly changes: (after: number, limit: number) => Promise<readonly { readonly id: number, readonly text: string }[]>
  /** the live one */
  readonly config: () => Config
  /** processes that serve clients from this store */
  readonly processes: () => Promise<readonly FleetProcess[]>
  /** absent: no gateway runs here, so no upstream is asked */
  readonly upstreams?: UpstreamParts
  /** the shipped plugins, by name */
  readonly plugins: ReadonlyMap<string, Plugin>
  /** A dry run on the live configuration, which is leased meanwhile. @throws {GatewayError} no route matches */
  readonly rehearse: (question: Question) => Promise<Rehearsal>
  /** Creates the plugins in use with the key in their configuration. @throws {PartError} one refuses it */
  readonly tryKey: (config: Config, key: KeyConfig) => void
}

/** Absent where no gateway runs: no upstream is called there. */
export interface UpstreamParts {
  /** of all workers together */
  readonly view: () => UpstreamView | Promise<UpstreamView>
  readonly live: () => { readonly upstreams: ReadonlyMap<string, Upstream> }
}

export interface ApiRequest {
  readonly method: string
  readonly path: string
  readonly query: URLSearchParams
  /** the If-Match header */
  readonly ifMatch?: string | undefined
  /** parsed; undefined: no body */
  readonly body: unknown
  /** the actor, for the audit log */
  readonly who: string
}

export interface ApiAnswer {
  readonly status: number
  readonly body: unknown
  readonly version?: number
}

export interface Call extends ApiRequest {
  /** the {id} of the path */
  readonly id: string
}

export interface Operation {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** below /admin/v1 */
  readonly path: string
  readonly name: string
  readonly summary: string
  /** names of the query parameters */
  readonly query?: readonly string[]
  readonly takes?: JsonSchema
  /** limit of the body in bytes; absent: BODY_LIMIT */
  readonly bodyLimit?: number
  answer (call: Call): ApiAnswer | Promise<ApiAnswer>
}

/** Most bytes of a body: ten times a key with every list full. */
export const BODY_LIMIT = 256 * 1024

export const PAGE = 100
export const LONGEST_PAGE = 1000

/** @throws {Refusal} an unknown or repeated parameter */
export function readQuery (query: URLSearchParams, known: readonly string[]): ReadonlyMap<string, string> {
  const read = new Map<string, string>()
  for (const [name, value] of query) {
    if (!known.includes(name)) {
      throw new Refusal(
        'invalid_request',
        `There is no query parameter ${JSON.stringify(name.slice(0, 80))} ` +
        `here${known.length === 0 ? '' : `: ${suggest(name, known) ?? ''}`}.`
      )
    }
    if (read.has(name)) throw new Refusal('invalid_request', `The query parameter ${name} came twice. Send it once.`)
    read.set(name, value)
  }
  return read
}

export function readLimit (query: ReadonlyMap<string, string>): number {
  const text = query.get('limit')
  if (text === undefined) return PAGE
  const limit = /^\d{1,4}$/.test(text) ? Number(text) : 0
  if (limit < 1 || limit > LONGEST_PAGE) {
    throw new Refusal('invalid_request', `limit must be a whole number from 1 to ${LONGEST_PAGE}.`)
  }
  return limit
}

/** One page of a list that is sorted by id. */
export function pageOf<T extends { readonly id: string }> (
  all: readonly T[],
  query: ReadonlyMap<string, string>
): { readonly rows: readonly T[], readonly next: string | null } {
  const limit = readLimit(query)
  const after = query.get('after')
  const sorted = all.toSorted((a, b) => a.id < b.id ? -1 : 1)
  const start = after === undefined ? 0 : sorted.findIndex(({ id }) => id > after)
  if (start === -1) return { rows: [], next: null }
  const rows = sorted.slice(start, start + limit)
  return { rows, next: start + limit < sorted.length ? rows.at(-1)!.id : null }
}

/** @throws {Refusal} the client has read another version */
export function checkVersion (ifMatch: string | undefined, version: number, what: string): void {
  if (
    ifMatch === undefined || ifMatch.trim() === '*' || ifMatch.split(',').some((tag) => tag.trim() === `"${version}"`)
  ) return
  throw new Refusal('changed_meanwhile',
    `${what} is of version ${version} now, and If-Match names another. Read it again, ` +
    'then send the change with its new ETag.')
}
