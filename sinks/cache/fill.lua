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
