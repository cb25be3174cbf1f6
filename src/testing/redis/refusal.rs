//! `Refusal`: an error reply.

use crate::codec::RespValue;
use bytes::Bytes;

/// The text of an error reply, which begins with a code such as `ERR`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal(Bytes);

/// The reply to a command, or the reason of its refusal.
pub(super) type Reply = Result<RespValue, Refusal>;

pub(super) const SYNTAX: Refusal = Refusal::of("ERR syntax error");
pub(super) const WRONG_TYPE: Refusal =
    Refusal::of("WRONGTYPE Operation against a key holding the wrong kind of value");
pub(super) const NOT_INTEGER: Refusal = Refusal::of("ERR value is not an integer or out of range");
pub(super) const NOT_FLOAT: Refusal = Refusal::of("ERR value is not a valid float");
pub(super) const NOT_POSITIVE: Refusal = Refusal::of("ERR value is out of range, must be positive");

impl Refusal {
    pub(super) const fn of(text: &'static str) -> Self {
        Refusal(Bytes::from_static(text.as_bytes()))
    }

    /// Returns the error for a command with too few or too many arguments.
    pub(super) fn arity(command: &str) -> Self {
        format!("ERR wrong number of arguments for '{command}' command").into()
    }

    /// Returns the error with other words before it, which have a code of their own.
    pub(super) fn within(self, words: &str) -> Self {
        let text = self.0.strip_prefix(b"ERR ").unwrap_or(&self.0);
        Refusal([words.as_bytes(), text].concat().into())
    }

    pub(super) fn reply(self) -> RespValue {
        RespValue::Error(self.0)
    }
}

impl From<String> for Refusal {
    /// Line breaks, which an argument may contain, are replaced by spaces.
    fn from(text: String) -> Self {
        Refusal(text.replace(['\r', '\n'], " ").into())
    }
}
