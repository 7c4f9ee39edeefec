// The interface to answers of the Responses API that are kept for a while, so that a client may name them instead of
// sending them again. What is kept is sealed before it comes here: a driver knows whose
// it is and when it ends. It is no part of the ledger, waits for none of its writes, and none of them waits for it; a
// power loss may take the last of it.
import type { Awaitable } from '../base/awaitable.ts'

export interface Life {
  /** milliseconds from now */
  readonly life: number
  /** bytes of all responses of the account: for a new one those that were used longest ago go */
  readonly space: number
}

/** Every driver has one. Calls about the same response are made one after the other. */
export interface ResponseStore {
  /**
   * Keeps a response; when it has answered, a kill of this process loses it no more where the driver lasts.
   * @returns false: it is larger than the space
   * @throws {Error} it can't be kept at this moment
   */
  keep (account: string, id: string, bytes: Buffer, life: Life): Awaitable<boolean>
  /** Undefined: unknown, another account's, or over. @throws {GatewayError} service_unavailable: can't be read now */
  find (account: string, id: string): Awaitable<Buffer | undefined>
  /** Ends it so many milliseconds from now; it is the one that was used last. A no-op where there is none. */
  prolong (account: string, id: string, life: number): Awaitable<void>
  /** @returns whether there was one @throws {GatewayError} service_unavailable: it is not dropped */
  drop (account: string, id: string): Awaitable<boolean>
  close (): Awaitable<void>
}

/** JSON as text, or in pieces, if it holds blobs. */
export type JsonPieces = string | readonly Buffer[]

interface Kept<Json> {
  /** `resp_…` */
  readonly id: string
  /** milliseconds since the epoch */
  readonly created: number
  /** id of the response that it goes on from */
  readonly previous: string | null
  /** the response object */
  readonly response: Json
  /** the items of its request's own input, without those that `previous` leads to: a JSON array */
  readonly input: Json
}

export type NewResponse = Kept<JsonPieces>
export type KeptResponse = Kept<Buffer>

/** What plugins and endpoints see of kept responses: each is sealed for its account. */
export interface KeptResponses {
  /**
   * @param ms the longest that it may take: it stands in front of the end of an answer
   * @returns false: it is too large, or could not be kept in time; then nothing of it stays. Never rejects
   */
  keep (account: string, response: NewResponse, life: Life, ms: number): Promise<boolean>
  /**
   * Undefined: unknown, another account's, over, changed, or of a secret that is gone.
   * @param life milliseconds that it lives on from now, up to a day after its creation; absent: as it is
   * @throws {GatewayError} service_unavailable: the store can't be asked at this moment
   */
  find (account: string, id: string, life?: number): Promise<KeptResponse | undefined>
  /** @returns whether there was one @throws {GatewayError} service_unavailable */
  drop (account: string, id: string): Promise<boolean>
  /**
   * Counts bytes of conversations that running requests have found. @throws {GatewayError} queue_full: so many more do
   * not fit now
   */
  take (bytes: number): void
  give (bytes: number): void
}
