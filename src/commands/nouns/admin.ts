// `gateway admin link`: signs a browser in.
import { CommandError } from '../admin-client.ts'
import { done } from '../answer.ts'
import { print } from '../stdout.ts'
import type { Noun } from '../verb.ts'

const LINK_NOTE =
  '  Prints a link that signs a browser in to the pages of the gateway, as the one whose token this command uses: ' +
    'once, within\n  10 minutes. Whoever has it is signed in, so give it to nobody.\n'

export const admin: Noun = {
  link: {
    takes: [], note: LINK_NOTE,
    async run (client, { json }) {
      if (client.url === undefined) {
        throw new CommandError('No gateway runs here, and a link signs in to one that does. Start it first.')
      }
      const { path, expires_at: end } = await done(client, 'POST', '/links')
      const url = `${client.url}${String(path)}`
      await print(json ? JSON.stringify({ url, expires_at: end }) + '\n' : `${url}\n`)
      return 0
    }
  }
}
