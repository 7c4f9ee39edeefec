// Lua: decisions about money. Each is safe to repeat: a repetition is known by the request's id, or by the decision's.
import { REFUNDED_LATE, SETTLED_LATE } from '../../late-entries.ts'
import { ASIDE_MS, LEASE_MS, ofAccount } from './account.ts'

/**
 * name of kind and reference, kind, reference, nanos, text of the entry or nothing, 1: booked before in a Redis that
 * may have lost it -> new; known; short: a debit of more than is available; much: the balance would pass 2^63 - 1. A
 * debit booked before takes what is available.
 */
const book = ofAccount(`
local name, kind, reference, wanted, what = ARGV[2], ARGV[3], ARGV[4], number(ARGV[5]), ARGV[6]
if redis.call('SISMEMBER', base .. 'references', name) == 1 then return 'known' end
local change
if kind == 'debit' then
  local taken = smaller(wanted, available())
  if isLess(taken, wanted) and ARGV[7] ~= '1' then return 'short' end
  change = negated(text(taken))
else
  if isLess(MOST, plus(number(redis.call('HGET', account, 'balance') or '0'), wanted)) then return 'much' end
  change = text(wanted)
end
-- Of an account whose bookings began with an earlier version it is not known.
if redis.call('SCARD', base .. 'references') == 0 then redis.call('HSETNX', account, 'credited', '0') end
local credited = redis.call('HGET', account, 'credited')
if kind == 'credit' and credited then
  redis.call('HSET', account, 'credited', text(plus(number(credited), wanted)))   -- may pass 64 bits
end
redis.call('SADD', base .. 'references', name)
redis.call('HINCRBY', account, 'balance', change)
write(kind, reference, change, nil, nil, what ~= '' and what)
return 'new'
`)

/**
 * The limits of a hold: the balance, then the key's limits, the longest period first. Refusals that waiting cannot help
 * come before the others. `own`: held by the same request already.
 */
const refusal = `
local function limitsOf (key, day, ever, month, today)
  local period = string.sub(day, 1, 7)
  local sums = redis.call('HMGET', purse(key), 's', 'h', 's:' .. period, 'h:' .. period, 's:' .. day, 'h:' .. day)
  local limits = {}
  for i, limit in ipairs({ ever, month, today }) do
    if limit ~= '' then
      local left, held = minus(number(limit), number(sums[2 * i - 1] or '0')), number(sums[2 * i] or '0')
      table.insert(limits, { left = left, held = held, period = ({ '', 'month', 'day' })[i] })
    end
  end
  return limits, plus(number(sums[1] or '0'), number(sums[2] or '0'))
end

local function refuse (balance, held, limits, used, nanos, own, needed)
  local function refused (by, total, others, asked, period)
    return { 'refused', by, period, text(asked), text(minus(total, others)), text(others) }
  end
  local others = minus(held, own)
  if isLess(balance, nanos) then return refused('balance', balance, others, needed, '') end
  for _, limit in ipairs(limits) do
    if isLess(limit.left, nanos) then
      return refused('usage_limit', limit.left, minus(limit.held, own), needed, limit.period)
    end
  end
  if isLess(minus(balance, others), nanos) then return refused('balance', balance, others, nanos, '') end
  for _, limit in ipairs(limits) do
    local busy = minus(limit.held, own)
    if isLess(minus(limit.left, busy), nanos) then
      return refused('usage_limit', limit.left, busy, nanos, limit.period)
    end
  end
  if isLess(MOST, plus(minus(used, own), nanos)) then return { 'much' } end
end
`

