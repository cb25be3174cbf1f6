//! `SubscriptionLane`: the connection for subscriptions.
//!
//! Invariants: each request has a place in `expected` until all of its confirmations, or its error,
//! have arrived. Each request can be encoded, because one that cannot ends the connection, and the
//! next one in the same way. Sinks are called on the loop of the connection, without the lock. Any
//! thread may join and leave.

use super::{
    event::{Sink, SubscriptionEvent},
    registry::{Registry, SubscriptionChanges},
};
use crate::{
    bootstrap::ReconnectingChannel,
    codec::{RespLimits, RespValue},
    error::{EncodeError, Error, PeerError, Resource, Result, caught},
    log_throttle::{PANICS, log_throttled, off_loop},
    redis::{
        connection::{Duty, Link, LinkOutput, LinkWake},
        error::RedisError,
        error_reply::ErrorReply,
        settings::RedisSettings,
    },
    sync::Locked,
};
use bytes::Bytes;
use log::Level;
use std::{collections::VecDeque, convert::Infallible, sync::Arc};

pub(in crate::redis) struct SubscriptionLane {
    settings: RedisSettings,
    limits: RespLimits,
    state: Locked<SubscriptionState>,
}

#[derive(Default)]
struct SubscriptionState {
    registry: Registry,
    /// Requests that the server has not answered.
    expected: VecDeque<Expected>,
    /// Channels that are subscribed one by one, because the server has refused them together.
    singles: VecDeque<Bytes>,
    wake: Option<LinkWake>,
    is_woken: bool,
    is_draining: bool,
    is_closed: bool,
    channel: Option<ReconnectingChannel<Infallible>>,
}

/// The next requests.
struct Work {
    single: Option<Bytes>,
    changes: SubscriptionChanges,
}

/// A request that waits for an answer.
enum Expected {
    /// A `SUBSCRIBE` of these channels, with the number of confirmations that have arrived.
    Subscribe(Vec<Bytes>, usize),
    /// An `UNSUBSCRIBE`, with the number of confirmations that have not arrived.
    Unsubscribe(usize),
    Heartbeat,
}

/// A lane whose connection has not ended. A process that is killed drops it, and with it the sinks,
/// which may own the client.
struct AttachedLane(Arc<SubscriptionLane>);

impl Drop for AttachedLane {
    fn drop(&mut self) {
        drop(self.0.take_sinks());
    }
}

impl SubscriptionLane {
    pub(in crate::redis) fn new(settings: RedisSettings, limits: RespLimits) -> Arc<Self> {
        Arc::new(SubscriptionLane { settings, limits, state: Locked::default() })
    }

    /// Sets the connection of the lane.
    pub(in crate::redis) fn attach(self: &Arc<Self>, channel: ReconnectingChannel<Infallible>) {
        let (closed, lane) = (channel.closed(), AttachedLane(self.clone()));
        self.state.change(|state| ((), state.channel.replace(channel)));
        closed.on_complete(move |_| lane.0.end());
    }

    /// Adds a sink, and returns its id.
    ///
    /// # Errors
    /// [`RedisError::Closed`] if the client is closed, [`Error::Full`] if there are too many
    /// subscriptions, or [`Error::Encode`] if the name is too long.
    pub(super) fn join(&self, channel: &Bytes, sink: Sink) -> Result<u64> {
        let (length, longest) = (channel.len(), self.limits.max_bulk_len);
        if length > longest {
            return Err(EncodeError::too_long("channel name", length as u64, longest as u64).into());
        }
        let limit = self.settings.max_subscriptions;
        let joined = self.state.change(|state| {
            if state.is_closed {
                return (Err(RedisError::Closed.into()), Some(sink));
            }
            if state.registry.len() >= limit {
                return (Err(Error::Full { resource: Resource::RedisSubscriptions, limit }), Some(sink));
            }
            (Ok((state.registry.join(channel.clone(), sink), state.wake())), None)
        });
        let (id, wake) = joined?;
        if let Some(wake) = wake {
            wake();
        }
        Ok(id)
    }

