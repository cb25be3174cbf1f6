//! The driver over memory: its reaction to each result of a transport.

mod reading;
mod sockets;
mod writing;

use super::{ChannelDriver, Next, loop_io::LoopIo, ready::Ready};
use crate::{
    channel::{Pipeline, config::ChannelOptions},
    codec::RawBytes,
    error::{Error, Result},
    id::ChannelId,
    metrics::Metrics,
    pipeline::{Context, Handler},
    testing::{EmbeddedLoop, MemoryTransport},
};
use bytes::Bytes;
use crossbeam_utils::CachePadded;
use std::{cell::RefCell, rc::Rc, sync::Arc};

type Log = Rc<RefCell<Vec<String>>>;
type Script = dyn FnMut(&mut Context<'_, Probe>, &str) -> Result;

/// Records its callbacks, then runs a script for each.
struct Probe {
    log: Log,
    script: Box<Script>,
}

impl Probe {
    fn note(&mut self, ctx: &mut Context<'_, Self>, call: String) -> Result {
        self.log.borrow_mut().push(call.clone());
        (self.script)(ctx, &call)
    }
}

impl Handler for Probe {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        self.note(ctx, String::from_utf8_lossy(&bytes).into_owned())
    }

    fn read_complete(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.note(ctx, "complete".into())
    }

    fn read_closed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.note(ctx, "end".into())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.note(ctx, format!("error: {error:#}"))
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.note(ctx, "inactive".into())
    }
}

/// A channel that decodes nothing, and a log of its callbacks.
struct Fixture {
    event_loop: EmbeddedLoop,
    id: ChannelId,
    log: Log,
}

impl Fixture {
    fn new(
        options: &ChannelOptions,
        script: impl FnMut(&mut Context<'_, Probe>, &str) -> Result + 'static,
    ) -> Self {
        Self::of(options, |probe| Pipeline::codec(RawBytes).handler(probe), script)
    }

    fn of<M: 'static>(
        options: &ChannelOptions,
        pipeline: impl FnOnce(Probe) -> crate::channel::Pipeline<M>,
        script: impl FnMut(&mut Context<'_, Probe>, &str) -> Result + 'static,
    ) -> Self {
        let log = Log::default();
        let mut event_loop = EmbeddedLoop::builder().channel_options(options.clone()).build().unwrap();
        let probe = Probe { log: log.clone(), script: Box::new(script) };
        let id = event_loop.open(pipeline(probe));
        Fixture { event_loop, id, log }
    }

    /// Changes the transport and reports the event, then runs everything that follows.
    fn change(&mut self, change: impl FnOnce(&mut MemoryTransport) -> Ready) {
        self.event_loop.change(self.id, change);
    }

    /// Changes the transport without an event.
    fn prepare<T>(&mut self, change: impl FnOnce(&mut MemoryTransport) -> T) {
        self.drive(|driver, _| {
            driver.transport.as_mut().map(change);
            Next::Stay
        });
    }

    /// Calls the driver, then runs everything that follows.
    fn drive(&mut self, call: impl FnOnce(&mut ChannelDriver<MemoryTransport>, &mut LoopIo) -> Next) {
        self.event_loop.act(self.id, call);
    }

    fn receive(&mut self, bytes: &str) {
        self.change(|transport| transport.receive(bytes.as_bytes()));
    }

    /// Returns the callbacks since the last call.
    fn log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.borrow_mut())
    }

    fn sent(&mut self) -> String {
        String::from_utf8(self.event_loop.read_outbound(self.id).to_vec()).unwrap()
    }

    fn counters(&mut self) -> Arc<CachePadded<Metrics>> {
        let mut counters = None;
        self.drive(|_, io| {
            counters = Some(io.metrics.clone());
            Next::Stay
        });
        counters.unwrap()
    }

    fn is_open(&self) -> bool {
        self.event_loop.is_open(self.id)
    }
}

fn nothing(_: &mut Context<'_, Probe>, _: &str) -> Result {
    Ok(())
}

/// Echoes its input.
fn echo(ctx: &mut Context<'_, Probe>, call: &str) -> Result {
    if ["complete", "end", "inactive"].contains(&call) || call.starts_with("error") {
        return Ok(());
    }
    ctx.write(Bytes::copy_from_slice(call.as_bytes()))
}
