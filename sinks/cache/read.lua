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
