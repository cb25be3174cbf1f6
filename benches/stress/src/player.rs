//! The handler at both ends of every link. It records its callbacks, and carries out what threads
//! ask for.

use crate::{
    frame::{Frame, Kind},
    life::Life,
    link,
    plan::Side,
    report::Invariant,
    stream::LOOP,
    token, world,
};
use bytes::Bytes;
use netwheel::prelude::*;
use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

/// What the threads and players of a round share.
pub(crate) type World = world::World<Player>;
/// A link between two players.
pub(crate) type Link = link::Link<Player>;
/// The end of a link that a player has.
pub(crate) type End = link::End<Player>;

pub(crate) struct Player {
    pub(crate) world: Arc<World>,
    pub(crate) life: Arc<Life>,
    /// Known from the start at a client; at a server from the first frame.
    pub(crate) end: Option<Arc<End>>,
    echo: bool,
    size: usize,
}

impl Player {
    pub(crate) fn client(world: &Arc<World>, end: &Arc<End>) -> Self {
        Self::new(world.clone(), world.new_life(), Some(end.clone()), false)
    }

    pub(crate) fn server(world: &Arc<World>, echo: bool) -> Self {
        Self::new(world.clone(), world.new_life(), None, echo)
    }

    fn new(world: Arc<World>, life: Arc<Life>, end: Option<Arc<End>>, echo: bool) -> Self {
        life.created.fetch_add(1, SeqCst);
        Player { world, life, end, echo, size: 0 }
    }

    /// Returns the handler of the pipeline that replaces this one's.
    pub(crate) fn successor(&self) -> Self {
        Self::new(self.world.clone(), self.life.clone(), self.end.clone(), self.echo)
    }

    /// Writes the next message of the loop's own stream.
    pub(crate) fn write_next(&self, ctx: &mut Context<'_, Self>, size: usize, tracked: bool) {
        let Some(end) = &self.end else { return };
        let number = end.output.next(LOOP);
        let message = Frame { link: end.link as u32, producer: LOOP, kind: Kind::Data, number }.encode(size);
        // A key of its own, so that no message is replaced.
        let key = (number % 2 == 1).then_some(u64::from(LOOP) << 32 | u64::from(number));
        if !tracked {
            let written = match key {
                None => ctx.write(message),
                Some(key) => ctx.write_latest(key, message),
            };
            if written.is_ok() {
                end.output.accepted(LOOP);
            }
            return;
        }
        let confirmed = match key {
            None => ctx.write_tracked(message),
            Some(key) => ctx.write_tracked_latest(key, message),
        };
        if let Ok(confirmed) = confirmed {
            end.output.accepted(LOOP);
            let (token, stream) = (self.world.tokens.token(token::Kind::Tracked), end.output.clone());
            confirmed.on_complete(move |result| {
                token.called();
                if result.is_ok() {
                    stream.confirmed(LOOP, number);
                }
            });
        }
    }

    /// Writes the remaining stream, up to the limit of the channel.
    pub(crate) fn stream(&self, ctx: &mut Context<'_, Self>) {
        let Some(end) = &self.end else { return };
        let (left, size) = (&end.facts.streaming, end.facts.stream_size.load(SeqCst) as usize);
        while ctx.is_writable() && left.load(SeqCst) > 0 {
            left.fetch_sub(1, SeqCst);
            self.write_next(ctx, size, false);
        }
    }

    fn fault(&self, detail: String) {
        self.world.report.violation(Invariant::Order, format!("{}: {detail}", self.name()));
    }

    pub(crate) fn name(&self) -> String {
        match &self.end {
            Some(end) => format!("link {} {:?}", end.link, end.side),
            None => "a server's end without a link".to_owned(),
        }
    }

    /// At a server, the first frame says which link it is.
    fn bind(&mut self, ctx: &mut Context<'_, Self>, link: usize) {
        let Some(link) = self.world.links.get(link) else {
            return self.fault(format!("a message of link {link}, which does not exist"));
        };
        let end = link.end(Side::Server).clone();
        if end.facts.active.swap(true, SeqCst) {
            self.fault("two connections have the same link".to_owned());
        }
        end.set_handler(Some(ctx.handler_ref()));
        self.world.join_rooms(&end, &ctx.channel());
        self.end = Some(end);
    }
}

impl Handler for Player {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.life.active.fetch_add(1, SeqCst);
        let Some(end) = self.end.clone() else { return Ok(()) };
        end.set_handler(Some(ctx.handler_ref()));
        if self.life.active.load(SeqCst) == 1 {
            end.facts.active.store(true, SeqCst);
            self.world.join_rooms(&end, &ctx.channel());
            self.write_next(ctx, 0, false);
        }
        self.stream(ctx);
        Ok(())
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        if writable {
            self.stream(ctx);
        }
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.size = message.len();
        let Some(frame) = Frame::decode(message) else {
            self.fault("a message is not what was written".to_owned());
            return Ok(());
        };
        match frame.kind {
            Kind::Data => {
                if self.end.is_none() {
                    self.bind(ctx, frame.link as usize);
                }
                let Some(end) = &self.end else { return Ok(()) };
                self.world.report.messages.fetch_add(1, SeqCst);
                if end.link != frame.link as usize {
                    self.fault(format!("a message of link {}", frame.link));
                } else if let Err(detail) = end.input.received(frame.producer, frame.number) {
                    self.fault(detail);
                }
            }
            Kind::Broadcast => self.world.note_broadcast(self.end.as_deref(), frame),
            Kind::Visit => {}
        }
        if self.echo && ctx.is_writable() {
            self.write_next(ctx, self.size.min(2000), false);
        }
        Ok(())
    }

    fn read_closed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if let Some(end) = self.end.clone() {
            end.facts.peer_has_ended();
            for _ in 0..self.world.end_plan(&end).late_messages {
                self.write_next(ctx, 10, false);
            }
            end.facts.will_close();
        }
        ctx.close();
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.life.loses_tasks.store(true, SeqCst);
        if let Some(end) = self.end.clone() {
            end.facts.shutdown.store(true, SeqCst);
            if self.world.end_plan(&end).ignores_shutdown {
                return Ok(());
            }
        }
        ctx.close();
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        match &error {
            Error::Panicked(text) => {
                self.world
                    .report
                    .violation(Invariant::NoFault, format!("{}: {error:#} ({text})", self.name()));
            }
            Error::Peer(peer) if !matches!(peer, netwheel::error::PeerError::Truncated) => {
                self.world.report.violation(Invariant::NoFault, format!("{}: {error:#}", self.name()));
            }
            _ => {}
        }
        if let Error::Full { .. } = &error {
            // A task beyond the limit, or a message that was written blindly. The channel decides.
            self.life.loses_tasks.store(true, SeqCst);
        }
        if let Some(end) = &self.end {
            end.facts.failed.store(true, SeqCst);
            if self.world.end_plan(end).returns_errors {
                return Err(error);
            }
        }
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.life.inactive.fetch_add(1, SeqCst);
        if let Some(end) = &self.end {
            end.has_closed();
            if end.facts.closing_for() >= end.close_timeout.saturating_sub(Duration::from_millis(5)) {
                end.facts.late.store(true, SeqCst);
            }
            end.facts.inactive.store(true, SeqCst);
            end.set_handler(None);
        }
        Ok(())
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.life.dropped.fetch_add(1, SeqCst);
    }
}
