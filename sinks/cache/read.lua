-- Returns pos and row of each key, one after the other; false where there is none. A key that has no pos, or is no hash,
-- is somebody else's: its pos comes as an empty text.
local found = {}
for number, key in ipairs(KEYS) do
  local held = redis.pcall('HMGET', key, 'pos', 'row')
  found[2 * number - 1] = held[1] or false
  found[2 * number] = held[2] or false
  if not held[1] and redis.call('EXISTS', key) == 1 then
    found[2 * number - 1] = ''
    found[2 * number] = held[2] or 'null'
  end
end
return found
