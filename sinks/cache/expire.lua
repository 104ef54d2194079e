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
