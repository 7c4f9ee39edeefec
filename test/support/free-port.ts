// A port for a server that is told where to listen, or that comes back where it was.
import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * Below those that systems give to outgoing connections: it is still free after a restart, and whoever connects to it
 * while nobody listens is refused. From its own range the system may give a connection the very port it goes to, and
 * TCP then connects it with itself (RFC 9293, 3.5: simultaneous open).
 */
export async function freePort (from = 10_000, to = 30_000): Promise<number> {
  for (;;) {
    const port = from + Math.floor(Math.random() * (to - from))
    const probe = createServer()
    const isFree = await new Promise<boolean>((resolve) => {
      probe.once('error', () => { resolve(false) }).listen(port, '127.0.0.1', () => { resolve(true) })
    })
    if (!isFree) continue
    probe.close()
    await once(probe, 'close')
    return port
  }
}
