-- Stores a message.
--
-- KEYS  3 stream, 4 message id (optional)
-- ARGV  8 payload, 9 messages, 10 bytes and 11 ms to keep, 12 ms for which the message id is remembered
-- Replies {is duplicate, epoch, offset}.
--
-- An entry has the id `offset-0` and the fields p (payload), b (the bytes of all messages before it), t (time in ms).
-- The metadata has b and t of an entry that is not younger than the first one: low_sum and low_time. So the stream is
-- searched only if they exceed a limit.
local run, id, payload = ARGV[1], ARGV[2], ARGV[8]
local max_messages, max_bytes, max_age = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local now = now_ms()
local topic = open_topic(KEYS[1])
if is_other_kind(topic, 'messages') then
  return other_kind()
end
if not topic.epoch or is_rewound(topic, ARGV[6], ARGV[7]) then
  begin_epoch(topic, id)
end

if KEYS[4] then
  local epoch, offset = string.match(redis.call('GET', KEYS[4]) or '', '^(%d+):(%d+)$')
  if epoch and is_valid(topic, epoch, offset) then
    finish_read(topic, 'messages', now)
    return { 1, epoch, offset }
  end
end

if topic.run ~= run and not topic.has_begun then
  begin_epoch(topic, id)
end
topic.top = topic.top + 1
if KEYS[4] then
  -- The first write, so that nothing is stored if it fails.
  redis.call('SET', KEYS[4], topic.epoch .. ':' .. text(topic.top), 'PX', ARGV[12])
end
local head = new_event('M', topic, ARGV[5], KEYS[2], run, id)
if not topic.kind then
  -- A stream without metadata belongs to an epoch that nobody knows.
  redis.call('UNLINK', KEYS[3])
  topic.low_time = now
end

local offset = topic.top
local sum = topic.sum + #payload
if max_messages == 0 or #payload > max_bytes then
  redis.call('UNLINK', KEYS[3])
  topic.low_sum, topic.low_time = sum, now
else
  local first = math.max(offset - max_messages + 1, 1)
  if sum - topic.low_sum > max_bytes or topic.low_time < now - max_age then
    -- Bisects: offsets have no gaps, and totals and times rise with them.
    local kept, last = nil, offset
    while first < last do
      local middle = math.floor((first + last) / 2)
      -- Nothing is found if another program has written to the key.
      local entry = redis.pcall('XRANGE', KEYS[3], text(middle) .. '-0', '+', 'COUNT', 1)[1]
      local before, time = entry and tonumber(entry[2][4]), entry and tonumber(entry[2][6])
      if not entry then
        last = middle
      elseif sum - before <= max_bytes and time >= now - max_age then
        kept, last = { before, time }, middle
      else
        first = tonumber(string.match(entry[1], '^%d+')) + 1
      end
    end
    topic.low_sum, topic.low_time = unpack(kept or { topic.sum, now })
    if not kept then
      -- Frees any number of messages in another thread.
      redis.call('UNLINK', KEYS[3])
    end
  end
  local key, fields = text(offset) .. '-0', { 'p', payload, 'b', text(topic.sum), 't', text(now) }
  local added = redis.pcall('XADD', KEYS[3], 'MINID', '=', text(first) .. '-0', key, unpack(fields))
  if type(added) == 'table' and added.err then
    -- Another program has written to the stream, or to its key.
    redis.call('UNLINK', KEYS[3])
    redis.call('XADD', KEYS[3], key, unpack(fields))
  end
  -- The messages expire together, and before the metadata.
  redis.call('PEXPIRE', KEYS[3], ARGV[11])
end
redis.call('HSET', KEYS[1], 'sum', text(sum), 'low_sum', text(topic.low_sum), 'low_time', text(topic.low_time))
store_topic(topic, 'messages', run)
-- A remembered id counts only with the epochs of the topic.
local window = KEYS[4] and tonumber(ARGV[12]) or 0
keep_topic(topic, math.max(tonumber(ARGV[3]), max_age, window), now)
redis.call('PUBLISH', ARGV[4], head .. payload)
return { 0, topic.epoch, text(offset) }
