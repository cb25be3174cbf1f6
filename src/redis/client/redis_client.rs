//! `RedisClient`: the handle of a client.
//!
//! Invariant: the last handle closes the client. Lanes do not refer to the handle, so a connection
//! does not keep its client open. Any thread may call everything here.

use super::stats::RedisStats;
use crate::{
    bootstrap::ReconnectingChannel,
    codec::{RespLimits, RespValue},
    error::{Error, Result, SendError},
    redis::{
        RedisCommand, RedisSubscription, SubscriptionEvent,
        connection::{LaneConnector, max_reply_bytes},
        error::RedisError,
        event::RedisConnection,
        lane::CommandLane,
        server_info::ServerInfo,
        subscription::SubscriptionLane,
    },
    sync::{Completion, Locked, completion_of_all},
};
use bytes::Bytes;
use std::{
    convert::Infallible,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A client of a Redis server. A clone is a handle to the same client. See the
/// [module](super::super).
///
/// Dropping the last handle closes the client, as [`close`](RedisClient::close) does.
///
/// ```no_run
/// use netwheel::{codec::RespValue, prelude::*, redis::{RedisClient, RedisError, RedisSettings}};
/// use std::time::Duration;
///
/// # fn main() -> Result {
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let redis = RedisClient::builder(&group, "rediss://bob:secret@redis.example/2")
///     .settings(RedisSettings::new().command_timeout(Duration::from_secs(2)))
///     .on_event(|event| println!("{event:?}"))
///     .connect()?;
/// match redis.call(["INCR", "visits"]).wait() {
///     Ok(RespValue::Integer(visits)) => println!("{visits} visits"),
///     Ok(reply) => println!("unexpected: {reply:?}"),
///     Err(error) if RedisError::of(&error).is_some_and(RedisError::may_be_executed) => {
///         println!("perhaps counted: {error:#}");
///     }
///     Err(error) => println!("not counted: {error:#}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisClient {
    handle: Arc<ClientHandle>,
}

struct ClientHandle {
    connector: LaneConnector,
    lanes: Box<[(Arc<CommandLane>, ReconnectingChannel<Infallible>)]>,
    /// The number of the lane that is used next.
    turn: AtomicUsize,
    subscriptions: Arc<Locked<Subscriptions>>,
}

/// The lane for subscriptions, which is made for the first one.
#[derive(Default)]
struct Subscriptions {
    lane: Option<(Arc<SubscriptionLane>, ReconnectingChannel<Infallible>)>,
    is_closed: bool,
}

impl RedisClient {
    pub(super) fn start(connector: LaneConnector) -> Result<Self> {
        let mut lanes = Vec::new();
        for number in 0..connector.settings.connections {
            let lane = CommandLane::new(connector.settings.clone());
            match connector.connect(RedisConnection::Commands(number), lane.clone()) {
                Ok(channel) => {
                    lane.attach(channel.clone());
                    lanes.push((lane, channel));
                }
                Err(error) => {
                    for (_, channel) in lanes {
                        channel.close();
                    }
                    return Err(error);
                }
            }
        }
        let handle = ClientHandle {
            connector,
            lanes: lanes.into(),
            turn: AtomicUsize::new(0),
            subscriptions: Arc::default(),
        };
        let client = RedisClient { handle: Arc::new(handle) };
        for (_, channel) in &client.handle.lanes {
            client.end_with(channel);
        }
        Ok(client)
    }

    /// Closes the client when the last attempt to restore this connection has failed. Programs
    /// cannot use a client that is half dead.
    fn end_with(&self, channel: &ReconnectingChannel<Infallible>) {
        let handle = Arc::downgrade(&self.handle);
        channel.closed().on_complete(move |ended| {
            // A shutdown ends each connection by itself, and is the cause of what fails.
            let has_failed = ended.is_err_and(|error| !matches!(error, Error::ShutDown));
            if let Some(handle) = handle.upgrade().filter(|_| has_failed) {
                handle.close();
            }
        });
    }

    fn lane(&self, affinity: Option<u64>) -> &Arc<CommandLane> {
        let lanes = &self.handle.lanes;
        let number = match affinity {
            Some(affinity) => affinity as usize,
            None if lanes.len() == 1 => 0,
            None => self.handle.turn.fetch_add(1, Ordering::Relaxed),
        };
        &lanes[number % lanes.len()].0
    }

    /// Sends a command. Completes with its reply, on the loop of the connection.
    ///
    /// A reply that is an error fails the completion. Errors inside an array are elements. The
    /// completion drops the attributes of RESP3.
    ///
    /// Dropping the pending completion skips the command if it has not been sent, and otherwise
    /// ignores the reply. [`Completion::detach`] sends the command in any case.
    ///
    /// # Errors
    /// A [`RedisError`].
    pub fn call(&self, command: impl Into<RedisCommand>) -> Completion<RespValue> {
        self.try_call(command).unwrap_or_else(|refused| {
            let error = match refused.into_parts().1 {
                Error::Closed => RedisError::Closed,
                error => RedisError::NotSent(error),
            };
            Completion::ready(Err(error.into()))
        })
    }

