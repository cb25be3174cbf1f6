//! The backend: reads a stream and writes one, and breaks off now and then.

use super::{
    super::support::{Calm, Draw, MS, SECOND, deploy},
    transfer::{End, Transfers},
};
use bytes::Bytes;
use netwheel::{
    channel::{ChannelOptions, CloseCause},
    codec::RawBytes,
    prelude::*,
    testing::simulation::sometimes,
};
use std::sync::{Arc, Mutex};

/// One side of a transfer. Both ends of the relayed connection use it.
pub(super) struct Side {
    end: End,
    transfers: Arc<Mutex<Transfers>>,
    draw: Draw,
    is_calm: bool,
    /// The number of the transfer. The client sends it in the first eight bytes.
    id: Option<usize>,
    head: Vec<u8>,
    /// Pieces that are still to be written.
    left: u64,
    has_ended: bool,
    has_seen_end: bool,
}

impl Side {
    pub(super) fn new(end: End, transfers: Arc<Mutex<Transfers>>, is_calm: bool, id: Option<usize>) -> Self {
        let mut draw = Draw::new();
        let left = draw.below(20);
        let (head, has_ended, has_seen_end) = (Vec::new(), false, false);
        Side { end, transfers, draw, is_calm, id, head, left, has_ended, has_seen_end }
    }

    fn other(&self) -> End {
        if self.end == End::Client { End::Backend } else { End::Client }
    }

    fn act(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let Some(id) = self.id.filter(|_| !self.has_ended) else { return Ok(()) };
        if self.left == 0 {
            self.has_ended = true;
            self.transfers.lock().unwrap().end(id, self.end);
            ctx.shutdown_write();
            return Ok(());
        }
        if !self.is_calm && self.draw.one_in(40) {
            sometimes(if self.end == End::Client { "client breaks off" } else { "backend breaks off" });
            // Without TLS, a cut looks like an end.
            if self.end == End::Backend || self.draw.one_in(2) {
                ctx.reset()
            } else {
                ctx.close_now()
            }
            return Ok(());
        }
        self.left -= 1;
        let length = self.draw.pick(&[1, 100, 3000, 20_000]);
        let bytes = self.transfers.lock().unwrap().write(id, self.end, length);
        ctx.write(bytes.into())?;
        let pause = self.draw.pick(&[MS, 30 * MS, SECOND]);
        ctx.schedule(self.draw.time(pause), Self::act);
        Ok(())
    }
}

impl Handler for Side {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if let Some(id) = self.id {
            ctx.write(Bytes::copy_from_slice(&(id as u64).to_be_bytes()))?;
        }
        self.act(ctx)
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, mut bytes: Bytes) -> Result {
        if self.id.is_none() {
            let missing = 8 - self.head.len();
            let head = bytes.split_to(missing.min(bytes.len()));
            self.head.extend_from_slice(&head);
            let Some(id) = self.head.first_chunk().map(|id| u64::from_be_bytes(*id)) else { return Ok(()) };
            self.id = Some(id as usize);
            self.act(ctx)?;
        }
        if let Some(id) = self.id {
            self.transfers.lock().unwrap().read(id, self.other(), &bytes);
        }
        Ok(())
    }

    fn read_closed(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.has_seen_end = true;
        // Without a number, the gateway has dialed for a client that has gone.
        if let Some(id) = self.id {
            self.transfers.lock().unwrap().see_end(id, self.other());
        }
        Ok(())
    }

    /// A clean end would say that the stream is complete. The program shuts down when it could not
    /// watch its listener.
    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.reset();
        Ok(())
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        ctx.reset();
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, _: Error) -> Result {
        ctx.reset();
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let Some(id) = self.id else { return Ok(()) };
        match ctx.close_cause() {
            Some(CloseCause::Clean) => self.transfers.lock().unwrap().closed_clean(id, self.end),
            Some(CloseCause::Reset) => sometimes("reset is passed on"),
            Some(CloseCause::Cut) => sometimes("cut is passed on"),
            _ => {}
        }
        Ok(())
    }
}

/// Excuses all transfers when its process ends.
pub(super) struct Life(pub(super) Arc<Mutex<Transfers>>);

impl Drop for Life {
    fn drop(&mut self) {
        sometimes("gateway or backend has died");
        self.0.lock().unwrap().excuse_all();
    }
}

/// Returns the options of all channels.
pub(super) fn options() -> ChannelOptions {
    ChannelOptions::new().half_close(true).close_timeout(5 * SECOND)
}

pub(super) fn serve(transfers: &Arc<Mutex<Transfers>>, calm: &Calm) {
    let _life = Life(transfers.clone());
    let time = || 1000 * SECOND;
    deploy(calm, time, |group| {
        let (transfers, calm) = (transfers.clone(), calm.clone());
        let server = ServerBootstrap::new(group)
            .channel_options(options())
            .pipeline(move |_peer| {
                let side = Side::new(End::Backend, transfers.clone(), calm.is_now(), None);
                Pipeline::codec(RawBytes).idle(IdleTimeouts::new().all(20 * SECOND)).handler(side)
            })
            .bind("10.0.0.1:7001")?;
        Ok(server.closed())
    });
}
