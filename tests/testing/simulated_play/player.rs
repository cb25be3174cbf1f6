//! The handler at both ends of every link. It records its callbacks, and runs operations for
//! threads.

use super::{
    filter::Records,
    frames::{Frame, Kind},
    kit::{MS, PATIENCE},
    links::{End, Link, Links, Side},
    rooms::Rooms,
    streams::LOOP,
};
use bytes::Bytes;
use netwheel::{channel::TimeLimits, error::PeerError, prelude::*, testing::simulation::sleep};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

const MICROSECOND: Duration = Duration::from_micros(1);

/// How far the life of a connection has come. Shared by the handlers of replaced pipelines.
#[derive(Default)]
pub(super) struct Life {
    is_active: AtomicBool,
    is_over: AtomicBool,
    /// The last call of `writability_changed` was with `false`.
    is_paused: AtomicBool,
}

/// The settings of a server's end, which the client does not know.
#[derive(Clone, Copy)]
pub(super) struct ServerEnds {
    pub(super) drops_messages: bool,
    pub(super) is_hasty: bool,
    pub(super) echoes: bool,
    pub(super) late_messages: u32,
}

pub(super) struct Player {
    pub(super) links: Links,
    rooms: Rooms,
    life: Arc<Life>,
    /// Known from the start at a client; at a server from the first frame.
    pub(super) end: Option<Arc<End>>,
    server: Option<ServerEnds>,
    /// At a client: a filter is to be started first.
    upgrades: bool,
    /// The handler stops reading during the handshake of its filter.
    is_silent: bool,
}

impl Player {
    pub(super) fn client(links: &Links, rooms: &Rooms, link: &Link, is_silent: bool) -> Self {
        Player {
            links: links.clone(),
            rooms: rooms.clone(),
            life: Arc::default(),
            end: Some(link.client.clone()),
            server: None,
            upgrades: link.upgrades,
            is_silent,
        }
    }

    pub(super) fn server(links: &Links, rooms: &Rooms, ends: ServerEnds) -> Self {
        Player {
            links: links.clone(),
            rooms: rooms.clone(),
            life: Arc::default(),
            end: None,
            server: Some(ends),
            upgrades: false,
            is_silent: false,
        }
    }

    /// Returns the handler of the pipeline that replaces this one's.
    pub(super) fn successor(&self) -> Self {
        Player {
            links: self.links.clone(),
            rooms: self.rooms.clone(),
            life: self.life.clone(),
            end: self.end.clone(),
            server: self.server,
            upgrades: false,
            is_silent: false,
        }
    }

    /// Writes the next message of the loop's own producer.
    pub(super) fn write_next(&self, ctx: &mut Context<'_, Self>, size: usize, tracked: bool) {
        let Some(end) = &self.end else { return };
        let number = end.output.next(LOOP);
        let message = Frame { link: end.link, producer: LOOP, kind: Kind::Data, number }.encode(size);
        end.output.accepted(LOOP);
        if !tracked {
            if ctx.write(message).is_err() {
                end.output.refused(LOOP);
            }
            return;
        }
        match ctx.write_tracked(message) {
            Err(_) => end.output.refused(LOOP),
            Ok(confirmed) => {
                let (token, stream) =
                    (self.links.play.token("a tracked write of a handler"), end.output.clone());
                confirmed.on_complete(move |result| {
                    token.called();
                    if result.is_ok() {
                        stream.confirmed(LOOP, number);
                    }
                });
            }
        }
    }

    /// Writes messages of the stream while the channel is writable.
    pub(super) fn stream(&self, ctx: &mut Context<'_, Self>) {
        let Some(end) = &self.end else { return };
        while ctx.is_writable() && end.facts(|facts| facts.streaming) > 0 {
            let size = end.facts(|facts| {
                facts.streaming -= 1;
                facts.stream_size
            });
            self.write_next(ctx, size, false);
        }
    }

    fn must(&self, holds: bool, what: &str) {
        self.links.play.must(holds, || format!("{}: {what}", self.name()));
    }

    pub(super) fn name(&self) -> String {
        match &self.end {
            Some(end) => format!("link {} {:?}", end.link, end.side),
            None => "a server's end without a link".to_owned(),
        }
    }

    /// At a server, the first frame says which link it is.
    fn bind(&mut self, ctx: &mut Context<'_, Self>, frame: Frame) {
        let Some(link) = self.links.get(frame.link) else {
            return self.must(false, &format!("a message of link {}, which does not exist", frame.link));
        };
        let end = link.server.clone();
        let was_active = end.facts(|facts| std::mem::replace(&mut facts.is_active, true));
        self.must(!was_active, &format!("two connections have the link {}", frame.link));
        if let Some(server) = self.server {
            Links::set_dropping(&end, server.drops_messages);
            end.facts(|facts| facts.is_hasty = server.is_hasty);
        }
        self.end = Some(end.clone());
        if frame.kind == Kind::Upgrade {
            self.upgrade(ctx, Kind::Upgraded);
        }
        end.set_handler(Some(ctx.handler_ref()));
        self.rooms.enter(&end, &ctx.channel());
    }

