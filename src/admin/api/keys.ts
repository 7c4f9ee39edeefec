// Keys in the admin API: created, shown once, changed, rotated, deleted. Those of gateway.yaml are listed, and
// read-only.
import type { AccountConfig, Config, KeyConfig } from '../../config/config.ts'
import { isMap } from '../../config/yaml/position.ts'
import { PartError } from '../../config/problem.ts'
import { checkKeys } from '../../config/sections/keys.ts'
import { randomSecret } from '../../base/secrets.ts'
import type { Decision, Directory, Kept, KeyRecord } from '../../accounts/directory.ts'
import { digestOf } from '../../accounts/digests.ts'
import { newKeySecret } from '../../accounts/key-secret.ts'
import { viewUsage } from '../../accounts/key-limits.ts'
import type { Store } from '../../store/store.ts'
import {
  type ApiAnswer, type ApiParts, type Call, checkVersion, isTagged, type Operation, pageOf, readQuery
} from './operation.ts'
import { changedKey, declaredAt, deletedKey, keyAnswer, keyWithSecret, page } from './answers.ts'
import { closed, type Mistake, Refusal, refuseMistakes } from './refusal.ts'
import { isTime, judge, keyPatch, merge, newKey, nowhere, rotation } from './schemas.ts'

type Body = Record<string, unknown>
type Settings = Omit<KeyConfig, 'secret'>
/** A new key, typed by its schema. */
type Wanted = Settings & { readonly expires_at?: string }

const LIST = ['account', 'tag', 'after', 'limit']

/** Most old secrets of a key in their grace period: more is a script that runs wild. */
const OLD_SECRETS = 10

export function keyOperations (parts: ApiParts): readonly Operation[] {
  const keys = new KeyApi(parts)
  return [
    {
      method: 'GET',
      path: '/keys',
      name: 'listKeys',
      isCostly: true,
      summary: 'All keys, those of gateway.yaml too, by id.',
      query: LIST,
      gives: page(keyAnswer),
      answer: (call) => keys.list(call)
    },
    {
      method: 'POST',
      path: '/keys',
      name: 'createKey',
      summary: 'Makes a key. The answer is the only one that has its secret.',
      takes: newKey,
      gives: keyWithSecret,
      statuses: [201],
      refuses: ['already_exists', 'account_closed'],
      isVersioned: true,
      answer: (call) => keys.create(call)
    },
    {
      method: 'GET',
      path: '/keys/{id}',
      name: 'getKey',
      summary: 'One key, what it has spent, and what it may still spend.',
      gives: keyAnswer,
      isVersioned: true,
      answer: (call) => keys.get(call)
    },
    {
      method: 'PATCH',
      path: '/keys/{id}',
      name: 'changeKey',
      summary:
        'Changes some settings, such as frozen; null sets one back to the standard. Holds from the next request on.',
      takes: keyPatch,
      gives: changedKey,
      refuses: ['read_only'],
      isVersioned: true,
      takesVersion: true,
      answer: (call) => keys.change(call)
    },
    {
      method: 'DELETE',
      path: '/keys/{id}',
      name: 'deleteKey',
      isGrave: true,
      summary: 'Ends a key for ever. Its entries stay in the ledger, and its id is never used again.',
      gives: deletedKey,
      refuses: ['read_only'],
      takesVersion: true,
      answer: (call) => keys.delete(call)
    },
    {
      method: 'POST',
      path: '/keys/{id}/rotate',
      name: 'rotateKey',
      summary: 'Gives a key a new secret; the old one works on for the time of grace.',
      takes: rotation,
      isBodyOptional: true,
      gives: keyWithSecret,
      refuses: ['read_only'],
      isVersioned: true,
      takesVersion: true,
      answer: (call) => keys.rotate(call)
    }
  ]
}

