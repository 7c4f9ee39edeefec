// The store of a running gateway in the admin API: its backup.
import type { Directory } from '../../accounts/directory.ts'
import type { Backup } from '../../store/backup.ts'
import { isGatewayError } from '../../errors.ts'
import { text } from './answers.ts'
import { type Call, type Operation, type Person, readQuery, type RunningParts } from './operation.ts'
import { Refusal } from './refusal.ts'

const QUERY = ['destination']
/** What may stand in a line for people. */
const DESTINATION = /^[^\p{Cc}\p{Zl}\p{Zp}]{1,300}$/u

export function storeOperations (
  directory: Pick<Directory, 'change'>,
  { backup, log }: Pick<RunningParts, 'backup' | 'log'>
): readonly Operation[] {
  let isRunning = false
  /** A copy of everything leaves a trace; but where that can't be written a backup is needed most. */
  async function trace (line: ReturnType<typeof backupLine>): Promise<void> {
    await directory.change(() => ({ audit: line })).catch((err: unknown) => {
      log.error({ ...line, err }, 'a backup is made, and the audit log may not have it')
    })
  }
  async function * one (
    made: Backup, { by, signal = new AbortController().signal }: Call, destination: string | undefined
  ): AsyncGenerator<Uint8Array> {
    if (isRunning) {
      throw new Refusal('already_running', 'Another backup of this gateway is being made: wait until it has ended.')
    }
    isRunning = true
    try {
      await trace(backupLine(by, destination))
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
      'The file tells by itself whether it is whole; `gateway store restore` reads it. The audit log has who asked ' +
      'for one, and where to.',
    query: QUERY,
    needs: 'owner',
    isGrave: true,
    gives: text('The bytes of the file.'),
    types: ['application/vnd.sqlite3', 'application/jsonl'],
    refuses: ['already_running', 'backup_failed', 'no_backup'],
    answer (call) {
      const destination = readQuery(call.query, QUERY).get('destination')
      if (destination !== undefined && !DESTINATION.test(destination)) {
        throw new Refusal('invalid_request', 'destination must be a line of 1 to 300 characters.')
      }
      if (backup === undefined) {
        throw new Refusal('no_backup',
          'What this store keeps ends with its process (store.driver): there is nothing to back up.')
      }
      return { status: 200, type: backup.type, body: one(backup, call, destination) }
    }
  }]
}

/** The line of the audit log, but for its time. @param destination undefined: who asked has not said it */
export function backupLine (by: Person, destination = 'elsewhere'): Readonly<Record<string, unknown>> {
  return { ...by, what: 'store.backup', id: destination, before: null, after: {} }
}
