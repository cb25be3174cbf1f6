-- Begins or renews the lease of a node.
--
-- KEYS  1 leases by the times at which they end, 2 the incarnation of each name, 3 ended leases whose entries are not
--       removed yet
-- ARGV  1 node, 2 name of the node, 3 ms, 4 begin, again or renew
-- Replies 1, 0 if the lease has ended, or -1 if another incarnation has one.
local node, name = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function is_alive(of)
  local ends = of and redis.call('ZSCORE', KEYS[1], of)
  return ends and tonumber(ends) > now
end
local current = redis.call('HGET', KEYS[2], name)
local is_taken = ARGV[4] ~= 'begin' and current ~= node and is_alive(current)
if ARGV[4] ~= 'renew' and not is_taken then
  if current and current ~= node then
    redis.call('ZREM', KEYS[1], current)
    redis.call('SADD', KEYS[3], current)
  end
  redis.call('HSET', KEYS[2], name, node)
  redis.call('SREM', KEYS[3], node)
elseif current ~= node or not is_alive(node) then
  if ARGV[4] == 'renew' then
    -- The store may have lost the lease, and the node may own entries.
    redis.call('ZREM', KEYS[1], node)
    redis.call('SADD', KEYS[3], node)
  end
  return is_taken and -1 or 0
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[3]), node)
return 1
