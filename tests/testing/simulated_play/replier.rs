//! The handler of a server that is shut down, and the ledger of its requests and replies.

use super::kit::{MS, Play, lock};
use bytes::Bytes;
use netwheel::{
    codec::Line,
    prelude::*,
    testing::simulation::{sleep, sometimes},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

/// The requests and replies of all connections.
#[derive(Clone)]
pub(super) struct Ledger {
    pub(super) play: Play,
    pub(super) connections: Arc<Mutex<BTreeMap<u32, Arc<Entry>>>>,
    pub(super) next: Arc<AtomicU32>,
    /// The names of the loops that have reached the request for their shutdown in their queue.
    shut_down: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Default)]
pub(super) struct Entry {
    pub(super) written: AtomicU32,
    pub(super) received: AtomicU32,
    /// The server's socket may not wait for its peer.
    pub(super) is_hasty: AtomicU32,
}

impl Ledger {
    pub(super) fn new(play: &Play) -> Self {
        Ledger {
            play: play.clone(),
            connections: Arc::default(),
            next: Arc::default(),
            shut_down: Arc::default(),
        }
    }

    /// Notes that a loop has reached the request for its shutdown. Runs on the thread of the loop.
    pub(super) fn note_shutdown(&self, event_loop: String) {
        lock(&self.shut_down).insert(event_loop);
    }

    pub(super) fn entry(&self, number: u32) -> Arc<Entry> {
        lock(&self.connections).entry(number).or_default().clone()
    }
}

/// Replies at once, after a while, after work, or after a call to the backend.
pub(super) struct Replier {
    ledger: Ledger,
    entry: Option<Arc<Entry>>,
    is_hasty: bool,
    backend: Option<ClientBootstrap>,
    calls: Option<Channel<Bytes>>,
    open: u32,
    is_ending: bool,
}

impl Replier {
    /// Returns the handler of one connection. Calls go to the `backend`, if there is one.
    /// `is_hasty`: the server's sockets may not wait for their peers.
    pub(super) fn new(ledger: Ledger, is_hasty: bool, backend: Option<ClientBootstrap>) -> Self {
        Replier { ledger, entry: None, is_hasty, backend, calls: None, open: 0, is_ending: false }
    }

    fn reply(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.ledger.play.must(self.open > 0, || "a reply without a request".to_owned());
        self.open = self.open.saturating_sub(1);
        if let Some(entry) = self.entry.clone() {
            let confirmed = ctx.write_tracked("reply".into())?;
            confirmed.on_complete(move |result| {
                if result.is_ok() {
                    entry.written.fetch_add(1, SeqCst);
                }
            });
        }
        if self.is_ending && self.open == 0 {
            ctx.close();
        }
        Ok(())
    }

    fn call_backend(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if let Some(calls) = &self.calls {
            if calls.write("request".into()).is_err() {
                self.ledger
                    .play
                    .must(!self.ledger.play.is_strict(), || "a call to the backend fails".to_owned());
                return self.reply(ctx);
            }
            return Ok(());
        }
        self.reply(ctx)
    }
}

impl Handler for Replier {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let Some(event_loop) = ctx.channel().event_loop() else { return Ok(()) };
        let is_late = lock(&self.ledger.shut_down).contains(event_loop.name());
        self.ledger.play.must(!is_late, || "a connection is opened in a shutdown".to_owned());
        let Some(backend) = self.backend.take() else { return Ok(()) };
        let me = ctx.handler_ref();
        let client = backend.pipeline(move |_peer| {
            let me = me.clone();
            Pipeline::codec(Line::new()).on_read(move |_ctx, _line| {
                let _ = me.execute(|me, ctx| me.reply(ctx));
                Ok(())
            })
        });
        ctx.on_complete(client.connect_on(&event_loop, "backend:7000"), |me, _ctx, channel| {
            me.calls = channel.ok();
            Ok(())
        });
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        let text = String::from_utf8_lossy(&line).into_owned();
        if let Some(number) = text.strip_prefix("connection ") {
            let entry = self.ledger.entry(number.parse().unwrap_or(u32::MAX));
            entry.is_hasty.store(self.is_hasty.into(), SeqCst);
            self.entry = Some(entry);
            return Ok(());
        }
        self.open += 1;
        match &*text {
            "later" => {
                ctx.schedule(200 * MS, Replier::reply);
                Ok(())
            }
            "work" => match ctx.offload(|| sleep(40 * MS), |me, ctx, _| me.reply(ctx)) {
                Ok(_) => Ok(()),
                Err(_) => self.reply(ctx),
            },
            "call" => self.call_backend(ctx),
            _ => self.reply(ctx),
        }
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.is_ending = true;
        if self.open == 0 {
            ctx.close();
        } else {
            sometimes("a shutdown waits for a reply");
        }
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        let is_panic = matches!(error, Error::Panicked(_));
        self.ledger.play.must(!is_panic, || format!("a server fails: {error:#} {error:?}"));
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let (play, open) = (&self.ledger.play, self.open);
        let is_bad = play.is_strict() && self.is_ending && open > 0;
        play.must(!is_bad, || format!("{open} replies are missing at the end: {:?}", ctx.close_cause()));
        if let Some(calls) = &self.calls {
            calls.close();
        }
        Ok(())
    }
}
