//! Calls of sources, and the transitions that follow.
//!
//! Invariant: a source is removed from its slot before any part of it is dropped, so a panic leaves
//! nothing behind. Runs on the loop's thread.

use super::Turn;
use crate::{
    error::{Error, Result},
    event_loop::{
        connection::Connection,
        io::Io,
        shared::{LifeState, LoopShared},
        shutdown::Shutdown,
        source::{LoopContext, NewSource, Source, SourceMail, Transition},
        sources::Slot,
    },
    id::Key,
};

impl Turn {
    /// Returns the part of the loop that the source `key` works with.
    pub(super) fn context(&mut self, key: Key) -> LoopContext<'_> {
        let Turn { io, shared, accepted, .. } = self;
        context(io, shared, accepted, key)
    }

    /// Calls a source, if it exists.
    pub(super) fn with_source<T>(
        &mut self,
        key: Key,
        call: impl FnOnce(&mut dyn Source, &mut LoopContext<'_>) -> T,
    ) -> Option<T> {
        let Turn { sources, io, shared, accepted, .. } = self;
        let source = sources.get(key)?.as_source();
        Some(call(source, &mut context(io, shared, accepted, key)))
    }

    /// Calls a source, if it exists, and makes the transition that it returns.
    pub(super) fn call_source(
        &mut self,
        key: Key,
        call: impl FnOnce(&mut dyn Source, &mut LoopContext<'_>) -> Transition,
    ) {
        if let Some(transition) = self.with_source(key, call) {
            self.make_transition(key, transition);
        }
    }

    /// Makes a transition.
    #[inline]
    pub(super) fn make_transition(&mut self, key: Key, mut transition: Transition) {
        loop {
            match transition {
                Transition::Stay => return,
                Transition::End(result) => return self.end_source(key, result),
                Transition::Establish(established) => return self.establish(key, *established),
                Transition::Adopt => {
                    if let Some(connection) = self.accepted.take() {
                        self.adopt(connection);
                    }
                    let resumed = self.with_source(key, |source, ctx| source.resume(ctx));
                    transition = resumed.unwrap_or(Transition::Stay);
                }
            }
        }
    }

    /// Puts a new source into a slot.
    pub(super) fn open(&mut self, source: Box<dyn NewSource>) {
        let state = self.shared.state();
        let opens_late = || {
            let is_early = self.shutdown.as_ref().is_none_or(Shutdown::takes_outgoing);
            source.is_outgoing() && is_early && state < LifeState::ShutDown
        };
        let is_ending = state >= LifeState::ShuttingDown && !opens_late();
        let key = if is_ending { Err(Error::ShutDown) } else { self.sources.next_key() };
        let key = match key {
            Ok(key) => key,
            Err(error) => return source.refuse(&self.shared.name, &self.shared.metrics, error),
        };
        let Some(source) = source.open(&mut self.context(key)) else { return };
        self.sources.insert(Slot::Other(source));
        self.guarded_once(Some(key), |turn| {
            turn.with_source(key, |source, ctx| source.opened(ctx));
        });
    }

    /// Delivers a message to a source.
    pub(super) fn deliver_mail(&mut self, mail: Box<dyn SourceMail>) {
        match mail.key().filter(|key| self.sources.get(*key).is_some()) {
            Some(key) => self.call_source(key, |source, ctx| mail.deliver(source, ctx)),
            None => mail.refuse(),
        }
    }

    /// Removes a source other than a channel, and ends it.
    ///
    /// A channel ends otherwise: its handler has to be called for the last time.
    pub(super) fn end_source(&mut self, key: Key, result: Result) {
        if self.sources.channel(key).is_some() {
            return;
        }
        match self.sources.remove(key).map(|slot| *slot) {
            Some(Slot::Other(source)) => source.end(&mut self.context(key), result),
            Some(Slot::Lingering(slot)) => {
                self.shared.metrics.lingering.set(self.sources.lingering() as u64);
                slot.into_socket().end(&mut self.context(key), result);
            }
            Some(Slot::Channel(_)) | None => {}
        }
    }

    /// Closes one source because of an error.
    pub(super) fn fail_source(&mut self, key: Key, error: Error) {
        self.call_source(key, |source, ctx| source.fail(ctx, error));
    }
}

fn context<'a>(
    io: &'a mut Io,
    shared: &'a LoopShared,
    accepted: &'a mut Option<Connection>,
    key: Key,
) -> LoopContext<'a> {
    LoopContext {
        io,
        metrics: &shared.metrics,
        key,
        loop_id: shared.id,
        loop_name: &shared.name,
        load: &shared.load,
        accepted,
    }
}
