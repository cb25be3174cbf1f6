-- Topics, in front of the scripts that use them. All keys of a call are in one slot.
--
-- KEYS  1 metadata of the topic, 2 sequence of the partition, then those of the script
-- ARGV  1 process of Redis, 2 id for a new epoch or generation, 3 ms for which idle metadata lives, 4 channel, 5 topic,
--       6 and 7 position that the node has seen, or 0 and 0, then those of the script
--
-- The metadata is a hash:
--   kind    messages or map, or none before the first operation that is for one kind
--   top     the offset of the last message, or of the last change of the map
--   epochs  "id:first id:first …", in ascending order
--   run     the process of Redis at the begin of the last epoch
--   until   the time at which the metadata expires, in ms, or 0
--   sum, low_sum, low_time: of the stream, see publish.lua
--   length  the number of entries of the map
-- The sequence is a hash too: run, generation, number.
local MAX_EPOCHS = 32
-- How long the metadata of a map without entries lives, in ms, unless ARGV 3 is less.
local EMPTY_MAP_LIFE = 3600000

local function text(number)
  return string.format('%.0f', number)
end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function open_topic(key)
  local f = redis.call('HMGET', key, 'kind', 'top', 'epochs', 'run', 'until', 'sum', 'low_sum', 'low_time', 'length')
  local topic = { key = key, kind = f[1], top = tonumber(f[2] or 0), epochs = f[3] or '', run = f[4],
    expiry = tonumber(f[5] or 0), sum = tonumber(f[6] or 0), low_sum = tonumber(f[7] or 0),
    low_time = tonumber(f[8] or 0), length = tonumber(f[9] or 0) }
  topic.epoch = string.match(topic.epochs, '(%d+):%d+$')
  return topic
end

local function is_other_kind(topic, kind)
  return topic.kind and topic.kind ~= kind
end

local function other_kind()
  return redis.error_reply('WRONGKIND the topic is of the other kind')
end

-- Begins an epoch behind the last message. The metadata is stored later.
local function begin_epoch(topic, id)
  -- Two nodes may have the same random numbers.
  while string.find(' ' .. topic.epochs, ' ' .. id .. ':', 1, true) do
    id = text(id + 1)
  end
  if topic.epoch then
    topic.epochs = topic.epochs .. ' '
  end
  topic.epochs = topic.epochs .. id .. ':' .. text(topic.top + 1)
  local _, number = string.gsub(topic.epochs, ':', ':')
  if number > MAX_EPOCHS then
    topic.epochs = string.gsub(topic.epochs, '^%S+ ', '', 1)
  end
  topic.epoch, topic.has_begun = id, true
end

-- Returns whether a node has seen a message that the store has lost.
local function is_rewound(topic, epoch, offset)
  return topic.epoch == epoch and tonumber(offset) > topic.top
end

-- Returns whether the position is one of the messages that the store has had.
local function is_valid(topic, epoch, offset)
  local last, found = topic.top, false
  for id, first in string.gmatch(topic.epochs, '(%d+):(%d+)') do
    if found then
      last = first - 1
      break
    end
    found = id == epoch
  end
  return found and tonumber(offset) <= last
end

-- Returns the generation and the number of the last event. Another process may have lost events.
local function last_sequence(key, run, id)
  local f = redis.call('HMGET', key, 'run', 'generation', 'number')
  if f[1] ~= run then
    redis.call('HSET', key, 'run', run, 'generation', id, 'number', 0)
    return id, '0'
  end
  return f[2], f[3]
end

-- Returns the head of a new event. The content follows it.
local function new_event(kind, topic, name, sequence_key, run, id)
  local generation = last_sequence(sequence_key, run, id)
  local number = redis.call('HINCRBY', sequence_key, 'number', 1)
  return table.concat({ kind, generation, text(number), topic.epoch, text(topic.top), #name }, ' ') .. '\n' .. name
end

-- Stores kind, epochs and top.
local function store_topic(topic, kind, run)
  redis.call('HSET', topic.key, 'top', text(topic.top))
  if topic.has_begun then
    redis.call('HSET', topic.key, 'epochs', topic.epochs, 'run', run)
  end
  if kind and not topic.kind then
    redis.call('HSET', topic.key, 'kind', kind)
  end
end

-- Returns how long the idle metadata of a topic without entries lives, in ms. A question about a map is enough to create
-- it, and nobody resumes from one without entries.
local function idle_life(kind)
  local life = tonumber(ARGV[3])
  return kind == 'map' and math.min(life, EMPTY_MAP_LIFE) or life
end

-- Lets the metadata live for `keep` ms at least, and never shorter than before. Writes once in that time.
local function keep_topic(topic, keep, now)
  if topic.expiry < now + keep then
    redis.call('HSET', topic.key, 'until', text(now + keep * 2))
    redis.call('PEXPIRE', topic.key, text(keep * 2))
  end
end

-- Stores the kind and a new epoch after an operation without a change.
local function finish_read(topic, kind, now)
  if topic.has_begun then
    redis.call('PUBLISH', ARGV[4], new_event('E', topic, ARGV[5], KEYS[2], ARGV[1], ARGV[2]))
  end
  if topic.has_begun or not topic.kind then
    store_topic(topic, kind, ARGV[1])
  end
  if topic.length == 0 then
    keep_topic(topic, idle_life(kind), now)
  end
end
