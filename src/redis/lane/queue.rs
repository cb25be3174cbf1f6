//! `LaneQueue`: the commands that wait to be sent or for a reply.
//!
//! Invariants: replies belong to sent commands in order. A sent command keeps its place until its
//! reply has arrived or the connection has ended, also if its caller has given up. The count and
//! the bytes are those of all commands in the queue, and never more than the limits. Pure.

use super::transaction_replies::{Outcome, TransactionReplies};
use crate::{
    codec::RespValue,
    error::Error,
    redis::{RedisCommand, command::ScriptCall, error::RedisError},
    sync::Completer,
};
use std::{collections::VecDeque, time::Duration};

/// The completer of a command, and its deadline.
pub(super) struct Caller {
    pub(super) completer: Completer<RespValue>,
    /// The deadline, in nanoseconds of the loop.
    pub(super) deadline: u64,
    pub(super) limit: Duration,
}

impl Caller {
    pub(super) fn fail(self, error: RedisError) {
        self.completer.complete(Err(error.into()));
    }

    /// Returns the error for a deadline that has passed.
    pub(super) fn timed_out(&self) -> Error {
        Error::timed_out("a Redis command", self.limit)
    }
}

/// A command that waits to be sent.
pub(super) struct WaitingCommand {
    pub(super) command: RedisCommand,
    pub(super) caller: Caller,
}

impl WaitingCommand {
    pub(super) fn fail(self, error: RedisError) {
        self.caller.fail(error);
    }
}

/// A request whose reply has not arrived.
pub(super) struct SentRequest {
    /// `None` if the caller has given up.
    pub(super) caller: Option<Caller>,
    pub(super) bytes: usize,
    kind: SentKind,
}

pub(super) enum SentKind {
    Command,
    /// A script that was called by its digest.
    Script(Box<ScriptCall>),
    Transaction(TransactionReplies),
    Heartbeat,
}

/// The effect of a reply.
pub(super) enum Paired {
    /// More replies follow, or nothing is to be done.
    Nothing,
    /// The command has this reply.
    Done(Option<Caller>, RespValue),
    /// The command was not sent as a whole, and nothing of it was executed.
    NotSent(Option<Caller>, Error),
    /// The command may have been executed.
    Uncertain(Option<Caller>, Error),
    /// The server does not know the script. The call is to be sent again, also for the second
    /// time, and counts as taken until `sent_again` or `not_sent` is called. Later commands wait
    /// until all requests that were sent before are answered, so that calls keep their order. The
    /// flag says whether this call is the first one for which they wait.
    UnknownScript(Box<ScriptCall>, SentRequest, bool),
    /// No request was sent for this reply.
    Unexpected,
}

/// Commands whose deadlines have passed, or whose connection has ended. Those that were not sent
/// may hold a function of the program, so they are dropped without the lock.
#[derive(Default)]
pub(super) struct Given {
    pub(super) not_sent: Vec<WaitingCommand>,
    pub(super) in_flight: Vec<Caller>,
}

#[derive(Default)]
pub(super) struct LaneQueue {
    waiting: VecDeque<WaitingCommand>,
    sent: VecDeque<SentRequest>,
    /// Commands that were taken from `waiting`, or from `sent` because of an unknown script, and
    /// are not in `sent` yet.
    taken: usize,
    /// The requests in `sent` that must be answered before the next command is sent.
    held: usize,
    heartbeats: usize,
    bytes: usize,
}

