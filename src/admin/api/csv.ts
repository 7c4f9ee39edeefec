// Tables as CSV (RFC 4180), for spreadsheets.

/** What a spreadsheet takes for a formula at the beginning of a cell. Of a number a sign is no such thing. */
const FORMULA = /^[=+\-@\t\r]/
/** What is neither that nor in need of quotes: most cells. */
const PLAIN = /^[a-z\d][^",\r\n]*$/i
const NUMBER = /^-?\d+(?:\.\d+)?$/

/** A line for the names of the columns, and one for each row. */
export function csvOf (rows: readonly (readonly unknown[])[], columns: readonly string[]): string {
  let text = ''
  for (const row of [columns, ...rows]) {
    for (let i = 0; i < row.length; i++) text += i === 0 ? cell(row[i]) : ',' + cell(row[i])
    text += '\r\n'
  }
  return text
}

function cell (value: unknown): string {
  if (value === undefined || value === null) return ''
  const text = String(value)
  if (typeof value === 'number' || PLAIN.test(text)) return text
  const safe = FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}