/** Decides about a hold, and only reads. Returns from the script with a refusal, or where there is a hold already. */
const judge = refusal + `
local decision, id, key, asked, least = ARGV[2], ARGV[3], ARGV[4], number(ARGV[5]), number(ARGV[6])
local day, oldest = ARGV[7], ARGV[8]
local low = number(ARGV[12])
local before = load(id)
if before then
  if before.by == decision then return { 'held', before.n } end
  return { 'taken' }
end
if outcome(id) then return { 'taken' } end
local sums = redis.call('HMGET', account, 'balance', 'held', 'aside')
local balance, held = number(sums[1] or '0'), number(sums[2] or '0')
local limits, used = limitsOf(key, day, ARGV[9], ARGV[10], ARGV[11])
local nanos = asked
if isLess(ZERO, least) then
  local left = balance
  for _, limit in ipairs(limits) do left = smaller(left, limit.left) end
  if not isLess(left, least) then nanos = smaller(nanos, left) end
end
local refused = refuse(balance, held, limits, used, nanos, ZERO, asked)
if refused then return refused end
-- A free request neither waits for others nor keeps others waiting; nor does money that is only set aside.
if isLess(ZERO, nanos) and isLess(balance, low) and isLess(number(sums[3] or '0'), held) then
  return { 'refused', 'low_balance', '', text(nanos), text(minus(balance, held)), text(held) }
end
`

/**
 * decision, id, key, nanos, least, day, oldest day, limits ever, per month, per day, low balance -> held, refused,
 * much, or taken: there is a hold or a settlement.
 */
const hold = ofAccount(`
sweep()
` + judge + `
open(key, day, oldest)
save(id, { n = text(nanos), k = key, d = day, by = decision, e = ARGV[9], m = ARGV[10], y = ARGV[11] })
redis.call('ZADD', leases, now + ${LEASE_MS}, id)
redis.call('HINCRBY', account, 'open', 1)
reserve(key, day, text(nanos))
return { 'held', text(nanos) }
`)

/** The result that `hold` would have now, in the same form. */
const wouldHold = ofAccount(judge + `
return { 'held', text(nanos) }
`)

/** decision, id, nanos, least -> held, refused, much, or none: there is no hold. */
const extend = ofAccount(refusal + `
local decision, id, more, least = ARGV[2], ARGV[3], number(ARGV[4]), number(ARGV[5])
local hold = load(id)
if not hold or hold.t then return { 'none' } end
if hold.by == decision then return { 'held', hold.n } end
local sums = redis.call('HMGET', account, 'balance', 'held')
local own, balance, held = number(hold.n), number(sums[1] or '0'), number(sums[2] or '0')
local limits, used = limitsOf(hold.k, hold.d, hold.e, hold.m, hold.y)
local room = minus(balance, held)
for _, limit in ipairs(limits) do room = smaller(room, minus(limit.left, limit.held)) end
if not isLess(room, least) then more = smaller(more, room) end
local whole = plus(own, more)
local refused = refuse(balance, held, limits, used, whole, own, whole)
if refused then return refused end
hold.n, hold.by = text(whole), decision
save(id, hold)
reserve(hold.k, hold.d, text(more))
return { 'held', hold.n }
`)

/** Ends a request with a charge; shared with the end of a task. */
export const settling = `
local function setAside (id, nanos)
  save(id, { n = nanos })
  redis.call('ZADD', leases, now + ${ASIDE_MS}, id)
  redis.call('HINCRBY', account, 'held', nanos)
  redis.call('HINCRBY', account, 'aside', nanos)
end

local function settle (id, hold, nanos, shortfall, key, day, oldest, what, aside)
  local kind, before = outcome(id)
  if kind and kind ~= 'w' then return before end
  local wanted, short = number(nanos), number(shortfall)
  if kind == 'w' then
    -- Charged as far as it had come, and now it says how far: the difference, as far as there is money for it.
    local more = minus(wanted, number(before))
    local charged = smaller(more, available())
    short = plus(short, minus(more, charged))
    if text(charged) ~= '0' then
      spend(key, day, text(charged))
      write('adjust', id .. '${SETTLED_LATE}', negated(text(charged)), key, day, what)
    end
    if isLess(ZERO, short) then
      write('shortfall', id .. '${SETTLED_LATE}', '0', key, day, what, text(short))
    end
    local sum = text(plus(number(before), charged))
    remember(id, 'l', sum)
    return sum
  end
  if hold then
    -- Who took the task over from another process does not know the day.
    drop(id, hold)
    day = hold.d
  else
    -- Redis was away when it was taken, or for longer than its lease, or has come back without it.
    open(key, day, oldest)
    local own = aside ~= '' and load(aside)
    if own then
      drop(aside, own)
      local rest = minus(number(own.n), smaller(wanted, number(own.n)))
      if isLess(ZERO, rest) then setAside(aside, text(rest)) end
    end
  end
  -- At least what was held, which is available now; more where a failover has forgotten that it was extended.
  local charged = smaller(wanted, available())
  enter(id, key, day, text(charged), text(plus(short, minus(wanted, charged))), what)
  remember(id, 's', text(charged))
  return text(charged)
end
`

