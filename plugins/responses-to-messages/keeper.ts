// Keeps the answer of one request, before its end is written: a client that has seen the end may go on from it at once.
// An answer that was not given in whole, or not charged, does not stay.
import type { Json } from '../../src/base/json.ts'
import type { Exchange } from '../../src/core/exchange.ts'
import type { JsonPieces, KeptResponses, Life } from '../../src/store/responses.ts'
import { itemsOf } from './state.ts'

/** Bytes of a request's body, after decompression, that are not worth a try: more than the store takes. */
const TOO_LONG = 8 * 1024 * 1024

export interface KeeperOptions {
  readonly responses: KeptResponses
  /** id */
  readonly account: string
  readonly life: Life
  /** of the response */
  readonly id: string
  /** milliseconds since the epoch */
  readonly created: number
  /** as the client sent it */
  readonly body: Json
}

/** Whether the answer is one that its client wants to be kept, which is the default of the API. */
export function wantsToKeep ({ bodyBytes, dry, route }: Exchange, { store }: Json): boolean {
  return dry === undefined && route.endpoint.kind === 'model' && store !== false && bodyBytes <= TOO_LONG
}

export class Keeper {
  readonly #exchange: Exchange
  readonly #options: KeeperOptions
  #isKept = false
  #isSettled = false

  constructor (exchange: Exchange, options: KeeperOptions) {
    this.#exchange = exchange
    this.#options = options
    exchange.onSettle(({ kind }) => { this.#isSettled = kind === 'completed' })
    exchange.onFinish(async () => {
      if (!this.#isKept || (this.#isSettled && !exchange.hasSettleFailed)) return
      await options.responses.drop(options.account, options.id)
    })
  }

  /** @param response the whole one, as JSON @returns whether it can be asked for from now on. Never rejects */
  async keep (response: JsonPieces): Promise<boolean> {
    const { responses, account, life, id, created, body } = this.#options
    const { blobs, snapshot } = this.#exchange
    const { previous_response_id: previous } = body
    const text = typeof response === 'string' || blobs.bytes === 0 ? response : Buffer.concat(response).toString()
    const joined = (json: string): JsonPieces => {            // sealed before anything is waited for
      const whole = blobs.join(json)
      return typeof whole === 'string' ? whole : whole.pieces
    }
    // Half of the time that a hook has: a store that is slow costs an answer its place, not its end.
    return this.#isKept = await responses.keep(account, {
      id, created, previous: typeof previous === 'string' ? previous : null,
      response: typeof text === 'string' ? joined(text) : text,
      input: joined(JSON.stringify(itemsOf(body.input)))
    }, life, snapshot.config.hook_timeout / 2)
  }
}
