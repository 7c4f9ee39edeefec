// The admin API as commands ask it: of a gateway that runs, or of a data folder where none does.

export interface AdminAnswer {
  readonly status: number
  readonly body: Readonly<Record<string, unknown>>
}

export interface AdminClient {
  /** @param address path and query. @throws {Error} nobody answers: says what to do */
  ask (method: string, address: string, body?: unknown): Promise<AdminAnswer>
  close (): Promise<void>
}
