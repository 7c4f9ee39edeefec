// Lua: kept responses of the Responses API.
//
//   responses        sorted set  of their ids, by when they end
//   response_bytes   hash        bytes of each, and of all
//   response:ID      string      sealed
//
// All of an account lie in its slot. They end by themselves; the set and the hash end with the last of them.
import { timed } from './account.ts'

/** Part of the memory of Redis that may be in use with the new response: the rest is for the ledger. */
const FULL = 0.75

const shelf = `
local base = string.sub(KEYS[1], 1, -10)
local sizes = base .. 'response_bytes'

local function forget (id)
  local bytes = redis.call('HGET', sizes, id)
  if not bytes then return 0 end
  redis.call('DEL', base .. 'response:' .. id)
  redis.call('ZREM', KEYS[1], id)
  redis.call('HDEL', sizes, id)
  redis.call('HINCRBY', sizes, 'all', -bytes)
  return 1
end

local function isOver (id)
  local ends = redis.call('ZSCORE', KEYS[1], id)
  return not ends or tonumber(ends) <= now
end

local function prolong (id, life)
  redis.call('ZADD', KEYS[1], now + life, id)
  redis.call('PEXPIRE', base .. 'response:' .. id, life)
  for _, key in ipairs({ KEYS[1], sizes }) do
    if redis.call('PTTL', key) < tonumber(life) then redis.call('PEXPIRE', key, life) end
  end
end
`

/**
 * Whether the server has room beside the ledger, which would stand still in a full one. Of a user who may not ask that
 * (INFO), the server is taken to have it.
 */
const room = `
local function hasRoom (bytes)
  local told = redis.pcall('INFO', 'memory')
  if type(told) ~= 'string' then return true end
  local function number (name) return tonumber(string.match(told, '\\n' .. name .. ':(%d+)')) end
  local used, most = number('used_memory'), number('maxmemory')
  if most == 0 then most = number('total_system_memory') end
  return not used or not most or used + bytes <= most * ${FULL}
end
`

/** id, life, space of the account, content -> 1: it is kept; 0: it is larger than the space; -1: Redis has no room. */
const keepResponse = timed(shelf + room + `
local id, space, bytes = ARGV[2], tonumber(ARGV[4]), string.len(ARGV[5])
if bytes > space then return 0 end
for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do forget(old) end
forget(id)
while tonumber(redis.call('HGET', sizes, 'all') or '0') + bytes > space do
  local first = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  if not first then break end
  forget(first)
end
if not hasRoom(bytes) then return -1 end
redis.call('SET', base .. 'response:' .. id, ARGV[5])
redis.call('HSET', sizes, id, bytes)
redis.call('HINCRBY', sizes, 'all', bytes)
prolong(id, ARGV[3])
return 1
`)

/** id -> whether it is there. */
const hasResponse = timed(shelf + `
if isOver(ARGV[2]) then return 0 end
return 1
`)

/** id, life */
const prolongResponse = timed(shelf + `
if not isOver(ARGV[2]) then prolong(ARGV[2], ARGV[3]) end
`)

/** id -> whether there was one. */
const dropResponse = timed(shelf + `
if isOver(ARGV[2]) then return 0 end
return forget(ARGV[2])
`)

export const responses = { keepResponse, hasResponse, prolongResponse, dropResponse }
