// The drivers of the store, as one table with the properties that are needed before one is opened. Their code is in
// src/store, in the folder of the same name.

interface DriverTraits {
  /** for the reference */
  readonly meaning: string
  /** true: its data outlives the process */
  readonly isLasting: boolean
  /** true: several processes may have it open, each with an outbox for its charges in a data folder of its own */
  readonly isShared: boolean
  /** true: it is a server, with its address in `url`, `cluster` or `sentinels` */
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
/** the default */
export const [standardDriver] = driverNames

/** Undefined: no such driver. */
export function driverNamed (name: unknown): DriverTraits | undefined {
  return typeof name === 'string' && Object.hasOwn(drivers, name) ? drivers[name as DriverName] : undefined
}
