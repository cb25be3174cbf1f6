//! `StartTimer`: a timer that is about to be stored.

use super::{
    DurableTimers, TimerId,
    store::{Change, NewTimer},
    unix_millis::{due_millis, duration_millis},
    writer::{Reply, Request},
};
use crate::{Completion, Error, Result, sync::completion};
use std::time::{Duration, SystemTime};

/// The longest idempotency key, in bytes.
const KEY_LIMIT: usize = 256;

/// When a timer is due: at a [`SystemTime`], or after a [`Duration`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct When(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    At(SystemTime),
    After(Duration),
}

impl From<SystemTime> for When {
    fn from(time: SystemTime) -> Self {
        When(Kind::At(time))
    }
}

impl From<Duration> for When {
    fn from(delay: Duration) -> Self {
        When(Kind::After(delay))
    }
}

impl When {
    /// Returns the due time in milliseconds, rounded up.
    pub(super) fn due(self, now: SystemTime) -> i64 {
        match self.0 {
            Kind::At(time) => due_millis(time),
            Kind::After(delay) => {
                let end = now.checked_add(delay);
                end.map_or_else(|| due_millis(now).saturating_add(duration_millis(delay)), due_millis)
            }
        }
    }
}

/// A timer that [`start`](StartTimer::start) stores.
#[derive(Debug)]
#[must_use = "the timer is stored by `start`"]
pub struct StartTimer<'a> {
    timers: &'a DurableTimers,
    timer: Result<NewTimer>,
}

impl<'a> StartTimer<'a> {
    pub(super) fn new(timers: &'a DurableTimers, timer: Result<NewTimer>) -> Self {
        StartTimer { timers, timer }
    }

    /// Sets the idempotency key, at most 256 bytes. A topic has at most one timer with a key: a
    /// second start returns the id of the first, and changes neither its time nor its payload. The
    /// key of a one-shot timer is remembered for a day after its end, also if it was cancelled. To
    /// change its time, use [`move_to`](DurableTimers::move_to).
    ///
    /// A program that does not know whether its start was stored, for example after a crash, can
    /// therefore start again. If a periodic timer is started with another schedule, it gets the new
    /// schedule and payload. Periodic timers have the key `periodic` unless another one is set, so
    /// several of them in one topic need a key each.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        let key = key.into();
        if key.len() > KEY_LIMIT {
            let length = format!("a key of {} bytes", key.len());
            self.timer = Err(Error::setting("key", length, "at most 256 bytes"));
        }
        if let Ok(timer) = &mut self.timer {
            timer.idempotency_key = Some(key);
        }
        self
    }

    /// Stores the timer. The completion has its id, and is done when the timer is on disk.
    ///
    /// # Errors
    ///
    /// The completion fails, and nothing is stored: with [`Error::Setting`] for a topic that the
    /// program does not have, a payload that is too large, or a key that is too long;
    /// [`Error::Other`] if the payload cannot be converted to JSON; [`Error::Full`] if too many
    /// starts wait; [`Error::ShutDown`] after [`DurableTimers::close`]; [`Error::Other`] with a
    /// [`StoreError`](super::StoreError). After [`StoreError::Busy`](super::StoreError::Busy) from
    /// a store on another machine it is not known whether the timer was stored; a start with a key
    /// can be repeated.
    pub fn start(self) -> Completion<TimerId> {
        let (completer, done) = completion(None);
        let permit = self.timers.permit();
        let timer = match self.timer.and_then(|timer| permit.map(|permit| (timer, permit))) {
            Ok((timer, permit)) => {
                let reply = Reply::Start(completer, permit);
                Request::Change { change: Change::Start(timer), reply }
            }
            Err(error) => {
                completer.complete(Err(error));
                return done;
            }
        };
        if let Err(Request::Change { reply: Reply::Start(completer, _), .. }) = self.timers.request(timer) {
            completer.complete(Err(Error::ShutDown));
        }
        done
    }
}
