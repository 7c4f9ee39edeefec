// An operation of the admin API: its address, its parameters, and the function that answers. A table of them is the
// router and the documentation.
import type { IncomingMessage } from 'node:http'
import type { Logger } from 'pino'
import type { Config, KeyConfig } from '../../config/config.ts'
import { type Directory, type Role, roles } from '../../accounts/directory.ts'
import { suggest } from '../../config/check/suggest.ts'
import type { ConfigState, ConfigStatus, Judgement } from '../../config/state.ts'
import type { Timer } from '../../base/timer.ts'
import type { LatelyView } from '../../telemetry/lately.ts'
import type { FleetProcess } from '../../cluster/heartbeat.ts'
import type { KnownWorker } from '../../cluster/primary.ts'
import type { Plugin } from '../../core/plugin.ts'
import type { JsonSchema } from '../../config/plugin-descriptor.ts'
import type { Question, Rehearsal } from '../../pipeline/dry-run.ts'
import type { Services } from '../../core/services.ts'
import { type Calendar, isDay } from '../../money/calendar.ts'
import type { Backup } from '../../store/backup.ts'
import type { Rollups } from '../../store/rollups.ts'
import type { Records, Store } from '../../store/store.ts'
import type { Upstream } from '../../core/upstream.ts'
import type { RequestReader } from '../../telemetry/requests/request-log.ts'
import type { CredentialReset, UpstreamView } from '../../upstream/limits/status.ts'
import type { Trial } from '../own-api.ts'
import type { Sessions } from '../web/sessions.ts'
import { Refusal, type RefusalCode } from './refusal.ts'

export interface ApiParts {
  readonly services: Pick<Services, 'now' | 'tasks'> & {
    readonly store: Store & Rollups
    readonly directory: Directory
  }
  readonly audit: Pick<Records, 'changes' | 'newestChanges'>
  /** the live one */
  readonly config: () => Config
  /** Where gateway.yaml says an account or a key. Absent: no gateway runs here. */
  readonly placeOf?: (list: 'accounts' | 'keys', id: string) => { readonly file: string, readonly line: number } | undefined
  /** processes that serve clients from this store */
  readonly processes: () => Promise<readonly FleetProcess[]>
  /** Is told how many balances and sums were wrong when the ledger was added up. Absent: no gateway runs here. */
  readonly verified?: (differences: number) => void
  /** absent: no gateway runs here, so no upstream is asked */
  readonly upstreams?: UpstreamParts
  /** absent: no gateway runs here, so nobody can sign in */
  readonly links?: Pick<Sessions, 'link'>
  /** absent: no gateway runs here */
  readonly running?: RunningParts
  readonly requests: RequestReader
  /** the shipped plugins, by name */
  readonly plugins: ReadonlyMap<string, Plugin>
  /** A dry run on the live configuration, which is leased meanwhile. @throws {GatewayError} no route matches */
  readonly rehearse: (question: Question) => Promise<Rehearsal>
  /** Creates the plugins in use with the key in their configuration. @throws {PartError} one refuses it */
  readonly tryKey: (config: Config, key: KeyConfig) => void
}

/** What a running gateway tells of itself. */
export interface RunningParts {
  /** the configuration of this process, and the states of its workers; holds no secret */
  readonly status: () => Promise<ConfigStatus & { readonly workers?: readonly KnownWorker[] }>
  /** Judges a text as if it stood in gateway.yaml. */
  readonly judge: (text: string) => Promise<Judgement>
  /** undefined: what the store keeps ends with the process */
  readonly backup: Backup | undefined
  /** the configuration without its content */
  readonly state: () => ConfigState
  /** why load balancers should send requests elsewhere; empty: ready */
  readonly reasons: () => readonly string[] | Promise<readonly string[]>
  /** what requests came to, with those of the workers */
  readonly lately: () => Promise<LatelyView>
  /** at the last verification of the ledger; undefined: none has run since the start */
  readonly ledgerDifferences: () => number | undefined
  /** measures the time between two events */
  readonly timer: Timer
  readonly log: Pick<Logger, 'error'>
  readonly api: TrialParts
}

/** The API of this gateway, as its clients have it. */
export interface TrialParts {
  /** where they find it */
  readonly baseUrl: () => string
  /** Asks it over its listener. @throws {Error} there was no answer */
  readonly ask: (asked: Trial, signal: AbortSignal) => Promise<IncomingMessage>
}

/** Somebody who listens to events. */
export interface Listener {
  /** false: its token was revoked, or has expired */
  isKnown (): boolean
  /**
   * Called every second.
   * @param data of an event, in one line @param isNew false: it was told before
   * @returns false: the listener does not read what it is sent
   */
  hear (data: string, isNew: boolean): boolean
  end (): void
}

/** A place among the listeners, to be given back. */
export interface Place {
  listen (listener: Listener): void
  leave (): void
}

/** Absent where no gateway runs: no upstream is called there. */
export interface UpstreamParts {
  /** of all workers together */
  readonly view: () => UpstreamView | Promise<UpstreamView>
  readonly live: () => { readonly upstreams: ReadonlyMap<string, Upstream> }
  /** Ends cooldowns of credentials, in all workers. */
  readonly reset: (what: CredentialReset) => void | Promise<void>
}

