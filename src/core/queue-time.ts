// Measures the time that an exchange waits for a place or for a target to recover, so that it is not counted as the
// gateway's own time (src/README.md#queue-time).
import type { Exchange } from './exchange.ts'

/** @throws the promise's error */
export async function waitFor<T> (exchange: Exchange, turn: Promise<T>): Promise<T> {
  const { record } = exchange
  const began = performance.now()
  try {
    return await turn
  } finally {
    const now = performance.now()
    record.queue_ms += now - began
    // The wait also separates the earlier attempt's last byte from the gateway's own time after it.
    if (record.upstream_end_at !== 0) record.upstream_end_at = now
  }
}

/** @param ms milliseconds @throws {GatewayError} the abort reason of the exchange, at once */
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
