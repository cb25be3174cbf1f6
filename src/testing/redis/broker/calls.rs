//! Commands of a script, with the types of Rust.

use crate::{codec::RespValue, testing::redis::script::ScriptContext};
use bytes::Bytes;

/// The result of a script, or of a part of it.
pub(super) type ScriptResult<T = RespValue> = Result<T, RespValue>;

pub(super) fn text(number: i64) -> Bytes {
    number.to_string().into()
}

pub(super) fn bulk(bytes: impl Into<Bytes>) -> RespValue {
    RespValue::Bulk(bytes.into())
}

/// Parses a number that the broker has passed or stored, as `tonumber` does.
pub(super) fn number(bytes: &[u8]) -> ScriptResult<i64> {
    let parsed = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| RespValue::Error("ERR a number is expected".into()))
}

/// Returns the argument of a script with an index from 0.
pub(super) fn argument(script: &ScriptContext<'_>, index: usize) -> ScriptResult<Bytes> {
    let missing = || RespValue::Error("ERR an argument is missing".into());
    script.arguments().get(index).cloned().ok_or_else(missing)
}

/// Returns the key of a script with an index from 0.
pub(super) fn key(script: &ScriptContext<'_>, index: usize) -> ScriptResult<Bytes> {
    script.keys().get(index).cloned().ok_or_else(|| RespValue::Error("ERR a key is missing".into()))
}

pub(super) fn run<const N: usize>(script: &mut ScriptContext<'_>, args: [&[u8]; N]) -> ScriptResult {
    script.call(args.map(Bytes::copy_from_slice))
}

/// Runs a command that replies an integer.
pub(super) fn integer<const N: usize>(script: &mut ScriptContext<'_>, args: [&[u8]; N]) -> ScriptResult<i64> {
    Ok(match run(script, args)? {
        RespValue::Integer(number) => number,
        _ => 0,
    })
}

/// Runs a command that replies a string or nothing.
pub(super) fn string<const N: usize>(
    script: &mut ScriptContext<'_>,
    args: [&[u8]; N],
) -> ScriptResult<Option<Bytes>> {
    Ok(run(script, args)?.as_bytes().cloned())
}

/// Runs a command that replies an array.
pub(super) fn list<const N: usize>(
    script: &mut ScriptContext<'_>,
    args: [&[u8]; N],
) -> ScriptResult<Vec<RespValue>> {
    Ok(match run(script, args)? {
        RespValue::Array(items) => items,
        _ => Vec::new(),
    })
}

/// Returns the present time in milliseconds since 1970.
pub(super) fn now_ms(script: &mut ScriptContext<'_>) -> ScriptResult<i64> {
    let time = list(script, [b"TIME"])?;
    let part =
        |index: usize| time.get(index).and_then(RespValue::as_bytes).map_or(Ok(0), |text| number(text));
    Ok(part(0)? * 1000 + part(1)? / 1000)
}

/// An entry of a stream: the offset, and the values of its fields.
pub(super) fn entry(value: &RespValue) -> ScriptResult<(i64, [Bytes; 3])> {
    let broken = || RespValue::Error("ERR the stream has other entries".into());
    let RespValue::Array(parts) = value else { return Err(broken()) };
    let [id, RespValue::Array(fields)] = &parts[..] else { return Err(broken()) };
    let id = id.as_bytes().ok_or_else(broken)?;
    let offset = number(id.split(|byte| *byte == b'-').next().unwrap_or_default())?;
    let field = |index: usize| fields.get(index).and_then(RespValue::as_bytes).cloned().ok_or_else(broken);
    Ok((offset, [field(1)?, field(3)?, field(5)?]))
}

/// Returns entries of a stream from an offset on.
pub(super) fn behind(
    script: &mut ScriptContext<'_>,
    stream: &[u8],
    first: i64,
    count: i64,
) -> ScriptResult<Vec<RespValue>> {
    let first = format!("{first}-0");
    list(script, [b"XRANGE", stream, first.as_bytes(), b"+", b"COUNT", &text(count)])
}
