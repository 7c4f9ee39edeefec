// What changes, as the gateway tells it: one stream of events, opened again when it ends.
import { useEffect } from 'preact/hooks'

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
  if (!response.ok || response.body === null) return
  let text = ''
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    text += value
    const events = text.split(/\r?\n\r?\n/)
    text = events.pop()!
    for (const event of events) {
      const [, data] = /^data: ?(.*)$/m.exec(event) ?? []
      if (data !== undefined) hear(JSON.parse(data) as Change<Live>)
    }
  }
}