/**
 * id, nanos within the hold, the rest, key, day, oldest day, text of the entry, id of the budget that the hold was
 * taken from -> charge.
 */
const settle = ofAccount(settling + `
local id = ARGV[2]
return settle(id, load(id), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9])
`)

/** id, nanos: sets so much aside for a process, where four times as much is available, else nothing -> amount. */
const setAside = ofAccount(settling + `
sweep()
local id, wanted = ARGV[2], number(ARGV[3])
local before = load(id)
if before then drop(id, before) end
local twice = plus(wanted, wanted)
if not isLess(ZERO, wanted) or isLess(available(), plus(twice, twice)) then return '0' end
setAside(id, ARGV[3])
return ARGV[3]
`)

/** id: gives back a hold without a charge. */
const release = ofAccount(`
local id = ARGV[2]
local hold = load(id)
if hold and not hold.t then drop(id, hold) end
`)

/**
 * id, key, day, text of the entry: refunds a charge, once; or gives back the hold, and a later settlement charges
 * nothing.
 */
const refund = ofAccount(`
local id, key, day = ARGV[2], ARGV[3], ARGV[4]
local kind, charged = outcome(id)
if kind == 'r' then return end
if kind and charged ~= '0' then
  local balance = redis.call('HGET', account, 'balance') or '0'
  if isLess(MOST, plus(number(balance), number(charged))) then
    return redis.error_reply('the balance would pass 2^63 - 1 nano-dollars')
  end
  spend(key, day, negated(charged))
  local reference = id
  if kind == 'l' then reference = id .. '${REFUNDED_LATE}' end
  write('adjust', reference, charged, key, day, ARGV[5])
end
local hold = load(id)
if hold and not hold.t then drop(id, hold) end
remember(id, 'r', '0')
`)

/** id, nanos within the hold, the rest, text of the entry: the charge if the process dies. */
const progress = ofAccount(`
local hold = load(ARGV[2])
if not hold or hold.t then return end
hold.p, hold.ps, hold.pw = ARGV[3], ARGV[4], ARGV[5]
save(ARGV[2], hold)
`)

/** Number of holds, their ids; then name and id of each slot. */
const renew = ofAccount(`
areLeasesKept()
local count = tonumber(ARGV[2])
for i = 3, 2 + count do redis.call('ZADD', leases, 'XX', now + ${LEASE_MS}, ARGV[i]) end
for i = 3 + count, #ARGV, 2 do redis.call('ZADD', base .. 'slot:' .. ARGV[i], now + ${LEASE_MS}, ARGV[i + 1]) end
`)

/**
 * -> number of holds that were swept; or -1: there are leases, of which it is unknown yet whether their processes are
 * dead.
 */
const sweep = ofAccount(`
local swept = sweep()
if swept == -1 and redis.call('ZCARD', leases) == 0 then return 0 end
return swept
`)

/**
 * -> stored sums: balance, id of the last entry in it, id of the last one in the rollups, then id and fields of each
 * key.
 */
const sums = ofAccount(`
local last = redis.call('XREVRANGE', base .. 'ledger', '+', '-', 'COUNT', 1)[1]
local known = redis.call('HMGET', account, 'balance', 'rolled')
local found = { known[1] or '0', last and last[1] or '0-0', known[2] or '0-0' }
for _, key in ipairs(redis.call('SMEMBERS', base .. 'keys')) do
  table.insert(found, key)
  table.insert(found, redis.call('HGETALL', purse(key)))
end
return found
`)

export const money = { book, hold, wouldHold, extend, settle, setAside, release, refund, progress, renew, sweep, sums }
