// `gateway tokens …`: who may use the admin API.
import { newToken } from '../../admin/api/schemas.ts'
import { done } from '../answer.ts'
import { type Noun, settings } from '../verb.ts'
import { list, one, showSecret } from '../verbs.ts'

const TOKEN_COLUMNS = ['id', 'name', 'role', 'state', 'shown', 'created_at', 'expires_at', 'last_used_at']

export const tokens: Noun = {
  create: {
    takes: ['NAME'], settings: newToken,
    async run (client, { positionals: [name], values, json }) {
      return await showSecret(await done(client, 'POST', '/tokens', { name, ...settings(values, newToken) }), json)
    }
  },
  list: { takes: [], run: async (client, said) => await list(client, '/tokens', TOKEN_COLUMNS, said) },
  revoke: { takes: ['ID'], run: async (client, said) => await one(client, 'DELETE', 'tokens', said) }
}
