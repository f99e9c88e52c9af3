-- A sliding log. What it takes and answers is as in counters.lua, for one key and
--   l  requests, length, grain, 0, 0, 0
-- but for the end: in how long the tokens will be free.
--
-- KEYS: the log, a list. Each entry holds its time and all that was taken up to
-- and with it; the first stands for everything that slid out.
local call, floor, pack, unpack = redis.call, math.floor, struct.pack, struct.unpack
local op, key, n, third = ARGV[1], KEYS[1], unpack('>dd', ARGV[2])
local kind, ttl, requests, length, grain = unpack('>c1ddddddd', ARGV[3])
if not (#KEYS == 1 and #ARGV == 3 and kind == 'l' and n == floor(n) and n <= 1e11 and third >= 0 and third < 2^53
  and ((op == 'take' or op == 'peek') and n >= 1 or op == 'settle' and n >= -1e11) and ttl >= 1000 and ttl <= 86400000
  and requests >= 1 and requests <= 1e11 and length >= 1 and length < 2^51 and grain >= 1 and grain <= length) then
  return redis.error_reply('RLCINVALID log')
end
local t = call('TIME')
local now = t[1] * 1000000 + t[2]

local function entry(i) return unpack('>dd', call('LINDEX', key, i)) end
local function mark(time) return grain > 1 and time - 1 - (time - 1) % grain + grain or time end
local size, at, base, sum, live = call('LLEN', key), 0, 0, 0, 1
if size > 0 then
  local _
  at, sum = entry(-1)
  _, base = entry(0)
end
if at - now > 2 * length and at - now > 1e6 then
  -- The clock was set back: what was taken goes on from now as one entry.
  at, sum, base, size = now, sum - base, 0, 2
  call('DEL', key)
  call('RPUSH', key, pack('>dd', 0, 0), pack('>dd', at, sum))
  call('PEXPIRE', key, floor(length / 1000) + ttl)
end
while live < size do
  local time, taken = entry(live)
  if time > now - length then break end
  base, live = taken, live + 1
end
if live > 1 and op ~= 'peek' then
  call('LPOP', key, live - 1)
  size, live = size - live + 1, 1
end

local debt, fin, fits = sum - base, 0, true
if op == 'settle' and n < 0 then
  -- Back goes to the newest entry that is not after the charge.
  local charged = mark(third)
  for i = size - 1, live, -1 do
    local time, taken = entry(i)
    local _, before = entry(i - 1)
    if time <= charged and (taken > before or i == size - 1) then
      local less = -n < taken - before and -n or taken - before
      for k = i, size - 1 do
        local at, s = entry(k)
        call('LSET', key, k, pack('>dd', at, s - less))
      end
      break
    end
  end
elseif op == 'settle' and debt > 0 then
  -- More is added to it, too, unless it has slid out.
  local charged, into = mark(third), size - 1
  while into >= live do
    local time, taken = entry(into)
    local _, before = entry(into - 1)
    if time <= charged and (taken > before or into == size - 1) then break end
    into = into - 1
  end
  if into < live and charged > now - length then into = live end
  if into >= live then
    for k = into, size - 1 do
      local time, taken = entry(k)
      call('LSET', key, k, pack('>dd', time, taken + n))
    end
  end
elseif op == 'settle' or debt + n <= requests then
  if op ~= 'peek' then
    local time = mark(op == 'settle' and third < now and third or now)
    if time < at then time = at end
    if size > live and time == at then
      call('LSET', key, -1, pack('>dd', time, sum + n))
    else
      if size == 0 then call('RPUSH', key, pack('>dd', 0, 0)) end
      call('RPUSH', key, pack('>dd', time, sum + n))
    end
    call('PEXPIRE', key, floor((time + length - now) / 1000) + 1 + ttl)
  end
else
  fits = false
  local short, low, high = debt + n - requests, live, size - 1
  while low < high do
    local middle = floor((low + high) / 2)
    local _, taken = entry(middle)
    if taken - base >= short then high = middle else low = middle + 1 end
  end
  if low < size then fin = entry(low) + length - now end
end
return pack('>dddddd', fits and 1 or 0, now, debt, 0, fin, 0)
