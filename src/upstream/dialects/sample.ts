// What an upstream of a dialect may answer, for the warm-up of the gateway: no client ever gets it.

export interface Sample {
  /** a whole answer, as JSON */
  readonly reply: string
  /** the events of a stream, each as it is sent */
  readonly events: readonly string[]
}

/** Of one answer: each is an event's text. */
export const WORDS: readonly string[] = 'one two three four five six seven eight nine ten'.split(' ')

/** @param events each with a `type`, which is its name */
export function sseOf (events: readonly ({ readonly type: string } & Readonly<Record<string, unknown>>)[]): string[] {
  return events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)
}
