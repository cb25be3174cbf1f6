//! Carries out the steps of a topic's follower, one after the other.
//!
//! Invariant: one thread at a time carries out steps, in order. A broadcast that the group does not
//! accept stops the pump for a moment, so that members miss nothing.

use super::{
    core::{Payload, TopicCore, TopicState, complete_all, greet, guarded},
    event::TopicEvent,
};
use crate::broker::{
    follower::{FollowerStep, Item, Joined, JoinerId, Missed, MissedCause, ReadAnswer},
    node::FollowedTopic as _,
    store::{History, Position, ReadRange, StoredMessage},
};
use crate::{
    channel::{Broadcast, Channel},
    error::{Error, Result, SendError},
    id::ChannelId,
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// How long the pump waits for the group.
const DELAY: Duration = Duration::from_millis(10);

impl<M> TopicState<M>
where
    M: Clone,
{
    fn next_step(&mut self, is_first: bool) -> Option<FollowerStep<Payload<M>>> {
        if is_first && self.is_pumping {
            return None;
        }
        let waits = self.is_delayed || self.activating > 0;
        let step = if waits { None } else { self.follower.next_step() };
        self.is_pumping = step.is_some();
        step
    }

    /// Returns how long to wait before reading again after an answer, if that is needed and no
    /// timer runs.
    fn next_retry(&mut self) -> Option<Duration> {
        // An answer without any of the missing messages counts as a failure.
        let needs_retry = self.follower.needs_retry();
        self.retry.answered(needs_retry);
        self.retry.schedule(needs_retry)
    }
}

impl<M: Clone + Send + Sync + 'static> TopicCore<M> {
    /// Carries out all steps, unless another thread does so.
    pub(super) fn pump(self: &Arc<Self>) {
        let mut is_first = true;
        while let Some(step) = self.change(|state| state.next_step(is_first)) {
            is_first = false;
            match guarded(|| self.carry_out(step)) {
                Ok(Some(step)) => self.delay(step),
                Ok(None) => {}
                // A message that cannot be cloned or encoded is like one that is not understood.
                Err(_) => self.node.metrics.undecodable.add_shared(1),
            }
        }
    }

    /// Returns a step that cannot be carried out at the moment.
    fn carry_out(self: &Arc<Self>, step: FollowerStep<Payload<M>>) -> Option<FollowerStep<Payload<M>>> {
        match step {
            FollowerStep::Broadcast(Item { position, payload, size }) => {
                let refused = self.deliver_stored(payload?, position)?;
                return Some(FollowerStep::Broadcast(Item { position, payload: Some(refused), size }));
            }
            FollowerStep::Missed(missed) => {
                if let Some(message) = self.missed_message(&missed)
                    && self.deliver(message).is_some()
                {
                    return Some(FollowerStep::Missed(missed));
                }
                self.note_missed(missed);
            }
            FollowerStep::EpochChanged(position) => self.emit(TopicEvent::EpochChanged(position)),
            FollowerStep::Greet(joiner, joined) => self.greet(joiner, joined),
            FollowerStep::Write(joiner, item) => {
                if let Some(message) = item.payload {
                    self.write(joiner, Arc::unwrap_or_clone(message));
                }
            }
            FollowerStep::WriteMissed(joiner, missed) => {
                if let Some(message) = self.missed_message(&missed) {
                    self.write(joiner, message);
                }
            }
            FollowerStep::Admit(joiner) => self.admit(joiner),
            FollowerStep::Fail(joiner, error) => self.fail(joiner, error),
            FollowerStep::Read(read, range) => self.read(read, range),
        }
        None
    }

    fn delay(self: &Arc<Self>, step: FollowerStep<Payload<M>>) {
        self.node.metrics.delayed.add_shared(1);
        self.state.change(|state| {
            state.follower.put_back(step);
            state.is_delayed = true;
            ((), ())
        });
        let topic = Arc::downgrade(self);
        let again = move || {
            if let Some(topic) = topic.upgrade() {
                topic.state.change(|state| (state.is_delayed = false, ()));
                topic.pump();
            }
        };
        // If the loop has ended, the members' loops have ended too or will soon.
        if self.node.event_loop.schedule_always(DELAY, again).is_err() {
            log::debug!("the topic {} ends with its event loop", self.name);
        }
    }

    // ---- members --------------------------------------------------------------------------------

    /// Writes a stored message to all members. Returns it if it has to wait.
    fn deliver_stored(&self, message: Arc<M>, position: Position) -> Option<Arc<M>> {
        let message = Arc::unwrap_or_clone(message);
        let sent = guarded(|| self.format.deliver(message, position, &self.group)).ok()?;
        self.sent(sent, |broadcast| drop(guarded(|| self.format.delivered(broadcast))))
    }

    /// Writes a message to all members. Returns it if it has to wait.
    fn deliver(&self, message: M) -> Option<Arc<M>> {
        self.sent(self.group.broadcast(message), drop)
    }

    fn sent(&self, sent: Result<Broadcast, SendError<M>>, then: impl FnOnce(Broadcast)) -> Option<Arc<M>> {
        match sent {
            Ok(broadcast) => {
                self.node.metrics.delivered.add_shared(u64::from(broadcast.members() > 0));
                self.close_unreached(&broadcast);
                then(broadcast);
                None
            }
            // The loops are shutting down, and with them the members.
            Err(refused) if matches!(refused.error(), Error::ShutDown) => None,
            Err(refused) => Some(Arc::new(refused.into_inner())),
        }
    }

    /// Closes members whose loop did not accept a message, because they have missed it.
    fn close_unreached(&self, broadcast: &Broadcast) {
        for event_loop in broadcast.unreached_loops() {
            let members = self.group.channels();
            for member in members.iter().filter(|member| member.id().event_loop == *event_loop) {
                self.node.metrics.unreached.add_shared(1);
                self.group.leave(member.id());
                member.close();
            }
        }
    }

    /// Writes a message that is not stored to all members.
    pub(super) fn deliver_unstored(&self, payload: Bytes, key: Option<u64>) {
        let Some(message) = self.decode(payload, None) else { return };
        let sent = match key {
            Some(key) => self.group.broadcast_latest(key, message),
            None => self.group.broadcast(message),
        };
        self.node.metrics.notified.add_shared(u64::from(sent.is_ok()));
    }

    fn note_missed(&self, missed: Missed) {
        log::warn!("the topic {}: {missed}", self.name);
        let metrics = &self.node.metrics;
        match missed.cause {
            MissedCause::Rewound => metrics.rewound.add_shared(1),
            MissedCause::Trimmed => metrics.trimmed.add_shared(1),
        }
        self.emit(TopicEvent::Missed(missed));
    }

    // ---- joiners --------------------------------------------------------------------------------

    fn greet(&self, joiner: JoinerId, joined: Joined) {
        let greeting = self.state.change(|state| {
            let joining = state.joining.get_mut(&joiner).filter(|joining| !joining.has_left);
            let greeting = joining.and_then(|joining| {
                joining.joined = Some(joined);
                joining.greeting.take()
            });
            (greeting, ())
        });
        self.node.metrics.not_recovered.add_shared(u64::from(!joined.recovered));
        if let Some(message) = greet(greeting, &joined) {
            self.write(joiner, message);
        }
    }

    /// Returns the channel of a joiner that has not left.
    fn channel(&self, joiner: JoinerId) -> Option<Channel<M>> {
        self.state.read(|state| {
            let joining = state.joining.get(&joiner).filter(|joining| !joining.has_left);
            joining.map(|joining| joining.channel.clone())
        })
    }

    fn write(&self, joiner: JoinerId, message: M) {
        if let Some(channel) = self.channel(joiner)
            && let Err(refused) = channel.write(message)
        {
            self.change(|state| state.follower.leave(joiner));
            self.fail(joiner, SendError::into_parts(refused).1);
        }
    }

    fn admit(&self, joiner: JoinerId) {
        let channel = self.channel(joiner);
        let id: Option<ChannelId> = channel.as_ref().map(Channel::id);
        let has_joined = channel.is_some_and(|channel| self.group.join(channel));
        let joining = self.state.change(|state| (state.remove_joining(joiner), ()));
        // The topic may have been closed, which has failed the subscription.
        if joining.as_ref().is_none_or(|joining| joining.has_left) {
            id.map(|id| self.group.leave(id));
        }
        let Some(joining) = joining else { return };
        let Some(completer) = joining.completer else { return };
        completer.complete(match joining.joined {
            Some(joined) if has_joined => {
                self.node.metrics.joined.add_shared(1);
                Ok(joined)
            }
            _ => Err(Error::Closed),
        });
    }

    fn fail(&self, joiner: JoinerId, error: Error) {
        let joining = self.state.change(|state| (state.remove_joining(joiner), ()));
        if let Some(completer) = joining.and_then(|joining| joining.completer) {
            completer.complete(Err(error));
        }
    }

    // ---- reads ----------------------------------------------------------------------------------

    fn read(self: &Arc<Self>, read: u64, range: ReadRange) {
        self.node.metrics.reads.add_shared(1);
        let topic = Arc::downgrade(self);
        match guarded(|| self.node.broker.read(&self.name, range)) {
            Ok(history) => history.on_complete(move |history| {
                if let Some(topic) = topic.upgrade() {
                    topic.answered(read, history);
                }
            }),
            Err(error) => self.answered(read, Err(error)),
        }
    }

    pub(super) fn answered(self: &Arc<Self>, read: u64, history: Result<History>) {
        self.node.metrics.read_failures.add_shared(u64::from(history.is_err()));
        let answer = history.map(|History { epochs, top, oldest, messages }| {
            let item = |message: StoredMessage| {
                let (position, size) = (message.position, message.payload.len());
                Item { position, payload: self.decode(message.payload, Some(position)).map(Arc::new), size }
            };
            ReadAnswer { epochs, top, oldest, items: messages.into_iter().map(item).collect() }
        });
        let result = answer.as_ref().map(|_| ()).map_err(Error::clone);
        let (retry, ready) = self.change(|state| {
            let is_late = !state.follower.is_reading(read);
            state.follower.answered(read, answer);
            if is_late {
                return (None, Vec::new());
            }
            (state.next_retry(), state.take_ready(&result))
        });
        complete_all(ready, &result);
        if let Some(after) = retry.filter(|_| !self.node.is_closed()) {
            self.schedule_retry(after);
        }
        self.pump();
    }

    /// Reads again after some time. A new member or the verification may be earlier.
    fn schedule_retry(self: &Arc<Self>, after: Duration) {
        let topic = Arc::downgrade(self);
        let again = move || {
            if let Some(topic) = topic.upgrade() {
                topic.state.change(|state| (state.retry.elapsed(), ()));
                topic.retry();
            }
        };
        if self.node.event_loop.schedule_always(after, again).is_err() {
            log::debug!("the topic {} ends with its event loop", self.name);
        }
    }
}
