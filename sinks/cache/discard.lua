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
