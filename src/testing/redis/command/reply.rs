//! Replies of commands.

use super::super::refusal::Reply;
use crate::codec::RespValue;
use bytes::Bytes;

pub(super) fn simple(text: &'static str) -> Reply {
    Ok(RespValue::Simple(text.into()))
}

pub(crate) fn ok() -> Reply {
    simple("OK")
}

pub(super) fn count(number: usize) -> Reply {
    Ok(RespValue::Integer(number as i64))
}

pub(super) fn flag(is_true: bool) -> Reply {
    count(usize::from(is_true))
}

pub(super) fn bulk(bytes: &Bytes) -> RespValue {
    RespValue::Bulk(bytes.clone())
}

/// Returns a bulk string, or the absent one.
pub(super) fn bulk_or_null(bytes: Option<&Bytes>) -> RespValue {
    bytes.map_or(RespValue::Null, bulk)
}

pub(super) fn array<'a>(items: impl IntoIterator<Item = &'a Bytes>) -> Reply {
    Ok(RespValue::Array(items.into_iter().map(bulk).collect()))
}
