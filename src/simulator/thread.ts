// The simulator on a thread of its own, so that the demo's vendor takes no time from the gateway's event loop.
import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { SimulatorOptions } from './simulator.ts'

export interface SimulatorThread {
  readonly url: string
  close (): Promise<void>
}

/** Options that can be sent to a thread. */
export type ThreadOptions = Omit<SimulatorOptions, 'now'>

/**
 * Never keeps the process alive.
 * @param onDeath told once if the thread dies later without being closed; its url refuses connections then
 * @throws the thread's own error, if it does not start
 */
export async function startSimulatorThread (
  options: ThreadOptions = {},
  onDeath: (error: Error) => void = () => {}
): Promise<SimulatorThread> {
  // From a checkout the file is worker.ts, from the packed build worker.js: as this one.
  // The flags of the process are not for it (`--input-type` alone would stop it).
  const worker = new Worker(new URL(`./worker${extname(import.meta.url)}`, import.meta.url), { workerData: options,
    execArgv: [] })
  let isClosing = false
  const url = await new Promise<string>((resolve, reject) => {
    let isReady = false
    let cause: Error | undefined
    worker.once('message', (message: string) => {
      isReady = true
      resolve(message)
    })
    worker.on('error', (error) => { cause = error instanceof Error ? error : new Error(String(error)) })
    worker.once('exit', (code) => {
      const death = cause ?? new Error(`the simulator's thread ended with code ${code}`)
      if (!isReady) reject(death)
      else if (!isClosing) onDeath(death)
    })
  })
  worker.unref()
  return {
    url,
    async close () {
      isClosing = true
      await worker.terminate()
    }
  }
}
