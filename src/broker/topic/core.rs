//! `TopicCore`: a topic of a node.

use super::{
    event::{OnEvent, TopicEvent},
    format::TopicFormat,
    settings::TopicSettings,
    subscription::{Greeting, Subscription},
};
use crate::broker::{
    follower::{Follower, Item, Joined, JoinerId},
    node::{FollowedTopic, TopicNode},
    retry_delay::RetryDelay,
    store::{BrokerError, Notification, Position, Published, TopicChange, TopicName, TopicTop},
};
use crate::{
    channel::{Channel, group::ChannelGroup},
    error::{Error, Resource, Result, panic_message},
    id::ChannelId,
    sync::{Completer, Completion, Locked, completion},
};
use bytes::Bytes;
use std::{
    any::Any,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// How many intervals a topic without members is kept.
const RESTING_INTERVALS: u32 = 2;

pub(super) struct TopicCore<M> {
    pub(super) node: Arc<TopicNode>,
    pub(super) name: TopicName,
    pub(super) settings: TopicSettings,
    pub(super) group: ChannelGroup<M>,
    pub(super) state: Locked<TopicState<M>>,
    pub(super) format: Box<dyn TopicFormat<M>>,
    on_event: Option<OnEvent>,
    /// Cloned for each [`TopicWatch`](super::TopicWatch).
    pub(super) watched: Arc<()>,
}

pub(super) struct TopicState<M> {
    pub(super) follower: Follower<Payload<M>>,
    pub(super) joining: BTreeMap<JoinerId, Joining<M>>,
    /// The joiners that have not left.
    by_channel: BTreeMap<ChannelId, JoinerId>,
    next_joiner: JoinerId,
    /// Callers that wait for the first position.
    pub(super) ready: Vec<Completer>,
    /// Why the last read failed, if another one would fail in the same way.
    pub(super) unreadable: Option<Error>,
    /// Whether a thread carries out steps.
    pub(super) is_pumping: bool,
    /// Whether steps wait until the group accepts broadcasts again.
    pub(super) is_delayed: bool,
    /// When a read that has failed is repeated.
    pub(super) retry: RetryDelay,
    /// Whether the node follows the topic.
    is_active: bool,
    /// The number of threads that are about to add the topic to the node. Nothing is read before
    /// that, because the topic does not receive events yet.
    pub(super) activating: usize,
    /// Intervals without members.
    resting: u32,
    /// The position of the last message that this node has published.
    published: Option<Position>,
}

/// A message that was not understood is `None`, and keeps its position. The follower clones the
/// `Arc` under the lock, and the message is cloned without it.
pub(super) type Payload<M> = Option<Arc<M>>;

/// A channel that is about to become a member.
pub(super) struct Joining<M> {
    pub(super) channel: Channel<M>,
    pub(super) greeting: Option<Greeting<M>>,
    pub(super) completer: Option<Completer<Joined>>,
    pub(super) joined: Option<Joined>,
    /// Whether it has left before it became a member.
    pub(super) has_left: bool,
}

impl<M> TopicState<M> {
    /// Returns whether the topic has to be added to those of the node.
    pub(super) fn begin_activation(&mut self) -> bool {
        let is_new = !std::mem::replace(&mut self.is_active, true);
        self.activating += usize::from(is_new);
        is_new
    }

    /// Removes a channel that has become a member, or does not become one.
    pub(super) fn remove_joining(&mut self, joiner: JoinerId) -> Option<Joining<M>> {
        let joining = self.joining.remove(&joiner)?;
        let id = joining.channel.id();
        if self.by_channel.get(&id) == Some(&joiner) {
            self.by_channel.remove(&id);
        }
        Some(joining)
    }
}

impl<M: Clone + Send + Sync + 'static> TopicCore<M> {
    pub(super) fn new(
        node: Arc<TopicNode>,
        name: TopicName,
        format: Box<dyn TopicFormat<M>>,
        settings: TopicSettings,
        on_event: Option<OnEvent>,
    ) -> Arc<Self> {
        let state = TopicState {
            follower: Follower::new(settings.follower()),
            joining: BTreeMap::new(),
            by_channel: BTreeMap::new(),
            next_joiner: 0,
            ready: Vec::new(),
            unreadable: None,
            is_pumping: false,
            is_delayed: false,
            retry: RetryDelay::default(),
            is_active: false,
            activating: 0,
            resting: 0,
            published: None,
        };
        let state = Locked::new(state);
        let (group, watched) = (ChannelGroup::new(), Arc::default());
        Arc::new(TopicCore { node, name, settings, group, state, format, on_event, watched })
    }

    /// Changes the state. Messages that the follower does not need any more are dropped after the
    /// unlock, because their destructors may call the topic.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut TopicState<M>) -> R) -> R {
        self.state.change(|state| {
            let result = change(state);
            (result, state.follower.take_removed())
        })
    }

    // ---- members --------------------------------------------------------------------------------

    pub(super) fn subscribe(self: &Arc<Self>, subscription: Subscription<M>) -> Completion<Joined> {
        let (completer, completion) = completion(None);
        match self.begin_join(subscription, completer) {
            Ok(true) => self.activate(),
            Ok(false) => {}
            Err((completer, error)) => completer.complete(Err(error)),
        }
        self.pump();
        completion
    }

    /// Returns whether the topic was not followed before.
    pub(super) fn begin_join(
        &self,
        subscription: Subscription<M>,
        completer: Completer<Joined>,
    ) -> Result<bool, (Completer<Joined>, Error)> {
        let id = subscription.channel.id();
        let TopicSettings { max_members, max_joiners, .. } = self.settings;
        self.state.change(|state| {
            // The group is asked under the lock: a joiner that is not in `joining` any more is in
            // the group.
            let joiners = state.by_channel.len();
            let refused = if self.node.is_closed() {
                // Asked under the lock: a node that closes later finds this joiner.
                Some(BrokerError::Closed.into())
            } else if state.by_channel.contains_key(&id) || self.group.contains(id) {
                Some(Error::setting("channel", format_args!("{id:?}"), "a channel that is not a member"))
            } else if self.group.len().saturating_add(joiners) >= max_members {
                Some(Error::Full { resource: Resource::TopicMembers, limit: max_members })
            } else if state.joining.len() + state.ready.len() >= max_joiners {
                Some(Error::Full { resource: Resource::TopicJoiners, limit: max_joiners })
            } else {
                None
            };
            if let Some(error) = refused {
                return (Err((completer, error)), (Some(subscription), Vec::new()));
            }
            let joiner = state.next_joiner;
            state.next_joiner += 1;
            let start = subscription.start();
            let Subscription { channel, greeting, .. } = subscription;
            let joining =
                Joining { channel, greeting, completer: Some(completer), joined: None, has_left: false };
            state.joining.insert(joiner, joining);
            state.by_channel.insert(id, joiner);
            state.follower.join(joiner, start);
            let is_new = state.begin_activation();
            (Ok(is_new), (None, state.follower.take_removed()))
        })
    }

    /// Returns whether the channel was a member, or was about to become one.
    pub(super) fn leave(&self, id: ChannelId) -> bool {
        let completer = self.state.change(|state| {
            let Some(joiner) = state.by_channel.remove(&id) else { return (None, None) };
            let Some(joining) = state.joining.get_mut(&joiner) else { return (None, None) };
            let completer = joining.completer.take();
            joining.has_left = true;
            // A pump that admits it at this moment looks at `has_left` afterwards.
            let is_waiting = state.follower.leave(joiner);
            let joining = if is_waiting { state.joining.remove(&joiner) } else { None };
            (Some(completer), Some((joining, state.follower.take_removed())))
        });
        let was_joining = completer.is_some();
        if let Some(Some(completer)) = completer {
            completer.complete(Err(Error::Cancelled));
        }
        self.group.leave(id) || was_joining
    }

    /// Adds the topic to those of the node.
    pub(super) fn activate(self: &Arc<Self>) {
        self.node.activate(self.clone());
        self.state.change(|state| (state.activating -= 1, ()));
    }

    // ---- positions ------------------------------------------------------------------------------

    /// Returns the highest position that this node has seen.
    pub(super) fn highest(&self) -> Option<Position> {
        self.state.read(|state| {
            let (followed, published) = (state.follower.position(), state.published);
            match (followed, published) {
                (Some(followed), Some(published)) if published.epoch == followed.epoch => {
                    Some(Position::new(followed.epoch, followed.offset.max(published.offset)))
                }
                _ => followed.or(published),
            }
        })
    }

    pub(super) fn note_published(&self, published: Published) {
        if !published.is_duplicate {
            self.state.change(|state| {
                let position = published.position;
                let is_older = state
                    .published
                    .is_some_and(|last| last.epoch == position.epoch && last.offset > position.offset);
                if !is_older {
                    state.published = Some(position);
                }
                ((), ())
            });
        }
    }

    // ---- code of the program --------------------------------------------------------------------

    pub(super) fn encode(&self, message: &M) -> Result<Bytes> {
        guarded(|| self.format.encode(message))?
    }

    /// Decodes a message. Logs and counts one that is not understood.
    pub(super) fn decode(&self, payload: Bytes, position: Option<Position>) -> Option<M> {
        let decoded = guarded(|| self.format.decode(payload, position)).and_then(|decoded| decoded);
        let understood = decoded.inspect_err(|error| {
            self.node.metrics.undecodable.add_shared(1);
            log::warn!("a message of the topic {} is not understood: {error:#}", self.name);
        });
        understood.ok()
    }

    pub(super) fn missed_message(&self, missed: &crate::broker::follower::Missed) -> Option<M> {
        guarded(|| self.format.missed(missed)).ok().flatten()
    }

    pub(super) fn emit(&self, event: TopicEvent) {
        if let Some(on_event) = &self.on_event {
            let _ = guarded(|| on_event(event));
        }
    }
}

