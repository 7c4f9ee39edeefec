// Adds up the whole ledger again from time to time, so that an alert can tell of a balance that is not the sum of its
// entries before anybody asks. Only a store in this process: its thread reads while requests go on, 2.5 µs for an
// entry (CPU, measured). A shared store would be read by every gateway; `ledger verify` asks one of them.
import type { Timer } from '../base/timer.ts'
import type { GatewayServices } from './services.ts'

/** A gateway that is restarted every day is looked at too. */
const FIRST_MS = 5 * 60_000

/** @param every milliseconds; 0: never @returns stops it */
export function verifyRegularly (
  { store, metrics, log }: Pick<GatewayServices, 'store' | 'metrics' | 'log'>,
  every: number,
  timer: Timer
): () => void {
  if (every === 0 || store.health !== undefined) return () => {}
  let isOver = false
  let cancel: () => void
  const look = async (): Promise<void> => {
    try {
      const { differences, entries } = await store.verify()
      metrics.verified(differences.length)
      if (differences.length > 0) {
        log.error({ alert: 'ledger_differs', entries, differences: differences.length },
          'balances are not the sums of their entries: look at `gateway ledger verify`')
      }
    } catch (err) {
      if (!isOver) log.error({ err }, 'the ledger could not be added up: it is tried again')
    }
    if (!isOver) cancel = timer(every, () => { void look() })
  }
  cancel = timer(Math.min(FIRST_MS, every), () => { void look() })
  return () => {
    isOver = true
    cancel()
  }
}
