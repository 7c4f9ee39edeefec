// Pipelined requests (RFC 9112 9.3.2), served one at a time per connection, and one in a turn of the event loop. Node
// hands over all that arrived in one piece at once: thousands, for which all other clients would wait.
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/**
 * Most requests that wait before the connection is not read. While it is not, the client's leaving is not noticed; no
 * honest client gets there.
 */
const MOST_WAITING = 16

/** Private fields of node's server, which stops reading in this way while answers wait, and resumes after them. */
interface HttpSocket extends Socket {
  _paused?: boolean
  readonly parser?: { resume (): void } | null
}

interface Connection {
  /** bytes read from the socket when the last request was handed over */
  bytes: number
  waiting: number
}

/** @param listener called for each request when the answers before it are sent */
export function inTurn (listener: RequestListener): RequestListener {
  const connections = new WeakMap<Socket, Connection>()
  return (req: IncomingMessage, res: ServerResponse) => {
    const { socket } = req
    let connection = connections.get(socket)
    if (connection === undefined) connections.set(socket, connection = { bytes: 0, waiting: 0 })
    // Node assigns the socket to a response when the ones before it are sent; at once, where a body lies between two
    // requests of one piece.
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
  // With answers that the client does not take, node resumes reading itself when they are sent.
  if (socket._paused !== true || socket.writableNeedDrain) return
  socket._paused = false
  socket.parser?.resume()
  socket.resume()
}
