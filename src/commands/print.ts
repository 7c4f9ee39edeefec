// Prints results of commands for people. Pure.
import { escaped } from './stdout.ts'

type Row = Readonly<Record<string, unknown>>

/** @returns lines with aligned columns */
export function table (rows: readonly Row[], columns: readonly string[]): string {
  const cells = [columns.map((name) => name.toUpperCase().replace(/_USD$/, ' USD').replaceAll('_', ' ')),
    ...rows.map((row) => columns.map((name) => cell(row[name])))]
  const widths = columns.map((_, i) => Math.max(...cells.map((line) => line[i]!.length)))
  return cells.map((line) => line.map((text, i) => text.padEnd(widths[i]!)).join('  ').trimEnd() + '\n').join('')
}

/** One item, a line for each field. */
export function card (row: Row): string {
  const names = Object.keys(row)
  const width = Math.max(...names.map((name) => name.length))
  return names.map((name) => `${name.padEnd(width)}  ${cell(row[name])}\n`).join('')
}

function cell (value: unknown): string {
  if (value === undefined || value === null) return '-'
  return Array.isArray(value)
    ? value.map(cell).join(', ')
    : typeof value === 'object'
    ? JSON.stringify(value)
    : String(value).replaceAll(/[\n\t\r]/g, escaped)             // a cell is in one line
}
