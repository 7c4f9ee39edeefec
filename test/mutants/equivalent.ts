// Changes that nobody could notice, and why: by file, the line's text, and what becomes of it.

export interface Equivalent {
  readonly file: string
  /** a part of the line that names it alone in its file */
  readonly line: string
  readonly what: string
  readonly why: string
}

export const equivalent: readonly Equivalent[] = [
  {
    file: 'plugins/billing-meter/bounds.ts', line: 'input: Math.max(0, ...inputs)', what: '0 becomes 1',
    why: 'a request of a plan with attempts has more tokens than that, and one without attempts calls no upstream'
  },
  {
    file: 'plugins/billing-meter/bounds.ts', line: 'first: output <= SLICE ? most : held(SLICE)', what: '<= becomes <',
    why: 'at the bound both sides are the same amount: held(SLICE) is the most, and a least of all is none'
  },
  {
    file: 'plugins/billing-meter/meter.ts', line: '  images = 0', what: '0 becomes 1',
    why: 'each attempt at an image model begins with none (beginItems), and nothing reads it before'
  },
  {
    file: 'plugins/billing-meter/meter.ts', line: '    this.nextLook = STEP', what: 'the line is gone',
    why: 'only what is delivered moves it, and behind the commit no attempt begins'
  },
  {
    file: 'plugins/billing-meter/index.ts', line: 'if (meter === undefined || tally === undefined) return',
    what: '|| becomes &&', why: 'a stream is of an attempt at a text model: there are both, or neither'
  },
  {
    file: 'src/store/local/balances.ts', line: 'return a < b ? a : b', what: '< becomes <=',
    why: 'of two equal amounts either is the smaller one'
  },
  {
    file: 'plugins/billing-meter/meter.ts', line: 'return a < b ? a : b', what: '< becomes <=',
    why: 'of two equal amounts either is the smaller one'
  },
  {
    file: 'src/store/local/window-notes.ts', line: 'this.#most = Math.max(1024', what: 'Math.max becomes Math.min',
    why: 'notes that cover nothing are looked for more often, and are as good as none'
  },
  {
    file: 'src/store/redis/address.ts', line: '...(db > 0 && { db })', what: '> becomes >=',
    why: 'a connection that names no database has that of number 0'
  },
  {
    file: 'src/store/redis/budget-lease.ts', line: 'nanos < purse.left ? nanos : purse.left', what: '< becomes <=',
    why: 'of two equal amounts either is the smaller one'
  },
  {
    file: 'src/store/redis/import.ts', line: 'nanos < 0n ? -nanos : nanos', what: '< becomes <=',
    why: 'there is no negative zero of a bigint'
  },
  {
    file: 'src/store/redis/lua/records.ts', line: 'seen[field] = true', what: 'true becomes false',
    why: 'a record that was changed twice is told twice, with the same text both times'
  },
  {
    file: 'src/store/redis/import.ts', line: 'if (this.#running.length < AT_ONCE) return', what: 'the line is gone',
    why: 'each command is waited for alone: as right, and slower'
  }
]
