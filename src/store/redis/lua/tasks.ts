// Lua: tasks that outlive their requests, and answers that are given again.
//
//   task:ID        hash        request_id, key, nanos, created, is_open, text
//   tasks          sorted set  of their ids, by when they were created
//   tasked         hash        the task of a request
//   answers, answer_times      hash, sorted set    by the client's name for the request
//   claim:NAME     string      end of the lease on that name, and the id of the request that is served under it
//
// The open tasks of all accounts lie in a slot of their own: {PREFIX}:open, a sorted set of "ACCOUNT ID" by the end of
// the watching process's lease, and {PREFIX}:watchers, a hash of the process that watches each.
import { LEASE_MS, ofAccount, timed } from './account.ts'
import { settling } from './money.ts'

/** A claim is kept for so long, and is valid for as long as a lease. */
const CLAIM_MS = 600_000

/** request id, task, nanos, created, text -> whether the hold is the task's now. */
const openTask = ofAccount(`
local id, task, nanos = ARGV[2], ARGV[3], ARGV[4]
local hold = load(id)
if not hold then return 0 end
if hold.t then return hold.t == task and 1 or 0 end
if outcome(id) then return 0 end
if isLess(number(hold.n), number(nanos)) then return 0 end
reserve(hold.k, hold.d, text(minus(number(nanos), number(hold.n))))
hold.n, hold.t = nanos, task
hold.p, hold.ps, hold.pw = nil, nil, nil
save(id, hold)
redis.call('ZREM', leases, id)
redis.call('HSET', base .. 'task:' .. task, 'request_id', id, 'key', hold.k, 'nanos', nanos, 'created', ARGV[5],
  'is_open', '1', 'text', ARGV[6])
redis.call('ZADD', base .. 'tasks', ARGV[5], task)
redis.call('HSET', base .. 'tasked', id, task)
return 1
`)

/** task, text */
const noteTask = ofAccount(`
local task = base .. 'task:' .. ARGV[2]
if redis.call('HGET', task, 'is_open') == '1' then redis.call('HSET', task, 'text', ARGV[3]) end
`)

/**
 * task, text, whether it is charged, nanos within its hold, the rest, day, oldest day, text of the entry -> charge;
 * nothing: the task is not open.
 */
const endTask = ofAccount(settling + `
local task = base .. 'task:' .. ARGV[2]
local known = redis.call('HMGET', task, 'is_open', 'request_id', 'key')
if known[1] ~= '1' then return false end
local id, key = known[2], known[3]
local hold = load(id)
local charged = '0'
if ARGV[4] == '1' then
  charged = settle(id, hold, ARGV[5], ARGV[6], key, ARGV[7], ARGV[8], ARGV[9], '')
elseif hold then
  drop(id, hold)
end
redis.call('HSET', task, 'is_open', '0', 'nanos', charged, 'text', ARGV[3])
return charged
`)

const forgetting = `
local function forget (task)
  local found = redis.call('HMGET', base .. 'task:' .. task, 'is_open', 'request_id')
  if found[1] ~= '0' then return false end
  redis.call('DEL', base .. 'task:' .. task)
  redis.call('ZREM', base .. 'tasks', task)
  redis.call('HDEL', base .. 'tasked', found[2])
  return true
end
`

/** task -> whether it was over, and is removed. */
const removeTask = ofAccount(forgetting + `
return forget(ARGV[2]) and 1 or 0
`)

/** request id, task: removes the task and the hold, whether or not the task had been opened. */
const untask = ofAccount(forgetting + `
local id, task = ARGV[2], ARGV[3]
local hold = load(id)
if hold and (not hold.t or hold.t == task) then drop(id, hold) end
if redis.call('HGET', base .. 'task:' .. task, 'is_open') == '1' then
  redis.call('HSET', base .. 'task:' .. task, 'is_open', '0')
  forget(task)
end
if not outcome(id) then remember(id, 'r', '0') end
`)

/** milliseconds since the epoch -> ids of the tasks created before that, which are forgotten. */
const forgetTasks = ofAccount(forgetting + `
local forgotten = {}
for _, task in ipairs(redis.call('ZRANGEBYSCORE', base .. 'tasks', '-inf', '(' .. ARGV[2], 'LIMIT', 0, 1000)) do
  if forget(task) then table.insert(forgotten, task) end
end
return forgotten
`)

