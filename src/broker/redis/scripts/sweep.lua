-- Removes entries of a node whose lease has ended, from the maps of a partition.
--
-- KEYS  1 entries of the node, 2 sequence of the partition, 3 nodes whose leases have ended,
--       4 nodes that own entries
-- ARGV  1 process of Redis, 2 id for a new epoch or generation, 3 ms for which idle metadata lives, 4 channel, 5 node,
--       6 the largest number of entries for this call, 7 begin of the keys of metadata, 8 begin of the keys of maps,
--       9 ms for which the node is remembered, 10 the most bytes of the changes in an event: at least one entry is
--       removed if there is one
-- Replies the number of entries that are left.
local now, node = now_ms(), ARGV[5]
redis.call('ZADD', KEYS[3], text(now), node)
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', text(now - tonumber(ARGV[9])))

local topic, name, map_key, changes
local bytes, max_bytes = 0, tonumber(ARGV[10])
local function finish()
  if topic and #changes > 0 then
    if topic.run ~= ARGV[1] and not topic.has_begun then
      begin_epoch(topic, ARGV[2])
    end
    topic.top = topic.top + 1
    store_update(topic, name, KEYS[2], now, changes)
  end
end

for i, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, tonumber(ARGV[6]) - 1)) do
  local size, rest = string.match(member, '^(%d+):(.*)$')
  local next_name, key = string.sub(rest, 1, size), string.sub(rest, size + 2)
  -- A removal has its key, and a head of at most 16 bytes.
  bytes = bytes + #key + 16
  if i > 1 and bytes > max_bytes then
    break
  end
  if next_name ~= name then
    finish()
    name, map_key, changes = next_name, ARGV[8] .. next_name, {}
    topic = open_topic(ARGV[7] .. name)
    local length = redis.call('HLEN', map_key)
    if not topic.epoch or topic.length ~= length then
      begin_epoch(topic, ARGV[2])
      topic.length = length
    end
  end
  local stored = redis.call('HGET', map_key, key)
  if stored and owner_of(stored) == node then
    redis.call('HDEL', map_key, key)
    topic.length = topic.length - 1
    changes[#changes + 1] = '- ' .. #key .. ' 0 0\n' .. key
  end
  redis.call('ZREM', KEYS[1], member)
end
finish()
local left = redis.call('ZCARD', KEYS[1])
if left == 0 then
  redis.call('SREM', KEYS[4], node)
end
return left
