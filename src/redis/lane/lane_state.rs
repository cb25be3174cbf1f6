//! `LaneState`: the queue, the connection and the timer of a lane.
//!
//! Invariants: while a link is woken, the loop of the connection will look at the queue. At most
//! one timer is set for the earliest deadline. Pure.

use super::queue::{LaneQueue, WaitingCommand};
use crate::{
    bootstrap::ReconnectingChannel,
    error::Error,
    redis::{
        connection::{Link, LinkWake},
        server_info::ServerInfo,
    },
    sync::{Completer, Waiters},
};
use bytes::Bytes;
use std::{collections::BTreeSet, convert::Infallible};

/// Deadlines are rounded up to a multiple of this time, so that few timers serve many commands.
const DEADLINE_GRAIN: u64 = 10 * 1_000_000;

/// The state of a lane, behind its lock.
pub(super) struct LaneState {
    pub(super) queue: LaneQueue,
    pub(super) life: LaneLife,
    pub(super) link: LaneLink,
    pub(super) channel: Option<ReconnectingChannel<Infallible>>,
    /// The time for which the earliest timer is set.
    pub(super) armed: u64,
    /// When a full queue may be searched for unwanted commands again.
    pub(super) next_search: u64,
    pub(super) awaited: Waiters<Completer<ServerInfo>>,
    pub(super) counts: LaneCounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneLife {
    Open,
    Closing,
    Ended,
}

pub(super) enum LaneLink {
    /// Not connected, with the reason if an attempt has failed or a connection was lost.
    Down(Option<Error>),
    Up(UpLink),
}

pub(super) struct UpLink {
    pub(super) link: Link,
    /// Whether the loop will look at the queue.
    pub(super) is_woken: bool,
    /// The digests of scripts that were sent with their source.
    pub(super) scripts: BTreeSet<Bytes>,
    /// The digests of scripts that were sent with their source again, since the server has first
    /// refused a call whose place later commands must not take.
    pub(super) sent_again: BTreeSet<Bytes>,
    /// Why nothing more is sent.
    pub(super) draining: Option<Error>,
}

/// Counters of a lane.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::redis) struct LaneCounts {
    pub(in crate::redis) pending: usize,
    pub(in crate::redis) pending_bytes: usize,
    pub(in crate::redis) sent: u64,
    pub(in crate::redis) uncertain: u64,
    pub(in crate::redis) connects: u64,
    pub(in crate::redis) is_up: bool,
}

impl LaneState {
    pub(super) fn new() -> Self {
        LaneState {
            queue: LaneQueue::default(),
            life: LaneLife::Open,
            link: LaneLink::Down(None),
            channel: None,
            armed: u64::MAX,
            next_search: 0,
            awaited: Waiters::default(),
            counts: LaneCounts::default(),
        }
    }

    /// Returns the function that wakes the loop, unless it was called.
    pub(super) fn wake(&mut self) -> Option<LinkWake> {
        let LaneLink::Up(up) = &mut self.link else { return None };
        if up.is_woken || up.draining.is_some() {
            return None;
        }
        up.is_woken = true;
        Some(up.link.wake.clone())
    }

    /// Returns whether a full queue may be searched now: not for each refused command.
    pub(super) fn may_look_for_unwanted(&mut self, now: u64) -> bool {
        let is_due = now >= self.next_search;
        if is_due {
            self.next_search = now.saturating_add(DEADLINE_GRAIN);
        }
        is_due
    }

    /// Returns the time of the timer that is needed for this deadline, if there is none yet.
    pub(super) fn arm(&mut self, deadline: u64) -> Option<u64> {
        if deadline >= self.armed {
            return None;
        }
        let time = deadline.checked_next_multiple_of(DEADLINE_GRAIN)?;
        if time >= self.armed {
            return None;
        }
        self.armed = time;
        Some(time)
    }

    /// Takes the command that is sent next. Without one, the loop has to be woken for the next.
    pub(super) fn next(&mut self) -> Option<WaitingCommand> {
        let LaneLink::Up(up) = &mut self.link else { return None };
        if self.queue.is_held() {
            // The link stays woken. `send` is called behind the reply that ends this.
            return None;
        }
        let next = if up.draining.is_none() { self.queue.take() } else { None };
        if next.is_none() {
            up.is_woken = false;
        }
        next
    }
}
