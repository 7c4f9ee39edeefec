// The money and the limits that an exchange reaches (`exchange.ledger`). Of a real one they are the store's own. Of a
// dry run they answer what the store would say now, and change nothing (pipeline/dry-ledger.ts).
import type { Store } from '../store/store.ts'

export interface Ledger extends Pick<Store, 'health' | 'hold' | 'wouldHold' | 'extend' | 'settle' | 'release'
  | 'refund' | 'progress' | 'admit' | 'wouldAdmit' | 'leave' | 'balance' | 'keyUsage'> {}
