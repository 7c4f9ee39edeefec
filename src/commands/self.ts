// Who runs a command that has the data folder without a gateway.
import { hostname, userInfo } from 'node:os'
import type { Person } from '../admin/api/operation.ts'

/** Whoever may write the data folder is its owner. */
export function self (): Person {
  return { who: `command of ${userInfo().username}`, role: 'owner', address: hostname() }
}
