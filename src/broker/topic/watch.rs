//! `TopicWatch`: following a topic without members.

use super::core::{TopicCore, TopicState};
use crate::broker::store::BrokerError;
use crate::{
    error::{Error, Resource, Result},
    sync::{Completer, Completion, completion},
};
use std::{fmt, sync::Arc};

/// A guard by which a node keeps following a topic. See
/// [`Topic::watch`](crate::broker::Topic::watch).
#[must_use]
pub struct TopicWatch {
    topic: Arc<dyn WatchedTopic>,
    _watched: Arc<()>,
}

/// A topic without the type of its messages.
trait WatchedTopic: Send + Sync {
    fn ready(&self) -> Completion;
}

impl TopicWatch {
    /// Completes when the node has the first position of the topic, or at once if that is the case.
    /// From then on, the [format](crate::broker::TopicFormat::deliver) receives every message that
    /// is stored.
    ///
    /// # Errors
    ///
    /// - [`Error::Full`] if [`max_joiners`](crate::broker::TopicBuilder::max_joiners) others wait.
    /// - A [`BrokerError`] if the topic cannot be read at all, for example because it is a map.
    ///   While the broker cannot be reached, this waits.
    pub fn ready(&self) -> Completion {
        self.topic.ready()
    }
}

impl fmt::Debug for TopicWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicWatch").finish_non_exhaustive()
    }
}

impl<M: Clone + Send + Sync + 'static> TopicCore<M> {
    pub(super) fn watch(self: &Arc<Self>) -> TopicWatch {
        // From now on, the topic does not rest.
        let watch = TopicWatch { topic: self.clone(), _watched: self.watched.clone() };
        let is_new = !self.node.is_closed()
            && self.change(|state| {
                state.follower.watch();
                state.begin_activation()
            });
        if is_new {
            self.activate();
        }
        self.pump();
        watch
    }
}

impl<M: Clone + Send + Sync + 'static> WatchedTopic for TopicCore<M> {
    fn ready(&self) -> Completion {
        let (completer, completion) = completion(None);
        let limit = self.settings.max_joiners;
        let answered = self.change(|state| {
            let result = if state.follower.position().is_some() {
                Ok(())
            } else if self.node.is_closed() {
                // Asked under the lock: a node that closes later finds this caller.
                Err(BrokerError::Closed.into())
            } else if let Some(error) = &state.unreadable {
                Err(error.clone())
            } else if state.joining.len() + state.ready.len() >= limit {
                Err(Error::Full { resource: Resource::TopicJoiners, limit })
            } else {
                state.ready.push(completer);
                return None;
            };
            Some((completer, result))
        });
        if let Some((completer, result)) = answered {
            completer.complete(result);
        }
        completion
    }
}

impl<M> TopicState<M> {
    /// A read was answered. Returns the callers to be answered with the same result.
    pub(super) fn take_ready(&mut self, result: &Result) -> Vec<Completer> {
        let is_lasting = |error: &&Error| !BrokerError::of(error).is_some_and(BrokerError::is_transient);
        self.unreadable = result.as_ref().err().filter(is_lasting).cloned();
        let is_done = result.is_ok() || self.unreadable.is_some();
        if is_done { std::mem::take(&mut self.ready) } else { Vec::new() }
    }
}
