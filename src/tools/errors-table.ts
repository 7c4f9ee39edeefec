// The catalogue as the error table of the pages, which `npm run goldens` writes.
import { catalogue, type ErrorCode, GatewayError } from '../errors.ts'

/** Markdown; rows in the order of their status. Without `client_closed`, which is only logged. */
export function errorTable (): string {
  const rows = (Object.keys(catalogue) as ErrorCode[])
    .filter((code) => code !== 'client_closed')
    .map((code) => new GatewayError(code))
    .sort((a, b) => a.status - b.status)
    .map(({ status, code, type, message }) =>
      `| ${status} | \`${code}\` | ${type} | ${message.replaceAll('|', '\\|')} |`
    )
  return ['| HTTP | code | type | meaning |', '|---|---|---|---|', ...rows].join('\n')
}

/**
 * A page with the table of today between its marks.
 * @throws {Error} it has no marks
 */
export function withErrorTable (page: string): string {
  const [begin, end] = ['\n<!-- errors -->\n', '\n<!-- /errors -->\n']
  const [from, to] = [page.indexOf(begin), page.indexOf(end)]
  if (from < 0 || to < from) throw new Error('there is no table between <!-- errors --> and <!-- /errors -->')
  return page.slice(0, from) + begin + errorTable() + page.slice(to)
}
