-- Compares what a node has seen of topics with what is stored.
--
-- KEYS  1 sequence of the partition, then 2 of each topic: metadata, map
-- ARGV  1 process of Redis, 2 id for a new generation, 3 ms for which idle metadata lives, 4 channel,
--       then 4 of each topic: name, position that the node has seen (or 0 and 0), id for a new epoch
-- Replies {generation, number, top, epochs, …}.
local now = now_ms()
local generation = last_sequence(KEYS[1], ARGV[1], ARGV[2])
local reply = { generation, '0' }
for i = 1, (#KEYS - 1) / 2 do
  local topic = open_topic(KEYS[2 * i])
  local name, epoch, offset, id = unpack(ARGV, 4 * i + 1, 4 * i + 4)
  local length = topic.kind == 'map' and redis.call('HLEN', KEYS[2 * i + 1]) or 0
  if not topic.epoch or topic.length ~= length or is_rewound(topic, epoch, offset) then
    begin_epoch(topic, id)
    redis.call('PUBLISH', ARGV[4], new_event('E', topic, name, KEYS[1], ARGV[1], ARGV[2]))
    store_topic(topic, nil, ARGV[1])
    if topic.length ~= length then
      redis.call('HSET', topic.key, 'length', text(length))
    end
  end
  if length == 0 then
    keep_topic(topic, idle_life(topic.kind), now)
  end
  reply[#reply + 1] = text(topic.top)
  reply[#reply + 1] = topic.epochs
end
reply[2] = redis.call('HGET', KEYS[1], 'number')
return reply
