// The driver `memory`: nothing outlives the process.
import { MemoryStore } from '../local/memory.ts'
import type { Driver } from '../driver.ts'

export const driver: Driver = {
  open: async (_config, _folder, _log, now) => new MemoryStore(now),
  async fill () { throw new Error('what store.driver: memory keeps ends with its process') }
}
