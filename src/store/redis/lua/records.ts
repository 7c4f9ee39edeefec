// Lua: accounts and keys that were made through the admin API, and the audit log. In a slot of their own: {PREFIX}:records, a hash by kind
// and id; {PREFIX}:audit, a list; {PREFIX}:version, which counts the changes.
import { timed } from './account.ts'

/** KEYS: records, audit, version. field, version, text, audit line, channel -> whether it was of the version before. An empty field: only the line. */
const change = `
local field, version = ARGV[1], tonumber(ARGV[2])
if field ~= '' then
  local before = redis.call('HGET', KEYS[1], field)
  local known = before and tonumber(string.match(before, '^%d+')) or 0
  if known ~= version - 1 then return 0 end
  redis.call('HSET', KEYS[1], field, version .. ' ' .. ARGV[3])
end
redis.call('RPUSH', KEYS[2], ARGV[4])
if field ~= '' then redis.call('PUBLISH', ARGV[5], redis.call('INCR', KEYS[3])) end
return 1
`

/** KEYS: a reference. value: gives it free, where it has this value. */
const withdraw = `
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
`

/** KEYS: {PREFIX}:beats. id, milliseconds, text: a process lives for so long; 0: it has ended. */
const beat = timed(`
local texts = KEYS[1] .. ':texts'
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do
  redis.call('ZREM', KEYS[1], id)
  redis.call('HDEL', texts, id)
end
if ARGV[3] == '0' then
  redis.call('ZREM', KEYS[1], ARGV[2])
  redis.call('HDEL', texts, ARGV[2])
  return
end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[2])
redis.call('HSET', texts, ARGV[2], now .. ' ' .. ARGV[4])
`)

/** KEYS: {PREFIX}:beats -> milliseconds since each that lives said so, and its text. */
const beats = timed(`
local found = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')) do
  local at, text = string.match(redis.call('HGET', KEYS[1] .. ':texts', id), '^(%d+) (.*)$')
  table.insert(found, now - at)
  table.insert(found, text)
end
return found
`)

export const records = { change, withdraw, beat, beats }
