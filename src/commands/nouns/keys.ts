// `gateway keys …`
import { newKey } from '../../admin/api/schemas.ts'
import { done } from '../answer.ts'
import { type Noun, settings } from '../verb.ts'
import { list, one, showSecret, update } from '../verbs.ts'
import { complain } from '../stdout.ts'

const KEY_COLUMNS = ['id', 'account', 'state', 'declared', 'spent_usd', 'usage_limit_usd', 'shown']

export const keys: Noun = {
  create: {
    takes: ['ID'], optional: 1, settings: newKey,
    async run (client, { positionals: [id], values, json }) {
      const { warnings, secret, ...key } = await done(client, 'POST', '/keys', { ...(id !== undefined && { id }),
        ...settings(values, newKey) })
      for (const warning of Array.isArray(warnings)
        ? warnings as readonly { readonly path: string, readonly message: string }[]
        : []) { complain(`warning: ${warning.path} ${warning.message}`) }
      return await showSecret({ ...key, secret }, json)
    }
  },
  list: { takes: [], options: ['account', 'tag'],
    run: async (client, said) => await list(client, '/keys', KEY_COLUMNS, said) },
  show: { takes: ['ID'], run: async (client, said) => await one(client, 'GET', 'keys', said) },
  update: update('keys', newKey, ['account']),
  freeze: { takes: ['ID'], run: async (client, said) => await one(client, 'PATCH', 'keys', said, '', { frozen: true }) },
  unfreeze: { takes: ['ID'],
    run: async (client, said) => await one(client, 'PATCH', 'keys', said, '', { frozen: false }) },
  delete: { takes: ['ID'], run: async (client, said) => await one(client, 'DELETE', 'keys', said) },
  rotate: {
    takes: ['ID'], options: ['grace'],
    async run (client, { positionals: [id], values, json }) {
      const rotated = await done(client, 'POST', `/keys/${encodeURIComponent(id!)}/rotate`, {
        ...(values['grace'] !== undefined && { grace: values['grace'] })
      })
      return await showSecret(rotated, json, 'new secret')
    }
  }
}
