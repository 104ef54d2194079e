-- Sets rows and deletes where they are not older than what is stored.
-- KEYS: one hash per row. ARGV[1]: ms a delete is remembered; then for each key its pos and its row ('' = deleted).
-- A refusal of anything but the key's type is one of the whole call: who may not read a key must not write it.
-- Returns how many were written, deleted and stale, then the numbers (from 1) of keys that hold something else.
local written, deleted, stale = 0, 0, 0
local strange = {}
for number, key in ipairs(KEYS) do
  local pos, row = ARGV[2 * number], ARGV[2 * number + 1]
  local stored = redis.pcall('HGET', key, 'pos')
  if type(stored) == 'table' and not string.find(stored.err, 'WRONGTYPE', 1, true) then
    return stored
  end
  if type(stored) == 'table' then
    strange[#strange + 1] = number
  elseif stored and stored > pos then
    stale = stale + 1
  elseif row == '' then
    redis.call('HSET', key, 'pos', pos)
    redis.call('HDEL', key, 'row')
    redis.call('PEXPIRE', key, ARGV[1])
    deleted = deleted + 1
  else
    local added = redis.call('HSET', key, 'pos', pos, 'row', row)
    -- The marker of a delete expires, and HSET keeps that: the row would vanish with it later. So would one that is put
    -- into somebody else's hash.
    if added < 2 and (not stored or added == 1) then
      redis.call('PERSIST', key)
    end
    written = written + 1
  end
end
return {written, deleted, stale, unpack(strange)}
