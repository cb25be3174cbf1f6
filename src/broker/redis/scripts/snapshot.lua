-- Reads a map.
--
-- KEYS  3 map
-- Replies {top, epochs, key, entry, …}.
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
local reply = redis.call('HGETALL', KEYS[3])
table.insert(reply, 1, topic.epochs)
table.insert(reply, 1, text(topic.top))
return reply
