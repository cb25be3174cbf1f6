//! Ids of stream entries in arguments.

use super::super::{keyspace::StreamId, number::unsigned, refusal::Refusal};

/// An id of `XADD`: each part may be left to the server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum NewId {
    /// `*`
    Automatic,
    /// `5-*`
    AutomaticNumber(u64),
    Given(StreamId),
}

/// Splits `ms-seq`. The number is `None` if there is none.
fn parts(text: &[u8]) -> Option<(u64, Option<&[u8]>)> {
    match text.iter().position(|byte| *byte == b'-') {
        None => Some((unsigned(text)?, None)),
        Some(at) => Some((unsigned(&text[..at])?, Some(&text[at + 1..]))),
    }
}

pub(super) fn invalid() -> Refusal {
    Refusal::of("ERR Invalid stream ID specified as stream command argument")
}

impl NewId {
    pub(super) fn parse(text: &[u8]) -> Result<Self, Refusal> {
        let (ms, seq) = parts(text).ok_or_else(invalid)?;
        match seq {
            None => Ok(NewId::Given(StreamId { ms, seq: 0 })),
            Some(b"*") => Ok(NewId::AutomaticNumber(ms)),
            Some(seq) => Ok(NewId::Given(StreamId { ms, seq: unsigned(seq).ok_or_else(invalid)? })),
        }
    }
}

/// Parses an id without `-`, `+` and `*`. `number` completes an id of milliseconds only.
pub(super) fn strict(text: &[u8], number: u64) -> Result<StreamId, Refusal> {
    let (ms, seq) = parts(text).ok_or_else(invalid)?;
    let seq = seq.map_or(Some(number), unsigned).ok_or_else(invalid)?;
    Ok(StreamId { ms, seq })
}

/// Parses an id or the smallest or largest one, `-` and `+`.
pub(super) fn any(text: &[u8], number: u64) -> Result<StreamId, Refusal> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => strict(text, number),
    }
}

/// Parses the first id of an interval. `(` excludes it.
pub(super) fn start(text: &[u8]) -> Result<StreamId, Refusal> {
    let refusal = || Refusal::of("ERR invalid start ID for the interval");
    match text.strip_prefix(b"(") {
        None => any(text, 0),
        Some(text) => strict(text, 0)?.next().ok_or_else(refusal),
    }
}

/// Parses the last id of an interval. `(` excludes it.
pub(super) fn end(text: &[u8]) -> Result<StreamId, Refusal> {
    let refusal = || Refusal::of("ERR invalid end ID for the interval");
    match text.strip_prefix(b"(") {
        None => any(text, u64::MAX),
        Some(text) => strict(text, u64::MAX)?.previous().ok_or_else(refusal),
    }
}
