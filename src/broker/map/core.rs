//! `MapCore`: a map of a node.

use super::{
    event::{MapEvent, OnMapEvent},
    hold_caller::HoldCaller,
    holding::HoldRequest,
    holdings::HoldAnswer,
    settings::MapSettings,
    state::MapState,
};
use crate::broker::{
    node::{FollowedTopic, TopicNode},
    pending_limit::{MAX_PENDING_BYTES, PendingLimit, PendingPermit},
    retry_delay::RetryDelay,
    store::{BrokerError, Notification, Position, TopicChange, TopicName, TopicTop},
};
use crate::{
    error::{Error, Resource, Result, caught},
    sync::{Completer, Completion, Locked, completion},
};
use std::{any::Any, sync::Arc};

pub(super) struct MapCore {
    pub(super) node: Arc<TopicNode>,
    pub(super) name: TopicName,
    pub(super) settings: MapSettings,
    pub(super) state: Locked<CoreState>,
    pub(super) pending: Arc<PendingLimit>,
    on_event: Option<OnMapEvent>,
}

pub(super) struct CoreState {
    pub(super) map: MapState<HoldCaller>,
    /// Callers that wait for the first snapshot.
    ready: Vec<(Completer, PendingPermit)>,
    /// Handles of this map.
    handles: usize,
    /// Whether the node follows the map.
    is_active: bool,
    /// Whether a thread adds the map to the node. Nothing is read before that, because the map does
    /// not receive events yet.
    pub(super) is_activating: bool,
    /// Whether a thread carries out steps.
    pub(super) is_pumping: bool,
    pub(super) retry: RetryDelay,
}

impl CoreState {
    /// Returns whether nothing needs the map, and the node still follows it.
    pub(super) fn may_rest(&self) -> bool {
        let is_busy = self.is_pumping || self.is_activating || self.handles > 0;
        self.is_active && !is_busy && self.map.holdings.len() == 0
    }
}

impl MapCore {
    pub(super) fn new(
        node: Arc<TopicNode>,
        name: TopicName,
        settings: MapSettings,
        on_event: Option<OnMapEvent>,
    ) -> Arc<Self> {
        let state = CoreState {
            map: MapState::new(settings.limits(), node.name()),
            ready: Vec::new(),
            handles: 0,
            is_active: false,
            is_activating: false,
            is_pumping: false,
            retry: RetryDelay::default(),
        };
        let (state, pending) =
            (Locked::new(state), PendingLimit::new(settings.max_pending, MAX_PENDING_BYTES));
        Arc::new(MapCore { node, name, settings, state, pending, on_event })
    }

