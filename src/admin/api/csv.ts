// Tables as CSV (RFC 4180), for spreadsheets.

/** What a spreadsheet takes for a formula at the beginning of a cell. Of a number a sign is no such thing. */
const FORMULA = /^[=+\-@\t\r]/
const NUMBER = /^-?\d+(?:\.\d+)?$/

/** A line for the names of the columns, and one for each row. */
export function csvOf (rows: readonly Readonly<Record<string, unknown>>[], columns: readonly string[]): string {
  const lines = [columns, ...rows.map((row) => columns.map((name) => row[name]))]
  return lines.map((line) => line.map(cell).join() + '\r\n').join('')
}

function cell (value: unknown): string {
  if (value === undefined || value === null) return ''
  const text = String(value)
  const safe = FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}
