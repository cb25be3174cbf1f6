-- Maps, behind topic.lua in the scripts that change them.
--
-- A field of the map has `epoch offset owner\nvalue`: the position of the update that has set it, and its node, which
-- may be empty. The entries of a node are members `length of the topic:topic key` of a sorted set with scores of 0,
-- which has them in the order of topics. The nodes with such a sorted set are members of another set.

-- Returns the owner of a stored entry.
local function owner_of(entry)
  return string.match(entry, '^%d+ %d+ ([^\n]*)\n')
end

local function owned_member(name, key)
  return #name .. ':' .. name .. ' ' .. key
end

local function remove_owned(owners_key, owned, node, member)
  redis.call('ZREM', owned .. node, member)
  if redis.call('ZCARD', owned .. node) == 0 then
    redis.call('SREM', owners_key, node)
  end
end

-- Returns whether the entries of a node are not known any more: their key was evicted or deleted.
local function has_lost_entries(owners_key, owned, node)
  return redis.call('SISMEMBER', owners_key, node) == 1 and redis.call('ZCARD', owned .. node) == 0
end

-- Stores the end of an update, and publishes it. The top is that of the update. `changes` has the content of the event.
local function store_update(topic, name, sequence_key, now, changes)
  local head = new_event('C', topic, name, sequence_key, ARGV[1], ARGV[2])
  store_topic(topic, 'map', ARGV[1])
  redis.call('HSET', topic.key, 'length', text(topic.length))
  if topic.length > 0 then
    -- Entries do not expire, and so the metadata does not.
    redis.call('HSET', topic.key, 'until', 0)
    redis.call('PERSIST', topic.key)
  else
    keep_topic(topic, idle_life('map'), now)
  end
  redis.call('PUBLISH', ARGV[4], head .. table.concat(changes))
end
