// A failure in a few words, for the log.
import { isGatewayError } from '../errors.ts'

/** The name only: the message of a SyntaxError quotes the body that could not be parsed. */
export function nameCause (cause: unknown): string | undefined {
  if (isGatewayError(cause)) return [cause.code, nameCause(cause.cause)].filter(Boolean).join(': ')
  if (typeof cause !== 'object' || cause === null) return typeof cause === 'string' ? cause : undefined
  const { kind, status, code, name } = cause as Readonly<Record<string, unknown>>
  if (kind === 'status') return `status ${String(status)}`
  const inner = 'cause' in cause ? nameCause(cause.cause) : undefined
  return [kind ?? code ?? name, inner].filter((part) => typeof part === 'string').join(': ')
}
