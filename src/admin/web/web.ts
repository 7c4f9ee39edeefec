// The pages of the admin listener, below /ui/: their files, signing in and out. A browser that is signed in may use the
// admin API with its cookie, from these pages alone: each such request has a header that no other site can send
// without being asked first, and says that it comes from this origin.
import type { IncomingMessage } from 'node:http'
import { type Answer, asJson } from '../answer.ts'
import type { Person } from '../api/operation.ts'
import { Refusal } from '../api/refusal.ts'
import { readJson } from '../body.ts'
import { type PageFile, type PageFiles, preparePages } from './files.ts'
import { cookieOf, type Site, siteOf, sessionIn } from './hosts.ts'
import type { Session, Sessions, TokenId } from './sessions.ts'

export interface WebParts {
  readonly sessions: Sessions
  /** server.admin.hosts */
  readonly hosts: readonly string[]
  /** by the text of a token; waits, and undefined, where it is wrong */
  readonly check: (token: string, req: IncomingMessage, path: string) => Promise<TokenId | undefined>
  /**
   * @param code of a link; absent: the body is not read yet, so a token that was right from here may be in it
   * @throws {Refusal} too many wrong tokens came from this address
   */
  readonly checkGuesses: (req: IncomingMessage, path: string, code?: string) => void
  /** A wrong code of a link: as a wrong token. */
  readonly noteWrong: (req: IncomingMessage, path: string) => Promise<void>
  /** Who has the token now; undefined: it was revoked, or has ended. */
  readonly person: (token: TokenId) => Omit<Person, 'address'> | undefined
}

/** Who asks with a cookie. */
export interface SignedIn {
  readonly person: Omit<Person, 'address'>
  /** true: the token was given within the last minutes */
  readonly isProved: boolean
}

const ROOT = '/ui/'
const SESSION = '/ui/session'
/** What pages send with each request; `background`: nobody has asked for it, so it does not prolong the session. */
const OWN_HEADER = 'x-gateway-ui'
const FOR_EVER = 'public, max-age=31536000, immutable'
const BODY_LIMIT = 4096

const HEADERS = {
  'content-security-policy': "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
    "img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
    "require-trusted-types-for 'script'; trusted-types 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'x-frame-options': 'DENY'
}

export class Web {
  readonly #parts: WebParts
  #pages: Promise<PageFiles> | undefined

  constructor (parts: WebParts) {
    this.#parts = parts
  }

  knows (path: string): boolean {
    return path === '/ui' || path.startsWith(ROOT)
  }

  /** @throws {Refusal} what is wrong, and what to do */
  async answer (req: IncomingMessage, path: string): Promise<Answer> {
    const site = this.#site(req)
    return path === SESSION ? await this.#session(req, site) : await this.#file(req, path)
  }

  /** An answer below /ui/, an error too, with what it forbids browsers. */
  guarded ({ headers = {}, ...answer }: Answer): Answer {
    return { ...answer, headers: { ...HEADERS, ...headers } }
  }

  /** Who asks the admin API with a cookie. Undefined: nobody, or the request is not from our pages. */
  identify (req: IncomingMessage, isUse = isUsed(req)): SignedIn | undefined {
    if (req.headers.cookie === undefined || !isOurs(req)) return undefined
    const site = siteOf(req.headers.host, this.#parts.hosts)
    const found = site === undefined ? undefined : this.#find(req, site, isUse)
    if (found === undefined) return undefined
    return { person: found.person, isProved: this.#parts.sessions.isProved(found.session) }
  }

  /** The session of the request's cookie, whose token still holds. */
  #find (req: IncomingMessage, site: Site, isUse = isUsed(req)): {
    readonly secret: string, readonly session: Session, readonly person: Omit<Person, 'address'>
  } | undefined {
    const { sessions } = this.#parts
    const secret = sessionIn(req.headers.cookie, site)
    if (secret === undefined) return undefined
    const session = sessions.find(secret, isUse)
    if (session === undefined) return undefined
    const person = this.#parts.person(session.token)
    if (person !== undefined) return { secret, session, person }
    sessions.end(secret)
    return undefined
  }

  #site ({ headers }: IncomingMessage): Site {
    const site = siteOf(headers.host, this.#parts.hosts)
    if (site !== undefined) return site
    throw new Refusal('forbidden', 'The pages are not asked for under this name: a web site could have it led here. ' +
      'Use the address of the machine, or add the name to server.admin.hosts in gateway.yaml.')
  }

  async #session (req: IncomingMessage, site: Site): Promise<Answer> {
    switch (req.method) {
      case 'GET': {
        const found = this.#find(req, site)
        return asJson(found === undefined ? { signed_in: false } : view(found.session, found.person))
      }
      case 'POST': {
        checkOrigin(req)
        return await this.#signIn(req, site)
      }
      case 'DELETE': {
        checkOrigin(req)
        const secret = sessionIn(req.headers.cookie, site)
        if (secret !== undefined) this.#parts.sessions.end(secret)
        return { ...asJson({ signed_in: false }), headers: { 'set-cookie': cookieOf(site, ''),
          'clear-site-data': '"cache"' } }
      }
      default: throw wrongMethod('GET, POST, DELETE')
    }
  }

