// The simulated upstream: a raw HTTP/1.1 server inside the benchmark's process. JSON is answered at once;
// a stream stays open, and sends an event whenever the experiment says so.
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { once } from 'node:events'
import { nastyAnswerTo } from './nasty.ts'
import { dialects, stamp, thinkMs, thinkPath, type Dialect } from './payloads.ts'
import { WireReader } from './wire.ts'

export interface UpstreamStream {
  /** one write of so many events */
  send (events: number): void
  isBlocked (): boolean
  finish (): void
}

export interface Upstream {
  readonly port: number
  /** those open now */
  readonly streams: readonly UpstreamStream[]
  /** ends all open streams as a model would */
  finishStreams (): void
  /** stamped events since the start */
  sentEvents (): number
  /** requests since the start */
  asked (): number
  /** how it takes connections and requests from now on */
  become (mood: Mood): Promise<void>
  close (): void
}

/** hanging: takes requests, and answers none. dead: takes no connections, and has closed those it had. */
export type Mood = 'good' | 'hanging' | 'dead'

const frame = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`

// A request of more than this is one of the big bodies: JSON, and not searched.
const searchedBytes = 64 * 1024

export async function startUpstream (): Promise<Upstream> {
  const streams: UpstreamStream[] = []
  const sockets = new Set<Socket>()
  let sent = 0
  let asked = 0
  let mood: Mood = 'good'

  function openStream (socket: Socket, dialect: Dialect): void {
    const event = (): string => { sent++; return dialect.event(`${stamp(performance.now())} and so on and on`) }
    const leave = (): void => {
      const at = streams.indexOf(stream)
      if (at !== -1) streams.splice(at, 1)
      socket.off('close', leave)
    }
    const stream: UpstreamStream = {
      send (events) {
        let text = ''
        for (let i = 0; i < events; i++) text += event()
        socket.write(frame(text), 'latin1')
      },
      isBlocked: () => socket.writableNeedDrain,
      finish () {
        leave()
        socket.write(dialect.closing.map(frame).join('') + '0\r\n\r\n', 'latin1')
      }
    }
    socket.on('close', leave)
    streams.push(stream)
    socket.write('HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n' +
      'request-id: req_upstream\r\ntransfer-encoding: chunked\r\n\r\n' + dialect.opening.map(frame).join('') +
      frame(event()), 'latin1')
  }

  const replies = new Map(
    Object.values(dialects).map((dialect) => [dialect, 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n' +
      `request-id: req_upstream\r\ncontent-length: ${dialect.reply.length}\r\n\r\n${dialect.reply}`]
    )
  )

  const server = createServer({ noDelay: true }, (socket) => {
    let dialect = dialects.messages
    let thinks = false
    let bytes = 0
    let text = ''
    const reader = new WireReader({
      head (head) {
        dialect = Object.values(dialects).find(({ path }) => head.includes(` ${path}`)) ?? dialects.messages
        thinks = head.includes(` ${thinkPath}/`)
        bytes = 0
        text = ''
      },
      body (chunk, from, to) {
        bytes += to - from
        if (bytes <= searchedBytes) text += chunk.toString('latin1', from, to)
      },
      end () {
        asked++
        if (mood === 'hanging') return
        const nasty = bytes <= searchedBytes ? nastyAnswerTo(text) : undefined
        if (nasty !== undefined) socket.write(nasty)
        else if (bytes <= searchedBytes && text.includes('"stream":true')) openStream(socket, dialect)
        else if (thinks) setTimeout(() => { socket.write(replies.get(dialects.messages) ?? '', 'latin1') }, thinkMs)
        else socket.write(replies.get(dialect) ?? '', 'latin1')
      }
    })
    sockets.add(socket)
    socket.on('data', (chunk: Buffer) => reader.read(chunk))
    socket.on('error', () => socket.destroy())    // a contender that hangs up is its own affair
    socket.on('close', () => sockets.delete(socket))
  })
  const listen = async (port: number): Promise<void> => {
    server.listen({ host: '127.0.0.1', port, backlog: 4096 })
    await once(server, 'listening')
  }
  await listen(0)
  const { port } = server.address() as AddressInfo
  return {
    port,
    streams,
    finishStreams () {
      for (let last = streams.at(-1); last !== undefined; last = streams.at(-1)) last.finish()
    },
    sentEvents: () => sent,
    asked: () => asked,
    async become (next) {
      const wasDead = mood === 'dead'
      mood = next
      if (next === 'dead' && !wasDead) {
        const closed = once(server, 'close')
        server.close()
        for (const socket of sockets) socket.destroy()
        await closed
      } else if (next !== 'dead' && wasDead) await listen(port)
    },
    close () {
      server.close()
      for (const socket of sockets) socket.destroy()
    }
  }
}

/**
 * Each open stream gets an event every `everyMs`, one event per write, spread evenly over the time.
 * @returns the function that stops it
 */
export function pace (upstream: Upstream, everyMs: number): () => void {
  let last = performance.now()
  let due = 0
  let next = 0
  const timer = setInterval(() => {
    const now = performance.now()
    // After a pause of the process nobody wants all that was missed at once: a source would not send it so either.
    due = Math.min(due + (now - last) * upstream.streams.length / everyMs, upstream.streams.length)
    last = now
    for (; due >= 1; due--) {
      const stream = upstream.streams[next++ % upstream.streams.length]
      if (stream !== undefined && !stream.isBlocked()) stream.send(1)
    }
  }, 1)
  return () => clearInterval(timer)
}

/**
 * Events as fast as the contender takes them, several per write; at most `inFlight` are under way,
 * or the sockets' buffers would hold seconds of work when the burst is over.
 * @returns the function that stops it
 */
export function flood (
  upstream: Upstream,
  delivered: () => number,
  { perWrite, inFlight }: { readonly perWrite: number, readonly inFlight: number }
): () => void {
  const limit = upstream.sentEvents() - delivered() + inFlight
  let next = 0
  let isOn = true
  const turn = (): void => {
    if (!isOn) return
    for (let i = 0; i < upstream.streams.length && upstream.sentEvents() - delivered() < limit; i++) {
      upstream.streams[next++ % upstream.streams.length]?.send(perWrite)
    }
    setImmediate(turn)
  }
  turn()
  return () => { isOn = false }
}
