// The admin API for commands: that of a running gateway, or on a data folder without one.

export interface AdminAnswer {
  readonly status: number
  readonly body: Readonly<Record<string, unknown>>
}

export interface AdminClient {
  /** @param address path and query. @throws {Error} no answer: says what to do */
  ask (method: string, address: string, body?: unknown): Promise<AdminAnswer>
  close (): Promise<void>
}