/** A method for each operation. */
class KeyApi {
  readonly #store: Store
  readonly #directory: Directory
  readonly #now: () => number
  readonly #config: ApiParts['config']
  readonly #plugins: ApiParts['plugins']
  readonly #tryKey: ApiParts['tryKey']
  readonly #placeOf: ApiParts['placeOf']
  readonly #judgeKey = judge(newKey)
  readonly #judgeRotation = judge(rotation)

  constructor ({ services: { store, directory, now }, config, plugins, tryKey, placeOf }: ApiParts) {
    this.#store = store
    this.#directory = directory
    this.#now = now
    this.#config = config
    this.#plugins = plugins
    this.#tryKey = tryKey
    this.#placeOf = placeOf
  }

  async list ({ query: sent }: Call): Promise<ApiAnswer> {
    const query = readQuery(sent, LIST)
    const [account, tag] = [query.get('account'), query.get('tag')]
    const all = [...this.#config().keys, ...this.#directory.keptKeys().map(({ record }) => record.settings)]
    const { rows, next } = pageOf(all.filter((key) =>
      (account === undefined || key.account === account) && isTagged(key, tag)
    ), query)
    return { status: 200, body: { data: await Promise.all(rows.map(async ({ id }) => await this.#view(id))), next } }
  }

  async get ({ id }: Call): Promise<ApiAnswer> {
    return await this.#answer(id)
  }

  async create ({ body, by }: Call): Promise<ApiAnswer> {
    const wanted = { id: `key_${randomSecret().slice(0, 16)}`, ...body as Body }
    const { settings, expires_at, warnings } = this.#read(wanted)
    const secret = newKeySecret(this.#config())
    await this.#directory.change(() => {
      const { id } = settings
      this.#checkUnused(id)
      const { account } = settings
      if (this.#accountOf(this.#config(), account)?.closed === true) throw closed(account, 'has no new keys')
      const key: KeyRecord = {
        settings,
        secrets: [{ sha256: hashOf(secret) }],
        shown: shown(secret),
        created_at: this.#time(),
        ...(expires_at !== undefined && { expires_at })
      }
      return { key, audit: { ...by, what: 'key.create', id, before: null, after: audited(key) } }
    })
    const answer = await this.#answer(settings.id, { secret, ...(warnings.length > 0 && { warnings }) })
    return { ...answer, status: 201 }
  }

  async change ({ id, body, ifMatch, by }: Call): Promise<ApiAnswer> {
    let warnings: readonly Mistake[] = []
    await this.#update(id, ifMatch, (record) => {
      checkFixed(body as Body, record)
      const changed = this.#read(merge(audited(record), body as Body, newKey))
      warnings = changed.warnings
      const { expires_at: _expires, ...kept } = record
      const key: KeyRecord = { ...kept, settings: changed.settings,
        ...(changed.expires_at !== undefined && { expires_at: changed.expires_at }) }
      return { key, audit: { ...by, what: 'key.change', id, before: audited(record), after: audited(key) } }
    })
    return await this.#answer(id, warnings.length > 0 ? { warnings } : {})
  }

  async delete ({ id, ifMatch, by }: Call): Promise<ApiAnswer> {
    await this.#update(id, ifMatch, (record) => {
      const key: KeyRecord = { ...record, secrets: [], deleted_at: this.#time() }
      return { key, audit: { ...by, what: 'key.delete', id, before: audited(record), after: null } }
    })
    return { status: 200, body: { id, deleted: true } }
  }

  async rotate ({ id, body, ifMatch, by }: Call): Promise<ApiAnswer> {
    const wanted = { ...body as Body }
    this.#judgeRotation(wanted)
    const grace = wanted['grace'] as number
    const secret = newKeySecret(this.#config())
    await this.#update(id, ifMatch, (record) => {
      const end = new Date(this.#now() + grace).toISOString()
      const old = this.#oldSecrets(record, end)
      if (old.length > OLD_SECRETS) {
        throw new Refusal('invalid_request',
          `${OLD_SECRETS} old secrets of the key ${id} work on already. Rotate it without grace, ` +
          'or wait until one ends.')
      }
      const key: KeyRecord = { ...record, secrets: [{ sha256: hashOf(secret) }, ...old], shown: shown(secret) }
      return { key,
        audit: { ...by, what: 'key.rotate', id, before: { shown: record.shown },
          after: { shown: key.shown, old_secret_until: end } } }
    })
    return await this.#answer(id, { secret })
  }

  /** Secrets that stay valid after a rotation: none beyond its end. */
  #oldSecrets ({ secrets }: KeyRecord, end: string): KeyRecord['secrets'] {
    return secrets.map(({ sha256, until }) => ({
      sha256,
      until: until === undefined || until > end ? end : until
    })).filter(({ until }) => Date.parse(until) > this.#now())
  }

  async #update (id: string, ifMatch: string | undefined, decide: (record: KeyRecord) => Decision): Promise<void> {
    await this.#directory.change(() => {
      const { record, version } = this.#find(id)
      checkVersion(ifMatch, version, `The key ${id}`)
      return decide(record)
    })
  }

  /** @throws {Refusal} the key can't be changed */
  #find (id: string): Kept<KeyRecord> {
    if (this.#isDeclared(id)) throw readOnly(id)
    const kept = this.#directory.keptKey(id)
    if (kept === undefined || kept.record.deleted_at !== undefined) throw unknown(id)
    return kept
  }

  /** @throws {Refusal} the id belongs to a key, or did */
  #checkUnused (id: string): void {
    if (this.#isDeclared(id)) throw readOnly(id)
    const before = this.#directory.keptKey(id)
    if (before === undefined) return
    throw new Refusal(
      'already_exists',
      `There ${before.record.deleted_at === undefined ? 'is' : 'was'} a key ${id}, and its entries are in ` +
      'the ledger. Choose another id.'
    )
  }

  #isDeclared (id: string): boolean {
    return this.#config().keys.some((key) => key.id === id)
  }

  /** @throws {Refusal} with all mistakes */
  #read (
    wanted: Body
  ): { readonly settings: Settings, readonly expires_at: string | undefined, readonly warnings: readonly Mistake[] } {
    this.#judgeKey(wanted)
    const { expires_at, ...settings } = wanted as unknown as Wanted
    if (expires_at !== undefined && !isTime(expires_at)) {
      refuseMistakes([{ path: '/expires_at', message: 'is no time that there is' }])
    }
    return { settings, expires_at, warnings: this.#check(settings) }
  }

  /** Checks a key as gateway.yaml's are checked. @returns warnings @throws {Refusal} with all mistakes */
  #check (settings: Settings): readonly Mistake[] {
    const live = this.#config()
    const account = this.#accountOf(live, settings.account)
    const accounts = account === undefined ? [...live.accounts, ...this.#directory.keptAccounts()] : [account]
    const key: KeyConfig = { ...settings, secret: newKeySecret(live) }
    const wrong: Mistake[] = []
    const warnings: Mistake[] = []
    checkKeys({ value: { ...live, accounts, keys: [key] }, tree: nowhere, plugins: this.#plugins }, reportTo(wrong),
      reportTo(warnings))
    refuseMistakes(wrong)
    try {
      this.#tryKey({ ...live, accounts: [account!], keys: [key] }, key)
    } catch (thrown) {
      if (!(thrown instanceof PartError)) throw thrown
      refuseMistakes([{ path: thrown.path.replace(/^\/keys\/0/, ''), message: thrown.message,
        ...(thrown.hint !== undefined && { hint: thrown.hint }) }])
    }
    return warnings
  }

  #accountOf (live: Config, id: string): AccountConfig | undefined {
    return live.accounts.find((account) => account.id === id) ?? this.#directory.account(id)
  }

  /** @param more such as a secret: it is shown only now, so also when the store can't tell what was spent */
  async #answer (id: string, more: Readonly<Record<string, unknown>> = {}): Promise<ApiAnswer> {
    const seen = await this.#view(id, 'secret' in more)
    const version = this.#directory.keptKey(id)?.version
    return { status: 200, body: { ...seen, ...more }, ...(version !== undefined && { version }) }
  }

  async #view (id: string, mayLackUsage = false): Promise<Readonly<Record<string, unknown>>> {
    const declared = this.#config().keys.find((key) => key.id === id)
    const kept = this.#directory.keptKey(id)
    if (declared === undefined && (kept === undefined || kept.record.deleted_at !== undefined)) throw unknown(id)
    const settings = declared ?? kept!.record.settings
    const usage = await viewUsage(this.#store, settings, this.#now()).catch((err: unknown) => {
      if (!mayLackUsage) throw err
    })
    const seen = declared === undefined ? keptView(kept!, this.#now()) : declaredView(declared, this.#placeOf)
    return { ...seen, ...usage }
  }

  #time (): string {
    return new Date(this.#now()).toISOString()
  }
}

