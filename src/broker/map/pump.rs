//! Carries out the steps of a map, one after the other.
//!
//! Invariant: one thread at a time carries out steps, in order.

use super::{
    core::{CoreState, MapCore},
    event::MapEvent,
    hold_caller::HoldCaller,
    holdings::HoldBatch,
    replica::ReplicaChange,
    state::MapStep,
};
use crate::broker::{
    node::FollowedTopic as _,
    store::{BrokerError, Changed, MapUpdate, NodeId, Position, Snapshot},
};
use crate::{
    error::{Result, caught},
    sync::Completion,
};
use std::{sync::Arc, time::Duration};

impl CoreState {
    fn next_step(&mut self, is_first: bool) -> Option<MapStep<HoldCaller>> {
        if is_first && self.is_pumping {
            return None;
        }
        let step = if self.is_activating { None } else { self.map.next_step() };
        self.is_pumping = step.is_some();
        step
    }

    /// An answer has arrived.
    fn note_answer(&mut self) {
        self.retry.answered(self.map.has_failed());
    }

    /// Returns how long to wait before trying again, if that is needed and no timer runs. Asked
    /// when all steps are carried out, because they may lead to entries that have to be restored.
    fn next_retry(&mut self) -> Option<Duration> {
        if self.is_pumping { None } else { self.retry.schedule(self.map.needs_retry()) }
    }
}

impl MapCore {
    /// Carries out all steps, unless another thread does so. Ends following the map if nothing
    /// needs it any more.
    pub(super) fn pump(self: &Arc<Self>) {
        let mut is_first = true;
        loop {
            let step = self.change(|state| {
                state.next_step(is_first).ok_or_else(|| (state.next_retry(), state.may_rest()))
            });
            is_first = false;
            match step {
                // Dropping a value of the program may panic.
                Ok(step) => {
                    if let Some(message) = caught(|| self.carry_out(step)) {
                        log::error!("a step of the map {} panicked: {message}", self.name);
                    }
                }
                Err((retry, may_rest)) => {
                    self.retry_after(retry);
                    if may_rest {
                        self.node.deactivate(self.clone());
                    }
                    return;
                }
            }
        }
    }

    fn carry_out(self: &Arc<Self>, step: MapStep<HoldCaller>) {
        let metrics = &self.node.metrics;
        match step {
            MapStep::Changed(ReplicaChange { key, before, now }) => {
                metrics.map_changes.add_shared(1);
                self.emit(MapEvent::Changed { key: &key, before: before.as_ref(), now: now.as_ref() });
            }
            MapStep::Lost(key, by) => {
                metrics.entries_lost.add_shared(1);
                self.emit(MapEvent::Lost { key: &key, by: by.as_ref() });
            }
            MapStep::Loaded(epoch) => {
                if let Some(position) = epoch {
                    self.emit(MapEvent::EpochChanged(position));
                }
                self.complete_ready(&Ok(()));
            }
            MapStep::Interrupted(error) => self.emit(MapEvent::Interrupted(&error)),
            MapStep::Resumed => self.emit(MapEvent::Resumed),
            MapStep::Read(read, seen) => self.read(read, seen),
            MapStep::Update(batch, seen) => self.update_held(batch, seen),
            MapStep::Answer(caller, answer) => caller.answer(answer),
            MapStep::Continue => {}
        }
    }

    // ---- snapshots ------------------------------------------------------------------------------

    fn read(self: &Arc<Self>, read: u64, seen: Option<Position>) {
        self.node.metrics.snapshots.add_shared(1);
        let map = Arc::downgrade(self);
        self.call(
            || self.node.broker.snapshot(&self.name, seen),
            move |snapshot| {
                if let Some(map) = map.upgrade() {
                    map.snapshot_read(read, snapshot);
                }
            },
        );
    }

    fn snapshot_read(self: &Arc<Self>, read: u64, snapshot: Result<Snapshot>) {
        let snapshot = snapshot.map(|mut snapshot| {
            snapshot.entries.sort_by(|one, other| one.key.cmp(&other.key));
            snapshot.entries.dedup_by(|one, other| one.key == other.key);
            snapshot
        });
        let error = snapshot.as_ref().err().cloned();
        self.node.metrics.snapshot_failures.add_shared(u64::from(error.is_some()));
        let unused = self.change(|state| {
            let is_late = !state.map.follower.is_reading(read);
            let unused = state.map.read_answered(read, snapshot);
            if !is_late {
                state.note_answer();
            }
            unused
        });
        drop(unused);
        if let Some(error) = error
            && !BrokerError::of(&error).is_some_and(BrokerError::is_transient)
        {
            self.complete_ready(&Err(error));
        }
        self.pump();
    }

    // ---- held entries ---------------------------------------------------------------------------

    fn update_held(self: &Arc<Self>, batch: HoldBatch, seen: Option<Position>) {
        let HoldBatch { number, owner, changes } = batch;
        let mut update = MapUpdate::new(self.name.clone(), changes);
        (update.owner, update.seen, update.max_entries) = (owner.clone(), seen, self.settings.max_entries);
        let map = Arc::downgrade(self);
        self.call(
            || self.node.broker.change(update),
            move |changed| {
                if let Some(map) = map.upgrade() {
                    map.held_updated(number, owner, changed);
                }
            },
        );
    }

    fn held_updated(self: &Arc<Self>, batch: u64, owner: Option<NodeId>, changed: Result<Changed>) {
        self.count_update(&changed);
        let cause = changed.as_ref().err().and_then(BrokerError::of);
        let refused = owner.filter(|_| cause == Some(&BrokerError::LeaseEnded));
        self.change(|state| {
            state.map.update_answered(batch, changed);
            state.note_answer();
        });
        if let Some(owner) = refused {
            self.node.lease_refused(&owner);
        }
        self.pump();
    }

    pub(super) fn count_update(&self, changed: &Result<Changed>) {
        let metrics = &self.node.metrics;
        let counter = if changed.is_ok() { &metrics.map_updates } else { &metrics.map_update_failures };
        counter.add_shared(1);
    }

    // ---- broker ---------------------------------------------------------------------------------

    /// Calls the broker, which may be code of the program.
    fn call<T: Send + 'static>(
        &self,
        operation: impl FnOnce() -> Completion<T>,
        then: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        let mut completion = None;
        if let Some(message) = caught(|| completion = Some(operation())) {
            log::error!("an operation of the map {} panicked: {message}", self.name);
        }
        match completion {
            Some(completion) => completion.on_complete(then),
            None => then(Err(BrokerError::failed("the broker panicked").into())),
        }
    }

    fn retry_after(self: &Arc<Self>, delay: Option<Duration>) {
        let Some(delay) = delay.filter(|_| !self.node.is_closed()) else { return };
        let map = Arc::downgrade(self);
        let again = move || {
            if let Some(map) = map.upgrade() {
                map.change(|state| state.retry.elapsed());
                map.retry();
            }
        };
        if self.node.event_loop.schedule_always(delay, again).is_err() {
            log::debug!("the map {} ends with its event loop", self.name);
        }
    }
}
