// The store of a running gateway in the admin API: its backup.
import type { Backup } from '../../store/backup.ts'
import { isGatewayError } from '../../errors.ts'
import { text } from './answers.ts'
import type { Operation } from './operation.ts'
import { Refusal } from './refusal.ts'

/** @param backup undefined: nothing outlives the process */
export function storeOperations (backup: Backup | undefined): readonly Operation[] {
  let isRunning = false
  async function * one (made: Backup, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    if (isRunning) {
      throw new Refusal('already_running', 'Another backup of this gateway is being made: wait until it has ended.')
    }
    isRunning = true
    try {
      yield * made.read(signal)
    } catch (thrown) {
      if (isGatewayError(thrown)) throw thrown
      throw new Refusal('backup_failed', `No backup was made: ${(thrown as Error).message}.`)
    } finally {
      isRunning = false
    }
  }
  return [{
    method: 'GET',
    path: '/store/backup',
    name: 'getBackup',
    summary: 'A backup of the store, while it goes on; one at a time. It holds each charge that was answered before. ' +
      'The file tells by itself whether it is whole; `gateway store restore` reads it.',
    needs: 'owner',
    isGrave: true,
    gives: text('The bytes of the file.'),
    types: ['application/vnd.sqlite3', 'application/jsonl'],
    refuses: ['already_running', 'backup_failed', 'no_backup'],
    answer ({ signal }) {
      if (backup === undefined) {
        throw new Refusal('no_backup',
          'What this store keeps ends with its process (store.driver): there is nothing to back up.')
      }
      return { status: 200, type: backup.type, body: one(backup, signal ?? new AbortController().signal) }
    }
  }]
}
