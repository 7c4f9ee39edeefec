// `gateway videos`: the video tasks of all accounts.
import type { Noun } from '../verb.ts'
import { list } from '../verbs.ts'

const VIDEO_COLUMNS = ['id', 'account', 'model', 'upstream', 'status', 'progress', 'age_s', 'held_usd', 'charged_usd']

export const videos: Noun = {
  '': { takes: [], options: ['account', 'state'],
    run: async (client, said) => await list(client, '/videos', VIDEO_COLUMNS, said) }
}
