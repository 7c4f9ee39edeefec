// Lua: amounts of any size. Lua's numbers are doubles, exact to 2^53 only; amounts go to 2^63. So an amount is two
// numbers, of which the first counts billions and the second is from 0 to 999,999,999: sums and comparisons are exact
// to 10^24. Arguments and results are text.
export const arithmetic = `
local BILLION = 1000000000

local function number (text)
  local sign, digits = string.match(text, '^(-?)(%d+)$')
  local high, low = tonumber(string.sub(digits, 1, -10)) or 0, tonumber(string.sub(digits, -9))
  if sign == '' then return { high, low } end
  if low == 0 then return { -high, 0 } end
  return { -high - 1, BILLION - low }
end

local function text (n)
  local high, low, sign = n[1], n[2], ''
  if high < 0 then
    sign = '-'
    if low == 0 then high = -high else high, low = -high - 1, BILLION - low end
  end
  if high == 0 then return sign .. string.format('%d', low) end
  return sign .. string.format('%.0f%09d', high, low)
end

local function plus (a, b)
  local high, low = a[1] + b[1], a[2] + b[2]
  if low >= BILLION then return { high + 1, low - BILLION } end
  return { high, low }
end

local function minus (a, b)
  local high, low = a[1] - b[1], a[2] - b[2]
  if low < 0 then return { high - 1, low + BILLION } end
  return { high, low }
end

local function isLess (a, b)
  return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2])
end

local function smaller (a, b)
  if isLess(b, a) then return b end
  return a
end

local ZERO = { 0, 0 }
local MOST = number('9223372036854775807')

local function negated (amount)
  if amount == '0' then return amount end
  if string.sub(amount, 1, 1) == '-' then return string.sub(amount, 2) end
  return '-' .. amount
end
`
