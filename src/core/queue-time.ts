// Time that an exchange waits for its turn, or for a target to recover: counted, so that nobody takes it for our own
// work (src/README.md#queue-time).
import type { Exchange } from './exchange.ts'

/** @throws whatever the promise does */
export async function waitFor<T> (exchange: Exchange, turn: Promise<T>): Promise<T> {
  const { record } = exchange
  const began = performance.now()
  try {
    return await turn
  } finally {
    const now = performance.now()
    record.queue_ms += now - began
    // What lies behind the last byte of the attempt before is not ours either.
    if (record.upstream_end_at !== 0) record.upstream_end_at = now
  }
}

/** @param ms milliseconds @throws {GatewayError} why the exchange can't go on, as soon as it can't */
export async function pause (exchange: Exchange, ms: number): Promise<void> {
  exchange.throwIfAborted()
  if (ms <= 0) return
  const { timer } = exchange.snapshot.services.upstreams
  await waitFor(exchange, new Promise<void>((resolve, reject) => {
    const onAbort = (): void => {
      stop()
      reject(exchange.abortReason)
    }
    const stop = timer(ms, () => {
      exchange.offAbort(onAbort)
      resolve()
    })
    exchange.onAbort(onAbort)
  }))
}
