-- Reads a map.
--
-- KEYS  3 map
-- ARGV  8 the largest number of entries in a reply, 9 bytes of their strings, with 16 for each string
-- Replies {top, epochs, key, entry, …}, or {top, epochs, number of entries} if the map is larger.
local topic = open_topic(KEYS[1])
if is_other_kind(topic, 'map') then
  return other_kind()
end
local length = redis.call('HLEN', KEYS[3])
if not topic.epoch or topic.length ~= length or is_rewound(topic, ARGV[6], ARGV[7]) then
  begin_epoch(topic, ARGV[2])
  topic.length = length
  redis.call('HSET', KEYS[1], 'length', text(length))
end
finish_read(topic, 'map', now_ms())
local is_larger = length > tonumber(ARGV[8])
local reply = is_larger and {} or redis.call('HGETALL', KEYS[3])
local bytes, max_bytes = 0, tonumber(ARGV[9])
for _, part in ipairs(reply) do
  bytes = bytes + #part + 16
end
if is_larger or bytes > max_bytes then
  return { text(topic.top), topic.epochs, length }
end
table.insert(reply, 1, topic.epochs)
table.insert(reply, 1, text(topic.top))
return reply