/** Who asks, as the audit log names them: its lines begin with these fields. */
export interface Person {
  /** name of the token; of the one in gateway.yaml, and of a command in the data folder, what tells them apart */
  readonly who: string
  /** id of the token; absent: it is none that was made here */
  readonly token?: string
  readonly role: Role
  /** of the network; of a command in the data folder, the name of its machine */
  readonly address: string
}

export interface ApiRequest {
  readonly method: string
  readonly path: string
  readonly query: URLSearchParams
  /** the headers If-Match and Accept */
  readonly ifMatch?: string | undefined
  readonly accept?: string | undefined
  /** parsed; undefined: no body */
  readonly body: unknown
  /** of a large body, the bytes of the field that the operation `cuts`: it is {} in `body` */
  readonly cut?: Buffer | undefined
  readonly by: Person
  /** false: who asks is signed in to the pages, and has given his token too long ago for what is grave */
  readonly isProved?: boolean
  /** the client has left; absent: it can't */
  readonly signal?: AbortSignal
}

export interface ApiAnswer {
  readonly status: number
  /** a text or bytes of `type`, or else what is sent as JSON */
  readonly body: unknown
  readonly type?: string
  readonly version?: number
  /** of an answer that is a stream of events: the body is none */
  readonly place?: Place
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
  /** what it does; its first sentence is the summary in the document */
  readonly summary: string
  /** names of the query parameters */
  readonly query?: readonly string[]
  /** the least role; absent: a viewer reads (GET), and an operator does the rest */
  readonly needs?: Role
  readonly takes?: JsonSchema
  /** true: who is signed in to the pages gives his token again for it; with a token, nothing changes */
  readonly isGrave?: true
  /** true: it may be sent without a body */
  readonly isBodyOptional?: true
  /** schema of the body of a good answer (answers.ts); of one that is a stream, of each event's data */
  readonly gives: JsonSchema
  /** true: it can give a table too */
  readonly hasCsv?: true
  /** types of the bytes that it answers with, in the place of JSON */
  readonly types?: readonly string[]
  /** true: it lists, adds up, searches or checks so much that of each token only a few run at a time (costly.ts) */
  readonly isCostly?: true
  /** true: it answers with events until its client leaves */
  readonly isStream?: true
  /** the statuses of its good answers; absent: 200 */
  readonly statuses?: readonly number[]
  /** refusals of its own, beside those that its method and path bring with them */
  readonly refuses?: readonly RefusalCode[]
  /** true: its answer has an ETag, where what it tells of has a version */
  readonly isVersioned?: true
  /** true: it looks at If-Match */
  readonly takesVersion?: true
  /** a field of its body, an object, that is not parsed on the event loop where the body is large */
  readonly cuts?: string
  /** limit of the body in bytes; absent: BODY_LIMIT */
  readonly bodyLimit?: number
  answer (call: Call): ApiAnswer | Promise<ApiAnswer>
}

export function neededFor ({ method, needs }: Operation): Role {
  return needs ?? (method === 'GET' ? 'viewer' : 'operator')
}

/** @throws {Refusal} the role is not enough: names the one that is */
export function checkRole (operation: Operation, { who, role }: Person): void {
  const needed = neededFor(operation)
  if (roles.indexOf(role) >= roles.indexOf(needed)) return
  throw new Refusal('forbidden',
    `${operation.method} /admin/v1${operation.path} needs the role ${needed}, and the token "${who}" has the role ` +
    `${role}. Ask an owner for another token.`)
}

/** Most bytes of a body: ten times a key with every list full. */
export const BODY_LIMIT = 256 * 1024
/** Bytes of a body that has a client's request in it, like a coding agent's with an image. */
export const REQUEST_LIMIT = 8 * 1024 * 1024

export const PAGE = 100
export const ORDERS: readonly string[] = ['oldest', 'newest', 'asc', 'desc']
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

/** Whether the newest rows are asked for first. @throws {Refusal} */
export function isNewestFirst (query: ReadonlyMap<string, string>): boolean {
  const order = query.get('order') ?? 'oldest'
  if (!ORDERS.includes(order)) throw new Refusal('invalid_request', 'order must be oldest or newest (or asc or desc).')
  return order === 'newest' || order === 'desc'
}

/** @param tag undefined: whatever its tags are */
export function isTagged ({ tags }: { readonly tags?: readonly string[] }, tag: string | undefined): boolean {
  return tag === undefined || tags?.includes(tag) === true
}

const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+-]\d\d:\d\d)$/

/**
 * Reads an instant, or the beginning of a day in a time zone.
 * @returns milliseconds since the epoch
 * @throws {Refusal}
 */
export function readTime (text: string, zone: Calendar, name: string): number {
  const at = INSTANT.test(text) || isDay(text) ? Date.parse(text) : NaN
  if (isDay(text) && !Number.isNaN(at) && new Date(at).toISOString().startsWith(text)) return zone.startOf(text)
  if (INSTANT.test(text) && !Number.isNaN(at)) return at
  throw new Refusal('invalid_request',
    `${name} must be a day such as 2026-11-21, or an instant such as 2026-11-21T05:00:00Z.`)
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
