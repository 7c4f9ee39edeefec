// Lua: the marks of guard.ts.
import { timed } from './account.ts'

/** id of the ledger, field of the outbox, number -> at, messages of all outboxes; nil: it is another ledger. */
const mark = timed(`
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[2] or redis.call('HEXISTS', KEYS[1], 'lost') == 1 then return false end
local at = math.max(now, tonumber(redis.call('HGET', KEYS[1], 'at') or '0'))
redis.call('HSET', KEYS[1], ARGV[3], ARGV[4], 'at', string.format('%.0f', at))
local fields, total = redis.call('HGETALL', KEYS[1]), 0
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 7) == 'outbox:' then total = total + tonumber(fields[i + 1]) end
end
return { string.format('%.0f', at), string.format('%.0f', total) }
`)

export const guard = { mark }
