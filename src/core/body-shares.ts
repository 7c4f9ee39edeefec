// What each account may take of the memory for request bodies: half. So an account that sends large bodies in parallel
// does not have those of others refused. Its next body waits before it is read, and the socket holds its client back.
import type { GatewayError } from '../errors.ts'

/** Bytes from which a body needs a share. Smaller ones are bounded by what an account may run at a time. */
export const SHARED_FROM = 1024 * 1024

interface Waiting {
  readonly bytes: number
  resolve (share: Share): void
}

interface Account {
  /** bytes of bodies that are being read or have been */
  used: number
  /** in the order in which they came */
  readonly waiting: Set<Waiting>
}

export interface Share {
  /** @returns whether so many bytes in all are within the account's part; they are taken then */
  grow (bytes: number): boolean
  /** A second call does nothing. */
  end (): void
}

/** Whom a body waits for as long as he has not left. */
interface Waiter {
  readonly abortReason: GatewayError | undefined
  onAbort (listener: () => void): void
  offAbort (listener: () => void): void
}

export class BodyShares {
  readonly #most: number
  readonly #accounts = new Map<string, Account>()

  /** @param most bytes of an account; a single body may have more */
  constructor (most: number) {
    this.#most = most
  }

  /** bodies that wait */
  get waiting (): number {
    let waiting = 0
    for (const account of this.#accounts.values()) waiting += account.waiting.size
    return waiting
  }

  /** Undefined: the account has too much already. */
  take (id: string, bytes: number): Share | undefined {
    const account = this.#account(id)
    return account.waiting.size === 0 && this.#fits(account, bytes) ? this.#open(id, account, bytes) : undefined
  }

  /**
   * The same when the account's bodies before it have ended.
   * @param ms the longest wait
   * @returns undefined: it was not long enough
   * @throws {GatewayError} the abort reason
   */
  async wait (id: string, bytes: number, ms: number, waiter: Waiter): Promise<Share | undefined> {
    const own = this.take(id, bytes)
    if (own !== undefined) return own
    if (waiter.abortReason !== undefined) throw waiter.abortReason
    const account = this.#account(id)
    const { promise, resolve, reject } = Promise.withResolvers<Share | undefined>()
    const waiting: Waiting = { bytes, resolve }
    account.waiting.add(waiting)
    const timer = setTimeout(() => { resolve(undefined) }, ms).unref()
    const onAbort = (): void => { reject(waiter.abortReason) }
    waiter.onAbort(onAbort)
    try {
      return await promise
    } finally {
      clearTimeout(timer)
      waiter.offAbort(onAbort)
      // The next one may be smaller.
      if (account.waiting.delete(waiting)) this.#next(id, account)
    }
  }

  #account (id: string): Account {
    let account = this.#accounts.get(id)
    if (account === undefined) this.#accounts.set(id, account = { used: 0, waiting: new Set() })
    return account
  }

  #fits ({ used }: Account, bytes: number): boolean {
    return used === 0 || used + bytes <= this.#most
  }

  #open (id: string, account: Account, bytes: number): Share {
    let own = bytes
    let isOver = false
    account.used += bytes
    return {
      grow: (all) => {
        if (isOver || all <= own) return true
        if (account.used > own && account.used + all - own > this.#most) return false
        account.used += all - own
        own = all
        return true
      },
      end: () => {
        if (isOver) return
        isOver = true
        account.used -= own
        this.#next(id, account)
      }
    }
  }

  #next (id: string, account: Account): void {
    for (const waiting of account.waiting) {
      if (!this.#fits(account, waiting.bytes)) return
      account.waiting.delete(waiting)
      waiting.resolve(this.#open(id, account, waiting.bytes))
    }
    if (account.used === 0 && account.waiting.size === 0) this.#accounts.delete(id)
  }
}
