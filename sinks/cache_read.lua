-- Returns pos and row of each key, one after the other; false where there is none.
local found = {}
for number, key in ipairs(KEYS) do
  local held = redis.pcall('HMGET', key, 'pos', 'row')
  found[2 * number - 1] = held[1] or false
  found[2 * number] = held[2] or false
end
return found
