// Connects to a host with several addresses (RFC 8305): the next one is tried when one fails or is slow, and none is
// given up before the time to connect is over. Node's own way gives each but the last 250 ms, so a slow address and a
// dead one behind it (an AAAA record on a host without IPv6) fail every connection.
import { lacksResources } from '../../base/descriptors.ts'
import { isIP, type LookupFunction, type Socket } from 'node:net'
import type { LookupAddress } from 'node:dns'
import { type buildConnector, errors } from 'undici'

/** Milliseconds after which the next address is tried too (RFC 8305 5). */
const NEXT_MS = 250

type Dial = buildConnector.connector
type Asked = Parameters<Dial>[0]
type Callback = Parameters<Dial>[1]
/** Undici's connectors return their socket; its types hide it. */
type Connect = (asked: Asked, callback: Callback) => Socket

/** @param timeoutMs for all: to resolve the name, and to connect to one of its addresses */
export function connectToAny (connect: Dial, lookup: LookupFunction, timeoutMs: number): Dial {
  return (asked, callback) => {
    if (isIP(asked.hostname) !== 0) connect(asked, callback)
    else new Race(connect as unknown as Connect, asked, callback).start(lookup, timeoutMs)
  }
}

class Race {
  readonly #connect: Connect
  readonly #asked: Asked
  readonly #callback: Callback
  readonly #running = new Set<Socket>()
  #left: readonly string[] = []
  #next: NodeJS.Timeout | undefined
  #timer: NodeJS.Timeout | undefined
  /** of an attempt; one that this machine is to blame for stays */
  #error = new Error('the host has no address')
  #isOver = false

  constructor (connect: Connect, asked: Asked, callback: Callback) {
    this.#connect = connect
    this.#asked = asked
    this.#callback = callback
  }

  start (lookup: LookupFunction, timeoutMs: number): void {
    const { hostname } = this.#asked
    this.#timer = setTimeout(() => {
      this.#end(new errors.ConnectTimeoutError(`${hostname} was not connected to after ${timeoutMs} ms`), null)
    }, timeoutMs)
    lookup(hostname, { all: true }, (error, found) => {
      if (this.#isOver) return
      if (error !== null) { this.#end(error, null); return }
      this.#left = alternating(found as LookupAddress[])
      this.#tryNext()
    })
  }

  #tryNext (): void {
    clearTimeout(this.#next)
    const [address, ...others] = this.#left
    if (address === undefined) {
      if (this.#running.size === 0) this.#end(this.#error, null)
      return
    }
    this.#left = others
    try {
      this.#try(address)
    } catch (thrown) {
      this.#end(thrown as Error, null)                        // such as settings of TLS: the same for all addresses
      return
    }
    if (others.length > 0) this.#next = setTimeout(() => { this.#tryNext() }, NEXT_MS)
  }

  #try (address: string): void {
    const socket = this.#connect({ ...this.#asked, hostname: address }, (...[failure, connected]) => {
      this.#running.delete(socket)
      if (this.#isOver) connected?.destroy()
      else if (failure === null) this.#end(null, connected)
      else {
        if (!lacksResources(this.#error)) this.#error = failure
        this.#tryNext()
      }
    })
    this.#running.add(socket)
  }

  #end (...result: Parameters<Callback>): void {
    if (this.#isOver) return
    this.#isOver = true
    clearTimeout(this.#next)
    clearTimeout(this.#timer)
    for (const socket of this.#running) socket.destroy()
    this.#callback(...result)
  }
}

/** The families take turns, as in RFC 8305 4, and begin with the resolver's first. */
function alternating (found: readonly LookupAddress[]): readonly string[] {
  const [first = [], second = []] = Map.groupBy(found, ({ family }) => family).values()
  return Array.from({ length: Math.max(first.length, second.length) }, (_, i) => [first[i], second[i]]).flat()
    .flatMap((one) => one === undefined ? [] : [one.address])
}
