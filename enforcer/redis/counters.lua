-- Buckets and windows that are charged together, all or none. Integers only:
-- times in microseconds, a bucket's tokens in millionths, a window's whole. The
-- arithmetic and the words for what is remembered are those of package gcra.
--
-- KEYS: the counters, a string each.
-- ARGV: what to do; how many tokens and a third number; then for each counter
-- its kind and seven numbers: its time to live in milliseconds (a window lives
-- so long beyond its end), and
--   b bucket           rate, rest, burst, start, far, most
--   r window, rolling  requests, length, 0, 0, 0, 0
--   g window on a grid requests, length, 0, 0, 0, 0
--   c calendar window  requests, length, three edges that follow each other, 0
--   s sliding window   requests, length, 0, 0, 0, 0
-- Numbers come, go and are stored as doubles of eight bytes, the highest first:
-- text would cost Redis more than the arithmetic does.
-- A bucket gives back rate whole tokens and rest millionths a second; start is
-- the debt of one that is not there, far how far ahead a stored time may be,
-- most what it may owe above its burst (lease: the fewest tokens of use).
--
--   take    the tokens, if every counter has them
--   peek    whether take would be admitted; nothing changes
--   settle  so many more, or fewer, without asking; third: when it was charged
--   lease   third is held already, and what is more than wanted goes back. Of
--           one bucket, and at most half of what is free: others want some, too.
-- The answer is 1 where all admitted (lease: the tokens given), the time; then
-- for each counter, as it was before: debt, how far its time is ahead, in how
-- long its window ends, and what came before. What is wrong with ARGV ends the
-- script before it writes.
local call, floor, pack, unpack = redis.call, math.floor, struct.pack, struct.unpack
local op, n, third = ARGV[1], unpack('>dd', ARGV[2])
if not (#KEYS >= 1 and #ARGV == #KEYS + 2 and n == floor(n) and n <= 1e11 and third >= 0 and third < 2^53
  and ((op == 'take' or op == 'peek') and n >= 1 or op == 'settle' and n >= -1e11
  or op == 'lease' and n >= 0 and #KEYS == 1 and string.sub(ARGV[3], 1, 1) == 'b')) then
  return redis.error_reply('RLCINVALID tokens')
end
local settle, back = op == 'settle', op == 'settle' and n < 0
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
-- The time that a counter of a time is moved on to: what is charged late counts
-- where the request did.
local function moment(at)
  if not settle then return now end
  local latest = at > now and at or now
  return third < latest and third or latest
end
local ok, alone = 1, #KEYS == 1
local answers, put, life = not alone and {}, not alone and {}, not alone and {}

for i = 1, #KEYS do
  local key = KEYS[i]
  local kind, ttl, x1, x2, x3, x4, x5, x6 = unpack('>c1ddddddd', ARGV[i + 2])
  local debt, at, fin, prev, fits, reset, refused, value = 0, now, 0, 0, settle, false, false
  if not (ttl >= 1000 and ttl <= 86400000 and x1 >= 0 and x1 <= 1e11 and x2 >= 0 and x2 < 2^51) then
    return redis.error_reply('RLCINVALID counter')
  end

  if kind == 'b' then
    if not (x2 < 1e6 and x3 >= 1e6 and x3 <= 1e17 and x4 >= 0 and x4 <= x3 and x5 >= 1e6 and x5 < 2^60 and x6 >= 0) then
      return redis.error_reply('RLCINVALID bucket')
    end
    local v = call('GET', key)
    if not v then
      debt, at, fits = x4, moment(now), fits and not back
    elseif #v == 16 then
      debt, at = unpack('>dd', v)
    elseif #v == 24 then
      debt, at, prev = unpack('>ddd', v)
    end
    local time = moment(at)
    if not (debt >= 0) then debt = 0 elseif debt > x3 and not back then debt = x3 end
    if back then
      -- Back goes what time has not paid off between the charge and at.
      local rest = -n * 1e6
      if at > third then rest = rest - x1 * (at - third) - floor(x2 * (at - third) / 1e6) end
      if rest > 0 then
        local over = prev < rest and prev or rest
        prev, debt = prev - over, debt - rest + over
        if debt < 0 then debt = 0 end
      end
    end
    local d = back and 0 or time - at
    if d > 0 then
      local paid = x1 * d
      if x2 > 0 then
        local s = floor(d / 1e6)
        paid = paid + x2 * s + floor(x2 * (d - 1e6 * s) / 1e6)
      end
      -- A span too short for a millionth of a token is not used up.
      if paid > 0 then
        debt, prev, at = debt + prev - paid, 0, time
        if debt < 0 then debt = 0 elseif debt > x3 then debt, prev = x3, debt - x3 end
      elseif debt == 0 then
        at = time
      end
    elseif -d > x5 and not settle then
      at, reset = now, true -- the clock was set back
    end

    local after, over = debt, prev
    if op == 'lease' then
      local free, give = floor((x3 - debt - prev) / 1e6), n - third
      local most = floor((free + 1) / 2)
      if most < x6 then most = x6 end
      if give > most then give = most end
      if give > free then give = free > 0 and free or 0 end
      after = debt + give * 1e6
      if after < 0 then after = 0 end
      fits, ok = give ~= 0, give
    elseif not back then
      after = debt + n * 1e6
      fits = fits or after + prev <= x3
      if after > x3 then after, over = x3, over + after - x3 end
      if over > x6 then over = x6 end
    end
    if reset and not fits then after, over, fits, refused = debt, prev, true, true end
    if fits and over > 0 then
      value, ttl = pack('>ddd', after, at, over), 86400000
    elseif fits then
      value = pack('>dd', after, at)
    end

  else
    if not (x1 >= 1 and x2 >= 1 and (kind == 'r' or kind == 'g' or kind == 's' or kind == 'c' and x3 >= 0 and x3 < x4 and x4 < x5
      and now < x5 and x5 < 2^53)) then
      return redis.error_reply('RLCINVALID window')
    end
    local function edge(of)
      if kind == 'c' then return of < x3 and x3 or of < x4 and x4 or x5 end
      if kind == 'r' then return of + x2 end
      return of - of % x2 + x2
    end
    local v = call('GET', key)
    if v and #v == 32 then
      debt, at, fin, prev = unpack('>dddd', v)
    else
      at, fits = moment(now), fits and not back
    end
    local time = moment(at)
    if not (debt >= 0 and prev >= 0) then debt, prev = 0, 0 end
    if back then
      -- A window that is over gets nothing back.
      local charged = third < at and third or at
      if kind == 'r' and charged >= fin - x2 or kind ~= 'r' and edge(charged) == fin then
        debt = debt + n > 0 and debt + n or 0
      elseif kind == 's' and edge(charged) == fin - x2 then
        prev = prev + n > 0 and prev + n or 0
      end
    end
    if time > at and not back then
      at = time
    elseif at - now > 2 * x2 and at - now > 1e6 and not settle then
      -- The clock was set back: the debt belongs to the window of now.
      at, reset = now, true
      if debt > 0 then fin = edge(now) end
    end
    if back then
      prev = kind == 's' and prev or 0
    elseif kind == 's' then
      if fin <= at then
        prev, debt = fin > at - x2 and debt or 0, 0
      end
      fin = edge(at)
      local rest = x1 - debt - n
      fits = fits or rest >= 0 and prev * (fin - at) <= rest * x2
    else
      prev = 0
      if fin <= at then
        debt, fin = 0, 0
      end
      if kind ~= 'r' then
        fin = edge(at)
      elseif fin > at + x2 then
        fin = at + x2
      end
      fits = fits or debt + n <= x1
    end
    refused = reset and not fits
    local own = not back -- whether n belongs to the window in force
    if settle and not back and time < at then
      if kind == 'r' then own = fin ~= 0 and time >= fin - x2 else own = edge(time) == fin end
      if kind == 's' and edge(time) == fin - x2 then prev = prev + n end
      if prev > 1e11 then prev = 1e11 end
    end
    if fits or reset then
      local after, close = debt, fin
      if own and not refused then after = after + n end
      if after > 1e11 then after = 1e11 end
      if close == 0 then close = at + x2 end
      value = pack('>dddd', after, at, close, prev)
      if kind == 's' then close = close + x2 end
      if close > now then ttl = ttl + floor((close - now) / 1000) + 1 end
    end
    if fin ~= 0 then fin = fin - now end
  end

  if op ~= 'lease' and (refused or not fits) then ok = 0 end
  -- That the clock was set back is to be remembered even where it is refused.
  if value and op ~= 'peek' and (refused or alone and (ok ~= 0 or settle)) then
    call('SET', key, value, 'PX', ttl)
  end
  if alone then return pack('>dddddd', ok, now, debt, at - now, fin, prev) end
  answers[i], put[i], life[i] = pack('>dddd', debt, at - now, fin, prev), value, ttl
end

if op ~= 'peek' and (ok ~= 0 or settle) then
  for i = 1, #KEYS do
    if put[i] then call('SET', KEYS[i], put[i], 'PX', life[i]) end
  end
end
return pack('>dd', ok, now) .. table.concat(answers)
