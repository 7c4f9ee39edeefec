// The driver `redis`: shared by any number of gateways.
import type { Driver } from '../driver.ts'
import { isMachineClock } from '../../base/end-of-turn.ts'
import { steady } from '../local/rate-windows.ts'

export const driver: Driver = {
  async open (config, folder, log, now) {
    const { RedisStore } = await import('./store.ts')
    return await RedisStore.open({ config, folder, log, ...(!isMachineClock(now) && { now: steady(now) }) })
  },
  async fill (config, _folder, log, rows) {
    const { fillRedis } = await import('./import.ts')
    await fillRedis(config, log, rows)
  },
  async acceptLoss (config, folder) {
    const { acceptLoss } = await import('./accept-loss.ts')
    return await acceptLoss(config, folder)
      ? 'Within seconds the gateways go on with what Redis has, and send it what their outboxes still have. A reload ' +
        'or a start credits the opening balances of gateway.yaml that Redis does not have.\n'
      : undefined
  }
}
