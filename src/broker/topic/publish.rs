//! How messages leave a node.

use super::{
    core::TopicCore,
    new_message::{NewMessage, Receipt},
    settings::WhenUnreachable,
};
use crate::broker::store::{BrokerError, Notification, Publication, Published};
use crate::{
    error::{Error, Resource, Result},
    sync::{Completion, completion},
};
use bytes::Bytes;
use std::sync::Arc;

impl<M: Clone + Send + Sync + 'static> TopicCore<M> {
    pub(super) fn publish(self: &Arc<Self>, new: NewMessage<M>) -> Completion<Receipt> {
        let publication = self.publication(new).and_then(|publication| {
            let pending = &self.node.pending;
            let limit = pending.limit();
            let full = Error::Full { resource: Resource::Publications, limit };
            if pending.take() { Ok(publication) } else { Err(full) }
        });
        let publication = match publication {
            Ok(publication) => publication,
            Err(error) => return Completion::ready(Err(error)),
        };
        let (completer, completion) = completion(None);
        let (topic, payload) = (self.clone(), publication.payload.clone());
        self.node.broker.publish(publication).on_complete(move |result| {
            topic.node.pending.give_back();
            completer.complete(topic.published(payload, result));
        });
        completion
    }

    fn publication(&self, new: NewMessage<M>) -> Result<Publication> {
        let payload = self.payload(&new.message)?;
        let mut publication = Publication::new(self.name.clone(), payload);
        publication.seen = self.highest();
        publication.id = new.id;
        publication.window = self.settings.id_window;
        publication.limits = self.settings.history;
        Ok(publication)
    }

    fn payload(&self, message: &M) -> Result<Bytes> {
        if self.node.is_closed() {
            return Err(BrokerError::Closed.into());
        }
        let payload = self.encode(message)?;
        if payload.len() > self.node.settings.max_payload {
            let length = payload.len();
            let value = format!("a message of {length} bytes");
            return Err(Error::setting("payload", value, "at most `max_payload` bytes"));
        }
        Ok(payload)
    }

    fn published(&self, payload: Bytes, result: Result<Published>) -> Result<Receipt> {
        let metrics = &self.node.metrics;
        let error = match result {
            Ok(published) => {
                let counter = if published.is_duplicate { &metrics.duplicates } else { &metrics.published };
                counter.add_shared(1);
                self.note_published(published);
                return Ok(Receipt::stored(published));
            }
            Err(error) => error,
        };
        metrics.publish_failures.add_shared(1);
        let is_unreachable = matches!(BrokerError::of(&error), Some(BrokerError::Unreachable(_)));
        if is_unreachable && self.settings.when_unreachable == WhenUnreachable::Local {
            metrics.published_locally.add_shared(1);
            self.deliver_unstored(payload, None);
            return Ok(Receipt::local());
        }
        Err(error)
    }

    pub(super) fn notify(&self, message: &M, key: Option<u64>) -> Result {
        let mut notification = Notification::new(self.name.clone(), self.payload(message)?);
        notification.key = key;
        self.node.broker.notify(notification)
    }
}
