//! A link: two ends, with a stream in each direction, and the facts that determine the valid
//! observations of an end.

use crate::{
    plan::{ChannelSettings, Index, LinkPlan, Plan, Side},
    stream::Stream,
};
use netwheel::{Handler, HandlerRef, channel::Overflow};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

pub(crate) struct Link<H: Handler> {
    pub(crate) client: Arc<End<H>>,
    pub(crate) server: Arc<End<H>>,
    /// All hops are TCP, so a reset is one.
    pub(crate) passes_resets: bool,
    pub(crate) relayed: bool,
}

pub(crate) struct End<H: Handler> {
    pub(crate) link: Index,
    pub(crate) side: Side,
    /// What this end writes.
    pub(crate) output: Arc<Stream>,
    pub(crate) input: Arc<Stream>,
    pub(crate) facts: Facts,
    pub(crate) close_timeout: Duration,
    /// A message too many closes the channel, without a call of `error` if the handler writes it.
    closes_itself: bool,
    handler: Mutex<Option<HandlerRef<H>>>,
}

/// What has happened at an end. A fact is noted before the operation that it is about.
#[derive(Default)]
pub(crate) struct Facts {
    pub(crate) active: AtomicBool,
    pub(crate) inactive: AtomicBool,
    /// A graceful close, or the end of the output.
    graceful: AtomicBool,
    /// When.
    graceful_at: Mutex<Option<Instant>>,
    /// `close_now`, or a reset whose effect depends on the timing.
    cut: AtomicBool,
    /// A reset of an open channel that had no other reason to end.
    reset: AtomicBool,
    /// `error` was called.
    pub(crate) failed: AtomicBool,
    pub(crate) shutdown: AtomicBool,
    /// The peer has ended its stream cleanly, before this end had ended in any way.
    clean_end: AtomicBool,
    /// The close timeout may have dropped messages.
    pub(crate) late: AtomicBool,
    /// Messages that the handler writes as the channel becomes writable.
    pub(crate) streaming: AtomicU32,
    pub(crate) stream_size: AtomicU32,
}

impl Facts {
    pub(crate) fn will_close(&self) {
        self.graceful_at.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
        self.graceful.store(true, SeqCst);
    }

    pub(crate) fn will_cut(&self) {
        self.cut.store(true, SeqCst);
    }

    /// Called on the loop, when the channel is open.
    pub(crate) fn will_reset(&self) {
        if !self.has_reason_to_end() {
            self.reset.store(true, SeqCst);
        }
        self.cut.store(true, SeqCst);
    }

    pub(crate) fn peer_has_ended(&self) {
        if !self.has_reason_to_end() {
            self.clean_end.store(true, SeqCst);
        }
    }

    pub(crate) fn is_graceful(&self) -> bool {
        self.graceful.load(SeqCst)
    }

    pub(crate) fn was_reset(&self) -> bool {
        self.reset.load(SeqCst)
    }

    pub(crate) fn saw_clean_end(&self) -> bool {
        self.clean_end.load(SeqCst)
    }

    pub(crate) fn was_cut(&self) -> bool {
        self.cut.load(SeqCst)
    }

    pub(crate) fn has_reason_to_end(&self) -> bool {
        let facts = [&self.graceful, &self.cut, &self.reset, &self.failed, &self.shutdown, &self.clean_end];
        facts.into_iter().any(|fact| fact.load(SeqCst))
    }

    pub(crate) fn closing_for(&self) -> Duration {
        let since = *self.graceful_at.lock().unwrap_or_else(PoisonError::into_inner);
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub(crate) fn describe(&self) -> String {
        let names =
            ["active", "inactive", "closed", "cut", "reset", "failed", "shutdown", "clean end", "late"];
        let facts = [
            &self.active,
            &self.inactive,
            &self.graceful,
            &self.cut,
            &self.reset,
            &self.failed,
            &self.shutdown,
            &self.clean_end,
            &self.late,
        ];
        let true_facts =
            names.into_iter().zip(facts).filter(|(_, fact)| fact.load(SeqCst)).map(|(name, _)| name);
        true_facts.collect::<Vec<_>>().join(", ")
    }
}

impl<H: Handler> End<H> {
    pub(crate) fn handler(&self) -> Option<HandlerRef<H>> {
        self.handler.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_handler(&self, handler: Option<HandlerRef<H>>) {
        let previous = {
            let mut current = self.handler.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, handler)
        };
        drop(previous);
    }

    /// Called when the channel has closed.
    pub(crate) fn has_closed(&self) {
        if !self.closes_itself {
            self.facts.peer_has_ended();
        }
    }

    /// Returns whether the channel is connected, and nothing has happened that may end it.
    pub(crate) fn is_settled(&self) -> bool {
        self.facts.active.load(SeqCst) && !self.facts.inactive.load(SeqCst) && !self.facts.has_reason_to_end()
    }
}

impl<H: Handler> Link<H> {
    pub(crate) fn new(number: Index, plan: &Plan) -> Self {
        let link: &LinkPlan = &plan.links[number];
        let (mut hops, mut server) = (vec![], &plan.servers[link.server]);
        hops.push(server);
        while let Some(next) = server.relay_to {
            server = &plan.servers[next];
            hops.push(server);
        }
        let up = Arc::new(Stream::new(link.channel.drops_messages()));
        let down = Arc::new(Stream::new(server.channel.drops_messages()));
        let end = |side, output: &Arc<Stream>, input: &Arc<Stream>, channel: &ChannelSettings| End {
            link: number,
            side,
            output: output.clone(),
            input: input.clone(),
            facts: Facts::default(),
            close_timeout: channel.close_timeout,
            closes_itself: channel.overflow == Overflow::Close,
            handler: Mutex::default(),
        };
        Link {
            client: Arc::new(end(Side::Client, &up, &down, &link.channel)),
            server: Arc::new(end(Side::Server, &down, &up, &server.channel)),
            passes_resets: hops.iter().all(|hop| !hop.unix),
            relayed: hops.len() > 1,
        }
    }

    pub(crate) fn end(&self, side: Side) -> &Arc<End<H>> {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }
}
