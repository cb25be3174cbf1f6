//! What the thread of the store does for whole topics: pauses, and changes of many dead letters.

use super::{kept_topic::paused, writer::Writer};
use crate::{
    durable::{
        dead_work::{DeadAction, DeadWork},
        engine::{EngineMessage, Permit},
        request::StoreRequest,
        store::{DeadLetters, StoreError, TopicCounts, TopicSet},
    },
    sync::Completer,
};

impl Writer {
    /// Tells the engine which topics are paused, if that has changed.
    pub(super) fn tell_paused(&mut self, counts: &[TopicCounts]) {
        let paused = paused(counts, &self.topics);
        if paused != self.paused {
            self.paused = paused;
            self.inbox.tell(EngineMessage::Paused { topics: paused, pausing: None });
        }
    }

    /// Pauses a topic or lets it go on. The engine completes the operation, after it knows.
    pub(super) fn pause(&mut self, topic: &str, is_paused: bool, completer: Completer<bool>, permit: Permit) {
        if let Some(error) = &self.failed {
            return completer.complete(Err(error.clone()));
        }
        match self.store.set_paused(topic, is_paused) {
            Ok(true) => {
                // Not by counting: that may fail, after the pause was stored.
                if let Some(index) = self.topics.iter().position(|kept| kept.name == topic) {
                    let change = if is_paused { TopicSet::insert } else { TopicSet::remove };
                    change(&mut self.paused, index);
                }
                self.count();
                self.maintain();
                let pausing = Some((completer, permit));
                self.inbox.tell(EngineMessage::Paused { topics: self.paused, pausing });
            }
            Ok(false) => completer.complete(Ok(false)),
            Err(error) => {
                completer.complete(Err(error.clone().into()));
                self.failed_alone(error);
            }
        }
    }

    /// Changes some of a topic's dead letters. If there are more, the rest waits until all requests
    /// are carried out that are there now.
    pub(super) fn dead_work(&mut self, mut work: DeadWork) {
        if let Some(error) = &self.failed {
            return work.finish(Some(error.clone()));
        }
        let changed = self.change_dead(&mut work);
        let (letters, changed) = match changed {
            Ok(Some(changed)) => changed,
            Ok(None) => return work.finish(None),
            Err(error) => {
                work.finish(Some(error.clone().into()));
                return self.failed_alone(error);
            }
        };
        if !self.store.needs_claims() {
            self.count();
        }
        self.maintain();
        if let Some(rest) = work.advance(&letters, changed, self.clock.present_millis()) {
            self.put_back(StoreRequest::DeadWork(rest));
        }
    }

    /// Makes one transaction. Returns the letters that it selected, and how many it changed.
    fn change_dead(&mut self, work: &mut DeadWork) -> Result<Option<(DeadLetters, u64)>, StoreError> {
        let now = self.clock.present_millis();
        if work.is_new() {
            work.select(&self.store.counts()?, now);
        }
        let Some(letters) = work.next() else { return Ok(None) };
        let changed = match work.action() {
            DeadAction::Remove => self.store.remove_dead(&letters, now)?,
            DeadAction::Retry { over } => {
                let retried = self.store.retry_dead(&letters, &work.dues(&letters, over))?;
                let changed = retried.len() as u64;
                // The engine holds no timer that is due later.
                let near = retried.into_iter().flatten().filter(|row| row.key.due <= self.loaded_until);
                self.inbox.tell_all(near.map(EngineMessage::Stored).collect());
                changed
            }
        };
        Ok(Some((letters, changed)))
    }

    /// Removes dead letters that are too old or too many, up to a limit.
    pub(super) fn prune(&mut self) {
        if self.failed.is_some() {
            return;
        }
        let now = self.clock.present_millis();
        let surplus: Vec<DeadLetters> = self.topics.iter().flat_map(|topic| topic.surplus(now)).collect();
        let mut is_complete = true;
        for letters in surplus {
            match self.store.remove_dead(&letters, now) {
                Ok(removed) => {
                    self.metrics.pruned.add(removed);
                    is_complete &= removed < letters.limit as u64;
                }
                Err(error) => {
                    log::warn!("dead letters of the topic {:?} were not removed: {error}", letters.topic);
                    self.failed_alone(error);
                    break;
                }
            }
        }
        self.maintain();
        self.inbox.tell(EngineMessage::Pruned { is_complete });
    }

    /// Stops the store after an error of an operation that leaves its state unknown.
    pub(super) fn failed_alone(&mut self, error: StoreError) {
        if !error.is_transient() && !matches!(error, StoreError::Effect(_)) {
            self.stop(error);
        }
    }
}
