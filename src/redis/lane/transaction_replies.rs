//! `TransactionReplies`: the replies to `MULTI`, the commands and `EXEC`. Pure.

use crate::{
    codec::RespValue,
    error::Error,
    redis::{error::RedisError, error_reply::ErrorReply},
};

/// The outcome of a request whose last reply has arrived.
pub(super) enum Outcome {
    Reply(RespValue),
    /// The request was not sent as a whole, and nothing of it was executed.
    NotSent(Error),
    /// The request may have been executed.
    Uncertain(Error),
}

/// The replies to a transaction.
pub(super) struct TransactionReplies {
    /// Replies that have not arrived.
    left: usize,
    /// The first error.
    refused: Option<ErrorReply>,
    /// Whether the reply to `MULTI` was an error, so that the server executes the commands one by
    /// one. `None` until that reply has arrived.
    is_multi_refused: Option<bool>,
    /// Whether a command was executed although `MULTI` was refused.
    is_executed: bool,
    /// Why the end of the transaction was replaced by `DISCARD`.
    discarded: Option<Error>,
}

impl TransactionReplies {
    /// Expects the replies to `requests` requests, which include `MULTI`, and `EXEC` or `DISCARD`.
    pub(super) fn new(requests: usize, discarded: Option<Error>) -> Self {
        TransactionReplies {
            left: requests,
            refused: None,
            is_multi_refused: None,
            is_executed: false,
            discarded,
        }
    }

    /// Handles the next reply. Returns the outcome after the last one.
    pub(super) fn reply(&mut self, reply: RespValue) -> Option<Outcome> {
        self.left = self.left.saturating_sub(1);
        let is_error = reply.is_error();
        match self.is_multi_refused {
            None => self.is_multi_refused = Some(is_error),
            Some(is_multi_refused) => self.is_executed |= is_multi_refused && !is_error,
        }
        if self.left > 0 {
            if self.refused.is_none() {
                self.refused = ErrorReply::of(&reply);
            }
            return None;
        }
        let refused = self.refused.take();
        Some(match (refused, self.discarded.take()) {
            (Some(refused), _) if self.is_executed => {
                Outcome::Uncertain(RedisError::from_reply(refused).into())
            }
            (_, Some(cause)) => Outcome::NotSent(cause),
            // The first refusal says more than EXECABORT.
            (Some(refused), None) if is_error => Outcome::Reply(RespValue::Error(refused.to_string().into())),
            (_, None) => Outcome::Reply(without_execabort(reply)),
        })
    }
}

/// Returns the reason of a refused `EXEC`, so that it is handled as that of a single command.
fn without_execabort(reply: RespValue) -> RespValue {
    const PREFIX: &[u8] = b"EXECABORT Transaction discarded because of: ";
    match reply {
        RespValue::Error(text) if text.starts_with(PREFIX) => RespValue::Error(text.slice(PREFIX.len()..)),
        reply => reply,
    }
}
