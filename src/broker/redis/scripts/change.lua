-- Changes entries of a map.
--
-- KEYS  3 map, 4 nodes whose leases have ended, 5 nodes that own entries
-- ARGV  8 owner, or empty, 9 the largest number of entries, 10 begin of the keys of owned entries,
--       then 4 of each change: = or -, key, value, condition (empty, ! for absent, or "epoch offset")
-- Replies {epoch, offset, whether each change was made, …}.
local owner, max_entries, owned, name = ARGV[8], tonumber(ARGV[9]), ARGV[10], ARGV[5]
local now = now_ms()
local topic = open_topic(KEYS[1])
if is_other_kind(topic, 'map') then
  return other_kind()
end
if owner ~= '' and redis.call('ZSCORE', KEYS[4], owner) then
  return redis.error_reply('LEASEENDED the lease of the node has ended')
end
if owner ~= '' and has_lost_entries(KEYS[5], owned, owner) then
  return redis.error_reply('LEASEENDED the list of the entries of the node was lost')
end
local length = redis.call('HLEN', KEYS[3])
if not topic.epoch or topic.length ~= length or is_rewound(topic, ARGV[6], ARGV[7]) then
  begin_epoch(topic, ARGV[2])
end

-- Decides on the changes one after the other, without a write.
local made, entries = {}, {}
local grown, count = length, 0
for i = 11, #ARGV, 4 do
  local kind, key, value, condition = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local stored = entries[key]
  if stored == nil then
    stored = redis.call('HGET', KEYS[3], key)
  end
  local position = stored and string.match(stored, '^%d+ %d+') or '!'
  local is_made = condition == '' or condition == position
  if kind == '=' then
    is_made = is_made and (stored or grown < max_entries) and true or false
    grown = grown + (is_made and not stored and 1 or 0)
  else
    is_made = is_made and stored and true or false
    grown = grown - (is_made and 1 or 0)
  end
  made[#made + 1] = is_made
  if is_made then
    count = count + 1
    -- The position of this update is that of no condition.
    entries[key] = kind == '=' and '0 0 ' .. owner .. '\n' or false
  end
end

topic.length = grown
if count == 0 then
  if topic.has_begun then
    redis.call('HSET', KEYS[1], 'length', text(length))
  end
  finish_read(topic, 'map', now)
else
  if topic.run ~= ARGV[1] and not topic.has_begun then
    begin_epoch(topic, ARGV[2])
  end
  topic.top = topic.top + 1
  local begin = topic.epoch .. ' ' .. text(topic.top) .. ' ' .. owner .. '\n'
  local changes = {}
  for i, is_made in ipairs(made) do
    local kind, key, value = unpack(ARGV, 4 * i + 7, 4 * i + 9)
    if is_made then
      local stored = redis.call('HGET', KEYS[3], key)
      local before = stored and owner_of(stored) or ''
      if kind == '=' then
        redis.call('HSET', KEYS[3], key, begin .. value)
        changes[#changes + 1] = table.concat({ '=', #key, #value, #owner }, ' ') .. '\n' .. key .. value .. owner
      else
        redis.call('HDEL', KEYS[3], key)
        changes[#changes + 1] = '- ' .. #key .. ' 0 0\n' .. key
      end
      if before ~= '' and (kind == '-' or before ~= owner) then
        remove_owned(KEYS[5], owned, before, owned_member(name, key))
      end
      if kind == '=' and owner ~= '' and before ~= owner then
        redis.call('ZADD', owned .. owner, 0, owned_member(name, key))
        redis.call('SADD', KEYS[5], owner)
      end
    end
  end
  store_update(topic, name, KEYS[2], now, changes)
end

local reply = { topic.epoch, text(topic.top) }
for _, is_made in ipairs(made) do
  reply[#reply + 1] = is_made and 1 or 0
end
return reply
