//! `CommandLane`: the commands of one connection.
//!
//! Invariants: each accepted command completes once. The lock is not held while code of the program
//! runs, or while mail is sent. Any thread may call. `sending` has the functions for the loop of
//! the connection.

use super::{
    lane_state::{LaneCounts, LaneLife, LaneLink, LaneState},
    queue::{Caller, Given, WaitingCommand},
};
use crate::{
    bootstrap::ReconnectingChannel,
    clock::nanos,
    codec::RespValue,
    error::{Error, Resource, Result, SendError},
    event_loop::EventLoop,
    redis::{RedisCommand, error::RedisError, server_info::ServerInfo, settings::RedisSettings},
    sync::{Completer, Completion, Locked, cancellable, completion},
};
use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
};

pub(in crate::redis) struct CommandLane {
    settings: RedisSettings,
    event_loop: OnceLock<EventLoop>,
    pub(super) state: Locked<LaneState>,
}

/// A lane whose connection has not ended. A process that is killed drops it, and with it the
/// callers, which may own the client.
struct AttachedLane(Arc<CommandLane>);

impl Drop for AttachedLane {
    fn drop(&mut self) {
        drop(self.0.take_callers(&Error::Closed));
    }
}

/// What a lane had left at its end.
struct EndedLane {
    given: Given,
    awaited: Vec<Completer<ServerInfo>>,
    is_closing: bool,
}

impl CommandLane {
    pub(in crate::redis) fn new(settings: RedisSettings) -> Arc<Self> {
        Arc::new(CommandLane { settings, event_loop: OnceLock::new(), state: Locked::new(LaneState::new()) })
    }

    /// Sets the connection of the lane, before the first command.
    pub(in crate::redis) fn attach(self: &Arc<Self>, channel: ReconnectingChannel<Infallible>) {
        let _ = self.event_loop.set(channel.event_loop().clone());
        let (closed, lane) = (channel.closed(), AttachedLane(self.clone()));
        self.state.change(|state| ((), state.channel.replace(channel)));
        closed.on_complete(move |result| lane.0.end(result.err().unwrap_or(Error::Closed)));
    }

    fn loop_id(&self) -> Option<u32> {
        self.event_loop.get().map(|event_loop| event_loop.shared.id)
    }

    pub(super) fn now(&self) -> u64 {
        self.event_loop.get().map_or(0, EventLoop::now)
    }

    // ---- callers ----

    /// Accepts a command, or hands it back.
    pub(in crate::redis) fn submit(
        self: &Arc<Self>,
        command: RedisCommand,
    ) -> Result<Completion<RespValue>, SendError<RedisCommand>> {
        if let Err(error) = command.check() {
            return Err(SendError::new(command, error));
        }
        let limit = command.limit().unwrap_or(self.settings.command_timeout);
        let deadline = self.now().saturating_add(nanos(limit));
        // The undo of an unwanted reply is a no-op.
        let (completer, completion) = cancellable(self.loop_id(), |_| ());
        let caller = Caller { completer, deadline, limit };
        if limit.is_zero() {
            let error = caller.timed_out();
            caller.fail(RedisError::NotSent(error));
            return Ok(completion);
        }
        let waiting = WaitingCommand { command, caller };
        let now = self.now();
        let accepted = self.state.change(|state| {
            let mut refusal = self.refusal(state, &waiting.command);
            let mut unwanted = Vec::new();
            if matches!(refusal, Some(Error::Full { .. })) && state.may_look_for_unwanted(now) {
                unwanted = state.queue.take_unwanted();
                refusal = self.refusal(state, &waiting.command);
            }
            match refusal {
                Some(error) => (Err((waiting, error)), unwanted),
                None => {
                    state.queue.push(waiting);
                    (Ok((state.wake(), state.arm(deadline))), unwanted)
                }
            }
        });
        match accepted {
            Ok((wake, timer)) => {
                self.set_timer(timer);
                if let Some(wake) = wake {
                    wake();
                }
                Ok(completion)
            }
            Err((WaitingCommand { command, .. }, error)) => Err(SendError::new(command, error)),
        }
    }

    fn refusal(&self, state: &LaneState, command: &RedisCommand) -> Option<Error> {
        let RedisSettings { max_pending, max_pending_bytes, .. } = self.settings;
        let full = |resource, limit| Some(Error::Full { resource, limit });
        match state.life {
            LaneLife::Closing | LaneLife::Ended => Some(Error::Closed),
            LaneLife::Open if state.queue.len() >= max_pending => full(Resource::RedisCommands, max_pending),
            LaneLife::Open => match state.queue.bytes().checked_add(command.bytes()) {
                Some(bytes) if bytes <= max_pending_bytes => None,
                _ => full(Resource::RedisCommandBytes, max_pending_bytes),
            },
        }
    }

    /// Completes with the facts about the server, now or when the lane is connected the next time.
    pub(in crate::redis) fn connected(&self) -> Completion<ServerInfo> {
        self.state.change(|state| match (&state.link, state.life) {
            (LaneLink::Up(up), _) => (Completion::ready(Ok(up.link.server.clone())), None),
            (_, LaneLife::Open) => {
                let (completer, completion) = completion(self.loop_id());
                (completion, Some(state.awaited.push(completer)))
            }
            _ => (Completion::ready(Err(RedisError::Closed.into())), None),
        })
    }

