// Seals responses for the store, and opens what it gives back: whoever has the store alone reads nothing, and what was
// changed there, moved to another id or to another account, does not open. Lines of JSON, which have no line break
// inside: what it is, the response, and its input, so that one part is read without the others.
import type { Logger } from 'pino'
import type { Seals } from '../base/seals.ts'
import { within } from '../base/timeout.ts'
import { GatewayError } from '../errors.ts'
import type { KeptResponse, KeptResponses, Life, NewResponse, ResponseStore } from './responses.ts'

const PURPOSE = 'response'
/** Bytes of one response. */
const MOST_BYTES = 8 * 1024 * 1024
/** No use prolongs a life beyond this. */
const LONGEST_LIFE_MS = 24 * 3_600_000
/** Bytes that running requests may have found, over all of them. */
const SPACE_IN_FLIGHT = 256 * 1024 * 1024
const BREAK = 10
const LATE = new Error('it took too long')

export class SealedResponses implements KeptResponses {
  readonly #store: ResponseStore
  readonly #seals: Seals
  readonly #log: Pick<Logger, 'warn'>
  readonly #now: () => number
  #inFlight = 0

  /** @param now milliseconds since the epoch */
  constructor (store: ResponseStore, seals: Seals, log: Pick<Logger, 'warn'>, now: () => number) {
    this.#store = store
    this.#seals = seals
    this.#log = log
    this.#now = now
  }

  async keep (account: string, response: NewResponse, life: Life, ms: number): Promise<boolean> {
    const { id, created, previous } = response
    try {
      const pieces = [JSON.stringify({ id, created, previous }), '\n', ...piecesOf(response.response), '\n',
        ...piecesOf(response.input)]
      if (pieces.reduce((sum, piece) => sum + Buffer.byteLength(piece), 0) > MOST_BYTES) return false
      const keeping = Promise.resolve(
        this.#store.keep(account, id, this.#seals.sealBytes(PURPOSE, account, pieces), life))
      return await within(keeping, ms, () => {
        // Its client is told that it is not there.
        keeping.then(() => this.#store.drop(account, id)).catch(() => {})
        return LATE
      })
    } catch (err) {
      this.#log.warn({ err, response: id }, 'a response could not be kept: its answer says so')
      return false
    }
  }

  async find (account: string, id: string, life?: number): Promise<KeptResponse | undefined> {
    const sealed = await this.#store.find(account, id)
    const opened = sealed === undefined ? undefined : this.#seals.openBytes(PURPOSE, account, sealed)
    if (opened === undefined) return undefined
    const [first, second] = [opened.indexOf(BREAK), opened.indexOf(BREAK, opened.indexOf(BREAK) + 1)]
    const head = JSON.parse(opened.toString('utf8', 0, first)) as Pick<KeptResponse, 'id' | 'created' | 'previous'>
    if (head.id !== id) return undefined
    if (life !== undefined) {
      const left = Math.min(life, head.created + LONGEST_LIFE_MS - this.#now())
      if (left > 0) void this.#prolong(account, id, left)
    }
    return { ...head, response: opened.subarray(first + 1, second), input: opened.subarray(second + 1) }
  }

  /** Never rejects. */
  async #prolong (account: string, id: string, life: number): Promise<void> {
    try {
      await this.#store.prolong(account, id, life)
    } catch {
      // It was found, and lives on as long as it would have.
    }
  }

  async drop (account: string, id: string): Promise<boolean> {
    return await this.#store.drop(account, id)
  }

  take (bytes: number): void {
    if (this.#inFlight + bytes > SPACE_IN_FLIGHT) {
      throw new GatewayError('queue_full', {
        message: 'The service holds as many kept conversations as it can. Try again in {wait}.'
      })
    }
    this.#inFlight += bytes
  }

  give (bytes: number): void {
    this.#inFlight -= bytes
  }
}

function piecesOf (json: NewResponse['input']): readonly (string | Buffer)[] {
  return typeof json === 'string' ? [json] : json
}
