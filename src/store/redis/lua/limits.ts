// Lua: admissions. Counts as rate-windows.ts does: sub-windows of one second from their first request, each until 60
// seconds after its last. A window is a packed list of first, last and count, oldest first; a slot is a sorted set of
// request ids by the end of their leases.
import { LEASE_MS, ofAccount } from './account.ts'

/**
 * Milliseconds for which a decision is remembered for its repetition, which comes within the time that a command may
 * take: ten seconds at most.
 */
const DECISION_MS = 11_000

const question = `
local decision, id, slot, slotLimit = base .. 'decision:' .. ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local slots = base .. 'slot:' .. slot
`

/** Only reads. Returns from the script where the request has a slot. */
const read = `
local taken = 0
if slot ~= '' then
  if redis.call('ZSCORE', slots, id) then return { 'taken' } end
  taken = redis.call('ZCARD', slots)
end

local windows = {}
for i = 6, #ARGV, 2 do
  local name = base .. 'window:' .. ARGV[i]
  local packed = redis.call('GET', name)
  local parts, count, isAhead = {}, 0, false
  local all = packed and cmsgpack.unpack(packed) or {}
  for k = 1, #all, 3 do
    -- Where the clock was set back, nothing came later than now.
    isAhead = isAhead or all[k + 1] > now
    local first, last = math.min(all[k], now), math.min(all[k + 1], now)
    if last + 60000 > now then
      table.insert(parts, first)
      table.insert(parts, last)
      table.insert(parts, all[k + 2])
      count = count + all[k + 2]
    end
  end
  table.insert(windows, { name = name, own = ARGV[i], limit = tonumber(ARGV[i + 1]), parts = parts, count = count,
    isAhead = isAhead })
end

local function saveWindow (window)
  redis.call('SET', window.name, cmsgpack.pack(window.parts), 'PX', 61000)
end
`

/** Decides, and only reads. Returns from the script with a refusal. */
const decide = `
local function nextOf (window)
  local left = math.max(1, window.count - window.limit + 1)
  for k = 1, #window.parts, 3 do
    left = left - window.parts[k + 2]
    if left <= 0 then return window.parts[k + 1] + 60000 - now end
  end
  return 0
end

local function answer (kind, name)
  local told = { kind, name, taken }
  for _, window in ipairs(windows) do
    local parts = window.parts
    table.insert(told, math.max(0, window.limit - window.count))
    table.insert(told, nextOf(window))
    table.insert(told, #parts == 0 and 0 or parts[#parts - 1] + 60000 - now)
  end
  return told
end

local full
for _, window in ipairs(windows) do
  if window.count >= window.limit and (not full or nextOf(window) > nextOf(full)) then full = window end
end
if full then return answer('window', full.own) end
if slot ~= '' and taken >= slotLimit then return answer('slot', slot) end
`

/**
 * decision, id, name and limit of the slot or two empty ones, then name and limit of each window -> admitted, window or
 * slot; name of the full one; slots that are taken; then remaining, next and reset of each window. Or taken: the
 * request has a slot.
 */
const admit = ofAccount(question + `
local known = redis.call('GET', decision)
if known then return cmsgpack.unpack(known) end
if slot ~= '' and areLeasesKept() then redis.call('ZREMRANGEBYSCORE', slots, '-inf', now) end
` + read + `
-- Without this, a refused request would move the window along with a clock that was set back, until it has caught up.
for _, window in ipairs(windows) do
  if window.isAhead then saveWindow(window) end
end
` + decide + `
for _, window in ipairs(windows) do
  local parts = window.parts
  window.count = window.count + 1
  if #parts == 0 or now - parts[#parts - 2] >= 1000 then
    for _, part in ipairs({ now, now, 1 }) do table.insert(parts, part) end
  else
    parts[#parts - 1] = now
    parts[#parts] = parts[#parts] + 1
  end
  saveWindow(window)
end
if slot ~= '' then redis.call('ZADD', slots, now + ${LEASE_MS}, id) end
local told = answer('admitted', '')
redis.call('SET', decision, cmsgpack.pack(told), 'PX', ${DECISION_MS})
return told
`)

/** The result that `admit` would have now, in the same form. */
const wouldAdmit = ofAccount(question + read + decide + `
return answer('admitted', '')
`)

/** id, slot */
const leave = ofAccount(`
redis.call('ZREM', base .. 'slot:' .. ARGV[3], ARGV[2])
`)

export const limits = { admit, wouldAdmit, leave }
