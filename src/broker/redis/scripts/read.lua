-- Reads messages.
--
-- KEYS  3 stream
-- ARGV  8 offset behind which the messages are, or - for the newest ones, 9 messages, 10 bytes: at least one message is
--       read if there is one
-- Replies {top, epochs, oldest, offset, payload, …}, the messages in ascending order.
local max_messages, max_bytes = tonumber(ARGV[9]), tonumber(ARGV[10])
local now = now_ms()
local topic = open_topic(KEYS[1])
if is_other_kind(topic, 'messages') then
  return other_kind()
end
if not topic.kind then
  -- A stream without metadata belongs to an epoch that nobody knows.
  redis.call('UNLINK', KEYS[3])
end
if not topic.epoch or is_rewound(topic, ARGV[6], ARGV[7]) then
  begin_epoch(topic, ARGV[2])
end
finish_read(topic, 'messages', now)

local oldest = redis.call('XRANGE', KEYS[3], '-', '+', 'COUNT', 1)[1]
local reply = { text(topic.top), topic.epochs, oldest and string.match(oldest[1], '^%d+') or text(topic.top + 1) }
local after = ARGV[8] == '-' and math.max(topic.top - max_messages, 0) or tonumber(ARGV[8])
local bytes, messages = 0, 0
while messages < max_messages do
  local part = math.min(max_messages - messages, 16)
  local found = redis.call('XRANGE', KEYS[3], text(after + 1) .. '-0', '+', 'COUNT', part)
  for _, entry in ipairs(found) do
    after = tonumber(string.match(entry[1], '^%d+'))
    local payload = entry[2][2]
    bytes = bytes + #payload
    if messages > 0 and bytes > max_bytes then
      return reply
    end
    messages = messages + 1
    reply[#reply + 1] = text(after)
    reply[#reply + 1] = payload
  end
  if #found < part then
    break
  end
end
return reply