/** limit, order, id of a task or nothing -> id and fields of each; nothing: the id is no task of the account. */
const listTasks = ofAccount(`
local from = 0
local isDescending = ARGV[3] == 'desc'
if ARGV[4] ~= '' then
  local rank = redis.call(isDescending and 'ZREVRANK' or 'ZRANK', base .. 'tasks', ARGV[4])
  if not rank then return false end
  from = rank + 1
end
local found = {}
local range = isDescending and 'ZREVRANGE' or 'ZRANGE'
for _, task in ipairs(redis.call(range, base .. 'tasks', from, from + ARGV[2] - 1)) do
  table.insert(found, task)
  table.insert(found, redis.call('HGETALL', base .. 'task:' .. task))
end
return found
`)

/** name, created, text */
const keepAnswer = ofAccount(`
redis.call('HSET', base .. 'answers', ARGV[2], ARGV[4])
redis.call('ZADD', base .. 'answer_times', ARGV[3], ARGV[2])
`)

/** name -> the answer, if its request was charged and not refunded, or became a task. */
const answer = ofAccount(`
local found = redis.call('HGET', base .. 'answers', ARGV[2])
if not found then return false end
local id = cjson.decode(found).request_id
local kind = outcome(id)
if (kind and kind ~= 'r') or redis.call('HEXISTS', base .. 'tasked', id) == 1 then return found end
return false
`)

/** names */
const dropAnswers = ofAccount(`
local count = 0
for i = 2, #ARGV do
  count = count + redis.call('HDEL', base .. 'answers', ARGV[i])
  redis.call('ZREM', base .. 'answer_times', ARGV[i])
end
return count
`)

/** name, request id -> whether the name is claimed for this request. */
const claim = ofAccount(`
local key = base .. 'claim:' .. ARGV[2]
local isKept = areLeasesKept()
local holder = redis.call('GET', key)
if holder then
  local till, id = string.match(holder, '^(%d+) (.*)$')
  -- After an outage the charge of the request before may still be on its way.
  if id ~= ARGV[3] and (tonumber(till) > now or not isKept) then return 0 end
end
redis.call('SET', key, string.format('%.0f %s', now + ${LEASE_MS}, ARGV[3]), 'PX', ${CLAIM_MS})
return 1
`)

/** name, request id */
const unclaim = ofAccount(`
local key = base .. 'claim:' .. ARGV[2]
local holder = redis.call('GET', key)
if holder and string.match(holder, '^%d+ (.*)$') == ARGV[3] then redis.call('DEL', key) end
`)

/** process id, then "ACCOUNT ID" of each -> the tasks that another process has taken over. */
const watchTasks = timed(`
local watchers = string.gsub(KEYS[1], 'open$', 'watchers')
local lost = {}
for i = 3, #ARGV do
  local who = redis.call('HGET', watchers, ARGV[i])
  if who and who ~= ARGV[2] then
    table.insert(lost, ARGV[i])
  else
    redis.call('HSET', watchers, ARGV[i], ARGV[2])
    redis.call('ZADD', KEYS[1], now + ${LEASE_MS}, ARGV[i])
  end
end
return lost
`)

/** process id -> tasks whose lease is over: this process watches them now. */
const takeTasks = timed(`
local watchers = string.gsub(KEYS[1], 'open$', 'watchers')
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 500)
for _, member in ipairs(found) do
  redis.call('HSET', watchers, member, ARGV[2])
  redis.call('ZADD', KEYS[1], now + ${LEASE_MS}, member)
end
return found
`)

/** 1: the tasks are over, or 0: another process may take them; then "ACCOUNT ID" of each: ends the lease on them. */
const leaveTasks = timed(`
local watchers = string.gsub(KEYS[1], 'open$', 'watchers')
for i = 3, #ARGV do
  redis.call('HDEL', watchers, ARGV[i])
  if ARGV[2] == '1' then redis.call('ZREM', KEYS[1], ARGV[i]) else redis.call('ZADD', KEYS[1], 'XX', 0, ARGV[i]) end
end
`)

export const tasks = {
  openTask,
  untask,
  noteTask,
  endTask,
  removeTask,
  forgetTasks,
  listTasks,
  keepAnswer,
  answer,
  dropAnswers,
  claim,
  unclaim,
  watchTasks,
  takeTasks,
  leaveTasks
}
