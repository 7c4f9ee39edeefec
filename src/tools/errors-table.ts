// Prints the catalogue as the table of errors of src/endpoints/README.md. errors.test.ts compares the two.
import { catalogue, type ErrorCode, GatewayError } from '../errors.ts'

/** Markdown; the rows of the table in the order of their status. `client_closed` is for the log: nobody reads it. */
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