function declaredView (
  { secret: _secret, ...settings }: KeyConfig,
  placeOf: ApiParts['placeOf']
): Readonly<Record<string, unknown>> {
  return { ...settings, tags: settings.tags ?? [], declared: true, ...declaredAt(placeOf?.('keys', settings.id)),
    state: settings.frozen ? 'frozen' : 'active' }
}

function keptView ({ record, version }: Kept<KeyRecord>, now: number): Readonly<Record<string, unknown>> {
  const { settings, expires_at, secrets, shown, created_at } = record
  const isExpired = expires_at !== undefined && Date.parse(expires_at) <= now
  const old = secrets.slice(1).map(({ until }) => until!).filter((until) => Date.parse(until) > now).sort().at(-1)
  return {
    ...settings,
    tags: settings.tags ?? [],
    declared: false,
    state: settings.frozen ? 'frozen' : isExpired ? 'expired' : 'active',
    shown,
    version,
    created_at,
    ...(expires_at !== undefined && { expires_at }),
    ...(old !== undefined && { old_secret_until: old })
  }
}

/** @throws {Refusal} the body changes a field by which the ledger knows the key */
function checkFixed (body: Body, { settings }: KeyRecord): void {
  for (const fixed of ['id', 'account'] as const) {
    if (Object.hasOwn(body, fixed) && body[fixed] !== settings[fixed]) {
      throw new Refusal('invalid_request',
        `The ${fixed} of a key can't be changed: the ledger knows it. Make another key.`)
    }
  }
}

