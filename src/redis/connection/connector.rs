//! `LaneConnector`: makes connections that reconnect.

use super::{
    duty::Duty,
    handshake::Login,
    stage::{ConnectionEnd, ConnectionLife, ConnectionStage, ConnectionTimes},
};
#[cfg(feature = "tls")]
use crate::tls::TlsClient;
#[cfg(unix)]
use crate::transport::Address;
use crate::{
    bootstrap::{Backoff, ClientBootstrap, ReconnectEvent, ReconnectingChannel},
    channel::{ChannelOptions, Pipeline},
    codec::{Resp, RespLimits},
    error::{Error, Result, caught},
    group::EventLoopGroup,
    log_throttle::{PANICS, REDIS, log_throttled, off_loop},
    pipeline::{Context, Handler},
    redis::{
        event::{EventHook, RedisConnection, RedisEvent},
        settings::RedisSettings,
    },
    sync::Locked,
    transport::TcpOptions,
};
use log::Level;
use std::{convert::Infallible, ops::ControlFlow, sync::Arc};

/// The smallest limit of a whole reply, and of the output that waits.
const DEFAULT_MAX_BYTES: usize = 16 * 1024 * 1024;

/// The address of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::redis) enum RedisTarget {
    Tcp {
        host: Arc<str>,
        port: u16,
        is_tls: bool,
    },
    #[cfg(unix)]
    Unix(Address),
}

/// Makes connections with the settings of a client.
pub(in crate::redis) struct LaneConnector {
    pub(in crate::redis) group: EventLoopGroup,
    pub(in crate::redis) target: RedisTarget,
    pub(in crate::redis) login: Arc<Login>,
    pub(in crate::redis) settings: RedisSettings,
    pub(in crate::redis) limits: RespLimits,
    pub(in crate::redis) tcp_options: TcpOptions,
    pub(in crate::redis) backoff: Backoff,
    pub(in crate::redis) hook: Option<Arc<EventHook>>,
    #[cfg(feature = "tls")]
    pub(in crate::redis) tls: Option<TlsClient>,
}

/// Returns the most bytes of a reply. An incomplete reply stays in the channel, so the longest
/// string must fit.
pub(in crate::redis) fn max_reply_bytes(limits: &RespLimits) -> usize {
    limits.max_bulk_len.saturating_mul(4).max(DEFAULT_MAX_BYTES)
}

impl LaneConnector {
    /// Starts a connection for this duty. Does not block: names are looked up on other threads.
    ///
    /// # Errors
    /// [`Error::Setting`] if a setting is out of range, [`Error::Full`] if the queue of the loop is
    /// full, or [`Error::ShutDown`].
    pub(in crate::redis) fn connect(
        &self,
        connection: RedisConnection,
        duty: Arc<dyn Duty>,
    ) -> Result<ReconnectingChannel<Infallible>> {
        let RedisSettings { connect_timeout, handshake_timeout, .. } = self.settings;
        let max_bytes = max_reply_bytes(&self.limits);
        let codec = Resp::client().limits(self.limits.clone())?;
        let hook = self.hook.clone();
        let life = Arc::new(ConnectionLife {
            duty: duty.clone(),
            login: self.login.clone(),
            times: ConnectionTimes {
                handshake_timeout,
                heartbeat_interval: self.settings.heartbeat_interval,
                heartbeat_timeout: self.settings.heartbeat_timeout,
            },
            on_ready: Box::new(move |server| {
                log::debug!("Redis: {connection} is ready");
                tell(&hook, RedisEvent::Connected { connection, server });
            }),
            end: Locked::new(None),
        });
        let bootstrap = ClientBootstrap::new(&self.group)
            .tcp_options(self.tcp_options.clone())
            .channel_options(ChannelOptions::new().max_inbound(max_bytes).max_outbound(max_bytes))
            .connect_timeout(connect_timeout)
            .handshake_timeout(handshake_timeout);
        #[cfg(feature = "tls")]
        let bootstrap = match &self.tls {
            Some(tls) => bootstrap.tls(tls.clone()),
            None => bootstrap,
        };
        let (ended, hook) = (life.clone(), self.hook.clone());
        let reconnect = bootstrap
            .pipeline(move |_peer| {
                Pipeline::codec(codec.clone()).stage(ConnectionStage::new(life.clone())).handler(NoMessages)
            })
            .reconnect(self.backoff.clone())
            .on_event(move |event| {
                let (cause, next, was_ready) = match event {
                    ReconnectEvent::Failed { error, next, .. } => (error.clone(), next, false),
                    ReconnectEvent::Lost { next, .. } => match ended.end.change(|end| (end.take(), ())) {
                        Some(ConnectionEnd { was_ready, cause }) => (cause, next, was_ready),
                        None => (Error::Closed, next, false),
                    },
                    _ => return ControlFlow::Continue(()),
                };
                if was_ready {
                    log_throttled!(off_loop(), REDIS, Level::Info, "Redis: {connection} was lost: {cause:#}");
                    tell(&hook, RedisEvent::Lost { connection, cause: &cause, next });
                } else {
                    log_throttled!(off_loop(), REDIS, Level::Warn, "Redis: {connection} failed: {cause:#}");
                    ended.duty.unreachable(&cause);
                    tell(&hook, RedisEvent::Failed { connection, cause: &cause, next });
                }
                ControlFlow::Continue(())
            });
        match &self.target {
            RedisTarget::Tcp { host, port, .. } => reconnect.connect_later(host.clone(), *port),
            #[cfg(unix)]
            RedisTarget::Unix(address) => reconnect.connect(address.clone()),
        }
    }
}

fn tell(hook: &Option<Arc<EventHook>>, event: RedisEvent<'_>) {
    if let Some(hook) = hook
        && let Some(message) = caught(|| hook(event))
    {
        log_throttled!(
            off_loop(),
            PANICS,
            Level::Error,
            "the event hook of a Redis client panicked: {message}"
        );
    }
}

/// The end of the pipeline, which receives nothing.
struct NoMessages;

impl Handler for NoMessages {
    type Read = Infallible;
    type Write = Infallible;

    fn read(&mut self, _: &mut Context<'_, Self>, message: Infallible) -> Result {
        match message {}
    }

    fn shutdown(&mut self, _: &mut Context<'_, Self>) -> Result {
        // The stage closes the channel behind the last reply.
        Ok(())
    }
}
