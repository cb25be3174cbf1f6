//! Scripts in Lua, and the closures in their places.

use bytes::Bytes;
use netwheel::{
    codec::RespValue,
    testing::redis::{RedisServer, ScriptContext},
};

/// The arguments of a command in a script.
fn command<const N: usize>(args: [&[u8]; N]) -> [Bytes; N] {
    args.map(Bytes::copy_from_slice)
}

pub(super) type Closure = fn(&mut ScriptContext<'_>) -> Result<RespValue, RespValue>;

/// Publishes a message if the writer knows the top of the stream, and returns its offset.
pub(super) const PUBLISH: &str = "
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then
  epoch = ARGV[1]
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'offset', 0)
end
local top = tonumber(redis.call('HGET', KEYS[1], 'offset'))
if epoch ~= ARGV[1] or top < tonumber(ARGV[2]) then
  return {'rewound', epoch, top}
end
local offset = redis.call('HINCRBY', KEYS[1], 'offset', 1)
redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[4], '0-' .. offset, 'm', ARGV[3])
redis.call('PUBLISH', KEYS[3], offset .. ' ' .. ARGV[3])
return {'ok', epoch, offset}
";

fn publish(script: &mut ScriptContext<'_>) -> Result<RespValue, RespValue> {
    let [meta, stream, channel] = [0, 1, 2].map(|n| script.keys()[n].clone());
    let [known_epoch, known, message, length] = [0, 1, 2, 3].map(|n| script.arguments()[n].clone());
    let epoch = match script.call(command([b"HGET", &meta, b"epoch"]))? {
        RespValue::Bulk(epoch) => epoch,
        _ => {
            script.call(command([b"HSET", &meta, b"epoch", &known_epoch, b"offset", b"0"]))?;
            known_epoch.clone()
        }
    };
    let number = |text: &[u8]| std::str::from_utf8(text).unwrap().parse::<i64>().unwrap();
    let top = script.call(command([b"HGET", &meta, b"offset"]))?;
    let top = number(top.as_bytes().unwrap());
    let reply = |word: &'static str, offset| {
        RespValue::Array(vec![
            RespValue::Bulk(word.into()),
            RespValue::Bulk(epoch.clone()),
            RespValue::Integer(offset),
        ])
    };
    if epoch != known_epoch || top < number(&known) {
        return Ok(reply("rewound", top));
    }
    let RespValue::Integer(offset) = script.call(command([b"HINCRBY", &meta, b"offset", b"1"]))? else {
        panic!("HINCRBY replies an integer");
    };
    let id = format!("0-{offset}");
    script.call(command([b"XADD", &stream, b"MAXLEN", &length, id.as_bytes(), b"m", &message]))?;
    let text = [offset.to_string().as_bytes(), b" ", &message].concat();
    script.call(command([b"PUBLISH", &channel, &text]))?;
    Ok(reply("ok", offset))
}

/// Returns the reply of the command in the arguments.
pub(super) const CALL: &str = "return redis.call(unpack(ARGV))";

fn call(script: &mut ScriptContext<'_>) -> Result<RespValue, RespValue> {
    let args = script.arguments().to_vec();
    script.call(args)
}

/// Writes, then fails. The write stays.
pub(super) const FAIL: &str = "redis.call('SET', KEYS[1], 'x') return redis.call('INCR', KEYS[1])";

fn fail(script: &mut ScriptContext<'_>) -> Result<RespValue, RespValue> {
    let key = script.keys()[0].clone();
    script.call(command([b"SET", &key, b"x"]))?;
    script.call(command([b"INCR", &key]))
}

/// Replaces a key, in two commands.
pub(super) const REPLACE: &str = "redis.call('DEL', KEYS[1]) return redis.call('SET', KEYS[1], ARGV[1])";

fn replace(script: &mut ScriptContext<'_>) -> Result<RespValue, RespValue> {
    let (key, value) = (script.keys()[0].clone(), script.arguments()[0].clone());
    script.call(command([b"DEL", &key]))?;
    script.call(command([b"SET", &key, &value]))
}

/// Sets a key in another database, and counts the keys there.
pub(super) const ELSEWHERE: &str = "
redis.call('SELECT', ARGV[1])
redis.call('SET', KEYS[1], 'elsewhere')
return redis.call('DBSIZE')
";

fn elsewhere(script: &mut ScriptContext<'_>) -> Result<RespValue, RespValue> {
    let (key, database) = (script.keys()[0].clone(), script.arguments()[0].clone());
    script.call(command([b"SELECT", &database]))?;
    script.call(command([b"SET", &key, b"elsewhere"]))?;
    script.call(command([b"DBSIZE"]))
}

/// Returns values of all kinds.
pub(super) const KINDS: &str =
    "return {1, 2.7, 'text', true, redis.status_reply('FINE'), {KEYS[1]}, false, 9}";

fn kinds(script: &mut ScriptContext<'_>) -> Result<RespValue, RespValue> {
    let key = RespValue::Bulk(script.keys()[0].clone());
    Ok(RespValue::Array(vec![
        RespValue::Integer(1),
        RespValue::Double(2.7),
        RespValue::Bulk("text".into()),
        RespValue::Boolean(true),
        RespValue::Simple("FINE".into()),
        RespValue::Array(vec![key]),
        RespValue::Boolean(false),
        RespValue::Integer(9),
    ]))
}

/// Returns the offset of a stream and its messages.
pub(super) const STATE: &str = "
local state = {tonumber(redis.call('HGET', KEYS[1], 'offset') or 0)}
for _, entry in ipairs(redis.call('XRANGE', KEYS[2], '-', '+')) do
  table.insert(state, entry[2][2])
end
return state
";

fn state(script: &mut ScriptContext<'_>) -> Result<RespValue, RespValue> {
    let [meta, stream] = [0, 1].map(|n| script.keys()[n].clone());
    let offset = script.call(command([b"HGET", &meta, b"offset"]))?;
    let offset = offset.as_bytes().map_or(0, |text| std::str::from_utf8(text).unwrap().parse().unwrap());
    let mut state = vec![RespValue::Integer(offset)];
    if let RespValue::Array(entries) = script.call(command([b"XRANGE", &stream, b"-", b"+"]))? {
        state.extend(entries.into_iter().filter_map(|entry| match entry {
            RespValue::Array(parts) => match parts.get(1) {
                Some(RespValue::Array(fields)) => fields.get(1).cloned(),
                _ => None,
            },
            _ => None,
        }));
    }
    Ok(RespValue::Array(state))
}

/// The names under which conversations call the scripts.
pub(super) const SCRIPTS: [(&str, &str, Closure); 7] = [
    ("state", STATE, state),
    ("publish", PUBLISH, publish),
    ("call", CALL, call),
    ("fail", FAIL, fail),
    ("kinds", KINDS, kinds),
    ("replace", REPLACE, replace),
    ("elsewhere", ELSEWHERE, elsewhere),
];

pub(super) fn register(server: RedisServer) -> RedisServer {
    SCRIPTS.iter().fold(server, |server, (_, source, closure)| server.script(source, closure))
}