  /** By a token or the code of a link. Who is signed in, and gives the same person's again, proves that it is him. */
  async #signIn (req: IncomingMessage, site: Site): Promise<Answer> {
    const { sessions, person } = this.#parts
    const token = await this.#given(req)
    const who = token === undefined ? undefined : person(token)
    if (token === undefined || who === undefined) {
      throw new Refusal('forbidden', 'This token is wrong, expired or revoked; or the link was used before, or is ' +
        'older than 10 minutes. "gateway admin link" makes a new one.')
    }
    const found = this.#find(req, site)
    if (found !== undefined && found.session.token === token) {
      sessions.prove(found.secret)
      return asJson(view(this.#find(req, site)!.session, who))
    }
    // Another person's session is not gone on with.
    if (found !== undefined) sessions.end(found.secret)
    const secret = sessions.open(token)
    return { ...asJson(view(sessions.find(secret, true)!, who)), headers: { 'set-cookie': cookieOf(site, secret) } }
  }

  /** @throws {Refusal} the body is neither of both */
  async #given (req: IncomingMessage): Promise<TokenId | undefined> {
    this.#parts.checkGuesses(req, SESSION)
    const body = await readJson(req, BODY_LIMIT) as Partial<Record<'token' | 'code', unknown>> | undefined
    if (typeof body?.token === 'string') return await this.#parts.check(body.token, req, SESSION)
    if (typeof body?.code !== 'string') {
      throw new Refusal('invalid_request', 'Send {"token": "…"}, or {"code": "…"} of a link.')
    }
    this.#parts.checkGuesses(req, SESSION, body.code)
    const link = this.#parts.sessions.take(body.code)
    if (link === undefined) await this.#parts.noteWrong(req, SESSION)
    return link?.token
  }

  async #file (req: IncomingMessage, path: string): Promise<Answer> {
    if (req.method !== 'GET' && req.method !== 'HEAD') throw wrongMethod('GET, HEAD')
    // Not "/ui/": what answers may lie behind another path.
    if (path === '/ui') return { status: 308, type: 'text/plain', text: '', headers: { location: 'ui/' } }
    const pages = await this.#prepared()
    if (path === ROOT) return given(pages.index, req)
    const [, version, name] = /^\/ui\/a\/(\w+)\/([\w.-]+)$/.exec(path) ?? []
    const file = version === pages.version ? pages.byName.get(name!) : undefined
    if (file === undefined) throw new Refusal('not_found', 'There is no such page here. The first one is at /ui/.')
    return given(file, req, { 'cache-control': FOR_EVER })
  }

  async #prepared (): Promise<PageFiles> {
    this.#pages ??= preparePages().catch((err: unknown) => {
      this.#pages = undefined
      throw err
    })
    return await this.#pages
  }
}

function view ({ provedUntil, idleUntil, endsAt }: Session, { who, role, token }: Omit<Person, 'address'>): object {
  return { signed_in: true, name: who, role, token: token ?? null, proved_until: time(provedUntil),
    idle_until: time(idleUntil), ends_at: time(endsAt) }
}

function time (at: number): string {
  return new Date(at).toISOString()
}

/** Whether a person has asked for it, and not a page by itself. */
function isUsed ({ headers }: IncomingMessage): boolean {
  return headers[OWN_HEADER] !== 'background'
}

/** false: the request may come from a page of somebody else's (CSRF) */
function isOurs ({ headers }: IncomingMessage): boolean {
  return headers['sec-fetch-site'] === 'same-origin' && headers[OWN_HEADER] !== undefined
}

/** @throws {Refusal} it may not */
function checkOrigin (req: IncomingMessage): void {
  const { headers } = req
  if (isOurs(req)) return
  throw new Refusal('forbidden', headers['sec-fetch-site'] === undefined
    ? 'The browser does not say where this comes from: open the pages over https, or at a loopback address such as ' +
      'http://127.0.0.1:9090/ui/ (through "ssh -L", from another machine).'
    : 'This does not come from the pages at /ui/ of this address, so it is not done with their cookie.')
}

function wrongMethod (allow: string): Refusal {
  return new Refusal('method_not_allowed', `This address takes ${allow} only.`, { headers: { allow } })
}

function given (file: PageFile, { headers }: IncomingMessage, more: Readonly<Record<string, string>> = {}): Answer {
  const accepted = String(headers['accept-encoding'] ?? '')
  const coding = (['br', 'gzip'] as const).find((name) => new RegExp(`(?:^|,)\\s*${name}\\s*(?:,|$)`).test(accepted))
  return { status: 200, type: file.type, text: coding === undefined ? file.plain : file[coding],
    headers: { ...more, vary: 'accept-encoding', ...(coding !== undefined && { 'content-encoding': coding }) } }
}
