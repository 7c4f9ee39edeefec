// Tokens of this API, each for one person or program and with a role: made, shown once, listed, revoked. That of
// gateway.yaml is beside them, and an owner's.
import { digestOf } from '../../accounts/digests.ts'
import { type Directory, type Role, roles, type TokenRecord } from '../../accounts/directory.ts'
import { randomSecret } from '../../base/secrets.ts'
import { choice, instant, object, orNull, page, text } from './answers.ts'
import {
  type ApiAnswer, type ApiParts, type Call, type Operation, pageOf, readQuery
} from './operation.ts'
import { Refusal, refuseMistakes } from './refusal.ts'
import { isTime, judge, newToken } from './schemas.ts'

const LIST = ['after', 'limit']

/** By which a token is told from the key of a client, by people and by scanners for secrets. */
const PREFIX = 'admin-gw-'

const fields = {
  id: text('Its name in the audit log, for ever.'),
  name: text('Of the person or program that has it.'),
  role: choice('What it may do.', roles),
  state: choice('An active one is taken, no other.', ['active', 'expired', 'revoked']),
  shown: text('Beginning and end of its secret.'),
  created_at: instant('When it was made.'),
  expires_at: instant('From then on it is refused; absent: never.'),
  last_used_at: instant('The hour of its last use; absent: none yet.'),
  revoked_at: instant('When it was revoked; absent: it is not.')
}
const SELDOM = ['expires_at', 'last_used_at', 'revoked_at']
const tokenAnswer = object('Token', 'A token, without its secret.', fields, SELDOM)
const tokenWithSecret = object('TokenWithSecret', 'A token with its secret, which is told only now.', {
  ...fields, secret: text('Send it as "Authorization: Bearer SECRET".')
}, SELDOM)
const me = object('Me', 'Whose token was sent.', {
  name: fields.name,
  role: fields.role,
  token: orNull(text('Its id; null: it is that of gateway.yaml.'))
})

interface Wanted {
  readonly name: string
  readonly role: Role
  readonly expires_at?: string
}

export function tokenOperations ({ services: { directory, now } }: ApiParts): readonly Operation[] {
  const tokens = new TokenApi(directory, now)
  return [
    {
      method: 'GET',
      path: '/me',
      name: 'getMe',
      summary: 'Whose token this is, and what it may do.',
      gives: me,
      answer: ({ by: { who, role, token = null } }) => ({ status: 200, body: { name: who, role, token } })
    },
    {
      method: 'GET',
      path: '/tokens',
      name: 'listTokens',
      isCostly: true,
      summary: 'All tokens of this API by id, revoked and expired ones too, but for that of gateway.yaml.',
      needs: 'owner',
      query: LIST,
      gives: page(tokenAnswer),
      answer: (call) => tokens.list(call)
    },
    {
      method: 'POST',
      path: '/tokens',
      name: 'createToken',
      summary: 'Makes a token. The answer is the only one that has its secret.',
      needs: 'owner',
      isGrave: true,
      takes: newToken,
      gives: tokenWithSecret,
      statuses: [201],
      refuses: ['already_exists'],
      answer: (call) => tokens.create(call)
    },
    {
      method: 'DELETE',
      path: '/tokens/{id}',
      name: 'revokeToken',
      summary: 'Ends a token for ever: it is refused at once here, and within a second by every other process.',
      needs: 'owner',
      isGrave: true,
      gives: tokenAnswer,
      answer: (call) => tokens.revoke(call)
    }
  ]
}

/** A method for each operation. */
class TokenApi {
  readonly #directory: Directory
  readonly #now: () => number
  readonly #judge = judge(newToken)

  constructor (directory: Directory, now: () => number) {
    this.#directory = directory
    this.#now = now
  }

  list ({ query: sent }: Call): ApiAnswer {
    const { rows, next } = pageOf(this.#directory.keptTokens(), readQuery(sent, LIST))
    return { status: 200, body: { data: rows.map(({ record }) => this.#view(record)), next } }
  }

  async create ({ body, by }: Call): Promise<ApiAnswer> {
    const wanted: unknown = { ...body as object }
    this.#judge(wanted)
    const { name, role, expires_at } = wanted as Wanted
    const at = this.#now()
    if (expires_at !== undefined && !(isTime(expires_at) && Date.parse(expires_at) > at)) {
      refuseMistakes([{ path: '/expires_at', message: 'must be a time to come' }])
    }
    const secret = PREFIX + randomSecret()
    const token: TokenRecord = {
      id: `tok_${randomSecret().slice(0, 16)}`,
      name,
      role,
      sha256: digestOf(secret).toString('hex'),
      shown: `${PREFIX}…${secret.slice(-4)}`,
      created_at: new Date(at).toISOString(),
      ...(expires_at !== undefined && { expires_at })
    }
    await this.#directory.change(() => {
      const other = this.#directory.keptTokens().find(({ record }) =>
        record.name === name && this.#stateOf(record) === 'active'
      )
      if (other !== undefined) {
        throw new Refusal('already_exists', `The token ${other.id} has the name ${JSON.stringify(name)}, and the ` +
          'audit log tells people by their names. Choose another one, or revoke that token first.')
      }
      return { token, audit: { ...by, what: 'token.create', id: token.id, before: null, after: audited(token) } }
    })
    return { status: 201, body: { ...this.#view(token), secret } }
  }

  async revoke ({ id, by }: Call): Promise<ApiAnswer> {
    await this.#directory.change(() => {
      const before = this.#directory.keptToken(id)?.record
      if (before?.sha256 === undefined) {
        throw new Refusal('not_found', before === undefined
          ? `There is no token ${id}. GET /admin/v1/tokens lists all.`
          : `The token ${id} was revoked before, at ${before.revoked_at}.`)
      }
      const { sha256: _sha256, ...kept } = before
      return { token: { ...kept, revoked_at: new Date(this.#now()).toISOString() },
        audit: { ...by, what: 'token.revoke', id, before: audited(before), after: null } }
    })
    return { status: 200, body: this.#view(this.#directory.keptToken(id)!.record) }
  }

  #view (record: TokenRecord): Readonly<Record<string, unknown>> {
    const { sha256: _sha256, ...shown } = record
    return { ...shown, state: this.#stateOf(record) }
  }

  #stateOf ({ sha256, expires_at: end }: TokenRecord): 'active' | 'expired' | 'revoked' {
    return sha256 === undefined ? 'revoked' : end !== undefined && Date.parse(end) <= this.#now() ? 'expired' : 'active'
  }
}

function audited ({ name, role, expires_at }: TokenRecord): Readonly<Record<string, unknown>> {
  return { name, role, ...(expires_at !== undefined && { expires_at }) }
}
