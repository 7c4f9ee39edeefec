// Requests and replies between the primary and one of its workers, over node's channel.
type Post =
  | { readonly kind: 'question', readonly id: number, readonly name: string, readonly value: unknown }
  | { readonly kind: 'answer', readonly id: number, readonly value: unknown }
  | { readonly kind: 'refusal', readonly id: number, readonly message: string }

/** Handlers by the name of the request. An error of one is passed to the caller. */
export type Answers = Readonly<Record<string, (value: unknown) => unknown>>

/** The other process; for a worker, its own `process`. */
export interface IpcPeer {
  on (event: 'message', listener: (post: unknown) => void): unknown
  on (event: 'disconnect', listener: () => void): unknown
  send? (post: unknown, callback: (error: Error | null) => void): boolean
}

interface PendingCall {
  readonly resolve: (value: unknown) => void
  readonly reject: (error: Error) => void
}

/** Milliseconds that a caller waits for a peer that hangs. */
const TIMEOUT_MS = 5000

export class IpcChannel {
  readonly #end: IpcPeer
  readonly #answers: Answers
  readonly #asked = new Map<number, PendingCall>()
  #count = 0

  constructor (end: IpcPeer, answers: Answers) {
    this.#end = end
    this.#answers = answers
    end.on('message', (post) => { void this.#hear(post as Post) })
    end.on('disconnect', () => {
      for (const { reject } of this.#asked.values()) reject(new Error('it is gone'))
    })
  }

  /** @throws {Error} no reply, or an error of the peer: says why */
  async ask<T = unknown> (name: string, value?: unknown, timeoutMs = TIMEOUT_MS): Promise<T> {
    const id = ++this.#count
    const { promise, resolve, reject } = Promise.withResolvers<unknown>()
    const timer = setTimeout(() => { reject(new Error(`it did not answer within ${timeoutMs / 1000} s`)) }, timeoutMs)
    this.#asked.set(id, { resolve, reject })
    this.#post({ kind: 'question', id, name, value })
    try {
      return await promise as T
    } finally {
      clearTimeout(timer)
      this.#asked.delete(id)
    }
  }

  async #hear (post: Post): Promise<void> {
    const { id, kind } = post
    if (kind === 'answer') { this.#asked.get(id)?.resolve(post.value); return }
    if (kind === 'refusal') { this.#asked.get(id)?.reject(new Error(post.message)); return }
    try {
      const answer = this.#answers[post.name]
      if (answer === undefined) throw new Error(`it can't be asked for ${post.name}`)
      this.#post({ kind: 'answer', id, value: await answer(post.value) })
    } catch (thrown) {
      this.#post({ kind: 'refusal', id, message: (thrown as Error).message })
    }
  }

  /** With a callback, because an error of a closed channel would otherwise be an event that ends the process. */
  #post (post: Post): void {
    const fail = (error: Error): void => { this.#asked.get(post.id)?.reject(error) }
    try {
      this.#end.send?.(post, (error: Error | null) => { if (error !== null) fail(error) })
    } catch (thrown) {
      fail(thrown as Error)
    }
  }
}
