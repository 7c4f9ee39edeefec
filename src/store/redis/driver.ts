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
  }
}
