// The load generator: raw keep-alive connections in closed loops, in an open loop, and as streams.
import { connect, type Socket } from 'node:net'
import { readStamp, type Dialect } from './payloads.ts'
import { WireReader } from './wire.ts'

interface Receiver {
  data? (chunk: Buffer, from: number, to: number): void
  end (): void
  fail (error: Error): void
}

const sliceBytes = 128 * 1024
const patienceMs = 20_000

/** One keep-alive connection, one request at a time. An answer that is not 200 fails with what it said. */
class Connection {
  readonly #socket: Socket
  #receiver: Receiver | undefined
  #status = ''
  #refusal = ''

  constructor (port: number) {
    const reader = new WireReader({
      head: (head) => {
        this.#status = head.slice(9, 12)
        this.#refusal = ''
      },
      body: (chunk, from, to) => {
        if (this.#status === '200') this.#receiver?.data?.(chunk, from, to)
        else this.#refusal += chunk.toString('latin1', from, to)
      },
      end: () => {
        const receiver = this.#receiver
        this.#receiver = undefined
        if (this.#status === '200') receiver?.end()
        else receiver?.fail(new Error(`answered ${this.#status}: ${this.#refusal.slice(0, 500)}`))
      }
    })
    this.#socket = connect({ host: '127.0.0.1', port, noDelay: true })
    this.#socket.on('data', (chunk: Buffer) => reader.read(chunk))
    this.#socket.on('error', (error) => this.#fail(error))
    this.#socket.on('close', () => this.#fail(new Error(`closed before the end of an answer ${this.#status}`)))
  }

  get isOpen (): boolean {
    return !this.#socket.destroyed
  }

  send (request: Buffer, receiver: Receiver): void {
    this.#receiver = receiver
    this.#status = ''
    this.#write(request, 0)
  }

  // Large bodies go in slices, one per turn of the loop: 5 MB at once would keep it from the other streams' events.
  // (A callback alone is not a turn: it comes in a nextTick while the socket's buffer has room.)
  #write (request: Buffer, from: number): void {
    if (request.length - from <= sliceBytes) this.#socket.write(from === 0 ? request : request.subarray(from))
    else {
      this.#socket.write(request.subarray(from, from + sliceBytes), (error) => {
        if (error == null) setImmediate(() => this.#write(request, from + sliceBytes))
      })
    }
  }

  #fail (error: Error): void {
    const receiver = this.#receiver
    this.#receiver = undefined
    receiver?.fail(error)
  }

  destroy (): void {
    this.#receiver = undefined
    this.#socket.destroy()
  }
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => { setTimeout(resolve, ms) })

