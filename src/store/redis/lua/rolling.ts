// Lua: what the entries of an account add up to, by hour and by day in UTC. An entry and its share of these sums are
// written by one script, so their sum is that of the entries.
//
//   members   hash  number of each who has caused entries, by the JSON of its key, model and channel ('': none)
//   days      set   of the days that there are
//   day:N:B   hash  of the Nth day since the epoch: sums of the eight members from 8B on, by their number and a letter
//   hour:N:B  hash  of the Nth hour since the epoch, in the same way; forgotten after eight days
//
// The letters: r requests, e errors, n nanos, s shortfall, those of TOKENS, and x with the name of an extra behind it.
// A hash of a few dozen short fields takes a tenth of the memory of a larger one, and is as quick; between that and 512
// fields it would be searched from its beginning, for up to 14 microseconds.
import { DAY_MS, HOUR_MS } from '../../rollup-sums.ts'

/** Tokens of a settlement, by their letter. */
export const TOKENS = { i: 'input', c: 'cache_read', w: 'cache_write_5m', h: 'cache_write_1h', o: 'output' } as const

/** Members in a hash. */
export const TOGETHER = 8
/** More than the 7 days for which hours are asked for, so that those are whole. */
const HOUR_LIFE_MS = 8 * DAY_MS

const tokens = Object.entries(TOKENS).map(([letter, name]) => `${letter} = '${name}'`).join(', ')

/** `share` is all that others call, and `roll` for what has no entry. */
export const rolling = `
-- A number is short: the sums of days are kept for ever.
local function memberOf (key, model, channel)
  local members, name = base .. 'members', cjson.encode({ key, model, channel })
  local known = redis.call('HGET', members, name)
  if known then return known end
  local number = string.format('%d', redis.call('HLEN', members))
  redis.call('HSET', members, name, number)
  return number
end

local function roll (at, member, shares)
  local day, some = math.floor(at / ${DAY_MS}), ':' .. math.floor(member / ${TOGETHER})
  local hour = base .. 'hour:' .. math.floor(at / ${HOUR_MS}) .. some
  local periods = { base .. 'day:' .. day .. some }
  local isNew = redis.call('EXISTS', hour) == 0
  if isNew then redis.call('SADD', base .. 'days', day) end
  if at > now - ${HOUR_LIFE_MS} then table.insert(periods, hour) end
  for letter, amount in pairs(shares) do
    if amount ~= '0' then
      for _, period in ipairs(periods) do redis.call('HINCRBY', period, member .. letter, amount) end
    end
  end
  if isNew then redis.call('PEXPIRE', hour, ${HOUR_LIFE_MS}) end
end

local function addShare (at, kind, nanos, key, what, shortfall)
  local of, shares = cjson.decode(what), {}
  if kind == 'shortfall' then shares.s = shortfall else shares.n = negated(nanos) end
  if kind == 'settle' then shares.r = '1' end
  if kind == 'settle' and of.usage then
    local function count (letter, number)
      if number ~= 0 then shares[letter] = string.format('%.0f', number) end
    end
    for letter, name in pairs({ ${tokens} }) do count(letter, of.usage[name]) end
    for name, number in pairs(of.usage.extras) do count('x' .. name, number) end
  end
  roll(at, memberOf(key, of.model or '', of.channel or ''), shares)
end

-- Adds an entry to the sums, if a key has caused it. Where that fails (a sum would pass 2^63 - 1, a text can't be read)
-- the charge is made all the same, and verify finds it.
local function share (at, kind, nanos, key, what, shortfall)
  if key then pcall(addShare, at, kind, nanos, key, what, shortfall) end
end
`
