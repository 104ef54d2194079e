-- The scripts for rows, each by its name. A script runs as a whole, and nothing else beside it.

-- name: write
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

-- name: read
-- Returns pos and row of each key, one after the other; false where there is none. A key that has no pos, or is no hash,
-- is somebody else's: its pos comes as an empty text.
local found = {}
for number, key in ipairs(KEYS) do
  local stored = redis.pcall('HMGET', key, 'pos', 'row')
  if stored.err and not string.find(stored.err, 'WRONGTYPE', 1, true) then
    return stored
  end
  found[2 * number - 1] = stored[1] or false
  found[2 * number] = stored[2] or false
  if not stored[1] and redis.call('EXISTS', key) == 1 then
    found[2 * number - 1] = ''
    found[2 * number] = stored[2] or 'null'
  end
end
return found

-- name: expire
-- Lets rows expire, or stay again; the memories of deletes expire by themselves.
-- KEYS: one hash per row. ARGV[1]: in how many ms, 0 for never.
for _, key in ipairs(KEYS) do
  local there = redis.pcall('HEXISTS', key, 'row')
  if type(there) == 'table' and not string.find(there.err, 'WRONGTYPE', 1, true) then
    return there
  end
  if there == 1 then
    if ARGV[1] == '0' then
      redis.call('PERSIST', key)
    else
      redis.call('PEXPIRE', key, ARGV[1])
    end
  end
end
return 0

-- name: sweep
-- Removes the keys whose pos lies below ARGV[1]; returns how many.
local removed = 0
for _, key in ipairs(KEYS) do
  local stored = redis.pcall('HGET', key, 'pos')
  if type(stored) == 'table' and not string.find(stored.err, 'WRONGTYPE', 1, true) then
    return stored
  end
  if type(stored) == 'string' and stored < ARGV[1] then
    removed = removed + redis.call('UNLINK', key)
  end
end
return removed

-- name: discard
-- Removes each key whose pos is exactly the one given; an empty one stands for a key without, or of another type.
-- KEYS: one hash per row. ARGV: a pos for each.
for number, key in ipairs(KEYS) do
  local stored = redis.pcall('HGET', key, 'pos')
  if type(stored) == 'table' and not string.find(stored.err, 'WRONGTYPE', 1, true) then
    return stored
  end
  if type(stored) ~= 'string' then
    stored = ''
  end
  if stored == ARGV[number] then
    redis.call('UNLINK', key)
  end
end
return 0

-- name: fill
-- Keeps a row that a reader had from Postgres, unless one of the same server is kept that was read later.
-- KEYS[1]: the fill. ARGV: the server, the time of reading as text that sorts, the token, the row ('' = there is none, so
-- an older fill goes away), ms to keep it. Returns 1 where it was kept.
local kept = redis.call('HMGET', KEYS[1], 'system', 'read')
if kept[1] == ARGV[1] and kept[2] and kept[2] > ARGV[2] then
  return 0
end
redis.call('UNLINK', KEYS[1])
if ARGV[4] == '' then
  return 0
end
redis.call('HSET', KEYS[1], 'system', ARGV[1], 'read', ARGV[2], 'token', ARGV[3], 'row', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1
