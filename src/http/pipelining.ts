// Requests that a client sends without waiting for answers (pipelining, RFC 9112 9.3.2): of a connection one at a time,
// and one in a turn of the event loop. Node hands over all that came in one piece at once: thousands, which everybody
// else would wait for.
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/**
 * So many may wait before nothing more is read. While it is not, nobody notices that the client leaves: so no honest
 * client gets there.
 */
const MOST_WAITING = 16

/** Of node's own server, which stops reading so while answers wait, and goes on when they are out. */
interface HttpSocket extends Socket {
  _paused?: boolean
  readonly parser?: { resume (): void } | null
}

interface Connection {
  /** that had come when it last had its turn */
  bytes: number
  waiting: number
}

/** @param listener gets each request when the answers before it are out */
export function inTurn (listener: RequestListener): RequestListener {
  const connections = new WeakMap<Socket, Connection>()
  return (req: IncomingMessage, res: ServerResponse) => {
    const { socket } = req
    let connection = connections.get(socket)
    if (connection === undefined) connections.set(socket, connection = { bytes: 0, waiting: 0 })
    // Node gives a response its socket when those before it are out: with a body between two requests of a piece, at
    // once.
    const isFirst = res.socket !== null && socket.bytesRead !== connection.bytes
    connection.bytes = socket.bytesRead
    if (isFirst) { listener(req, res); return }
    if (++connection.waiting > MOST_WAITING) stopReading(socket)
    const take = (): void => {
      connection.waiting--
      if (connection.waiting === 0) goOn(socket)
      // The client may have left meanwhile.
      if (!socket.destroyed) listener(req, res)
    }
    if (res.socket !== null) setImmediate(take)
    else res.once('socket', () => { setImmediate(take) })
  }
}

function stopReading (socket: HttpSocket): void {
  if (socket._paused === true) return
  socket._paused = true
  socket.pause()
}

function goOn (socket: HttpSocket): void {
  // Full of answers that the client does not take: then node goes on, when it does.
  if (socket._paused !== true || socket.writableNeedDrain) return
  socket._paused = false
  socket.parser?.resume()
  socket.resume()
}
