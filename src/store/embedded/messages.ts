// What goes between the store's thread and its handle, writer.ts.
import type { Cell } from '../local/cells.ts'
import type { Documents, KnownEntry, Loaded, Opened, Write } from '../local/writer.ts'
import type { Difference } from '../store.ts'

export type ToThread =
  | { readonly kind: 'write', readonly no: number, readonly write: Write }
  /** entries after a number, oldest first; without `upTo`, up to the last there is */
  | { readonly kind: 'read', readonly after: number, readonly upTo: number | undefined }
  /** `oldest`: days and months before it are not compared */
  | { readonly kind: 'verify', readonly oldest: string }
  /** of documents; answered in order */
  | { readonly kind: 'ask', readonly of: keyof Documents, readonly args: readonly unknown[] }
  /** `windows`: all that count, of `WINDOW` each */
  | { readonly kind: 'close', readonly windows: readonly Cell[] }

export type FromThread =
  | { readonly kind: 'loaded', readonly of: Loaded, readonly cells: readonly Cell[] }
  | { readonly kind: 'opened', readonly opened: Opened }
  | { readonly kind: 'refused', readonly message: string }
  /**
   * `known`: the numbers of entries whose kind and reference the ledger had already, each with the amount that counts
   */
  | { readonly kind: 'written', readonly no: number, readonly known: readonly KnownEntry[] }
  | { readonly kind: 'unwritten', readonly no: number, readonly message: string }
  | { readonly kind: 'read', readonly cells: readonly Cell[], readonly upTo: number }
  /** of: id, sum of entries, sum as kept on disk */
  | { readonly kind: 'compared', readonly of: Difference['of'], readonly cells: readonly Cell[] }
  | { readonly kind: 'verified', readonly entries: number }
  | { readonly kind: 'answered', readonly answer: unknown }
  | { readonly kind: 'failed', readonly what: 'read' | 'verify' | 'ask', readonly message: string }
  | { readonly kind: 'warning', readonly message: string }

export interface ThreadInput {
  readonly folder: string
  /** milliseconds; 0: every commit is on the disk before it is acknowledged */
  readonly fsyncInterval: number
  /** milliseconds since the epoch */
  readonly now: number
  /** of this process, and no other */
  readonly owner: string
  /** a thread died in this process: nothing is loaded, and what has progress may still run */
  readonly isResumed: boolean
}
