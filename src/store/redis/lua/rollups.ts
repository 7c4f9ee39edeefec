// Lua: the sums of rolling.ts, read; and what is added to them without a charge.
import { ofAccount } from './account.ts'
import { TOGETHER } from './rolling.ts'

/** most -> number of old entries that got their share of the sums now, the oldest first; less than `most`: all have. */
const addOld = ofAccount(`
local found = redis.call('XRANGE', base .. 'ledger', '(' .. (redis.call('HGET', account, 'rolled') or '0-0'), '+',
  'COUNT', ARGV[2])
for _, entry in ipairs(found) do
  local of = {}
  for i = 1, #entry[2], 2 do of[entry[2][i]] = entry[2][i + 1] end
  share(tonumber(of.at), of.kind, of.nanos, of.key, of.what, of.shortfall)
end
if #found > 0 then redis.call('HSET', account, 'rolled', found[#found][1]) end
return #found
`)

/** Number of requests that ended without a settlement, when, and their key, model and channel; and so on. */
const fail = ofAccount(`
for i = 2, #ARGV, 5 do roll(tonumber(ARGV[i + 1]), memberOf(ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]), { e = ARGV[i] }) end
`)

/** Fields and values in an answer, after which no further period is read: about a millisecond. */
const MANY = 2000

/**
 * day or hour, then numbers of such periods -> id of the last entry in the sums, how many of the periods were read,
 * then number and fields of each that has some.
 */
const sumsOf = ofAccount(`
local last = math.floor(redis.call('HLEN', base .. 'members') / ${TOGETHER})
local found, size, count = { redis.call('HGET', account, 'rolled') or '0-0', 0 }, 0, 0
while size < ${MANY} and count < #ARGV - 2 do
  count = count + 1
  local number, sums = ARGV[2 + count], {}
  for some = 0, last do
    for _, part in ipairs(redis.call('HGETALL', base .. ARGV[2] .. ':' .. number .. ':' .. some)) do
      table.insert(sums, part)
    end
  end
  if #sums > 0 then
    table.insert(found, number)
    table.insert(found, sums)
    size = size + #sums
  end
end
found[2] = count
return found
`)

export const rollups = { addOld, fail, sumsOf }