    /// Writes the last plain message, and starts a filter. Reading stops during the handshake: the
    /// filters read for themselves.
    fn upgrade(&mut self, ctx: &mut Context<'_, Self>, last: Kind) {
        let Some(end) = self.end.clone() else { return };
        let link = end.link;
        if last == Kind::Upgraded {
            let _ = ctx.write(Frame { link, producer: 0, kind: last, number: 0 }.encode(0));
        }
        let filter = if last == Kind::Upgraded { Records::answering() } else { Records::default() };
        if let Err(error) = ctx.start_filter(filter) {
            return self.must(!ctx.is_open(), &format!("a filter was not started: {error:#}"));
        }
        if self.is_silent || end.side == Side::Server {
            ctx.set_auto_read(false);
        }
        // It waits until the filter is established.
        let number = end.output.next(LOOP);
        end.output.accepted(LOOP);
        let message = Frame { link, producer: LOOP, kind: Kind::Data, number }.encode(20);
        let Ok(confirmed) = ctx.write_tracked(message) else { return end.output.refused(LOOP) };
        let me = ctx.handler_ref();
        confirmed.on_complete(move |_| {
            let _ = me.execute(|_, ctx| {
                ctx.set_auto_read(true);
                Ok(())
            });
        });
    }
}

impl Handler for Player {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let was_active = self.life.is_active.swap(true, SeqCst);
        self.must(!self.life.is_over.load(SeqCst), "active after inactive");
        let Some(end) = self.end.clone() else {
            // The client may have given up while a link was cut, without a word to the server.
            ctx.set_time_limits(TimeLimits::new().first_message(PATIENCE / 3));
            return Ok(());
        };
        if self.upgrades {
            end.facts(|facts| facts.is_active = true);
            return ctx
                .write(Frame { link: end.link, producer: 0, kind: Kind::Upgrade, number: 0 }.encode(0));
        }
        end.set_handler(Some(ctx.handler_ref()));
        if !was_active {
            end.facts(|facts| facts.is_active = true);
            self.rooms.enter(&end, &ctx.channel());
            self.write_next(ctx, 0, false);
        }
        self.stream(ctx);
        Ok(())
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        let was = self.life.is_paused.swap(!writable, SeqCst);
        self.must(was == writable, "writability_changed does not alternate");
        if writable {
            self.stream(ctx);
        }
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        let (is_active, is_over) = (&self.life.is_active, &self.life.is_over);
        self.must(is_active.load(SeqCst) && !is_over.load(SeqCst), "read is between active and inactive");
        let size = message.len();
        // Some messages take time, so that the budget of a turn ends between two channels.
        if size % 8 == 2 {
            sleep(60 * MICROSECOND);
        }
        let Some(frame) = Frame::decode(message) else {
            self.must(false, "a message is not what was written");
            return Ok(());
        };
        match frame.kind {
            Kind::Upgrade => self.bind(ctx, frame),
            Kind::Upgraded => {
                self.upgrade(ctx, Kind::Data);
                if let Some(end) = &self.end {
                    end.set_handler(Some(ctx.handler_ref()));
                }
            }
            Kind::Broadcast => {
                if let Some(end) = &self.end {
                    self.rooms.arrived(end, frame);
                }
            }
            Kind::Data => {
                if self.end.is_none() {
                    self.bind(ctx, frame);
                }
                let Some(end) = &self.end else { return Ok(()) };
                self.must(end.link == frame.link, "a message of another link");
                if let Err(detail) = end.input.received(frame.producer, frame.number) {
                    self.must(false, &detail);
                }
            }
        }
        let echoes = self.server.is_some_and(|server| server.echoes);
        if echoes && frame.kind == Kind::Data && ctx.is_writable() {
            self.write_next(ctx, size.min(2000), false);
        }
        Ok(())
    }

    fn read_closed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if let Some(end) = self.end.clone() {
            end.peer_has_ended();
            for _ in 0..self.server.map_or(0, |server| server.late_messages) {
                self.write_next(ctx, 10, true);
            }
            end.will_close();
        }
        ctx.close();
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if let Some(end) = &self.end {
            end.facts(|facts| facts.is_shut_down = true);
        }
        ctx.close();
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        let is_fault = match &error {
            Error::Panicked(_) => true,
            // The end mark of a server that closes before the handshake precedes the filter.
            Error::Peer(PeerError::Corrupted(_)) => !self.upgrades,
            Error::Peer(peer) => !matches!(peer, PeerError::Truncated),
            _ => false,
        };
        self.must(!is_fault, &format!("{error:#}: {error:?}"));
        if let Some(end) = &self.end {
            end.facts(|facts| facts.is_cut |= matches!(error, Error::Peer(PeerError::Corrupted(_))));
            end.facts(|facts| facts.failed.get_or_insert(format!("{error:#}")).clone());
        }
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.must(self.life.is_active.load(SeqCst), "inactive without active");
        self.must(!self.life.is_over.swap(true, SeqCst), "inactive is called twice");
        if let Some(end) = &self.end {
            let cause = ctx.close_cause();
            self.must(cause.is_some(), "an end without a cause");
            if cause.is_some_and(|cause| cause.is_clean()) {
                end.peer_has_ended();
            }
            end.facts(|facts| facts.ended = Some(cause));
            end.set_handler(None);
            self.rooms.left(end);
        }
        Ok(())
    }
}

/// Resumes something of a channel after a while, also when the channel has closed.
pub(super) fn later(ctx: &Context<'_, Player>, delay: Duration, what: impl FnOnce() + Send + 'static) {
    let Some(event_loop) = ctx.channel().event_loop() else { return what() };
    match event_loop.schedule(delay.max(MS), || ()) {
        Ok(task) => task.completion().on_complete(move |_| what()),
        Err(_) => what(),
    }
}
