//! The differences between the simulated Redis and a real one. Parts of replies that differ are
//! replaced before a comparison.

use netwheel::codec::RespValue;

/// Commands whose replies are unordered.
const UNORDERED: [&str; 4] = ["SMEMBERS", "KEYS", "PUBSUB CHANNELS", "COMMAND INFO"];

/// Fields of `HELLO` that describe the server or the connection.
const INTERNAL: [&str; 2] = ["id", "version"];

/// Commands whose replies are times or numbers that cannot be equal.
const UNEQUAL: [&str; 4] = ["TIME", "CLIENT ID", "INFO", "ROLE"];

/// A Unix time that is later than an expiry that the tests set from now on.
const FAR_SECONDS: i64 = 10_000_000_000;

/// Returns a reply in the form in which both servers have to agree.
pub(super) fn comparable(command: &str, reply: RespValue) -> RespValue {
    let upper = command.to_ascii_uppercase();
    let is_one = |names: &[&str]| names.iter().any(|name| upper.starts_with(name));
    if reply.is_error() {
        return RespValue::Error(without_position(reply.as_bytes().unwrap()).into());
    }
    if is_one(&UNEQUAL) || (upper.starts_with("XADD") && upper.contains(" * ")) {
        return kind(reply);
    }
    // Times from now on, but not those of a distant expiry that was given.
    let is_near = |limit| matches!(reply, RespValue::Integer(time) if (1..limit).contains(&time));
    if is_one(&["TTL", "PTTL"]) && is_near(i64::MAX)
        || is_one(&["EXPIRETIME"]) && is_near(FAR_SECONDS)
        || is_one(&["PEXPIRETIME"]) && is_near(1000 * FAR_SECONDS)
    {
        return RespValue::Simple("a positive time".into());
    }
    let reply = if is_one(&["HELLO"]) { without_internals(reply) } else { reply };
    if is_one(&UNORDERED) { sorted(reply) } else { reply }
}

/// Removes the name and the line of a script from an error: the double has no lines of Lua.
fn without_position(error: &[u8]) -> String {
    let text = String::from_utf8_lossy(error);
    text.split_once(" script: ").map_or(text.as_ref(), |(error, _)| error).to_owned()
}

fn kind(reply: RespValue) -> RespValue {
    RespValue::Simple(
        match reply {
            RespValue::Array(items) => format!("array of {}", items.len()),
            RespValue::Bulk(_) => "bulk string".to_owned(),
            RespValue::Integer(_) => "integer".to_owned(),
            RespValue::Verbatim { .. } => "verbatim string".to_owned(),
            other => format!("{other:?}"),
        }
        .into(),
    )
}

fn without_internals(reply: RespValue) -> RespValue {
    let hidden = || RespValue::Simple("internal".into());
    let is_internal = |name: &RespValue| {
        name.as_bytes().is_some_and(|name| INTERNAL.iter().any(|internal| name == internal.as_bytes()))
    };
    match reply {
        RespValue::Map(pairs) => RespValue::Map(
            pairs
                .into_iter()
                .map(|(name, value)| if is_internal(&name) { (name, hidden()) } else { (name, value) })
                .collect(),
        ),
        RespValue::Array(mut items) => {
            for at in (1..items.len()).step_by(2) {
                if is_internal(&items[at - 1]) {
                    items[at] = hidden();
                }
            }
            RespValue::Array(items)
        }
        other => other,
    }
}

fn sorted(reply: RespValue) -> RespValue {
    let by_text = |items: Vec<RespValue>| {
        let mut items: Vec<_> = items.into_iter().map(sorted).collect();
        items.sort_by_key(|item| format!("{item:?}"));
        items
    };
    match reply {
        RespValue::Array(items) => RespValue::Array(by_text(items)),
        RespValue::Set(items) => RespValue::Set(by_text(items)),
        other => other,
    }
}
