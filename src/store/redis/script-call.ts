// Calls of scripts, in the shape that ioredis sends and answers. A call by ioredis itself is a command of three
// promises and five closures with a timer of its own, whose arguments are gone through four times; a request makes four
// calls, and took a fifth more CPU with them (measured).
import { createHash } from 'node:crypto'
import { Command } from 'ioredis'
import { Alarm } from '../../base/wheel.ts'
import type { Client } from './address.ts'

export type Argument = string | number | Buffer

/** A part of a command as it is sent: bytes, between texts. */
type Part = string | Buffer

/** A script: sent whole once over each connection, and called by its hash from then on. */
export class LuaScript {
  readonly keys: number
  readonly hash: string
  /** how a call begins, behind the number of its parts */
  readonly #whole: string
  readonly #byHash: string
  /** connections over which it was sent */
  readonly #sent = new WeakSet<object>()

  /** @param keys number of keys, which are the first arguments */
  constructor (lua: string, keys: number) {
    this.keys = keys
    this.hash = createHash('sha1').update(lua).digest('hex')
    this.#whole = `${bulk('eval')}${bulk(lua)}${bulk(`${keys}`)}`
    this.#byHash = `${bulk('evalsha')}${bulk(this.hash)}${bulk(`${keys}`)}`
  }

  /** How a call over this connection begins. */
  begin (connection: object): string {
    if (this.#sent.has(connection)) return this.#byHash
    this.#sent.add(connection)
    return this.#whole
  }

  /** The server behind the connection does not have it, or not any more. */
  forget (connection: object): void {
    this.#sent.delete(connection)
  }
}

/** What ioredis reads and calls of a command. */
type Sent = Pick<Command, 'name' | 'args' | 'promise' | 'isTraced' | 'inTransaction' | 'resolve' | 'reject' | 'getSlot'
  | 'getKeys' | 'toWritable' | 'setTimeout'>

/** A call on its way, which is its own timeout. */
export class ScriptCall extends Alarm implements Sent {
  readonly name = 'evalsha'
  readonly promise: Promise<unknown>
  isTraced = false
  readonly inTransaction = false
  readonly #client: Client
  readonly #script: LuaScript
  readonly #args: readonly Argument[]
  /** the connection that it was sent over last */
  #connection: object | undefined
  /** it was sent again with the whole script, or is over: it is not sent again */
  #isRepeated = false
  #fulfill!: (reply: unknown) => void
  #fail!: (error: Error) => void

  /** Sends it. @param args keys, then arguments */
  static send (client: Client, script: LuaScript, args: readonly Argument[]): Promise<unknown> {
    const call = new ScriptCall(client, script, args)
    try {
      client.sendCommand(call as unknown as Command)
    } catch (thrown) {
      call.off()
      throw thrown
    }
    return call.promise
  }

  private constructor (client: Client, script: LuaScript, args: readonly Argument[]) {
    super(nothing)
    this.#client = client
    this.#script = script
    this.#args = args
    this.promise = new Promise((resolve, reject) => {
      this.#fulfill = resolve
      this.#fail = reject
    })
  }

  /** as ioredis has them */
  get args (): Array<string | Buffer | number> {
    return [this.#script.hash, this.#script.keys, ...this.#args]
  }

  /** in a cluster */
  getSlot (): number {
    return new Command(this.name, this.args).getSlot()
  }

  getKeys (): Array<string | Buffer> {
    return this.#args.slice(0, this.#script.keys).map(String)
  }

  toWritable (connection: object): Part {
    this.#connection = connection
    const args = this.#args
    let text = `*${args.length + 3}\r\n${this.#script.begin(connection)}`
    let parts: Part[] | undefined
    for (const arg of args) {
      if (typeof arg === 'object') {
        (parts ??= []).push(`${text}$${arg.length}\r\n`, arg)
        text = '\r\n'
      } else { text += bulk(typeof arg === 'number' ? `${arg}` : arg) }
    }
    if (parts === undefined) return text
    return Buffer.concat([...parts, text].map((part) => typeof part === 'string' ? Buffer.from(part) : part))
  }

  /** The first time counts: in a cluster it may be sent to several servers, one after the other. */
  setTimeout (ms: number): void {
    if (!this.isSet) this.set(ms)
  }

  protected override ring (): void {
    this.#isRepeated = true                                   // a refusal that comes later is heard by nobody
    this.#fail(new Error('Command timed out'))
  }

  resolve (reply: unknown): void {
    this.off()
    this.#fulfill(textOf(reply))
  }

  /** A server that does not have the script is sent it once more. */
  reject (error: Error): void {
    this.off()
    if (this.#isRepeated || !error.message.includes('NOSCRIPT')) { this.#fail(error); return }
    this.#isRepeated = true
    if (this.#connection !== undefined) this.#script.forget(this.#connection)
    this.#client.sendCommand(this as unknown as Command)
  }
}

function nothing (): void {}

/** A text as Redis's protocol has it. */
function bulk (text: string): string {
  return `$${Buffer.byteLength(text)}\r\n${text}\r\n`
}

/** A reply with the texts of its bytes. */
function textOf (reply: unknown): unknown {
  if (Buffer.isBuffer(reply)) return reply.toString()
  return Array.isArray(reply) ? reply.map(textOf) : reply
}
