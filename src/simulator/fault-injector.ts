// What a request suffers: what it was told in a directive, and what is left to chance.
import type { Endpoint } from './dialect.ts'
import { faultsInModel, faultsInText, parseFaults, type Faults } from './faults.ts'
import { seededRandom } from './random.ts'
import { answerIn, sceneIn } from './script.ts'

export interface FaultOptions {
  /** what every request suffers, as in a directive: `cut_after=5 crlf`; of several, each request gets one */
  readonly faults?: string | readonly string[]
  /** the part of the requests that suffer `faults`, from 0 to 1; 1 by default */
  readonly faultRate?: number
  /** the part of the requests that get an error status, from 0 to 1; 0 by default */
  readonly errorRate?: number
  /** the statuses to choose from */
  readonly errorStatuses?: readonly number[]
  /**
   * milliseconds without faults, then as many with them, in turn; with no others, connections are closed before the
   * head then
   */
  readonly flapMs?: number
  /** of all that is left to chance: the same seed and order of requests, the same faults */
  readonly seed?: number
  /** false: directives in prompts and models' names are only words; for the healthy one of two upstreams */
  readonly directives?: boolean
  /** milliseconds since the epoch; for the life of cached prompts and the progress of videos too */
  readonly now?: () => number
}

/** Scripted answers of which is known how often they were asked for. */
const MOST_ANSWERS = 1000

export class FaultInjector {
  readonly #own: readonly Faults[]
  readonly #faultRate: number
  readonly #errorRate: number
  readonly #errorStatuses: readonly number[]
  readonly #flapMs: number | undefined
  readonly #directives: boolean
  readonly #random: () => number
  readonly #now: () => number
  readonly #startedAt: number
  readonly #asked = new Map<string, number>()

  /** @throws {UnknownDirective} `faults` is not understood */
  constructor (options: FaultOptions) {
    const { faults, faultRate = 1, errorRate = 0, errorStatuses = [429, 500, 503, 529], flapMs, seed = 1,
      directives = true, now = Date.now } = options
    this.#own = [faults ?? (flapMs === undefined || errorRate > 0 ? '' : 'cut')].flat().map(parseFaults)
    this.#faultRate = faultRate
    this.#errorRate = errorRate
    this.#errorStatuses = errorStatuses
    this.#flapMs = flapMs
    this.#directives = directives
    this.#random = seededRandom(seed)
    this.#now = now
    this.#startedAt = now()
  }

  /** Once for every request. @throws {UnknownDirective} */
  choose (endpoint: Endpoint | undefined, body: unknown, model: string | undefined, query: string): Faults {
    // Drawn for every request, wanted or not: what one request gets does not depend on how others were told to fail.
    const draws = { error: this.#random(), status: this.#random(), fault: this.#random() }
    const told = this.#directives
      ? { ...faultsInModel(model ?? ''), ...faultsInText(endpoint?.prompt(body) ?? ''), ...this.#scripted(body),
        ...parseFaults(new URLSearchParams(query).get('sim') ?? '') }
      : {}
    if (this.#isUp) return told
    const status = this.#errorStatuses[Math.floor(draws.status * this.#errorStatuses.length)]
    return {
      ...(draws.fault < this.#faultRate ? this.#own[Math.floor(draws.fault / this.#faultRate * this.#own.length)] : {}),
      ...(draws.error < this.#errorRate && status !== undefined
        ? { status, ...(status === 429 ? { retry_after: 1 } : {}) }
        : {}),
      ...told
    }
  }

  /** The conversation's script, and what the answer that comes next suffers. @throws {UnknownDirective} */
  #scripted (body: unknown): Faults {
    const scene = sceneIn(body)
    if (scene === undefined) return {}
    const { script, played } = scene
    const faults = answerIn(scene)?.faults ?? []
    if (faults.length === 0) return { script }
    const key = `${played} ${script}`
    const asked = this.#asked.get(key) ?? 0
    this.#asked.delete(key)
    this.#asked.set(key, asked + 1)
    const [oldest] = this.#asked.keys()
    if (this.#asked.size > MOST_ANSWERS && oldest !== undefined) this.#asked.delete(oldest)
    return { ...parseFaults(faults[asked] ?? ''), script }
  }

  /** Of one that flaps. */
  get #isUp (): boolean {
    return this.#flapMs !== undefined && Math.floor((this.#now() - this.#startedAt) / this.#flapMs) % 2 === 0
  }
}
