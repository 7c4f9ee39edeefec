// Admissions: how often somebody may ask, and how many of his requests may run. Redis counts; while it is away, what the operator wants.
import type { OutageConfig } from '../../config/config.ts'
import { GatewayError } from '../../errors.ts'
import type { Admission, AdmissionResult, WindowState } from '../store.ts'
import { Windows } from '../windows.ts'
import type { Ended } from './ended.ts'
import { AwayError } from './link.ts'
import type { Space } from './space.ts'

interface Slot {
  readonly account: string
  readonly name: string
  /** of a clock that never goes back; Infinity: it is not known whether it was taken, and nobody renews it */
  renewedAt: number
}

export class Admissions {
  readonly #space: Space
  readonly #ended: Ended
  readonly #policy: OutageConfig['limits']
  readonly #now: () => number
  /** by request id */
  readonly #slots = new Map<string, Slot>()
  /** what this process alone has admitted, where it may go on with that */
  readonly #local: Windows | undefined

  /** @param now a clock that never goes back */
  constructor (space: Space, ended: Ended, policy: OutageConfig['limits'], now: () => number) {
    this.#space = space
    this.#ended = ended
    this.#policy = policy
    this.#now = now
    this.#local = policy === 'local' ? new Windows(now) : undefined
  }

  async admit (admission: Admission): Promise<AdmissionResult> {
    const { request_id: id, account = '', windows, slot, dry: isDry = false } = admission
    if (slot !== undefined && this.#slots.has(id)) throw new Error(`the request ${id} has a slot already`)
    let told: readonly (string | number)[]
    try {
      told = await this.#space.decide('admit', account, id, isDry ? 1 : 0, slot?.name ?? '', slot?.limit ?? 0, ...windows.flatMap(({ name, limit }) => [name, limit])) as typeof told
    } catch (thrown) {
      if (!(thrown instanceof AwayError)) throw thrown
      // It may have been admitted: then its slot can be given back.
      if (slot !== undefined && !isDry && !thrown.isUnasked) this.#slots.set(id, { account, name: slot.name, renewedAt: Infinity })
      const result = this.#admitAlone(admission, thrown)
      if (result.kind === 'refused') await this.leave(id)
      return result
    }
    const [kind, name, taken, ...numbers] = told as [string, string, number, ...number[]]
    if (kind === 'taken') throw new Error(`the request ${id} has a slot already`)
    const states = windows.map(({ name, limit }, i): WindowState => ({ name, limit, remaining: numbers[3 * i]!, next_ms: numbers[3 * i + 1]!, reset_ms: numbers[3 * i + 2]! }))
    if (kind === 'window') return { kind: 'refused', by: 'window', name, windows: states }
    if (kind === 'slot') return { kind: 'refused', by: 'slot', name, taken, windows: states }
    if (!isDry) {
      if (slot !== undefined) this.#slots.set(id, { account, name: slot.name, renewedAt: this.#now() })
      // So that it knows what it has admitted when it is alone.
      this.#local?.admit(admission)
    }
    return { kind: 'admitted', windows: states }
  }

  async leave (requestId: string): Promise<void> {
    this.#local?.leave(requestId)
    const slot = this.#slots.get(requestId)
    if (slot === undefined) return
    this.#slots.delete(requestId)
    await this.#ended.giveBack('leave', slot.account, requestId, slot.name)
  }

  /** Slots that were renewed by then: they are renewed now. @returns account, name of the slot and request id of each */
  * renewed (by: number): Iterable<readonly [account: string, name: string, id: string]> {
    const now = this.#now()
    for (const [id, slot] of this.#slots) {
      if (slot.renewedAt > by) continue
      slot.renewedAt = now
      yield [slot.account, slot.name, id]
    }
  }

  /** @throws {GatewayError} auth_unavailable: nobody is admitted while Redis is away */
  #admitAlone (admission: Admission, cause: AwayError): AdmissionResult {
    switch (this.#policy) {
      case 'deny': throw new GatewayError('auth_unavailable', { cause, message: 'The limits of keys cannot be checked at this moment. Your key may be fine: try again in {wait}.' })
      case 'local': return this.#local!.admit(admission)
      case 'allow': return { kind: 'admitted', windows: admission.windows.map((window) => ({ ...window, remaining: window.limit, next_ms: 0, reset_ms: 0 })) }
    }
  }
}
