// Waits for what nobody announces, and says what it was when it never comes.
import { setTimeout as pause } from 'node:timers/promises'

/**
 * Longer than anything here takes on a busy machine, and far below the time limit of a file: a wrong expectation costs
 * minutes, not a quarter of an hour.
 */
export const LIMIT_MS = 300_000

/** Asks again and again until there is something. @throws {Error} there never was: with the text of the question */
export async function until<T> (
  seen: () => T | undefined | false | Promise<T | undefined | false>,
  limitMs = LIMIT_MS
): Promise<T> {
  for (const since = performance.now();;) {
    const found = await seen()
    if (found !== undefined && found !== false) return found
    refuseAfter(limitMs, since, seen)
    await pause(1)
  }
}

/** @throws {Error} more time has passed than may */
export function refuseAfter (limitMs: number, since: number, seen: () => unknown): void {
  if (performance.now() - since > limitMs) throw new Error(`waited ${limitMs / 1000} s in vain for ${String(seen)}`)
}