impl LaneQueue {
    /// Returns the number of commands.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.taken + self.in_flight()
    }

    /// Returns the number of commands that wait for a reply.
    pub(super) fn in_flight(&self) -> usize {
        self.sent.len() - self.heartbeats
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns whether no command is being sent, or waits for a reply.
    pub(super) fn is_settled(&self) -> bool {
        self.taken == 0 && self.in_flight() == 0
    }

    pub(super) fn push(&mut self, command: WaitingCommand) {
        self.bytes += command.command.bytes();
        self.waiting.push_back(command);
    }

    /// Takes the command that is sent next. `sent` or `not_sent` follows.
    pub(super) fn take(&mut self) -> Option<WaitingCommand> {
        let next = self.waiting.pop_front()?;
        self.taken += 1;
        Some(next)
    }

    /// Records that the command that was taken is sent.
    pub(super) fn sent(&mut self, caller: Caller, bytes: usize, kind: SentKind) {
        self.taken -= 1;
        self.sent.push_back(SentRequest { caller: Some(caller), bytes, kind });
    }

    /// Records that the command that was taken is not sent.
    pub(super) fn not_sent(&mut self, bytes: usize) {
        self.taken -= 1;
        self.bytes -= bytes;
    }

    /// Records that a call of a script was sent again, as this kind of request.
    pub(super) fn sent_again(&mut self, mut request: SentRequest, kind: SentKind) {
        request.kind = kind;
        self.taken -= 1;
        self.sent.push_back(request);
    }

    pub(super) fn heartbeat(&mut self) {
        self.heartbeats += 1;
        self.sent.push_back(SentRequest { caller: None, bytes: 0, kind: SentKind::Heartbeat });
    }

    /// Gives a reply to the oldest request.
    pub(super) fn reply(&mut self, reply: RespValue) -> Paired {
        let Some(oldest) = self.sent.front_mut() else { return Paired::Unexpected };
        let outcome = match &mut oldest.kind {
            SentKind::Heartbeat => {
                self.heartbeats -= 1;
                self.pop_sent();
                return Paired::Nothing;
            }
            SentKind::Transaction(replies) => match replies.reply(reply) {
                Some(outcome) => outcome,
                None => return Paired::Nothing,
            },
            SentKind::Command | SentKind::Script(_) => Outcome::Reply(reply),
        };
        let is_first = self.held == 0;
        let Some(SentRequest { caller, bytes, kind }) = self.pop_sent() else { return Paired::Unexpected };
        match (kind, outcome) {
            (SentKind::Script(call), Outcome::Reply(reply)) if is_no_script(&reply) => {
                if caller.as_ref().is_none_or(|caller| caller.completer.is_cancelled()) {
                    return Paired::Done(None, reply);
                }
                if is_first {
                    self.held = self.sent.len();
                }
                self.taken += 1;
                self.bytes += bytes;
                Paired::UnknownScript(call, SentRequest { caller, bytes, kind: SentKind::Command }, is_first)
            }
            (_, Outcome::Reply(reply)) => Paired::Done(caller, reply),
            (_, Outcome::NotSent(cause)) => Paired::NotSent(caller, cause),
            (_, Outcome::Uncertain(cause)) => Paired::Uncertain(caller, cause),
        }
    }

    fn pop_sent(&mut self) -> Option<SentRequest> {
        let request = self.sent.pop_front()?;
        self.bytes -= request.bytes;
        self.held = self.held.saturating_sub(1);
        Some(request)
    }

    /// Returns whether waiting commands stay behind calls that are sent again.
    pub(super) fn is_held(&self) -> bool {
        self.held > 0
    }

    /// Takes the callers whose deadlines have passed, and waiting commands whose callers have given
    /// up. Returns the next deadline.
    pub(super) fn expire(&mut self, now: u64) -> (Given, u64) {
        let (mut given, mut next) = (Given::default(), u64::MAX);
        for request in &mut self.sent {
            match &request.caller {
                Some(caller) if caller.deadline <= now => given.in_flight.extend(request.caller.take()),
                Some(caller) => next = next.min(caller.deadline),
                None => {}
            }
        }
        let is_over = |waiting: &WaitingCommand| {
            waiting.caller.deadline <= now || waiting.caller.completer.is_cancelled()
        };
        if self.waiting.iter().any(is_over) {
            for waiting in std::mem::take(&mut self.waiting) {
                if is_over(&waiting) {
                    self.bytes -= waiting.command.bytes();
                    given.not_sent.push(waiting);
                } else {
                    self.waiting.push_back(waiting);
                }
            }
        }
        let waiting = self.waiting.iter().map(|waiting| waiting.caller.deadline);
        (given, waiting.fold(next, u64::min))
    }

    /// Takes the waiting commands whose callers have given up.
    pub(super) fn take_unwanted(&mut self) -> Vec<WaitingCommand> {
        let is_unwanted = |waiting: &WaitingCommand| waiting.caller.completer.is_cancelled();
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (unwanted, waiting): (Vec<_>, Vec<_>) = waiting.partition(is_unwanted);
        self.waiting = waiting.into();
        self.bytes -= unwanted.iter().map(|waiting| waiting.command.bytes()).sum::<usize>();
        unwanted
    }

    /// Takes the callers of all requests whose replies cannot arrive any more.
    pub(super) fn lose(&mut self) -> Vec<Caller> {
        (self.heartbeats, self.held) = (0, 0);
        let sent = std::mem::take(&mut self.sent);
        self.bytes -= sent.iter().map(|request| request.bytes).sum::<usize>();
        sent.into_iter().filter_map(|request| request.caller).collect()
    }

    /// Takes all commands that were not sent.
    pub(super) fn clear_waiting(&mut self) -> Vec<WaitingCommand> {
        let waiting = std::mem::take(&mut self.waiting);
        self.bytes -= waiting.iter().map(|waiting| waiting.command.bytes()).sum::<usize>();
        waiting.into()
    }
}

/// Returns whether the server does not know the script. A script can reply `NOSCRIPT` with another
/// text, after it has executed commands.
fn is_no_script(reply: &RespValue) -> bool {
    matches!(reply, RespValue::Error(text) if text.starts_with(b"NOSCRIPT No matching script"))
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