    pub(super) fn leave(&self, channel: &Bytes, id: u64) {
        let wake = self.state.change(|state| {
            let member = state.registry.leave(channel, id);
            (state.wake(), member)
        });
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Closes the connection. The sinks get `Ended`.
    pub(in crate::redis) fn close(&self) {
        let channel = self.state.change(|state| {
            state.is_closed = true;
            (state.channel.clone(), ())
        });
        if let Some(channel) = channel {
            channel.close();
        }
    }

    fn end(&self) {
        tell_all(self.take_sinks(), &SubscriptionEvent::Ended);
    }

    /// Ends the lane, and returns its sinks.
    fn take_sinks(&self) -> Vec<Sink> {
        self.state.change(|state| {
            state.is_closed = true;
            (state.registry.clear(), (state.channel.take(), state.wake.take()))
        })
    }

    /// Takes the next requests. If there are none, the loop has to be woken for the next
    /// change.
    fn next(&self) -> Option<Work> {
        // The name of the command is an element, too.
        let batch = self.settings.subscribe_batch.min(self.limits.max_elements - 1).max(1);
        self.state.change(|state| {
            if state.is_draining || state.singles.is_empty() && !state.registry.has_changes() {
                state.is_woken = false;
                return (None, ());
            }
            // A change of the same channel must not overtake its earlier request.
            let single = state.singles.pop_front();
            let changes = match single {
                Some(_) => SubscriptionChanges::default(),
                None => state.registry.take_changes(batch),
            };
            (Some(Work { single, changes }), ())
        })
    }

    /// Writes a request for channels.
    fn request(
        &self,
        output: &mut dyn LinkOutput,
        name: &'static str,
        channels: Vec<Bytes>,
        expected: impl FnOnce(Vec<Bytes>) -> Expected,
    ) -> Result {
        if channels.is_empty() {
            return Ok(());
        }
        let request = std::iter::once(Bytes::from_static(name.as_bytes())).chain(channels.iter().cloned());
        output.write(request.collect())?;
        self.state.change(|state| (state.expected.push_back(expected(channels)), ()));
        Ok(())
    }

    fn confirmed(&self, channel: &Bytes, is_on: bool) -> Result {
        let sinks = self.state.change(|state| {
            let is_complete = match state.expected.front_mut() {
                Some(Expected::Subscribe(channels, arrived)) if is_on => {
                    *arrived += 1;
                    *arrived == channels.len()
                }
                Some(Expected::Unsubscribe(left)) if !is_on => {
                    *left -= 1;
                    *left == 0
                }
                _ => return (Err(unexpected()), None),
            };
            let complete = if is_complete { state.expected.pop_front() } else { None };
            (Ok(state.registry.confirmed(channel)), complete)
        })?;
        tell_all(sinks, &SubscriptionEvent::Subscribed);
        Ok(())
    }

    fn message(&self, channel: &Bytes, payload: &Bytes) {
        let members = self.state.read(|state| state.registry.sinks(channel));
        for member in members.iter().flat_map(|members| members.iter()) {
            if member.gets_messages() {
                tell(&member.sink, SubscriptionEvent::Message(payload.clone()));
            }
        }
    }

    /// Handles an error instead of confirmations.
    fn refused(&self, channels: Vec<Bytes>, error: ErrorReply) -> Result {
        let error: Error = match RedisError::from_reply(error) {
            not_now @ RedisError::NotNow(_) => return Err(not_now.into()),
            refused => refused.into(),
        };
        if channels.len() > 1 {
            // Perhaps only one of them is refused.
            self.state.change(|state| {
                let SubscriptionState { registry, singles, .. } = state;
                singles.extend(channels.into_iter().filter(|channel| registry.refused_with_others(channel)));
                ((), ())
            });
            return Ok(());
        }
        for channel in channels {
            let sinks = self.state.change(|state| (state.registry.refused(&channel), ()));
            tell_all(sinks, &SubscriptionEvent::Refused(error.clone()));
        }
        Ok(())
    }
}

impl SubscriptionState {
    /// Returns the function that wakes the loop, unless it was called.
    fn wake(&mut self) -> Option<LinkWake> {
        let wake = self.wake.as_ref().filter(|_| !self.is_woken && !self.is_draining)?;
        self.is_woken = true;
        Some(wake.clone())
    }
}

impl Duty for SubscriptionLane {
    fn opened(&self, link: Link) {
        self.state.change(|state| {
            (state.is_woken, state.is_draining) = (true, false);
            ((), state.wake.replace(link.wake))
        });
    }

