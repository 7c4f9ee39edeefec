// Keys in the admin API: made, shown once, changed, rotated, deleted. Those of gateway.yaml are shown, and read-only.
import type { AccountConfig, Config, KeyConfig } from '../../config/config.ts'
import { isMap } from '../../config/yaml/position.ts'
import { PartError } from '../../config/problem.ts'
import { checkKeys } from '../../config/sections/keys.ts'
import { randomSecret } from '../../base/secrets.ts'
import type { Decision, Kept, KeyRecord } from '../../accounts/directory.ts'
import { digestOf } from '../../accounts/digests.ts'
import { newKeySecret } from '../../accounts/key-secret.ts'
import { viewUsage } from '../../accounts/key-limits.ts'
import { type ApiAnswer, type ApiParts, checkVersion, type Operation, pageOf, readQuery } from './operation.ts'
import { type Mistake, Refusal, refuseMistakes } from './refusal.ts'
import { judge, keyPatch, merge, newKey, nowhere, rotation } from './schemas.ts'

type Body = Record<string, unknown>
/** As it came from the schema of a new key. */
type Wanted = Omit<KeyConfig, 'secret'> & { readonly expires_at?: string }

/** Of one key, in their grace: more is a script that runs wild. */
const OLD_SECRETS = 10

export function keyOperations (
  { services: { store, directory, now }, config, plugins, tryKey }: ApiParts
): readonly Operation[] {
  const judgeKey = judge(newKey)
  const judgeRotation = judge(rotation)

  return [
    {
      method: 'GET',
      path: '/keys',
      name: 'listKeys',
      summary: 'All keys, those of gateway.yaml too, by id.',
      query: ['account', 'after', 'limit'],
      async answer ({ query: sent }) {
        const query = readQuery(sent, ['account', 'after', 'limit'])
        const account = query.get('account')
        const all = [...config().keys.map((key) => ({ id: key.id, account: key.account })),
          ...directory.keptKeys().map(({ id, record }) => ({ id, account: record.settings.account }))]
        const { rows, next } = pageOf(account === undefined ? all : all.filter((key) => key.account === account), query)
        return { status: 200, body: { data: await Promise.all(rows.map(async ({ id }) => await view(id))), next } }
      }
    },
    {
      method: 'POST',
      path: '/keys',
      name: 'createKey',
      summary: 'Makes a key. The answer is the only one that has its secret.',
      takes: newKey,
      async answer ({ body, who }) {
        const wanted = { id: `key_${randomSecret().slice(0, 16)}`, ...body as Body }
        const { settings, expires_at, warnings } = read(wanted)
        const secret = newKeySecret(config())
        await directory.change(() => {
          const { id } = settings
          if (isDeclared(id)) throw readOnly(id)
          const before = directory.keptKey(id)
          if (before !== undefined) {
            throw new Refusal(
              'already_exists',
              `There ${before.record.deleted_at === undefined ? 'is' : 'was'} a key ${id}, and its entries are in ` +
              'the ledger. Choose another id.'
            )
          }
          const key: KeyRecord = {
            settings,
            secrets: [{ sha256: hashOf(secret) }],
            shown: shown(secret),
            created_at: time(),
            ...(expires_at !== undefined && { expires_at })
          }
          return { key, audit: { who, what: 'key.create', id, before: null, after: audited(key) } }
        })
        return { ...await answer(settings.id, { secret, ...(warnings.length > 0 && { warnings }) }), status: 201 }
      }
    },
    {
      method: 'GET',
      path: '/keys/{id}',
      name: 'getKey',
      summary: 'One key, what it has spent, and what it may still spend.',
      answer: async ({ id }) => await answer(id)
    },
    {
      method: 'PATCH',
      path: '/keys/{id}',
      name: 'changeKey',
      summary:
        'Changes some settings, such as frozen; null sets one back to the standard. Holds from the next request on.',
      takes: keyPatch,
      async answer ({ id, body, ifMatch, who }) {
        let warnings: readonly Mistake[] = []
        await change(id, ifMatch, (before) => {
          const { record } = before
          for (const fixed of ['id', 'account'] as const) {
            if (
              Object.hasOwn(body as Body, fixed) && (body as Body)[fixed] !== record.settings[fixed]
            ) {
              throw new Refusal('invalid_request',
                `The ${fixed} of a key can't be changed: the ledger knows it. Make another key.`)
            }
          }
          const changed = read(merge(audited(record), body as Body, newKey))
          warnings = changed.warnings
          const { expires_at: _expires, ...kept } = record
          const key: KeyRecord = { ...kept, settings: changed.settings,
            ...(changed.expires_at !== undefined && { expires_at: changed.expires_at }) }
          return { key, audit: { who, what: 'key.change', id, before: audited(record), after: audited(key) } }
        })
        return await answer(id, warnings.length > 0 ? { warnings } : {})
      }
    },
    {
      method: 'DELETE',
      path: '/keys/{id}',
      name: 'deleteKey',
      summary: 'Ends a key for ever. Its entries stay in the ledger, and its id is never used again.',
      async answer ({ id, ifMatch, who }) {
        await change(id, ifMatch, ({ record }) => {
          const key: KeyRecord = { ...record, secrets: [], deleted_at: time() }
          return { key, audit: { who, what: 'key.delete', id, before: audited(record), after: null } }
        })
        return { status: 200, body: { id, deleted: true } }
      }
    },
    {
      method: 'POST',
      path: '/keys/{id}/rotate',
      name: 'rotateKey',
      summary: 'Gives a key a new secret; the old one works on for the time of grace.',
      takes: rotation,
      async answer ({ id, body, ifMatch, who }) {
        const wanted = { ...body as Body }
        judgeRotation(wanted)
        const grace = wanted['grace'] as number
        const secret = newKeySecret(config())
        await change(id, ifMatch, ({ record }) => {
          const end = new Date(now() + grace).toISOString()
          const old = record.secrets.map(({ sha256, until }) => ({
            sha256,
            until: until === undefined || until > end ? end : until
          })).filter(({ until }) => Date.parse(until) > now())
          if (old.length > OLD_SECRETS) {
            throw new Refusal('invalid_request',
              `${OLD_SECRETS} old secrets of the key ${id} work on already. Rotate it without grace, ` +
              'or wait until one ends.')
          }
          const key: KeyRecord = { ...record, secrets: [{ sha256: hashOf(secret) }, ...old], shown: shown(secret) }
          return { key,
            audit: { who, what: 'key.rotate', id, before: { shown: record.shown },
              after: { shown: key.shown, old_secret_until: end } } }
        })
        return await answer(id, { secret })
      }
    }
  ]

  async function change (
    id: string,
    ifMatch: string | undefined,
    decide: (before: Kept<KeyRecord>) => Decision
  ): Promise<void> {
    await directory.change(() => {
      const before = find(id)
      checkVersion(ifMatch, before.version, `The key ${id}`)
      return decide(before)
    })
  }

  /** @throws {Refusal} it can't be changed */
  function find (id: string): Kept<KeyRecord> {
    if (isDeclared(id)) throw readOnly(id)
    const kept = directory.keptKey(id)
    if (kept === undefined || kept.record.deleted_at !== undefined) throw unknown(id)
    return kept
  }

  function isDeclared (id: string): boolean {
    return config().keys.some((key) => key.id === id)
  }

  /** @throws {Refusal} with everything that is wrong with it */
  function read (
    wanted: Body
  ): { readonly settings: Omit<KeyConfig, 'secret'>, readonly expires_at: string | undefined,
    readonly warnings: readonly Mistake[] } {
    judgeKey(wanted)
    const { expires_at, ...settings } = wanted as unknown as Wanted
    if (expires_at !== undefined && !isTime(expires_at)) {
      refuseMistakes([{ path: '/expires_at', message: 'is no time that there is' }])
    }
    const live = config()
    const account = accountOf(live, settings.account)
    const accounts = account === undefined ? [...live.accounts, ...directory.keptAccounts()] : [account]
    const key: KeyConfig = { ...settings, secret: newKeySecret(config()) }
    const wrong: Mistake[] = []
    const warnings: Mistake[] = []
    const into = (list: Mistake[]) => (path: readonly (string | number)[], message: string, hint?: string): void => {
      list.push({ path: '/' + path.slice(2).join('/'), message, ...(hint !== undefined &&
        { hint: hint.replace('add it to accounts:', 'make the account first: POST /admin/v1/accounts') }) })
    }
    checkKeys({ value: { ...live, accounts, keys: [key] }, tree: nowhere, plugins }, into(wrong), into(warnings))
    refuseMistakes(wrong)
    try {
      tryKey({ ...live, accounts: [account!], keys: [key] }, key)
    } catch (thrown) {
      if (!(thrown instanceof PartError)) throw thrown
      refuseMistakes([{ path: thrown.path.replace(/^\/keys\/0/, ''), message: thrown.message,
        ...(thrown.hint !== undefined && { hint: thrown.hint }) }])
    }
    return { settings, expires_at, warnings }
  }

  function accountOf (live: Config, id: string): AccountConfig | undefined {
    return live.accounts.find((account) => account.id === id) ?? directory.account(id)
  }

  /** @param more a secret, say: it is told this once, so it is told although the store can't tell what was spent */
  async function answer (id: string, more: Readonly<Record<string, unknown>> = {}): Promise<ApiAnswer> {
    const seen = await view(id, 'secret' in more)
    const version = directory.keptKey(id)?.version
    return { status: 200, body: { ...seen, ...more }, ...(version !== undefined && { version }) }
  }

  async function view (id: string, mayLackUsage = false): Promise<Readonly<Record<string, unknown>>> {
    const declared = config().keys.find((key) => key.id === id)
    const kept = directory.keptKey(id)
    if (declared === undefined && (kept === undefined || kept.record.deleted_at !== undefined)) throw unknown(id)
    const usage = await viewUsage(store, declared ?? kept!.record.settings, now()).catch((err: unknown) => {
      if (!mayLackUsage) throw err
    })
    if (declared !== undefined) {
      const { secret: _secret, ...settings } = declared
      return { ...settings, declared: true, state: declared.frozen ? 'frozen' : 'active', ...usage }
    }
    const { record, version } = kept!
    const { settings, expires_at, secrets, shown, created_at } = record
    const isExpired = expires_at !== undefined && Date.parse(expires_at) <= now()
    const old = secrets.slice(1).map(({ until }) => until!).filter((until) => Date.parse(until) > now()).sort().at(-1)
    return {
      ...settings,
      declared: false,
      state: settings.frozen ? 'frozen' : isExpired ? 'expired' : 'active',
      shown,
      version,
      created_at,
      ...(expires_at !== undefined && { expires_at }),
      ...(old !== undefined && { old_secret_until: old }),
      ...usage
    }
  }

  function time (): string {
    return new Date(now()).toISOString()
  }
}

/** `Date.parse` takes the 31st of February for the 3rd of March. */
function isTime (text: string): boolean {
  const day = text.slice(0, 10)
  return !Number.isNaN(Date.parse(text)) && new Date(day).toISOString().startsWith(day)
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

/** Four of 32 characters at the end: enough to know it again, and of no use to who guesses. */
function shown (secret: string): string {
  return `${secret.slice(0, -32)}…${secret.slice(-4)}`
}

function audited ({ settings, expires_at }: KeyRecord): Readonly<Record<string, unknown>> {
  return { ...settings, ...(expires_at !== undefined && { expires_at }) }
}
