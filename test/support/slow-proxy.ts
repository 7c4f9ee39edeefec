// A proxy between the gateway and a server, which can be slow or break all connections: what a network does.
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'

export interface SlowProxy {
  readonly port: number
  /** milliseconds that each piece is late, in both directions */
  delay: number
  /** all connections, at once and without a word */
  cut (): void
}

/** @param port of the server, on this machine */
export async function slowProxy (t: Test, port: number): Promise<SlowProxy> {
  const sockets = new Set<Socket>()
  const server = createServer((near) => {
    const far = connect(port, '127.0.0.1')
    carry(near, far)
    carry(far, near)
  })

  function carry (from: Socket, to: Socket): void {
    sockets.add(from)
    // One after the other: timers of their own would not keep the order of the pieces.
    let last: Promise<unknown> = Promise.resolve()
    from.setNoDelay(true)
    from.on('error', () => {})
    from.on('close', () => { sockets.delete(from); to.destroy() })
    from.on('data', (bytes) => {
      const due = performance.now() + proxy.delay
      last = last.then(async () => {
        const left = due - performance.now()
        if (left > 0) await pause(left)
        if (to.writable) to.write(bytes)
      })
    })
  }

  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const proxy: SlowProxy = {
    port: (server.address() as AddressInfo).port,
    delay: 0,
    cut () {
      for (const socket of sockets) {
        // Node can't reset what is just being ended, and then waits for it when the process ends, forever.
        if (socket.writableEnded) socket.destroy()
        else socket.resetAndDestroy()
      }
    }
  }
  t.teardown(() => {
    server.close()
    proxy.cut()
  })
  return proxy
}
