// Lua: one account. The beginning of every script about it: clock, keys, holds with their leases, and ledger.
//
// All keys of an account have the same hash tag, so that they lie in one slot of a cluster: {PREFIX:ACCOUNT}:NAME. The
// scripts are told one of them, KEYS[1], and make the others from it. Amounts are text.
//
// account        hash    balance, credited, held, aside (part of held), open (holds), entries (counted), entry_time,
//                        seen, grace, rolled: id of the last entry that is in the sums of rolling.ts
//   keys           set     of ids of its keys
//   key:ID         hash    of a key: s and h, spent and held ever; s:PERIOD and h:PERIOD, the same of a day or month
//   holds, leases  hash, sorted set    a hold, packed, and until when it is its process's, by request id
//   charge:ID      string  what became of a request: see "settled" below; forgotten after a day
//   references     set     of all its credits; with the kind before it, of its refunds and debits
//   ledger         stream  its entries
import { arithmetic } from './arithmetic.ts'
import { rolling } from './rolling.ts'

/** Life of a lease on a hold or a slot; its process renews it before. */
export const LEASE_MS = 30_000
/** An account without any message for so long means that Redis was away, not that its processes died. */
export const SILENCE_MS = 20_000
/** After such a silence living processes have so long to renew their leases. */
export const GRACE_MS = 15_000
/** Life of a charge's record by request id: longer than a client may repeat its request. */
export const CHARGE_MS = 25 * 3_600_000
/** Life of a budget set aside for a process, without renewal. */
export const ASIDE_MS = 300_000

/** ARGV[1]: milliseconds since the epoch in tests, else empty: Redis's own time. */
const clock = `
local time = redis.call('TIME')
local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = tonumber(ARGV[1]) or math.floor(micros / 1000)
`

