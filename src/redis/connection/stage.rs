//! `ConnectionStage`: the end of a connection's pipeline.
//!
//! Invariants: the duty is called only between a login that has succeeded and the end of the
//! channel. An error of the codec closes the channel, because replies could no longer be paired
//! with commands. The reason of the end is recorded before the channel has closed. Runs on the
//! channel's loop.

use super::{
    duty::{Duty, Link, LinkOutput},
    handshake::{Login, LoginHandshake},
    heartbeat::{HeartbeatClock, HeartbeatStep},
};
use crate::{
    clock::nanos,
    codec::RespValue,
    error::{Error, Result},
    pipeline::{Stage, StageContext},
    redis::server_info::ServerInfo,
    sync::Locked,
};
use bytes::Bytes;
use std::{convert::Infallible, sync::Arc, time::Duration};

/// How a connection has ended.
pub(super) struct ConnectionEnd {
    /// Whether it was ready.
    pub(super) was_ready: bool,
    pub(super) cause: Error,
}

/// The state that the connections of a lane share.
pub(super) struct ConnectionLife {
    pub(super) duty: Arc<dyn Duty>,
    pub(super) login: Arc<Login>,
    pub(super) times: ConnectionTimes,
    /// Called with the facts about the server, when a connection is ready.
    pub(super) on_ready: Box<dyn Fn(&ServerInfo) + Send + Sync>,
    /// How the connection has ended, or would end now. The end is reported before the stage is
    /// called for the last time, so it is recorded here as soon as it is known.
    pub(super) end: Locked<Option<ConnectionEnd>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionTimes {
    pub(super) handshake_timeout: Duration,
    pub(super) heartbeat_interval: Duration,
    pub(super) heartbeat_timeout: Duration,
}

pub(super) struct ConnectionStage {
    life: Arc<ConnectionLife>,
    phase: Phase,
    /// Whether the loop shuts down.
    is_draining: bool,
    error: Option<Error>,
}

enum Phase {
    LoggingIn {
        handshake: LoginHandshake,
        deadline: u64,
    },
    Ready(HeartbeatClock),
    /// The channel closes.
    Ending {
        was_ready: bool,
    },
}

type Ctx<'a> = StageContext<'a, ConnectionStage>;

impl LinkOutput for Ctx<'_> {
    fn write(&mut self, request: Vec<Bytes>) -> Result {
        StageContext::write(self, RespValue::command(request))
    }

    fn write_beyond_limit(&mut self, request: Vec<Bytes>) -> Result {
        StageContext::write_beyond_limit(self, RespValue::command(request))
    }

    fn is_writable(&self) -> bool {
        StageContext::is_writable(self)
    }
}

impl ConnectionStage {
    pub(super) fn new(life: Arc<ConnectionLife>) -> Self {
        let phase = Phase::LoggingIn { handshake: LoginHandshake::new(&life.login), deadline: u64::MAX };
        ConnectionStage { life, phase, is_draining: false, error: None }
    }

    fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready(_) | Phase::Ending { was_ready: true })
    }

    /// Records why the channel ends. The first reason counts.
    fn record(&mut self, cause: Error) {
        if self.error.is_none() {
            self.error = Some(cause.clone());
            let was_ready = self.is_ready();
            self.life.end.change(|end| ((), end.replace(ConnectionEnd { was_ready, cause })));
        }
    }

    /// Closes the channel.
    fn fail(&mut self, ctx: &mut Ctx<'_>, cause: Error) {
        self.record(cause);
        self.phase = Phase::Ending { was_ready: self.is_ready() };
        ctx.close_now();
    }

    /// Fails if there is an error. Otherwise closes the channel if it has served its purpose.
    fn settle(&mut self, ctx: &mut Ctx<'_>, result: Result) {
        if let Err(cause) = result {
            return self.fail(ctx, cause);
        }
        if let Some(cause) = self.life.duty.finished() {
            self.record(cause);
            ctx.close();
        }
    }

    fn ready(&mut self, ctx: &mut Ctx<'_>, server: ServerInfo) {
        let ConnectionTimes { heartbeat_interval, heartbeat_timeout, .. } = self.life.times;
        self.phase = Phase::Ready(HeartbeatClock::new(nanos(heartbeat_interval), nanos(heartbeat_timeout)));
        let end = ConnectionEnd { was_ready: true, cause: Error::Closed };
        self.life.end.change(|last| ((), last.replace(end)));
        (self.life.on_ready)(&server);
        let duty = self.life.duty.clone();
        duty.opened(Link { wake: Arc::new(ctx.waker()), server });
        self.send(ctx);
        self.look(ctx);
    }

    fn send(&mut self, ctx: &mut Ctx<'_>) {
        if matches!(self.phase, Phase::Ready(_)) {
            let sent = self.life.duty.clone().send(ctx);
            self.settle(ctx, sent);
        }
    }

    /// Looks at the times.
    fn look(&mut self, ctx: &mut Ctx<'_>) {
        let now = nanos(ctx.now());
        let next = match &mut self.phase {
            Phase::Ending { .. } => return,
            Phase::LoggingIn { deadline, .. } if now >= *deadline => {
                let limit = self.life.times.handshake_timeout;
                return self.fail(ctx, Error::timed_out("the login to Redis", limit));
            }
            Phase::LoggingIn { deadline, .. } => *deadline,
            Phase::Ready(heartbeat) => match heartbeat.beat(now, nanos(ctx.last_read())) {
                HeartbeatStep::WaitUntil(time) => time,
                HeartbeatStep::PingAndWaitUntil(time) => {
                    // With a full output, silence has the same meaning.
                    if LinkOutput::write(ctx, vec!["PING".into()]).is_ok() {
                        self.life.duty.heartbeat();
                    }
                    time
                }
                HeartbeatStep::Dead => {
                    let limit = self.life.times.heartbeat_timeout;
                    return self.fail(ctx, Error::timed_out("the heartbeat of Redis", limit));
                }
            },
        };
        // Otherwise the lane has timers.
        let next = if self.is_draining { next.min(self.life.duty.expire()) } else { next };
        ctx.wake_after(Duration::from_nanos(next.saturating_sub(now).max(1)));
    }

    fn reply(&mut self, ctx: &mut Ctx<'_>, reply: RespValue) {
        match &mut self.phase {
            Phase::LoggingIn { handshake, .. } => match handshake.reply(&self.life.login, reply) {
                Ok(None) => {}
                Ok(Some(server)) => self.ready(ctx, server),
                Err(refused) => self.fail(ctx, refused),
            },
            Phase::Ready(_) => {
                let handled = self.life.duty.clone().reply(reply, ctx);
                self.settle(ctx, handled);
            }
            Phase::Ending { .. } => {}
        }
    }
}

impl Stage for ConnectionStage {
    type ReadIn = RespValue;
    type ReadOut = Infallible;
    type WriteIn = Infallible;
    type WriteOut = RespValue;

    fn active(&mut self, ctx: &mut Ctx<'_>) -> Result {
        self.life.end.change(|end| ((), end.take()));
        if let Phase::LoggingIn { deadline, .. } = &mut self.phase {
            *deadline = nanos(ctx.now()).saturating_add(nanos(self.life.times.handshake_timeout));
        }
        for request in LoginHandshake::requests(&self.life.login) {
            LinkOutput::write(ctx, request)?;
        }
        self.look(ctx);
        Ok(())
    }

    fn read(&mut self, ctx: &mut Ctx<'_>, message: RespValue) -> Result<Option<Infallible>> {
        match without_attributes(message) {
            RespValue::Push(message) => {
                if matches!(self.phase, Phase::Ready(_)) {
                    let handled = self.life.duty.push(message);
                    self.settle(ctx, handled);
                }
            }
            reply => self.reply(ctx, reply),
        }
        Ok(None)
    }

    fn write(&mut self, _: &mut Ctx<'_>, message: Infallible) -> Result {
        match message {}
    }

    fn writability_changed(&mut self, ctx: &mut Ctx<'_>, writable: bool) -> Result {
        if writable {
            self.send(ctx);
        }
        Ok(())
    }

    fn timer(&mut self, ctx: &mut Ctx<'_>) -> Result {
        self.send(ctx);
        self.look(ctx);
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Ctx<'_>) -> Result {
        if !matches!(self.phase, Phase::Ready(_)) {
            ctx.close();
            return Ok(());
        }
        self.life.duty.drain();
        self.is_draining = true;
        self.settle(ctx, Ok(()));
        self.look(ctx);
        Ok(())
    }

    fn error(&mut self, ctx: &mut Ctx<'_>, error: Error) -> Result {
        // The end of the connection is reported with this reason.
        self.fail(ctx, error);
        Ok(())
    }

    fn inactive(&mut self, _: &mut Ctx<'_>) -> Result {
        if self.is_ready() {
            self.life.duty.lost(&self.error.take().unwrap_or(Error::Closed));
        }
        Ok(())
    }
}

fn without_attributes(mut message: RespValue) -> RespValue {
    while let RespValue::Attribute { value, .. } = message {
        message = *value;
    }
    message
}
