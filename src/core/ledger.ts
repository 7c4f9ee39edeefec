// An exchange's interface to money and limits (`exchange.ledger`). That of a real exchange is the store; that of a dry
// run answers as the store would now, and changes nothing (pipeline/dry-ledger.ts).
import type { Rollups } from '../store/rollups.ts'
import type { Store } from '../store/store.ts'

export interface Ledger extends Pick<Rollups, 'failed'>, Pick<Store, 'health' | 'hold' | 'wouldHold' | 'extend'
  | 'settle' | 'release' | 'refund' | 'progress' | 'admit' | 'wouldAdmit' | 'leave' | 'balance' | 'keyUsage'> {}
