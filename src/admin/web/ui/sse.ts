// Reads server-sent events: the data of each, from text that comes in pieces.

/** @returns takes the next piece, and gives the data of the events that it completes */
export function eventReader (): (piece: string) => readonly string[] {
  let text = ''
  return (piece) => {
    text += piece
    const events = text.split(/\r?\n\r?\n/)
    text = events.pop()!
    return events.map((event) => /^data: ?(.*)$/m.exec(event)?.[1]).filter((data) => data !== undefined)
  }
}

/** The data of each event of an answer, as it comes. @throws {Error} the way to the gateway is cut */
export async function * eventsOf ({ body }: Response): AsyncGenerator<string> {
  if (body === null) return
  const read = eventReader()
  const reader = body.pipeThrough(new TextDecoderStream()).getReader()
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      yield * read(value)
    }
  } finally {
    await reader.cancel().catch(() => {})
  }
}
