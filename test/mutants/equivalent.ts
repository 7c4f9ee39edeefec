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
    file: 'plugins/billing-meter/items.ts', line: 'return itemCost(rate, 0, secondsIn(variant))', what: '0 becomes 1',
    why: 'a row of a video model has no price of an image'
  },
  {
    file: 'plugins/billing-meter/items.ts', line: "kind === 'image' ? imagesAsked(exchange) : 0", what: '0 becomes 1',
    why: 'a row of a video model has no price of an image'
  },
  {
    file: 'plugins/billing-meter/index.ts', line: 'if (meter === undefined || tally === undefined) return',
    what: '|| becomes &&', why: 'a stream is of an attempt at a text model: there are both, or neither'
  },
  {
    file: 'plugins/billing-meter/index.ts', line: 'let charge = 0n', what: '0n becomes 1n',
    why: 'the last event of a stream sets it in `ready`, before `event` reads it'
  },
  {
    file: 'src/store/local/balances.ts', line: 'return a < b ? a : b', what: '< becomes <=',
    why: 'of two equal amounts either is the smaller one'
  },
  {
    file: 'src/store/local/balances.ts', line: 'limits, nanos: 0n, recordedAt: at', what: '0n becomes 1n',
    why: 'it is set when the hold is taken, and not read before'
  },
  {
    file: 'src/store/embedded/ledger.ts', line: 'if (cells.length < SLICE * 3) continue', what: 'the line is gone',
    why: 'each sum is compared alone: as right, and slower'
  },
  {
    file: 'src/store/embedded/ledger.ts', line: '?? { seq: -1, time: 0 }', what: '0 becomes 1',
    why: 'no clock is at the first millisecond of 1970'
  },
  {
    file: 'plugins/billing-meter/meter.ts', line: 'return a < b ? a : b', what: '< becomes <=',
    why: 'of two equal amounts either is the smaller one'
  },
  {
    file: 'src/store/local/batch.ts', line: '  isRecorded = false', what: 'the line is gone',
    why: 'it is only asked whether it is true: nothing is as good as false'
  },
  {
    file: 'src/store/local/entry-ids.ts', line: 'after = { seq: -1, time: 0 }', what: '0 becomes 1',
    why: 'no clock is at the first millisecond of 1970'
  },
  {
    file: 'src/store/redis/address.ts', line: '...(db > 0 && { db })', what: '> becomes >=',
    why: 'a connection that names no database has that of number 0'
  },
  {
    file: 'src/store/redis/address.ts', line: 'autoResendUnfulfilledCommands: false', what: 'false becomes true',
    why: 'what is unanswered has failed by then, as maxRetriesPerRequest says: nothing is left to be sent again'
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
    file: 'src/store/redis/entries.ts', line: 'if (all[above]!.next!.id <= reader.next!.id) break', what: '<= becomes <',
    why: 'no two entries have the same id'
  },
  {
    file: 'src/store/redis/entries.ts', line: 'if (all[below]!.next!.id >= last.next!.id) break', what: '>= becomes >',
    why: 'no two entries have the same id'
  },
  {
    file: 'src/store/redis/connection.ts', line: '  #lag = 0', what: '0 becomes 1',
    why: 'the first look at Redis sets it, before anything can read it'
  },
  {
    file: 'src/store/redis/connection.ts', line: 'if (this.#isClosed || ms <= 0) return false', what: '0 becomes 1',
    why: 'another pace: a wait of at most a millisecond'
  },
  {
    file: 'src/store/redis/outbox.ts', line: '  #isTorn = false', what: 'false becomes true',
    why: 'the file is cut where it ends'
  },
  {
    file: 'src/store/redis/tasks.ts', line: '    if (own.length > 0) {', what: '> becomes >=',
    why: 'to watch no tasks changes nothing in Redis'
  },
  {
    file: 'src/store/redis/lua/account.ts', line: 'tonumber(times[2] or 0)', what: '0 becomes 1',
    why: 'no clock is at the first millisecond of 1970'
  },
  {
    file: 'src/store/redis/lua/account.ts', line: 'or now < seen then', what: '< becomes <=',
    why: 'what is noted then is there already'
  },
  {
    file: 'src/store/redis/lua/tasks.ts', line: 'if outcome(id) then return 0 end', what: '0 becomes 1',
    why: 'a request that has a hold has no outcome: what gives it one takes the hold'
  },
  {
    file: 'src/store/redis/lua/tasks.ts', line: "redis.call('ZADD', KEYS[1], 'XX', 0, ARGV[i])", what: '0 becomes 1',
    why: 'either is a time that has passed'
  },
  {
    file: 'src/store/redis/lua/records.ts', line: 'seen[field] = true', what: 'true becomes false',
    why: 'a record that was changed twice is told twice, with the same text both times'
  },
  {
    file: 'src/store/redis/import.ts', line: 'if (this.#running.length < AT_ONCE) return', what: 'the line is gone',
    why: 'each command is waited for alone: as right, and slower'
  },
  {
    file: 'src/store/sealed-responses.ts', line: 'opened.indexOf(BREAK, opened.indexOf(BREAK) + 1)',
    what: '1 becomes 2', why: 'between the two is an answer, which has a byte at least'
  },
  {
    file: 'src/store/embedded/responses.ts', line: 'await rm(file + PART, { force: true }).catch(() => {})',
    what: 'true becomes false', why: 'that there is none is caught too'
  },
  {
    file: 'src/store/embedded/backup.ts', line: 'unsynced = 0', what: 'the line is gone',
    why: 'what was copied is synced more often: as right, and slower'
  },
  {
    file: 'src/store/embedded/backup.ts', line: 'unsynced = 0', what: '0 becomes 1',
    why: 'one page more or less between two syncs'
  },
  {
    file: 'src/store/sealed-responses.ts', line: '#inFlight = 0', what: '0 becomes 1',
    why: 'one byte of a limit of 256 MB'
  },
  {
    file: 'src/store/redis/newest.ts', line: 'let read = 0', what: '0 becomes 1',
    why: 'a page ends one entry earlier, and says where the next one begins'
  },
  {
    file: 'src/store/redis/lua/rolling.ts', line: 'if at > now -', what: '> becomes >=',
    why: 'an entry of eight days ago to the millisecond: hours are read for seven days'
  }
]
