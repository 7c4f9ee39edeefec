// Errors of the admin API, in one shape. Its codes are its own: API clients never get them.

export const STATUS = {
  invalid_request: 400,
  forbidden: 403,
  proof_needed: 403,
  not_found: 404,
  method_not_allowed: 405,
  already_exists: 409,
  already_running: 409,
  above_charge: 409,
  account_closed: 409,
  insufficient_balance: 409,
  no_backup: 409,
  read_only: 409,
  changed_meanwhile: 412,
  request_too_large: 413,
  misdirected: 421,
  busy: 429,
  backup_failed: 503,
  outcome_unknown: 503
} as const

/** The types of errors that are not the client's. */
const TYPES: Readonly<Partial<Record<RefusalCode, string>>> = { outcome_unknown: 'api_error',
  backup_failed: 'api_error', busy: 'rate_limit_error', forbidden: 'permission_error',
  proof_needed: 'permission_error' }

export type RefusalCode = keyof typeof STATUS

export interface Mistake {
  /** JSON pointer into the body, or the name of a query parameter */
  readonly path: string
  readonly message: string
  readonly hint?: string
}

/** An error of the admin API; the message says what is wrong and what to do. */
export class Refusal extends Error {
  readonly code: RefusalCode
  readonly status: number
  readonly mistakes: readonly Mistake[]
  readonly headers: Readonly<Record<string, string>>

  constructor (
    code: RefusalCode,
    message: string,
    more: { readonly mistakes?: readonly Mistake[], readonly headers?: Readonly<Record<string, string>>,
      readonly cause?: unknown } = {}
  ) {
    super(message, { cause: more.cause })
    this.code = code
    this.status = STATUS[code]
    this.mistakes = more.mistakes ?? []
    this.headers = more.headers ?? {}
  }
}

export function refuseMistakes (mistakes: readonly Mistake[]): void {
  if (mistakes.length === 0) return
  const sentences = mistakes.map(({ path, message, hint }) =>
    `${path === '' ? '' : path + ' '}${message}${hint === undefined ? '' : ` (${hint})`}`
  )
  throw new Refusal('invalid_request', `${sentences.join('; ')}. Nothing was changed.`, { mistakes })
}

/** @param what it does not take, behind "it" */
export function closed (account: string, what: string): Refusal {
  return new Refusal('account_closed', `The account ${account} is closed: it ${what}. An owner can open it again: ` +
    `POST /admin/v1/accounts/${account}/reopen. Nothing was changed.`)
}

/** The body of an error. */
export function refusalBody ({ code, message, mistakes }: Refusal, requestId: string): unknown {
  return {
    error: { message, type: TYPES[code] ?? 'invalid_request_error', code,
      param: mistakes[0]?.path ?? null, mistakes, request_id: requestId }
  }
}
