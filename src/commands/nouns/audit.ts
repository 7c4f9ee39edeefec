// `gateway audit`: who changed what.
import { LONGEST_PAGE } from '../../admin/api/operation.ts'
import { CommandError } from '../admin-client.ts'
import { pages } from '../answer.ts'
import type { AdminClient } from '../command.ts'
import { table } from '../print.ts'
import { print } from '../stdout.ts'
import type { Noun } from '../verb.ts'

const AUDIT_COLUMNS = ['seq', 'at', 'who', 'address', 'what', 'id']

const AUDIT_NOTE = '  Who changed what, newest first: the last 50 lines, or --limit NUMBER. --json has the whole lines.\n'

export const audit: Noun = {
  '': {
    takes: [], options: ['limit'], note: AUDIT_NOTE,
    async run (client, { values, json }) {
      const rows = await newest(client, '/audit', readCount(values['limit']))
      await print(json ? JSON.stringify(rows) + '\n' : table(rows, AUDIT_COLUMNS))
      return 0
    }
  }
}

/** @throws {CommandError} it is no number of lines */
function readCount (text: unknown): number {
  if (text === undefined) return 50
  if (typeof text !== 'string' || !/^[1-9]\d{0,8}$/.test(text)) {
    throw new CommandError(`--limit is a number of lines such as 100, and this is ${JSON.stringify(text)}.`)
  }
  return Number(text)
}

/** @param count of rows */
async function newest (
  client: AdminClient,
  address: string,
  count: number
): Promise<readonly Record<string, unknown>[]> {
  const rows: Record<string, unknown>[] = []
  for await (const page of pages(client, address, { order: 'desc' }, Math.min(count, LONGEST_PAGE))) {
    rows.push(...page)
    if (rows.length >= count) break
  }
  return rows.slice(0, count)
}
