// The lane's reader against node's parser: what the reader takes, node reads as the same request from the same bytes.
import { RequestReader, type LaneRequest, type NoRequest } from '../../src/http/lane/read-request.ts'
import { Chance } from './chance.ts'
import { laneInput, nextInput } from './lane-inputs.ts'
import { NodeParser, type Parsed } from './node-parser.ts'

export interface LaneFuzzed {
  readonly inputs: number
  /** inputs that the reader took */
  readonly taken: number
  /** each with its seed and number */
  readonly wrong: readonly string[]
}

type Reader = Pick<RequestReader, 'read'>

const MOST_WRONG = 10
/** Inputs of one connection, whose reader knows the head before. */
const ONE_CONNECTION = 50
const LONGEST = 4000

export class LaneFuzz {
  readonly #seed: number
  readonly #chance: Chance
  readonly #say: (line: string) => void
  readonly #open: () => Reader
  readonly #node = new NodeParser()
  readonly #wrong: string[] = []
  #reader: Reader
  #number = 0
  #taken = 0

  /**
   * @param say told of each wrong when it is found
   * @param open makes the reader of a connection
   */
  constructor (seed: number, say: (line: string) => void = () => {}, open: () => Reader = () => new RequestReader()) {
    this.#seed = seed
    this.#chance = new Chance(seed)
    this.#say = say
    this.#open = open
    this.#reader = open()
  }

  run (inputs: number): LaneFuzzed {
    const chance = this.#chance
    let text = ''
    for (; this.#number < inputs && this.#wrong.length < MOST_WRONG; this.#number++) {
      if (this.#number % ONE_CONNECTION === 0) this.#reader = this.#open()
      text = text !== '' && text.length < LONGEST && chance.is(0.4) ? nextInput(chance, text) : laneInput(chance)
      this.#try(Buffer.from(text, 'latin1'))
    }
    return { inputs: this.#number, taken: this.#taken, wrong: this.#wrong }
  }

  #try (bytes: Buffer): void {
    // A beginning comes first, as from a slow client.
    const cut = bytes.subarray(0, this.#chance.below(bytes.length + 1))
    const begun = this.#reader.read(cut)
    if (typeof begun !== 'string') this.#compare(cut, begun, this.#node.parse(cut))
    const request = this.#reader.read(bytes)
    if (!isSame(request, this.#open().read(bytes))) this.#report('what came before it changes what is read', bytes)
    if (typeof request === 'string') return
    this.#taken++
    if (begun === 'foreign') this.#report('its beginning was foreign', bytes)
    this.#compare(bytes, request, this.#node.parse(bytes))
  }

  #compare (bytes: Buffer, request: LaneRequest, parsed: Parsed | string): void {
    if (typeof parsed === 'string') { this.#report(parsed, bytes); return }
    const isEqual = parsed.method === 'POST' && parsed.version === '1.1' && parsed.isPlain &&
      parsed.target === request.target && parsed.body === bytes.toString('latin1', request.bodyAt) &&
      areSame(parsed.headers, request.headers)
    if (!isEqual) this.#report(`node reads ${JSON.stringify(parsed)}`, bytes)
  }

  #report (why: string, bytes: Buffer): void {
    this.#wrong.push(`seed ${this.#seed}, input ${this.#number}: ${why}: ${JSON.stringify(bytes.toString('latin1'))}`)
    this.#say(this.#wrong.at(-1)!)
  }
}

function isSame (one: LaneRequest | NoRequest, other: LaneRequest | NoRequest): boolean {
  if (typeof one === 'string' || typeof other === 'string') return one === other
  return one.target === other.target && one.bodyAt === other.bodyAt && areSame(one.headers, other.headers)
}

/** The same names in the same order, with the same values. */
function areSame (one: Readonly<Record<string, unknown>>, other: Readonly<Record<string, unknown>>): boolean {
  const [names, others] = [Object.keys(one), Object.keys(other)]
  return names.length === others.length && names.every((name, i) => name === others[i] && one[name] === other[name])
}
