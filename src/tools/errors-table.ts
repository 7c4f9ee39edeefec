// The catalogue as the error table of src/endpoints/README.md, with which errors.test.ts compares it.
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
