// A process with an embedded store, to be killed: works until then, and writes down what it was told, as soon as it is.
import { writeSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import { noUsage } from '../../src/money/usage.ts'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import type { Settlement } from '../../src/store/store.ts'

const [folder, work, run] = process.argv.slice(2) as [string, string, string]

/** To a file: what is written there outlives the process. */
function tell (...words: readonly (string | bigint)[]): void {
  writeSync(1, words.join(' ') + '\n')
}

function settlement (id: string, nanos: bigint): Settlement {
  return { request_id: id, nanos, model: 'm', channel: 'premium',
    usage: { ...noUsage, output: 5, ...(nanos % 2n === 0n && { extras: { image: 1 } }) }, usage_source: 'provider' }
}

const quiet = (): void => {}
const store = await openEmbedded({ folder, log: { info: quiet, warn: quiet, error: quiet }, progress_interval: 0 })

/** In UTC, or some days before. */
function today (before: number): string {
  return new Date(Date.now() - before * 86_400_000).toISOString().slice(0, 10)
}

/**
 * Until it is killed: credits, refunds and debits, holds that are settled, some of which are refunded, and holds that
 * are given back. Some stream, and record their progress.
 */
async function spend (spender: number): Promise<void> {
  const account = `a${spender % 3}`
  const key = `${account}-k${spender % 2}`
  for (let i = 0; ; i++) {
    const id = `${run}-${spender}-${i}`
    let wanted: string | undefined = `credit c-${id}`
    try {
      if (await store.credit(account, `c-${id}`, 50n)) tell('done', wanted, 50n)
      wanted = undefined                                      // its repetition may fail, and it is there all the same
      if (i % 2 === 1) await store.credit(account, `c-${id}`, 50n)
      const kind = i % 2 === 1 ? 'refund' : 'debit'
      wanted = `${kind} ${id}`
      if (await store.book({ kind, account, reference: id, nanos: 3n, reason: 'why' }) === 'new') {
        tell('done', wanted, kind === 'debit' ? -3n : 3n)
      }
      wanted = `settle ${id}`
      if (store.hold({ request_id: id, account, key, nanos: 40n, day: today(i % 3) }).kind !== 'held') continue
      if (i % 5 === 1) {
        store.release(id)
        store.failed({ account, key, model: 'm', channel: 'premium' })
        continue
      }
      if (i % 5 === 2) store.progress(settlement(id, 3n))
      const settling = Promise.resolve(store.settle(settlement(id, BigInt(i % 60))))
      if (i % 7 === 3) {
        // While it is on its way: withdrawn, or given back behind it.
        settling.catch(quiet)
        await store.refund(id)
        tell('zero', wanted, 0n)
        continue
      }
      tell('done', wanted, -await settling)
      if (i % 7 !== 5) continue
      wanted = undefined                                      // it is there, whatever becomes of its refund
      await store.refund(id)
      tell('zero', `settle ${id}`, 0n)
    } catch {
      if (wanted !== undefined) tell('failed', wanted)
      store.release(id)
      await setTimeout(1)
    }
  }
}

switch (work) {
  case 'open':
    tell('ready')
    setInterval(quiet, 1000)
    break
  case 'work':
    tell('ready')
    await Promise.all(Array.from({ length: 12 }, async (_, spender) => {
      await spend(spender)
    }))
    break
  case 'stream':
    await store.credit('acme', 'c', 1000n)
    for (const [id, nanos] of [['long', 70n], ['short', 0n], ['given-back', 5n], ['dear', 500n]] as const) {
      store.hold({ request_id: id, account: 'acme', key: 'dev', nanos: 100n })
      if (nanos > 0n) { store.progress(settlement(id, 1n)); store.progress(settlement(id, nanos)) }
    }
    store.release('given-back')
    await store.credit('acme', 'c', 1000n)                    // answered after all that came before it
    tell('ready')
    setInterval(quiet, 1000)
}
