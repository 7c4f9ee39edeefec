// The vendor of the warm-up: a server on loopback that always says the same. On raw sockets, since it has the thread of
// the gateway, and its time is time of the start.
import { once } from 'node:events'
import { createServer, type Server } from 'node:net'
import type { Sample } from '../upstream/dialects/sample.ts'

export async function startVendor ({ reply, events }: Sample): Promise<Server> {
  const head = 'HTTP/1.1 200 OK\r\ncontent-type: '
  const whole = `${head}application/json\r\ncontent-length: ${reply.length}\r\n\r\n${reply}`
  const pieces = [`${head}text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n`,
    ...events.map((event) => `${event.length.toString(16)}\r\n${event}\r\n`), '0\r\n\r\n']
  const server = createServer({ noDelay: true }, (socket) => {
    let text = ''
    socket.setEncoding('latin1').on('data', (chunk: string) => {
      text += chunk
      if (!isWhole(text)) return
      if (text.includes('"stream":true')) for (const piece of pieces) socket.write(piece)
      else socket.write(whole)
      text = ''
    }).on('error', () => { socket.destroy() })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return server
}

/** Whether the text is a message of HTTP/1.1 to its end; its length is told, or it is an answer in chunks. */
export function isWhole (text: string): boolean {
  const end = text.indexOf('\r\n\r\n')
  if (end === -1) return false
  const length = /\r\ncontent-length: (\d+)/i.exec(text.slice(0, end))?.[1]
  return length === undefined ? text.endsWith('0\r\n\r\n') : text.length - end - 4 >= Number(length)
}
