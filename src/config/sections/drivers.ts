// The drivers of the store: one table, with what the rest of the program must know of each before it is opened. How one
// keeps what it is given is in src/store, in the folder of its name.

interface DriverTraits {
  /** for the reference */
  readonly meaning: string
  /** what it keeps outlives its process */
  readonly isLasting: boolean
  /** Several processes may have it open. What each charges waits in an outbox in a data folder of its own. */
  readonly isShared: boolean
  /** It is a server, whose address stands in `url`, `cluster` or `sentinels`. */
  readonly isServer?: true
}

const table = {
  embedded: { isLasting: true, isShared: false, meaning: 'SQLite in the data folder.' },
  redis: { isLasting: true, isShared: true, isServer: true, meaning: 'shared by any number of gateways.' },
  memory: { isLasting: false, isShared: false, meaning: 'nothing outlives the process.' }
} as const satisfies Readonly<Record<string, DriverTraits>>

export type DriverName = keyof typeof table

export const drivers: Readonly<Record<DriverName, DriverTraits>> = table
export const driverNames = Object.keys(table) as [DriverName, ...DriverName[]]
/** where `store:` names none */
export const [standardDriver] = driverNames

/** Undefined: there is none of this name. */
export function driverNamed (name: unknown): DriverTraits | undefined {
  return typeof name === 'string' && Object.hasOwn(drivers, name) ? drivers[name as DriverName] : undefined
}