const ledger = `
local account = KEYS[1]
local base = string.sub(account, 1, -8)
local holds, leases = base .. 'holds', base .. 'leases'
${rolling}
-- Entries are ordered by their ids, whatever the clock does. One gets its share of the sums with it, where all before
-- it have theirs: else there are entries of an earlier version, and it waits behind them.
local function write (kind, reference, nanos, key, day, what, shortfall)
  local known = redis.call('HMGET', account, 'entry_time', 'entries', 'rolled')
  local last, count, rolled = tonumber(known[1] or '0'), tonumber(known[2] or '0'), known[3] or '0-0'
  local isNext = rolled == string.format('%.0f-%.0f', last, count)
  local time, count = string.format('%.0f', math.max(micros, last)), string.format('%.0f', count + 1)
  local id, fields = time .. '-' .. count, {}
  local function put (name, value)
    if not value then return end
    table.insert(fields, name)
    table.insert(fields, value)
  end
  put('key', key)
  put('day', day)
  put('what', what)
  put('shortfall', shortfall)
  redis.call('XADD', base .. 'ledger', id, 'kind', kind, 'reference', reference, 'nanos', nanos,
    'at', string.format('%.0f', now), unpack(fields))
  redis.call('HSET', account, 'entry_time', time, 'entries', count, 'rolled', isNext and id or rolled)
  if isNext then share(now, kind, nanos, key, what, shortfall) end
end

local function purse (key)
  return base .. 'key:' .. key
end

-- Counts a key and its day from now on, and forgets days and months that are over and have no open hold.
local function open (key, day, oldest)
  if redis.call('HSETNX', purse(key), 's', '0') == 1 then redis.call('SADD', base .. 'keys', key) end
  if day == '' or redis.call('HSETNX', purse(key), 's:' .. day, '0') == 0 then return end
  redis.call('HSETNX', purse(key), 's:' .. string.sub(day, 1, 7), '0')
  local fields = redis.call('HGETALL', purse(key))
  for i = 1, #fields, 2 do
    local period = string.match(fields[i], '^s:(.+)$')
    if period and period < oldest and period ~= string.sub(oldest, 1, 7) and
      (redis.call('HGET', purse(key), 'h:' .. period) or '0') == '0' then
      redis.call('HDEL', purse(key), 's:' .. period, 'h:' .. period)
    end
  end
end

local function add (field, key, day, nanos)
  if nanos == '0' then return end
  redis.call('HINCRBY', purse(key), field, nanos)
  if day == '' then return end
  for _, period in ipairs({ day, string.sub(day, 1, 7) }) do
    if redis.call('HEXISTS', purse(key), 's:' .. period) == 1 then
      redis.call('HINCRBY', purse(key), field .. ':' .. period, nanos)
    end
  end
end

-- Adds to the held sums. nanos negative: given back.
local function reserve (key, day, nanos)
  redis.call('HINCRBY', account, 'held', nanos)
  add('h', key, day, nanos)
end

local function spend (key, day, nanos)
  redis.call('HINCRBY', account, 'balance', negated(nanos))
  add('s', key, day, nanos)
end

-- n: nanos, k: key, d: day or '', by: the decision that made it so large, t: task that owns it; p, ps, pw: what a kill
-- would be charged, the rest of that, and the text of its entry. Without a key: a process has set it aside.
local function load (id)
  local packed = redis.call('HGET', holds, id)
  return packed and cmsgpack.unpack(packed)
end

local function save (id, hold)
  redis.call('HSET', holds, id, cmsgpack.pack(hold))
end

local function drop (id, hold)
  redis.call('HDEL', holds, id)
  redis.call('ZREM', leases, id)
  if hold.k then
    redis.call('HINCRBY', account, 'open', -1)
    reserve(hold.k, hold.d, negated(hold.n))
  else
    redis.call('HINCRBY', account, 'held', negated(hold.n))
    redis.call('HINCRBY', account, 'aside', negated(hold.n))
  end
end

-- What became of a request, and what it was charged: 's' settled, 'r' given back, 'w' its process said nothing and it
-- was charged as far as it had come, 'l' settled after that.
local function outcome (id)
  local found = redis.call('GET', base .. 'charge:' .. id)
  if found then return string.match(found, '^(%a) (%d+)$') end
end

local function remember (id, kind, nanos)
  redis.call('SET', base .. 'charge:' .. id, kind .. ' ' .. nanos, 'PX', ${CHARGE_MS})
end

local function enter (id, key, day, charged, shortfall, what)
  spend(key, day, charged)
  write('settle', id, negated(charged), key, day, what)
  if shortfall ~= '0' then write('shortfall', id, '0', key, day, what, shortfall) end
end

local function available ()
  local sums = redis.call('HMGET', account, 'balance', 'held')
  local left = minus(number(sums[1] or '0'), number(sums[2] or '0'))
  if isLess(left, ZERO) then return ZERO end
  return left
end

-- Whether leases count. After a silence no lease is over until living processes had time to renew theirs.
local function areLeasesKept ()
  local times = redis.call('HMGET', account, 'seen', 'grace')
  local seen, grace = tonumber(times[1] or now), tonumber(times[2] or 0)
  if now - seen > ${SILENCE_MS} then
    grace = now + ${GRACE_MS}
    redis.call('HSET', account, 'grace', grace)
  end
  if not times[1] or now - seen > 1000 or now < seen then redis.call('HSET', account, 'seen', now) end
  return now >= grace
end

-- Holds whose process is gone: charged as far as it was known how far they had come, or given back. After a failover a
-- hold may be smaller than that, which its process had extended: then it is charged as far as there is money. -> how
-- many; or -1: no lease counts now.
local function sweep ()
  if not areLeasesKept() then return -1 end
  local over = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, 20)
  for _, id in ipairs(over) do
    local hold = load(id)
    if hold then
      drop(id, hold)
      if hold.p then
        local wanted = number(hold.p)
        local charged = smaller(wanted, available())
        enter(id, hold.k, hold.d, text(charged), text(plus(number(hold.ps), minus(wanted, charged))), hold.pw)
        remember(id, 'w', text(charged))
      end
    else
      redis.call('ZREM', leases, id)
    end
  end
  return #over
end
`

/** A script about an account. */
export function ofAccount (body: string): string {
  return arithmetic + clock + ledger + body
}

/** A script about something else, which needs the time. */
export function timed (body: string): string {
  return clock + body
}