    pub(in crate::redis) fn server(&self) -> Option<ServerInfo> {
        self.state.read(|state| match &state.link {
            LaneLink::Up(up) => Some(up.link.server.clone()),
            LaneLink::Down(_) => None,
        })
    }

    pub(in crate::redis) fn counts(&self) -> LaneCounts {
        self.state.read(|state| LaneCounts {
            pending: state.queue.len(),
            pending_bytes: state.queue.bytes(),
            is_up: matches!(state.link, LaneLink::Up(_)),
            ..state.counts
        })
    }

    /// Refuses further commands. Commands in flight have some time to complete.
    pub(in crate::redis) fn close(self: &Arc<Self>) {
        let (not_sent, channel, wake) = self.state.change(|state| {
            if state.life != LaneLife::Open {
                return ((Vec::new(), None, None), ());
            }
            state.life = LaneLife::Closing;
            match &state.link {
                LaneLink::Down(_) => ((state.queue.clear_waiting(), state.channel.clone(), None), ()),
                LaneLink::Up(_) if state.queue.len() == 0 => ((Vec::new(), state.channel.clone(), None), ()),
                LaneLink::Up(_) => ((Vec::new(), None, state.wake()), ()),
            }
        });
        for waiting in not_sent {
            waiting.fail(RedisError::Closed);
        }
        if let Some(channel) = channel {
            return channel.close();
        }
        let Some(wake) = wake else { return self.close_later() };
        wake();
        self.close_later();
    }

    /// Ends the connection when the time for commands in flight is over.
    fn close_later(self: &Arc<Self>) {
        let Some(event_loop) = self.event_loop.get() else { return };
        let lane = Arc::downgrade(self);
        let close = move || {
            if let Some(channel) =
                lane.upgrade().and_then(|lane| lane.state.read(|state| state.channel.clone()))
            {
                channel.close();
            }
        };
        // A loop that shuts down closes the connection.
        let time = event_loop.after(self.settings.close_timeout);
        drop(event_loop.schedule_for_reply(time, close));
    }

    /// Ends the lane: the connection will not be restored.
    fn end(&self, cause: Error) {
        let EndedLane { given, awaited, is_closing } = self.take_callers(&cause);
        let not_sent = || if is_closing { RedisError::Closed } else { RedisError::NotSent(cause.clone()) };
        for waiting in given.not_sent {
            waiting.fail(not_sent());
        }
        self.fail_uncertain(given.in_flight, |_| cause.clone());
        for completer in awaited {
            completer.complete(Err(RedisError::Closed.into()));
        }
    }

    fn take_callers(&self, cause: &Error) -> EndedLane {
        self.state.change(|state| {
            let is_closing = state.life == LaneLife::Closing;
            state.life = LaneLife::Ended;
            let link = std::mem::replace(&mut state.link, LaneLink::Down(Some(cause.clone())));
            let given = Given { not_sent: state.queue.clear_waiting(), in_flight: state.queue.lose() };
            (EndedLane { given, awaited: state.awaited.take(), is_closing }, (link, state.channel.take()))
        })
    }

    // ---- deadlines ----

    /// Sets a timer for this time, if there is one.
    fn set_timer(self: &Arc<Self>, time: Option<u64>) {
        let (Some(time), Some(event_loop)) = (time, self.event_loop.get()) else { return };
        let lane = Arc::downgrade(self);
        let expire = move || {
            if let Some(lane) = lane.upgrade() {
                let next = lane.fail_expired();
                let timer = lane.state.change(|state| (state.arm(next), ()));
                lane.set_timer(timer);
            }
        };
        // A loop that shuts down cancels the timer when it notifies outgoing connections. From then
        // on, the connection calls `Duty::expire`.
        drop(event_loop.schedule_for_reply(time, expire));
    }

    /// Fails the commands whose deadlines have passed. Returns the next deadline.
    pub(super) fn fail_expired(&self) -> u64 {
        let now = self.now();
        let (given, next, down) = self.state.change(|state| {
            if state.armed <= now {
                state.armed = u64::MAX;
            }
            let (given, next) = state.queue.expire(now);
            let down = match &state.link {
                LaneLink::Down(cause) => cause.clone(),
                LaneLink::Up(up) => up.draining.clone(),
            };
            ((given, next, down), ())
        });
        for waiting in given.not_sent {
            let cause = down.clone().unwrap_or_else(|| waiting.caller.timed_out());
            waiting.fail(RedisError::NotSent(cause));
        }
        self.fail_uncertain(given.in_flight, Caller::timed_out);
        next
    }

    pub(super) fn fail_uncertain(&self, callers: Vec<Caller>, cause: impl Fn(&Caller) -> Error) {
        let count = callers.iter().filter(|caller| !caller.completer.is_cancelled()).count() as u64;
        self.state.change(|state| (state.counts.uncertain += count, ()));
        for caller in callers {
            let cause = cause(&caller);
            caller.fail(RedisError::MayBeExecuted(cause));
        }
    }
}

#[cfg(test)]
#[path = "command_lane_tests.rs"]
mod tests;
