// Admissions: the rate limits and concurrency slots of keys. Redis counts; while it is away `on_outage` decides.
import type { OutageConfig } from '../../config/config.ts'
import { GatewayError } from '../../errors.ts'
import type { Admission, AdmissionResult, WindowState } from '../store.ts'
import { Windows } from '../local/rate-windows.ts'
import type { Ended } from './ended.ts'
import { AwayError } from './connection.ts'
import type { Space } from './keyspace.ts'

interface Slot {
  readonly account: string
  readonly name: string
  /** milliseconds of a steady clock; Infinity: it is unknown whether the slot was taken, and it is not renewed */
  renewedAt: number
}

export class Admissions {
  readonly #space: Space
  readonly #ended: Ended
  readonly #now: () => number
  /** by request id */
  readonly #slots = new Map<string, Slot>()
  /** what this process has admitted, where it may decide alone during an outage */
  readonly #local: Windows | undefined

  /** @param now a steady clock */
  constructor (space: Space, ended: Ended, policy: OutageConfig['limits'], now: () => number) {
    this.#space = space
    this.#ended = ended
    this.#now = now
    this.#local = policy === 'degrade' ? new Windows(now) : undefined
  }

  async admit (admission: Admission): Promise<AdmissionResult> {
    const { request_id: id, account = '', slot } = admission
    let result: AdmissionResult
    try {
      result = await this.#ask('admit', admission)
    } catch (thrown) {
      if (!(thrown instanceof AwayError)) throw thrown
      // The admission may have arrived: kept, so that its slot can be given back.
      if (slot !== undefined && !thrown.isUnasked) {
        this.#slots.set(id, { account, name: slot.name, renewedAt: Infinity })
      }
      result = this.#alone(thrown).admit(admission)
      if (result.kind === 'refused') await this.leave(id)
      return result
    }
    if (result.kind === 'admitted') {
      if (slot !== undefined) this.#slots.set(id, { account, name: slot.name, renewedAt: this.#now() })
      // Counted here too, for the time when this process decides alone.
      this.#local?.admit(admission)
    }
    return result
  }

  async wouldAdmit (admission: Admission): Promise<AdmissionResult> {
    try {
      return await this.#ask('wouldAdmit', admission)
    } catch (thrown) {
      if (!(thrown instanceof AwayError)) throw thrown
      return this.#alone(thrown).wouldAdmit(admission)
    }
  }

  /** @throws {AwayError} */
  async #ask (script: 'admit' | 'wouldAdmit', admission: Admission): Promise<AdmissionResult> {
    const { request_id: id, account = '', windows, slot } = admission
    if (slot !== undefined && this.#slots.has(id)) throw new Error(`the request ${id} has a slot already`)
    const told = await this.#space.decide(script, account, id, slot?.name ?? '', slot?.limit ?? 0,
      ...windows.flatMap(({ name, limit }) => [name, limit]))
    const [kind, name, taken, ...numbers] = told as [string, string, number, ...number[]]
    if (kind === 'taken') throw new Error(`the request ${id} has a slot already`)
    const states = windows.map(({ name, limit }, i): WindowState => ({
      name,
      limit,
      remaining: numbers[3 * i]!,
      next_ms: numbers[3 * i + 1]!,
      reset_ms: numbers[3 * i + 2]!
    }))
    if (kind === 'window') return { kind: 'refused', by: 'window', name, windows: states }
    if (kind === 'slot') return { kind: 'refused', by: 'slot', name, taken, windows: states }
    return { kind: 'admitted', windows: states }
  }

  async leave (requestId: string): Promise<void> {
    this.#local?.leave(requestId)
    const slot = this.#slots.get(requestId)
    if (slot === undefined) return
    this.#slots.delete(requestId)
    await this.#ended.giveBack('leave', slot.account, requestId, slot.name)
  }

  /**
   * Slots last renewed at `by` or before; they count as renewed from now on.
   * @returns account, name of the slot and request id of each
   */
  * renewed (by: number): Iterable<readonly [account: string, name: string, id: string]> {
    const now = this.#now()
    for (const [id, slot] of this.#slots) {
      if (slot.renewedAt > by) continue
      slot.renewedAt = now
      yield [slot.account, slot.name, id]
    }
  }

  /** @throws {GatewayError} auth_unavailable: the policy admits no request while Redis is away */
  #alone (cause: AwayError): Windows {
    if (this.#local !== undefined) return this.#local
    const message = 'The limits of keys cannot be checked at this moment. Your key may be fine: try again in {wait}.'
    throw new GatewayError('auth_unavailable', { cause, message })
  }
}