    fn send(&self, output: &mut dyn LinkOutput) -> Result {
        // If the output is full, the link stays woken.
        while output.is_writable() {
            let Some(Work { single, changes }) = self.next() else { break };
            let subscribe = |channels| Expected::Subscribe(channels, 0);
            self.request(output, "SUBSCRIBE", single.into_iter().collect(), subscribe)?;
            self.request(output, "SUBSCRIBE", changes.subscribe, subscribe)?;
            let unsubscribe = |channels: Vec<Bytes>| Expected::Unsubscribe(channels.len());
            self.request(output, "UNSUBSCRIBE", changes.unsubscribe, unsubscribe)?;
            tell_all(changes.subscribed, &SubscriptionEvent::Subscribed);
        }
        Ok(())
    }

    fn reply(&self, reply: RespValue, output: &mut dyn LinkOutput) -> Result {
        let answered = self.state.change(|state| (state.expected.pop_front(), ()));
        match (answered, ErrorReply::of(&reply)) {
            (Some(Expected::Heartbeat), _) => Ok(()),
            (Some(Expected::Subscribe(channels, 0)), Some(error)) => {
                self.refused(channels, error)?;
                self.send(output)
            }
            (_, Some(error)) => Err(RedisError::from_reply(error).into()),
            _ => Err(unexpected()),
        }
    }

    fn push(&self, message: Vec<RespValue>) -> Result {
        let texts: Vec<&Bytes> = message.iter().filter_map(RespValue::as_bytes).collect();
        match texts[..] {
            [kind, channel, payload] if kind == "message" => self.message(channel, payload),
            [kind, channel] if kind == "subscribe" => return self.confirmed(channel, true),
            [kind, channel] if kind == "unsubscribe" => return self.confirmed(channel, false),
            _ => {}
        }
        Ok(())
    }

    fn heartbeat(&self) {
        self.state.change(|state| (state.expected.push_back(Expected::Heartbeat), ()));
    }

    fn drain(&self) {
        self.state.change(|state| ((), std::mem::replace(&mut state.is_draining, true)));
    }

    fn expire(&self) -> u64 {
        u64::MAX
    }

    fn finished(&self) -> Option<Error> {
        self.state.read(|state| state.is_draining.then_some(Error::ShutDown))
    }

    fn lost(&self, cause: &Error) {
        let sinks = self.state.change(|state| {
            state.expected.clear();
            state.singles.clear();
            state.is_woken = false;
            (state.registry.lose(), state.wake.take())
        });
        tell_all(sinks, &SubscriptionEvent::Lost(cause.clone()));
    }

    fn unreachable(&self, _: &Error) {}
}

fn unexpected() -> Error {
    PeerError::Malformed("a reply without a command".into()).into()
}

fn tell_all(sinks: Vec<Sink>, event: &SubscriptionEvent) {
    for sink in sinks {
        tell(&sink, event.clone());
    }
}

fn tell(sink: &Sink, event: SubscriptionEvent) {
    if let Some(message) = caught(|| sink(event)) {
        log_throttled!(
            off_loop(),
            PANICS,
            Level::Error,
            "the sink of a Redis subscription panicked: {message}"
        );
    }
}