/** Adapts the checks of gateway.yaml: paths begin at the key, and hints fit this API. */
function reportTo (list: Mistake[]): (path: readonly (string | number)[], message: string, hint?: string) => void {
  return (path, message, hint) => {
    list.push({ path: '/' + path.slice(2).join('/'), message, ...(hint !== undefined &&
      { hint: hint.replace('add it to accounts:', 'make the account first: POST /admin/v1/accounts') }) })
  }
}

export function isBody (body: unknown): body is Body {
  return isMap(body)
}

function unknown (id: string): Refusal {
  return new Refusal('not_found', `There is no key ${id}. GET /admin/v1/keys lists all.`)
}

function readOnly (id: string): Refusal {
  return new Refusal('read_only',
    `The key ${id} is declared in gateway.yaml, and is read-only here. Change it there, under keys:; ` +
    'it is live a second later.')
}

function hashOf (secret: string): string {
  return digestOf(secret).toString('hex')
}

/** The last four of 32 characters: enough for its owner to recognize it, and useless for guessing. */
function shown (secret: string): string {
  return `${secret.slice(0, -32)}…${secret.slice(-4)}`
}

function audited ({ settings, expires_at }: KeyRecord): Readonly<Record<string, unknown>> {
  return { ...settings, ...(expires_at !== undefined && { expires_at }) }
}
