-- name: place
-- Replaces the places of tables, each where it is one of those that a batch may have begun from.
-- KEYS: one hash per table. ARGV: for each of them its new place, how many may be replaced, and these ('' for none).
-- A hash is that of a row whose key is %place (sinks/contract/table_places.py), and has the place as its field.
-- Returns the numbers (from 1) of those that have another one.
local strange = {}
local at = 1
for number, key in ipairs(KEYS) do
  local after, count = ARGV[at], tonumber(ARGV[at + 1])
  local stored = redis.call('HGET', key, 'place') or ''
  local fits = false
  for each = at + 2, at + 1 + count do
    fits = fits or ARGV[each] == stored
  end
  if fits then
    redis.call('HSET', key, 'place', after)
  else
    strange[#strange + 1] = number
  end
  at = at + 2 + count
end
return strange