    /// Like [`call`](RedisClient::call), but hands a command back that the client refuses.
    ///
    /// # Errors
    /// - [`Error::Full`] if too many commands or bytes are pending
    ///   ([`RedisSettings`](super::super::RedisSettings)).
    /// - [`Error::Encode`] if the command cannot be sent on a shared connection.
    /// - [`Error::Closed`] if the client is closed.
    ///
    /// ```no_run
    /// # use netwheel::{prelude::*, redis::RedisClient};
    /// # fn f(redis: &RedisClient) -> Result {
    /// match redis.try_call(["LPUSH", "log", "line"]) {
    ///     Ok(reply) => reply.detach(),
    ///     Err(refused) if refused.is_full() => drop(refused.into_inner()), // shed
    ///     Err(refused) => return Err(refused.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_call(
        &self,
        command: impl Into<RedisCommand>,
    ) -> Result<Completion<RespValue>, SendError<RedisCommand>> {
        let command = command.into();
        self.lane(command.connection_hint()).submit(command)
    }

    /// Sends the command that `build` returns when it is sent: [`call`](RedisClient::call) of
    /// [`RedisCommand::built_with`].
    ///
    /// # Errors
    /// Those of [`call`](RedisClient::call).
    pub fn call_with(
        &self,
        build: impl FnOnce(&ServerInfo) -> RedisCommand + Send + 'static,
    ) -> Completion<RespValue> {
        self.call(RedisCommand::built_with(build))
    }

    /// Subscribes to a channel. `sink` is called on the loop of the connection for subscriptions,
    /// so it must not block. A panic in it is logged.
    ///
    /// The first subscription opens that connection. Several subscriptions to one channel are one
    /// for the server. After a reconnect, all of them are renewed.
    ///
    /// A sink that holds a handle to the client keeps the client open, so close the subscription or
    /// the client then.
    ///
    /// # Errors
    /// - [`RedisError::Closed`] if the client is closed.
    /// - [`Error::Full`] if there are
    ///   [`max_subscriptions`](super::super::RedisSettings::max_subscriptions), or the queue of the
    ///   loop is full.
    /// - [`Error::Encode`] if the name is longer than
    ///   [`max_bulk_len`](crate::codec::RespLimits::max_bulk_len).
    ///
    /// ```no_run
    /// use netwheel::{prelude::*, redis::{RedisClient, SubscriptionEvent}};
    ///
    /// # fn f(redis: &RedisClient) -> Result {
    /// let news = redis.subscribe("{7}:news", |event| match event {
    ///     SubscriptionEvent::Message(text) => println!("{text:?}"),
    ///     SubscriptionEvent::Lost(_) => println!("messages are missed from now on"),
    ///     state => println!("{state:?}"),
    /// })?;
    /// // ..
    /// news.close();
    /// # Ok(())
    /// # }
    /// ```
    pub fn subscribe(
        &self,
        channel: impl Into<Bytes>,
        sink: impl Fn(SubscriptionEvent) + Send + Sync + 'static,
    ) -> Result<RedisSubscription> {
        RedisSubscription::new(self.subscriptions()?, channel.into(), Arc::new(sink))
    }

    /// Returns the lane for subscriptions, which it makes the first time.
    fn subscriptions(&self) -> Result<Arc<SubscriptionLane>> {
        let ClientHandle { connector, subscriptions, .. } = &*self.handle;
        let known = || {
            subscriptions.read(|known| match &known.lane {
                _ if known.is_closed => Some(Err(RedisError::Closed.into())),
                Some((lane, _)) => Some(Ok(lane.clone())),
                None => None,
            })
        };
        if let Some(known) = known() {
            return known;
        }
        // Without the lock: starting a connection sends mail.
        let lane = SubscriptionLane::new(connector.settings.clone(), connector.limits.clone());
        let channel = connector.connect(RedisConnection::Subscriptions, lane.clone())?;
        // Before another thread can close the lane, which needs the channel for that.
        lane.attach(channel.clone());
        let is_used = subscriptions.change(|known| {
            let is_used = known.lane.is_none() && !known.is_closed;
            if is_used {
                known.lane = Some((lane.clone(), channel.clone()));
            }
            (is_used, ())
        });
        if is_used {
            self.end_with(&channel);
            return Ok(lane);
        }
        // Another thread was faster, or has closed the client.
        channel.close();
        known().unwrap_or(Err(RedisError::Closed.into()))
    }

    /// Returns the limits of requests and replies.
    #[cfg_attr(not(feature = "broker-redis"), expect(dead_code))]
    pub(crate) fn resp_limits(&self) -> &RespLimits {
        &self.handle.connector.limits
    }

    /// Returns the most bytes of the commands that a connection keeps.
    #[cfg_attr(not(feature = "broker-redis"), expect(dead_code))]
    pub(crate) fn max_pending_bytes(&self) -> usize {
        self.handle.connector.settings.max_pending_bytes
    }

    /// Returns the most bytes of a reply. The connection ends with a larger one.
    #[cfg_attr(not(feature = "broker-redis"), expect(dead_code))]
    pub(crate) fn max_reply_bytes(&self) -> usize {
        max_reply_bytes(&self.handle.connector.limits)
    }

    /// Completes with the facts about the server, when the first connection for commands is ready:
    /// now, or the next time.
    ///
    /// # Errors
    /// [`RedisError::Closed`] if the client is closed.
    pub fn connected(&self) -> Completion<ServerInfo> {
        self.handle.lanes[0].0.connected()
    }

    /// Returns the facts about the server, if the first connection for commands is ready.
    pub fn server_info(&self) -> Option<ServerInfo> {
        self.handle.lanes[0].0.server()
    }

    /// Returns counters.
    pub fn stats(&self) -> RedisStats {
        self.handle.lanes.iter().fold(RedisStats::default(), |stats, (lane, _)| {
            let counts = lane.counts();
            RedisStats {
                pending: stats.pending + counts.pending,
                pending_bytes: stats.pending_bytes.saturating_add(counts.pending_bytes),
                sent: stats.sent + counts.sent,
                uncertain: stats.uncertain + counts.uncertain,
                connects: stats.connects + counts.connects,
                connected: stats.connected + usize::from(counts.is_up),
            }
        })
    }

    /// Closes the client. Further commands and subscriptions are refused. The connections close
    /// when all accepted commands have their replies, and at the latest after
    /// [`close_timeout`](super::super::RedisSettings::close_timeout). Commands that wait for a
    /// connection fail at once. Sinks get [`SubscriptionEvent::Ended`].
    pub fn close(&self) {
        self.handle.close();
    }

    /// Returns whether nothing of the client is left.
    pub fn is_closed(&self) -> bool {
        self.handle.channels().iter().all(ReconnectingChannel::is_closed)
    }

    /// Completes when nothing of the client is left: after [`close`](RedisClient::close), after the
    /// last attempt to connect ([`max_attempts`](crate::reconnect::Backoff::max_attempts)), or when
    /// the group shuts down.
    ///
    /// # Errors
    /// The error of the connection that has ended with one, such as [`Error::ShutDown`].
    pub fn closed(&self) -> Completion {
        let channels: Vec<_> = self.handle.lanes.iter().map(|(_, channel)| channel.clone()).collect();
        // The connection for subscriptions may be made later, on any loop.
        let (completer, closed) = completion_of_all(self.handle.connector.group.loop_ids());
        let ending = Arc::new(Locked::new((channels.len(), Some(completer), Ok(()))));
        for channel in channels {
            let (ending, subscriptions) = (ending.clone(), self.handle.subscriptions.clone());
            channel.closed().on_complete(move |result| {
                let ended = ending.change(|(left, completer, first)| {
                    *left -= 1;
                    if first.is_ok() {
                        *first = result;
                    }
                    let completer = if *left == 0 { completer.take() } else { None };
                    (completer.map(|completer| (completer, first.clone())), ())
                });
                let Some((completer, result)) = ended else { return };
                // The connection for subscriptions may be newer than this completion.
                match subscriptions.read(|known| known.lane.as_ref().map(|(_, channel)| channel.closed())) {
                    Some(closed) => closed.on_complete(move |last| completer.complete(result.and(last))),
                    None => completer.complete(result),
                }
            });
        }
        closed
    }
}

impl ClientHandle {
    fn channels(&self) -> Vec<ReconnectingChannel<Infallible>> {
        let subscriptions =
            self.subscriptions.read(|known| known.lane.as_ref().map(|(_, channel)| channel.clone()));
        self.lanes.iter().map(|(_, channel)| channel.clone()).chain(subscriptions).collect()
    }

    fn close(&self) {
        let subscriptions = self.subscriptions.change(|known| {
            known.is_closed = true;
            (known.lane.as_ref().map(|(lane, _)| lane.clone()), ())
        });
        for (lane, _) in &self.lanes {
            lane.close();
        }
        if let Some(lane) = subscriptions {
            lane.close();
        }
    }
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for RedisClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisClient")
            .field("target", &self.handle.connector.target)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
