// `gateway usage …`: what was charged, by key and by time.
import { flatRow, seriesColumns, seriesCsv, type SeriesRow } from '../../admin/api/series.ts'
import type { RollupGroup } from '../../store/rollups.ts'
import { done } from '../answer.ts'
import { table } from '../print.ts'
import { print } from '../stdout.ts'
import type { Noun } from '../verb.ts'
import { list } from '../verbs.ts'

const USAGE_COLUMNS = ['key', 'account', 'spent_usd', 'held_usd', 'remaining_usd', 'usage_limit_usd', 'deleted_at']

const SERIES = ['from', 'to', 'by', 'group', 'account', 'key', 'model', 'channel', 'time-zone']
const SERIES_NOTE = `  --from, --to     a day such as 2026-11-21, or an instant such as 2026-11-21T05:00:00Z; --to is not included
  --by             hour (of the last 7 days), day or month
  --group          names of account, key, model and channel, with commas
  --time-zone      of days and months, such as Europe/Berlin; others than UTC for the last 7 days
  --csv            a table for spreadsheets
`

export const usage: Noun = {
  list: { takes: [], options: ['account'],
    run: async (client, said) => await list(client, '/usage', USAGE_COLUMNS, said) },
  series: {
    takes: [], options: SERIES,
    flags: ['csv'], note: SERIES_NOTE,
    async run (client, { values, json }) {
      const query = new URLSearchParams()
      for (const name of SERIES) {
        if (typeof values[name] === 'string') query.set(name.replaceAll('-', '_'), values[name])
      }
      const found = await done(client, 'GET', `/usage/series?${query}`)
      const { data, group, total } = found as unknown as { readonly data: readonly SeriesRow[],
        readonly group: readonly RollupGroup[], readonly total: SeriesRow }
      await print(
        json
          ? JSON.stringify(found) + '\n'
          : values['csv'] === true ? seriesCsv(data, group) : seriesTable(data, group, total)
      )
      return 0
    }
  }
}

/** Columns in which nothing is are left out. */
function seriesTable (data: readonly SeriesRow[], groups: readonly RollupGroup[], total: SeriesRow): string {
  const sums = flatRow(total)
  const columns = seriesColumns(groups).filter((name) =>
    name !== 'from' && (!(name in sums) || name === 'requests' || name === 'charged_usd' || Number(sums[name]) !== 0)
  )
  return table([...data.map(flatRow), { period: 'total', ...sums }], columns)
}
