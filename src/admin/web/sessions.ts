// Who is signed in to the pages: sessions, and the links that begin one. Both live in this process, which is the only
// one that has the admin listener, and of their secrets only hashes are kept. A restart ends them all.
import { hash, randomBytes } from 'node:crypto'

/** A session that nobody uses ends after so long; requests that a page makes by itself are no use. */
const IDLE_MS = 30 * 60_000
/** However much it is used. */
const LONGEST_MS = 12 * 60 * 60_000
/** For so long after a token was given, what is grave may be done without giving it again. */
const PROOF_MS = 5 * 60_000
const LINK_MS = 10 * 60_000
/** Most at a time, of one token and of all; the oldest goes first, so that a viewer signs no owner out. */
const MOST_SESSIONS = { ofToken: 100, ofAll: 1000 }
const MOST_LINKS = { ofToken: 10, ofAll: 100 }

/** Id of a token; null: that of gateway.yaml. */
export type TokenId = string | null

export interface Session {
  readonly token: TokenId
  /** milliseconds since the epoch, as all times here */
  readonly endsAt: number
  readonly idleUntil: number
  readonly provedUntil: number
}

export class Sessions {
  readonly #now: () => number
  /** by the hash of the secret, oldest first */
  readonly #sessions = new Map<string, Session>()
  readonly #links = new Map<string, { readonly token: TokenId, readonly until: number }>()

  constructor (now: () => number) {
    this.#now = now
  }

  /** @returns the secret of a new session, 256 random bits in base64url */
  open (token: TokenId): string {
    const secret = randomText()
    const now = this.#now()
    makeRoom(this.#sessions, token, MOST_SESSIONS)
    this.#sessions.set(hashOf(secret), { token, endsAt: now + LONGEST_MS, idleUntil: now + IDLE_MS,
      provedUntil: now + PROOF_MS })
    return secret
  }

  /** @param isUse true: it prolongs the session. Undefined: there is none of this secret, or it has ended. */
  find (secret: string, isUse: boolean): Session | undefined {
    const key = hashOf(secret)
    const session = this.#sessions.get(key)
    if (session === undefined) return undefined
    const now = this.#now()
    if (now >= session.endsAt || now >= session.idleUntil) {
      this.#sessions.delete(key)
      return undefined
    }
    if (!isUse) return session
    const used = { ...session, idleUntil: now + IDLE_MS }
    this.#sessions.set(key, used)
    return used
  }

  isProved ({ provedUntil }: Session): boolean {
    return this.#now() < provedUntil
  }

  /** The token of the session was given again. */
  prove (secret: string): void {
    const key = hashOf(secret)
    const session = this.#sessions.get(key)
    if (session !== undefined) this.#sessions.set(key, { ...session, provedUntil: this.#now() + PROOF_MS })
  }

  end (secret: string): void {
    this.#sessions.delete(hashOf(secret))
  }

  /** @returns the code of a link that begins one session, and until when */
  link (token: TokenId): { readonly code: string, readonly until: number } {
    const code = randomText()
    const until = this.#now() + LINK_MS
    makeRoom(this.#links, token, MOST_LINKS)
    this.#links.set(hashOf(code), { token, until })
    return { code, until }
  }

  /** Takes a link: it is of no use any more. Undefined: there is none of this code, it was used, or it has ended. */
  take (code: string): { readonly token: TokenId } | undefined {
    const key = hashOf(code)
    const link = this.#links.get(key)
    this.#links.delete(key)
    return link !== undefined && this.#now() < link.until ? link : undefined
  }
}

/** @param kept oldest first */
function makeRoom (
  kept: Map<string, { readonly token: TokenId }>,
  token: TokenId,
  most: { readonly ofToken: number, readonly ofAll: number }
): void {
  const own = [...kept].filter(([, one]) => one.token === token)
  if (own.length >= most.ofToken) kept.delete(own[0]![0])
  else if (kept.size >= most.ofAll) kept.delete(kept.keys().next().value!)
}

function randomText (): string {
  return randomBytes(32).toString('base64url')
}

function hashOf (secret: string): string {
  return hash('sha256', secret)
}