impl<M> Drop for TopicCore<M> {
    fn drop(&mut self) {
        self.node.forget(&self.name);
    }
}

impl<M: Clone + Send + Sync + 'static> FollowedTopic for TopicCore<M> {
    fn name(&self) -> &TopicName {
        &self.name
    }

    fn stored(self: Arc<Self>, change: TopicChange) {
        match change {
            TopicChange::Message(message) => {
                let size = message.payload.len();
                let payload = self.decode(message.payload, Some(message.position)).map(Arc::new);
                let item = Item { position: message.position, payload, size };
                self.change(|state| state.follower.message(item));
            }
            TopicChange::EpochBegan(position) => {
                self.change(|state| state.follower.epoch_began(position));
            }
            TopicChange::Entries(..) => return,
        }
        self.pump();
    }

    fn notified(self: Arc<Self>, notification: Notification) {
        if !self.group.is_empty() {
            self.deliver_unstored(notification.payload, notification.key);
        }
    }

    fn seen(&self) -> Option<Position> {
        self.state.read(|state| state.follower.position())
    }

    fn verified(self: Arc<Self>, seen: Option<Position>, top: TopicTop) {
        self.change(|state| state.follower.verified(seen, top));
        self.pump();
    }

    fn interrupted(self: Arc<Self>, error: &BrokerError) {
        self.emit(TopicEvent::Interrupted(error.clone()));
    }

    fn resumed(self: Arc<Self>) {
        self.emit(TopicEvent::Resumed);
        self.retry();
    }

    fn retry(self: Arc<Self>) {
        self.change(|state| state.follower.retry());
        self.pump();
    }

    fn forget_old_messages(&self) {
        self.state.change(|state| ((), state.follower.forget_old_messages()));
    }

    fn rest(&self) -> Option<Box<dyn Any + Send>> {
        self.state.change(|state| {
            let is_busy = state.is_pumping || state.is_delayed || state.activating > 0;
            // The group is asked under the lock: a joiner that is not in `joining` any more is in
            // the group.
            let is_needed = !self.group.is_empty() || Arc::strong_count(&self.watched) > 1;
            if is_busy || is_needed || !state.joining.is_empty() || !state.ready.is_empty() {
                state.resting = 0;
                return (None, ());
            }
            state.resting += 1;
            if state.resting < RESTING_INTERVALS {
                return (None, ());
            }
            (state.resting, state.is_active, state.unreadable) = (0, false, None);
            let contents: Box<dyn Any + Send> = Box::new(state.follower.reset());
            (Some(contents), ())
        })
    }

    fn close(self: Arc<Self>) {
        let (joining, ready) = self.change(|state| {
            // Includes members that have their messages already, because a delayed topic may never
            // admit them.
            let waiting: Vec<JoinerId> = state.joining.keys().copied().collect();
            let leave = |joiner| {
                state.follower.leave(joiner);
                state.remove_joining(joiner)
            };
            let joining: Vec<_> = waiting.into_iter().filter_map(leave).collect();
            (joining, std::mem::take(&mut state.ready))
        });
        complete_all(ready, &Err(BrokerError::Closed.into()));
        for joining in joining {
            if let Some(completer) = joining.completer {
                completer.complete(Err(BrokerError::Closed.into()));
            }
        }
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// Completes callers.
pub(super) fn complete_all(callers: Vec<Completer>, result: &Result) {
    callers.into_iter().for_each(|caller| caller.complete(result.clone()));
}

/// Calls code of the program, and turns a panic into an error.
pub(super) fn guarded<T>(call: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let message = panic_message(panic);
        log::error!("code of a topic's program panicked: {message}");
        Error::panicked(message)
    })
}

/// Calls a greeting.
pub(super) fn greet<M>(greeting: Option<Greeting<M>>, joined: &Joined) -> Option<M> {
    guarded(|| greeting.and_then(|greeting| greeting(joined))).ok().flatten()
}
