// Links that sign a browser in to the pages, once.
import { instant, object, text } from './answers.ts'
import type { ApiParts, Operation } from './operation.ts'

const link = object('Link', 'A link that signs in once.', {
  path: text('Of the link, below the address of the admin listener; its code is in the fragment, which no log sees.'),
  expires_at: instant('Until when.')
})

export function linkOperations (sessions: NonNullable<ApiParts['links']>): readonly Operation[] {
  return [{
    method: 'POST',
    path: '/links',
    name: 'createLink',
    summary: 'Makes a link that signs a browser in to the pages, once, as the one whose token this is.',
    needs: 'viewer',
    isGrave: true,
    refuses: ['proof_needed'],
    gives: link,
    statuses: [201],
    answer ({ by: { token = null } }) {
      const { code, until } = sessions.link(token)
      return { status: 201, body: { path: `/ui/#code=${code}`, expires_at: new Date(until).toISOString() } }
    }
  }]
}
