// Expect: 100-continue.
import type { IncomingMessage, ServerResponse } from 'node:http'

/**
 * Answers a client that waits with its body until it is told to send it: HTTP/1.0 has no such answer (RFC 9110 10.1.1).
 */
export function sayContinue (req: IncomingMessage, res: ServerResponse): void {
  if (req.headers.expect !== undefined && req.httpVersion !== '1.0') res.writeContinue()
}
