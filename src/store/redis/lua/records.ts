// Lua: accounts, keys and tokens made through the admin API, and the audit log. In a slot of their own:
// {PREFIX}:records, a hash by kind and id; {PREFIX}:audit, a list; {PREFIX}:changes, the last changes, newest first: a
// unique id, and the field. A process that finds the last id it knows reads the changes after it; one that does not has
// missed too many, or Redis has lost it: that one reads all.
import { timed } from './account.ts'

/** Changes that are kept: a process may miss so many. */
const CHANGES = 1000

/**
 * KEYS: records, audit, changes. field, version, text, audit line, channel, id -> whether the version before was the
 * stored one. An empty field: only the line; an empty line: only the record.
 */
const change = `
local field, version = ARGV[1], tonumber(ARGV[2])
if field ~= '' then
  local before = redis.call('HGET', KEYS[1], field)
  local known = before and tonumber(string.match(before, '^%d+')) or 0
  if known ~= version - 1 then return 0 end
  redis.call('HSET', KEYS[1], field, version .. ' ' .. ARGV[3])
end
if ARGV[4] ~= '' then redis.call('RPUSH', KEYS[2], ARGV[4]) end
if field ~= '' then
  redis.call('LPUSH', KEYS[3], ARGV[6] .. ' ' .. field)
  redis.call('LTRIM', KEYS[3], 0, ${CHANGES - 1})
  redis.call('PUBLISH', ARGV[5], ARGV[6] .. ' ' .. field)
end
return 1
`

/**
 * KEYS: records, changes. the last change that is known -> the newest one, then field and value of the changes since;
 * nothing: all records may have changed.
 */
const since = `
local found, seen = {}, {}
for _, change in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  if #found == 0 then table.insert(found, change) end
  if change == ARGV[1] then return found end
  local field = string.match(change, ' (.*)$')
  if not seen[field] then
    seen[field] = true
    table.insert(found, field)
    table.insert(found, redis.call('HGET', KEYS[1], field))
  end
end
`

/** KEYS: a reference. value: deletes it, where it has this value. */
const withdraw = `
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
`

/** KEYS: {PREFIX}:beats. id, milliseconds, text: a heartbeat that lives for so long; 0: the process has ended. */
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

/** KEYS: {PREFIX}:beats -> milliseconds since each living process's heartbeat, and its text. */
const beats = timed(`
local found = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')) do
  local at, text = string.match(redis.call('HGET', KEYS[1] .. ':texts', id), '^(%d+) (.*)$')
  table.insert(found, now - at)
  table.insert(found, text)
end
return found
`)

export const records = { change, since, withdraw, beat, beats }