    /// Changes the state. Keys and values that are not needed any more are dropped after the
    /// unlock, because they may be of the program.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut CoreState) -> R) -> R {
        self.state.change(|state| {
            let result = change(state);
            (result, state.map.take_unused())
        })
    }

    // ---- handles --------------------------------------------------------------------------------

    /// Follows the map if this is the first handle.
    pub(super) fn handle_added(self: &Arc<Self>) {
        let is_first = self.change(|state| {
            state.handles += 1;
            let is_first = !std::mem::replace(&mut state.is_active, true);
            state.is_activating |= is_first;
            is_first
        });
        if is_first {
            self.node.activate(self.clone());
            self.change(|state| state.is_activating = false);
            self.clone().lease_changed();
        }
    }

    pub(super) fn handle_dropped(self: &Arc<Self>) {
        let is_last = self.change(|state| {
            state.handles -= 1;
            if state.handles == 0 {
                state.map.holdings.release_all();
            }
            state.handles == 0
        });
        if is_last {
            self.pump();
        }
    }

    /// Completes when the first snapshot is loaded.
    pub(super) fn ready(&self) -> Completion {
        let permit = match self.permit(0) {
            Ok(permit) => permit,
            Err(error) => return Completion::ready(Err(error)),
        };
        let (completer, completion) = completion(None);
        let refused = self.change(|state| {
            if state.map.follower.position().is_some() {
                return Some((completer, Ok(())));
            }
            let failure = state.map.follower.lasting_failure().cloned();
            if let Some(error) = failure.or_else(|| self.node.is_closed().then_some(BrokerError::Closed)) {
                return Some((completer, Err(error.into())));
            }
            state.ready.push((completer, permit));
            None
        });
        if let Some((completer, result)) = refused {
            completer.complete(result);
        }
        completion
    }

    /// The node is closed: fails the requests that were not sent.
    pub(super) fn fail_requests(&self) {
        let requests = self.change(|state| state.map.holdings.take_requests());
        for caller in requests.into_iter().filter_map(HoldRequest::into_caller) {
            caller.answer(HoldAnswer::Failed(BrokerError::Closed.into()));
        }
    }

    pub(super) fn complete_ready(&self, result: &Result) {
        let ready = self.change(|state| std::mem::take(&mut state.ready));
        for (completer, permit) in ready {
            drop(permit);
            completer.complete(result.clone());
        }
    }

    /// Returns a permit for an operation with this number of bytes.
    pub(super) fn permit(&self, bytes: usize) -> Result<PendingPermit> {
        let full = Error::Full { resource: Resource::MapOperations, limit: self.settings.max_pending };
        self.pending.take(bytes).ok_or(full)
    }

    // ---- code of the program --------------------------------------------------------------------

    pub(super) fn emit(&self, event: MapEvent<'_>) {
        if let Some(on_event) = &self.on_event
            && let Some(message) = caught(|| on_event(event))
        {
            log::error!("the callback for events of the map {} panicked: {message}", self.name);
        }
    }
}

impl Drop for MapCore {
    fn drop(&mut self) {
        self.node.forget(&self.name);
    }
}

impl FollowedTopic for MapCore {
    fn name(&self) -> &TopicName {
        &self.name
    }

    fn stored(self: Arc<Self>, change: TopicChange) {
        self.change(|state| match change {
            TopicChange::Entries(position, changes) => state.map.follower.changed(position, changes),
            TopicChange::EpochBegan(position) => state.map.follower.epoch_began(position),
            TopicChange::Message(_) => {}
        });
        self.pump();
    }

    fn notified(self: Arc<Self>, _: Notification) {}

    fn seen(&self) -> Option<Position> {
        self.state.read(|state| state.map.follower.highest())
    }

    fn verified(self: Arc<Self>, _: Option<Position>, top: TopicTop) {
        self.change(|state| state.map.follower.verified(&top));
        self.pump();
    }

    fn interrupted(self: Arc<Self>, error: &BrokerError) {
        self.change(|state| state.map.follower.interrupted(error.clone()));
        self.pump();
    }

    fn resumed(self: Arc<Self>) {
        self.change(|state| {
            state.map.follower.resumed();
            state.map.retry();
        });
        self.pump();
    }

    fn retry(self: Arc<Self>) {
        self.change(|state| {
            let authority = self.node.authority();
            if authority.is_some() {
                state.map.holdings.set_node(authority);
            }
            state.map.retry();
        });
        self.pump();
    }

    fn lease_changed(self: Arc<Self>) {
        // Read under the lock, so that an older answer does not replace a newer one.
        self.change(|state| state.map.holdings.set_node(self.node.authority()));
        self.pump();
    }

    fn forget_old_messages(&self) {}

    fn rest(&self) -> Option<Box<dyn Any + Send>> {
        self.state.change(|state| {
            if !state.may_rest() {
                return (None, ());
            }
            state.is_active = false;
            let contents: Box<dyn Any + Send> = Box::new(state.map.follower.reset());
            (Some(contents), ())
        })
    }

    fn close(self: Arc<Self>) {
        self.fail_requests();
        self.complete_ready(&Err(BrokerError::Closed.into()));
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
