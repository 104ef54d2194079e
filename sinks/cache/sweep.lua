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
