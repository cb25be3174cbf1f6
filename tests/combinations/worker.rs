//! The server's handler: answers each numbered line, on the ways that the features ask for.

use crate::{
    conversation::{AGAIN, BYE, LINES, SWITCH, SWITCHED},
    feature::{Feature, Features},
    support::wait::ms,
};
use bytes::Bytes;
use netwheel::{
    codec::{Delimiter, Line},
    prelude::*,
    traffic::TrafficLimits,
};
use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

/// What happened to the server's channels.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) active: usize,
    pub(crate) inactive: usize,
    pub(crate) errors: Vec<String>,
}

/// Settings and results that all connections of a server share.
#[derive(Clone)]
pub(crate) struct Shared {
    features: Features,
    /// Whether the server resets the connection in the middle of the conversation.
    resets: bool,
    seen: Arc<Mutex<Seen>>,
    /// The number of steps that have neither run nor been dropped.
    steps: Arc<AtomicUsize>,
}

impl Shared {
    pub(crate) fn new(features: Features, resets: bool) -> Self {
        Shared { features, resets, seen: Arc::default(), steps: Arc::default() }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Returns the number of steps that have neither run nor been dropped.
    pub(crate) fn pending_steps(&self) -> usize {
        self.steps.load(SeqCst)
    }
}

/// Counts a pending step until it is dropped.
struct Pending(Arc<AtomicUsize>);

impl Pending {
    fn new(shared: &Shared) -> Self {
        shared.steps.fetch_add(1, SeqCst);
        Pending(shared.steps.clone())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

pub(crate) struct Worker {
    shared: Shared,
    room: ChannelGroup<Bytes>,
    read: usize,
    answered: usize,
    /// The number of keys that were used.
    keys: u64,
    /// Closes when every line that was read has its answer.
    closing: bool,
    /// Closes when every line of the conversation has its answer.
    draining: bool,
}

/// The pipeline of an accepted connection.
pub(crate) fn accepted(shared: &Shared) -> Pipeline<Bytes> {
    let worker = Worker {
        shared: shared.clone(),
        room: ChannelGroup::new(),
        read: 0,
        answered: 0,
        keys: 0,
        closing: false,
        draining: false,
    };
    pipeline(worker, |shaped, worker| match shaped {
        Some(limits) => Pipeline::codec(Line::new()).traffic(limits).handler(worker),
        None => Pipeline::codec(Line::new()).handler(worker),
    })
}

/// The pipeline that replaces the first one. Its codec has no size hint.
fn replacement(worker: Worker) -> Pipeline<Bytes> {
    let codec = Delimiter::new(["\n"]).expect("a delimiter");
    pipeline(worker, |shaped, worker| match shaped {
        Some(limits) => Pipeline::codec(codec).traffic(limits).handler(worker),
        None => Pipeline::codec(codec).handler(worker),
    })
}

fn pipeline(
    worker: Worker,
    build: impl FnOnce(Option<TrafficLimits>, Worker) -> Pipeline<Bytes>,
) -> Pipeline<Bytes> {
    // The whole conversation takes about 100 ms.
    let limits = TrafficLimits::new().read(64 << 10).write(64 << 10).read_burst(512).write_burst(512);
    build(worker.has(Feature::TrafficShaping).then_some(limits), worker)
}

impl Worker {
    fn has(&self, feature: Feature) -> bool {
        self.shared.features.has(feature)
    }

    /// Passes a line through the remaining steps, and answers it after the last one.
    fn step(&mut self, ctx: &mut Context<'_, Self>, line: Bytes, mut steps: Vec<Feature>) -> Result {
        let Some(way) = steps.pop() else { return self.answer(ctx, line) };
        let pending = Pending::new(&self.shared);
        let then = move |me: &mut Self, ctx: &mut Context<'_, Self>, line: Result<Bytes>| {
            drop(pending);
            me.step(ctx, line?, steps)
        };
        match way {
            Feature::Offload => {
                ctx.offload(move || line, then).map(drop).map_err(|refused| refused.into_parts().1)
            }
            Feature::Spawn => {
                ctx.spawn(async move { line }, then).map(drop).map_err(|refused| refused.into_parts().1)
            }
            _ => {
                let delay = ms(line.len() as u64 % 3);
                let _key = ctx.schedule(delay, move |me, ctx| then(me, ctx, Ok(line)));
                Ok(())
            }
        }
    }

    fn answer(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        if self.has(Feature::Broadcast) {
            let me = ctx.id();
            let selected = |member: &Channel<Bytes>| member.id() == me;
            let broadcast = match self.next_key() {
                None => self.room.broadcast_where(selected, line),
                Some(key) => self.room.broadcast_latest_where(selected, key, line),
            };
            let report = broadcast.map_err(|refused| refused.into_parts().1)?.report();
            ctx.on_complete(report, |me, ctx, report| {
                if report?.written != 1 {
                    me.shared.seen().errors.push("a broadcast did not reach its member".into());
                }
                me.answered(ctx)
            });
            return Ok(());
        }
        match self.next_key() {
            None => ctx.write(line)?,
            Some(key) => ctx.write_latest(key, line)?,
        }
        self.answered(ctx)
    }

    /// Returns a key for the next answer, if answers have keys.
    fn next_key(&mut self) -> Option<u64> {
        self.has(Feature::Conflation).then(|| {
            self.keys += 1;
            self.keys
        })
    }

    fn answered(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.answered += 1;
        self.close_if_done(ctx);
        Ok(())
    }

    fn close_if_done(&mut self, ctx: &mut Context<'_, Self>) {
        let all_read = self.closing || (self.draining && self.read >= LINES);
        if all_read && self.answered == self.read {
            if self.has(Feature::HalfClose) {
                ctx.shutdown_write();
            }
            ctx.close();
        }
    }
}

impl Handler for Worker {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.shared.seen().active += 1;
        assert!(self.room.is_empty() || self.room.contains(ctx.id()), "the room keeps its member");
        self.room.join(ctx.channel());
        if self.has(Feature::AutoReadOff) {
            ctx.read();
        }
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        if self.has(Feature::AutoReadOff) && line != SWITCH {
            ctx.read();
        }
        if self.closing {
            return Ok(()); // What the client sends while the channel is about to close.
        }
        match &*line {
            BYE => {
                self.closing = true;
                self.close_if_done(ctx);
                Ok(())
            }
            AGAIN => {
                self.read = 0;
                self.answered = 0;
                Ok(())
            }
            SWITCH => {
                ctx.write(Bytes::from_static(SWITCHED))?;
                let worker = Worker { shared: self.shared.clone(), room: self.room.clone(), ..*self };
                ctx.replace_pipeline(replacement(worker))
            }
            _ => {
                self.read += 1;
                if self.shared.resets && self.read == LINES / 2 {
                    ctx.reset();
                    return Ok(());
                }
                let ways = [Feature::Offload, Feature::Spawn, Feature::Schedule];
                let steps = ways.into_iter().filter(|&way| self.has(way)).collect();
                self.step(ctx, line, steps)
            }
        }
    }

    fn read_closed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.closing = true;
        self.close_if_done(ctx);
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.draining = true;
        self.close_if_done(ctx);
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: netwheel::Error) -> Result {
        self.shared.seen().errors.push(error.to_string());
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.shared.seen().inactive += 1;
        Ok(())
    }
}