/** A promise that would never settle fails instead: every loop of the benchmark is bounded. */
export async function within<T> (promise: Promise<T>, ms: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took more than ${ms} ms`)), ms)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

/** @returns the body of one answer */
export async function ask (port: number, request: Buffer): Promise<string> {
  const connection = new Connection(port)
  let text = ''
  try {
    await within(new Promise<void>((resolve, reject) => connection.send(request, {
      data: (chunk, from, to) => { text += chunk.toString('latin1', from, to) }, end: resolve, fail: reject
    })), patienceMs, 'one request')
    return text
  } finally {
    connection.destroy()
  }
}

/**
 * Sends one request after the other, on one connection, for as long as the work lasts.
 * @returns milliseconds of the longest wait for an answer
 */
export async function longestWait (port: number, request: Buffer, work: Promise<unknown>): Promise<number> {
  let isOn = true
  const over = work.finally(() => { isOn = false })
  over.catch(() => {})    // reported below
  const connection = new Connection(port)
  let longest = 0
  try {
    while (isOn) {
      const from = performance.now()
      await within(new Promise<void>((resolve, reject) => connection.send(request, { end: resolve, fail: reject })),
        patienceMs, 'one request beside others')
      longest = Math.max(longest, performance.now() - from)
    }
  } finally {
    connection.destroy()
  }
  await over
  return longest
}

export interface ClosedLoop {
  completed (): number
  /** when so many answers are in, of all; then it is stopped. @throws {Error} of the first that failed */
  reaches (count: number): Promise<void>
  /** ends when the answers that are under way are in */
  stop (): Promise<void>
}

/** Each connection sends its next request when it has the answer of the last. */
export function startClosedLoop (port: number, request: Buffer, connections: number): ClosedLoop {
  let completed = 0
  let last = Infinity
  let isOn = true
  const open: Connection[] = []
  const ends = Array.from({ length: connections }, () => new Promise<void>((resolve, reject) => {
    let connection = new Connection(port)
    open.push(connection)
    const next = (): void => {
      if (!isOn || completed >= last) return resolve()
      if (!connection.isOpen) open.push(connection = new Connection(port))
      connection.send(request, { end: () => { completed++; next() }, fail: reject })
    }
    next()
  }))
  const all = Promise.all(ends)
  all.catch(() => {})    // reported by those who wait for it
  async function ended (ms: number, what: string): Promise<void> {
    try {
      await within(all, ms, what)
    } finally {
      for (const connection of open) connection.destroy()
    }
  }
  return {
    completed: () => completed,
    async reaches (count) {
      last = count
      await ended(patienceMs + count * 50, `${count} requests`)
    },
    async stop () {
      isOn = false
      await ended(patienceMs, 'the last answers')
    }
  }
}

/**
 * Sends a request at each of the given times (ms from now), whatever became of those before; of several each in its
 * turn.
 * @param tolerate told of each request that fails; absent: the first ends it
 * @returns milliseconds from each sending to the last byte of its answer
 */
export async function runOpenLoop (
  port: number,
  request: Buffer | readonly Buffer[],
  arrivals: readonly number[],
  tolerate?: (error: Error) => void
): Promise<number[]> {
  const requests: readonly Buffer[] = Buffer.isBuffer(request) ? [request] : request
  const idle = Array.from({ length: 16 }, () => new Connection(port))
  const all = [...idle]
  const latencies: number[] = []
  let sent = 0
  let failed = 0
  try {
    await within(new Promise<void>((resolve, reject) => {
      const start = performance.now()
      const fire = (): void => {
        let connection = idle.pop()
        while (connection !== undefined && !connection.isOpen) connection = idle.pop()
        if (connection === undefined) all.push(connection = new Connection(port))
        const used = connection
        const from = performance.now()
        used.send(requests[sent % requests.length]!, {
          end () {
            latencies.push(performance.now() - from)
            idle.push(used)
            if (latencies.length + failed === arrivals.length) finish()
          },
          fail (error) {
            if (tolerate === undefined) { finish(error); return }
            tolerate(error)
            failed++
            if (used.isOpen) idle.push(used)
            if (latencies.length + failed === arrivals.length) finish()
          }
        })
      }
      const timer = setInterval(() => {
        const now = performance.now() - start
        while (sent < arrivals.length && (arrivals[sent] ?? 0) <= now) { sent++; fire() }
      }, 1)
      const finish = (error?: Error): void => {
        clearInterval(timer)
        if (error === undefined) resolve()
        else reject(error)
      }
    }), (arrivals.at(-1) ?? 0) + patienceMs, 'the open loop')
    return latencies
  } finally {
    for (const connection of all) connection.destroy()
  }
}

export interface ClientStreams {
  /** stamped events received so far */
  delivered (): number
  /** starts a new record of delays, sending to receiving, in ms; @returns the old one */
  takeDelays (): number[]
  /** when all streams came to a good end */
  finished (): Promise<void>
  destroy (): void
}

/** Opens streams, 50 at a time; ready when each one has its first event. */
export async function openStreams (
  port: number,
  request: Buffer,
  count: number,
  dialect: Dialect
): Promise<ClientStreams> {
  const connections: Connection[] = []
  const ends: Array<Promise<void>> = []
  let delivered = 0
  let delays: number[] = []

  function openOne (): Promise<void> {
    const connection = new Connection(port)
    connections.push(connection)
    return new Promise((resolve, reject) => {
      ends.push(new Promise((resolveEnd, rejectEnd) => {
        let rest = ''
        let isWhole = false
        connection.send(request, {
          data (chunk, from, to) {
            const now = performance.now()
            const text = rest + chunk.toString('latin1', from, to)
            let start = 0
            for (let end = text.indexOf('\n\n'); end !== -1; end = text.indexOf('\n\n', start)) {
              const event = text.slice(start, end)
              start = end + 2
              const sentAt = readStamp(event, dialect)
              if (sentAt > 0) {
                delivered++
                delays.push(now - sentAt)
                resolve()
              } else if (event.includes(dialect.terminal)) isWhole = true
            }
            rest = text.slice(start)
          },
          end () {
            if (isWhole) resolveEnd()
            else this.fail(new Error('a stream ended without its last event'))
          },
          fail (error) { reject(error); rejectEnd(error) }
        })
      }))
      ends.at(-1)?.catch(() => {})    // reported by finished()
    })
  }

  const destroy = (): void => { for (const connection of connections) connection.destroy() }
  try {
    for (let opened = 0; opened < count; opened += 50) {
      await within(Promise.all(Array.from({ length: Math.min(50, count - opened) }, openOne)), patienceMs,
        'opening streams')
    }
  } catch (error) {
    destroy()
    throw error
  }
  return {
    delivered: () => delivered,
    takeDelays () {
      const taken = delays
      delays = []
      return taken
    },
    async finished () {
      try {
        await within(Promise.all(ends), patienceMs, 'the ends of the streams')
      } finally {
        destroy()
      }
    },
    destroy
  }
}
