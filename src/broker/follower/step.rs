//! `FollowerStep`: the outputs of a follower.

use super::item::Item;
use crate::broker::store::{Epochs, Position, ReadFrom, ReadRange};
use crate::error::Error;
use std::fmt;

/// Where the messages for a new member begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::broker) enum JoinFrom {
    Now,
    Last(u64),
    /// Behind a position. If that is not possible, with the last messages.
    After {
        position: Position,
        or_last: u64,
    },
}

/// Where a new member has joined a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Joined {
    /// The position behind which the member receives all messages.
    pub position: Position,
    /// Whether this is the requested position. `false` if messages behind the requested one are
    /// lost or are not kept any more, or if it is not a position of the topic. Without a requested
    /// position, `true`.
    pub recovered: bool,
}

/// Messages that members will not receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missed {
    /// Why.
    pub cause: MissedCause,
    /// The position of the last message that the member has received.
    pub seen: Position,
    /// The position behind which the member receives all messages from now on.
    pub next: Position,
}

/// Why members miss messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissedCause {
    /// The position of the members is not valid any more, because the store has lost messages that
    /// they have received, or does not know their epoch any more. Of the messages that they have,
    /// those up to [`next`](Missed::next) are still valid if its epoch is theirs, and none
    /// otherwise.
    Rewound,
    /// The history was trimmed before this node, or the new member, has read it. Or another program
    /// has deleted messages of it.
    Trimmed,
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Missed { cause, seen, next } = self;
        match cause {
            MissedCause::Rewound => {
                write!(f, "the store has lost messages up to {seen}; it goes on behind {next}")
            }
            MissedCause::Trimmed => {
                write!(f, "messages behind {seen} are not kept; it goes on behind {next}")
            }
        }
    }
}

/// A new member that waits.
pub(in crate::broker) type JoinerId = u64;

/// Something to do, in order.
#[derive(Debug)]
pub(in crate::broker) enum FollowerStep<P> {
    /// Write the message to all members.
    Broadcast(Item<P>),
    /// Write a notice to all members.
    Missed(Missed),
    /// A new epoch began, without a loss that members have to know.
    EpochChanged(Position),
    /// The first step of a joiner.
    Greet(JoinerId, Joined),
    Write(JoinerId, Item<P>),
    WriteMissed(JoinerId, Missed),
    /// The joiner has all messages, and becomes a member.
    Admit(JoinerId),
    Fail(JoinerId, Error),
    /// Read messages, and pass the answer with the number.
    Read(u64, ReadRange),
}

/// The answer of a read.
#[derive(Debug)]
pub(in crate::broker) struct ReadAnswer<P> {
    pub(in crate::broker) epochs: Epochs,
    pub(in crate::broker) top: u64,
    pub(in crate::broker) oldest: u64,
    pub(in crate::broker) items: Vec<Item<P>>,
}

/// The answer of the last read, which joiners may need.
#[derive(Debug)]
pub(super) struct LastAnswer<P> {
    /// The number of the read.
    pub(super) read: u64,
    /// The offset behind which the messages begin.
    pub(super) after: u64,
    pub(super) answer: ReadAnswer<P>,
}

impl<P> LastAnswer<P> {
    pub(super) fn new(read: u64, from: ReadFrom, answer: ReadAnswer<P>) -> Self {
        let after = match from {
            ReadFrom::After(offset) => offset,
            // The store may have returned fewer messages.
            ReadFrom::Last(_) => {
                answer.items.first().map_or(answer.top, |first| first.position.offset.saturating_sub(1))
            }
        };
        LastAnswer { read, after, answer }
    }

    /// Returns the offset of the first message behind `offset` that the store may have. Messages
    /// before it are not kept any more: they were trimmed, or another program has deleted them.
    pub(super) fn first_behind(&self, offset: u64) -> u64 {
        let ReadAnswer { top, oldest, items, .. } = &self.answer;
        let mut offsets = items.iter().map(|item| item.position.offset);
        let first = match offsets.find(|first| *first > offset) {
            _ if self.after > offset => 0,
            Some(first) => first,
            None if items.is_empty() => top.saturating_add(1),
            None => 0,
        };
        first.max(*oldest)
    }
}
