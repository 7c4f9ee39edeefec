// The admin API for the pages: requests with the session's cookie, errors in the API's own words, and the way to the
// dialog that asks for the token again.
import { signal } from '@preact/signals'
import { eventsOf } from './sse.ts'

export interface SignedIn {
  readonly name: string
  readonly role: 'viewer' | 'operator' | 'owner'
  readonly token: string | null
  readonly ends_at: string
}

export interface Mistake { readonly path: string, readonly message: string, readonly hint?: string }

/** A list, page by page. */
export interface Rows<T> { readonly data: readonly T[], readonly next: string | null }

/** undefined: not known yet; null: nobody is signed in */
export const me = signal<SignedIn | null | undefined>(undefined)

/** Whoever waits for a proof; the dialog that asks for it answers. */
export const proof = signal<{ readonly answer: (isGiven: boolean) => void } | null>(null)

/** An error in the words of the API. */
export class ApiError extends Error {
  readonly status: number
  readonly code: string
  readonly mistakes: readonly Mistake[]
  readonly requestId: string | null

  constructor (
    status: number,
    code: string,
    message: string,
    mistakes: readonly Mistake[] = [],
    requestId: string | null = null
  ) {
    super(message)
    this.status = status
    this.code = code
    this.mistakes = mistakes
    this.requestId = requestId
  }
}

export interface Options {
  readonly body?: unknown
  /** the version that was read */
  readonly version?: number | undefined
  /** nobody has asked for it: it does not prolong the session */
  readonly isBackground?: boolean
  /** true: the answer is a text */
  readonly isText?: boolean
  readonly signal?: AbortSignal
}

/** @param path below /admin/v1 @throws {ApiError} */
export async function ask<T> (method: string, path: string, options: Options = {}): Promise<T> {
  return await known(async () => await send<T>(method, `../admin/v1${path}`, options))
}

/** A stream of events, as it comes. @param path below /admin/v1 @throws {ApiError} */
export async function * follow<T> (method: string, path: string, options: Options = {}): AsyncGenerator<T> {
  const response = await known(async () => await open(method, `../admin/v1${path}`, options))
  for await (const data of eventsOf(response)) yield JSON.parse(data) as T
}

/** Asks for a proof where one is needed, and to sign in again where the session is over. */
async function known<T> (run: () => Promise<T>): Promise<T> {
  try {
    return await run()
  } catch (thrown) {
    if (!(thrown instanceof ApiError)) throw thrown
    if (thrown.status === 401) me.value = null
    if (thrown.code !== 'proof_needed' || !await proved()) throw thrown
    return await run()
  }
}

export async function read<T> (path: string, options: Options = {}): Promise<T> {
  return await ask<T>('GET', path, options)
}

async function proved (): Promise<boolean> {
  const isGiven = await new Promise<boolean>((answer) => { proof.value = { answer } })
  proof.value = null
  return isGiven
}

/** @param given a token, or the code of a link @throws {ApiError} */
export async function signIn (given: { readonly token: string } | { readonly code: string }): Promise<void> {
  me.value = await send<SignedIn>('POST', 'session', { body: given })
}

export async function signOut (): Promise<void> {
  await send('DELETE', 'session', {})
  me.value = null
}

export async function whoIsThere (): Promise<void> {
  const found = await send<SignedIn & { readonly signed_in: boolean }>('GET', 'session', {})
  me.value = found.signed_in ? found : null
}

async function send<T> (method: string, address: string, options: Options): Promise<T> {
  const text = await (await open(method, address, options)).text()
  return options.isText === true ? text as T : parsed(text) as T
}

/** A good answer, whose body is still to be read. @throws {ApiError} */
async function open (
  method: string,
  address: string,
  { body, version, isBackground = false, signal: abort }: Options
): Promise<Response> {
  const response = await reach(address, {
    method,
    headers: {
      'x-gateway-ui': isBackground ? 'background' : 'page',
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...(version !== undefined && { 'if-match': `"${version}"` })
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
    ...(abort !== undefined && { signal: abort })
  })
  if (response.ok) return response
  const { error } = (parsed(await response.text()) ?? {}) as { readonly error?: { readonly message: string,
    readonly code: string, readonly mistakes?: readonly Mistake[], readonly request_id: string } }
  throw new ApiError(response.status, error?.code ?? '', error?.message ?? `The gateway answered ${response.status}.`,
    error?.mistakes, error?.request_id ?? null)
}

/** Undefined: it is no JSON. */
function parsed (text: string): unknown {
  try { return JSON.parse(text) } catch { return undefined }
}

async function reach (address: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(address, init)
  } catch (thrown) {
    if ((thrown as Error).name === 'AbortError') throw thrown
    throw new ApiError(0, 'away', 'The gateway does not answer. It may be restarting, or the way to it is cut; ' +
      'what was sent may or may not have been done.')
  }
}

/** Whether who is signed in may do what needs this role. */
export function may (role: SignedIn['role']): boolean {
  const order = ['viewer', 'operator', 'owner']
  return order.indexOf(me.value?.role ?? 'viewer') >= order.indexOf(role)
}
