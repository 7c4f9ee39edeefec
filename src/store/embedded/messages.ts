// The messages between the store's thread and its handle, writer.ts.
import type { Cell } from '../local/cells.ts'
import type { Documents, KnownEntry, Loaded, Opened, Write } from '../local/writer.ts'
import type { Difference } from '../store.ts'

export type ToThread =
  | { readonly kind: 'write', readonly no: number, readonly write: Write }
  /** entries after a number, oldest first; without `upTo`, up to the newest */
  | { readonly kind: 'read', readonly after: number, readonly upTo: number | undefined }
  /** `oldest`: earlier days and months are not compared */
  | { readonly kind: 'verify', readonly oldest: string }
  /** a call of `Documents`; answered in order */
  | { readonly kind: 'ask', readonly of: keyof Documents, readonly args: readonly unknown[] }
  /** a copy, where `copyIn` says; one at a time */
  | { readonly kind: 'back up' }
  | { readonly kind: 'give up backup' }
  /** `windows`: all that count, as rows of `WINDOW` */
  | { readonly kind: 'close', readonly windows: readonly Cell[] }

export type FromThread =
  | { readonly kind: 'loaded', readonly of: Loaded, readonly cells: readonly Cell[] }
  | { readonly kind: 'opened', readonly opened: Opened }
  | { readonly kind: 'refused', readonly message: string }
  /**
   * `known`: numbers of entries whose kind and reference were in the ledger already, each with the amount recorded
   * there
   */
  | { readonly kind: 'written', readonly no: number, readonly known: readonly KnownEntry[] }
  | { readonly kind: 'unwritten', readonly no: number, readonly message: string }
  | { readonly kind: 'read', readonly cells: readonly Cell[], readonly upTo: number }
  /** the arguments of `OnCompared` */
  | { readonly kind: 'compared', readonly of: Difference['of'], readonly cells: readonly Cell[] }
  | { readonly kind: 'verified', readonly entries: number }
  | { readonly kind: 'answered', readonly answer: unknown }
  | { readonly kind: 'backed up' }
  | { readonly kind: 'failed', readonly what: 'read' | 'verify' | 'ask' | 'back up', readonly message: string }
  | { readonly kind: 'warning', readonly message: string }

export interface ThreadInput {
  readonly folder: string
  /** milliseconds; 0: every commit is on the disk before it is acknowledged */
  readonly fsyncInterval: number
  /** milliseconds since the epoch */
  readonly now: number
  /** id of this process */
  readonly owner: string
  /** true: an earlier thread of this process died, so nothing is loaded, and requests with progress may still run */
  readonly isResumed: boolean
}
