-- Ends leases: those that were not renewed in time, and those of the arguments.
--
-- KEYS  1 leases by the times at which they end, 2 the incarnation of each name, 3 ended leases whose entries are not
--       removed yet
-- ARGV  1 end, or lost to leave nodes alone that have leases, then nodes
-- Replies the ended leases whose entries are not removed yet.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function finish(node)
  redis.call('ZREM', KEYS[1], node)
  redis.call('SADD', KEYS[3], node)
  local name = string.match(node, '^[^:]*')
  if redis.call('HGET', KEYS[2], name) == node then
    redis.call('HDEL', KEYS[2], name)
  end
end
for _, node in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))) do
  finish(node)
end
for i = 2, #ARGV do
  if ARGV[1] == 'end' or not redis.call('ZSCORE', KEYS[1], ARGV[i]) then
    finish(ARGV[i])
  end
end
return redis.call('SMEMBERS', KEYS[3])
