// What changes, as the gateway tells it: one stream of events, opened again when it ends.
import { useEffect } from 'preact/hooks'
import { eventsOf } from './sse.ts'

export interface Change<Live> {
  readonly changed: readonly string[]
  readonly live: Live
}

const AGAIN_MS = 3000

/** @param hear is told of each event, as long as the page is open */
export function useChanges<Live> (hear: (change: Change<Live>) => void): void {
  useEffect(() => {
    const abort = new AbortController()
    const follow = async (): Promise<void> => {
      while (!abort.signal.aborted) {
        // What fails is tried again; whatever is not told the page reads by itself.
        await listen<Live>(abort.signal, hear).catch(() => {})
        await new Promise((resolve) => { setTimeout(resolve, AGAIN_MS) })
      }
    }
    void follow()
    return () => { abort.abort() }
  }, [])
}

/** Ends with the stream. @throws {Error} the way to the gateway is cut */
async function listen<Live> (signal: AbortSignal, hear: (change: Change<Live>) => void): Promise<void> {
  const response = await fetch('../admin/v1/events', { signal,
    headers: { 'x-gateway-ui': 'background', accept: 'text/event-stream' } })
  if (!response.ok) return
  for await (const data of eventsOf(response)) hear(JSON.parse(data) as Change<Live>)
}
