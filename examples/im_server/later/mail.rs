//! The map of kept messages: how messages are stored, delivered and ended.

use super::{
    End, Later, RECORD,
    kept::{Content, Kept, KeptId},
    mailbox::{self, Removed, Shares},
    reminders,
};
use crate::{
    hub::{self, Hub, lock},
    message_id::MessageId,
    nodes::{KeptEnd, Nodes},
    protocol::{Code, Reply},
    store::{self, may_be_stored},
};
use netwheel::{
    Channel, Completion, Result,
    broker::{
        MapCondition, MapEvent, MapTopic, Topics,
        store::{Changed, MapChange},
    },
    bytes::Bytes,
};
use std::sync::Arc;

/// The topic of the map.
const TOPIC: &str = "mail";
/// Maximum number of entries: direct messages, and reminders whose time has come.
const MAX_ENTRIES: usize = mailbox::MAX_OF_ALL + reminders::MAX_OF_ALL;
/// Maximum bytes of the entries. The limits of messages and reminders are reached before.
const MAX_BYTES: usize = 512 * 1024 * 1024;

impl Later {
    /// Opens the map, and reads the messages.
    pub(super) fn open_mail(self: &Arc<Self>, topics: &Topics) -> Result {
        let later = Arc::downgrade(self);
        let on_event = move |event: MapEvent<'_>| {
            if let Some(later) = later.upgrade() {
                later.mail_changed(event);
            }
        };
        let map = topics.map(TOPIC).max_entries(MAX_ENTRIES as u64).max_bytes(MAX_BYTES);
        let map = map.on_event(on_event).open()?;
        let ready = map.ready();
        // This is the only call.
        let _ = self.mail.set(map);
        store::wait(ready)?;
        log::info!("{} messages were kept", self.mail().len());
        Ok(())
    }

    fn mail(&self) -> &MapTopic {
        // Set when `start_on` returns. Callbacks for events do not use it.
        self.mail.wait()
    }

    /// Follows the map. Called on any thread.
    fn mail_changed(&self, event: MapEvent<'_>) {
        let MapEvent::Changed { key, before, now, .. } = event else { return };
        let Some(entry) = now.or(before) else { return };
        let Some(kept) = Kept::parse(entry).ok().filter(|kept| kept.key().as_bytes() == key) else {
            return log::warn!("the kept message {key:?} is not understood");
        };
        if now.is_none() {
            if let Some(end) = self.mailbox.gone(&kept) {
                self.report(&kept, end);
            }
            return;
        }
        let to = kept.to.clone();
        if let Content::Reminder { .. } = kept.content {
            self.reminders.became_kept(&to, kept.id);
        }
        let count = |kept: &Kept| match &kept.content {
            Content::Direct { from, .. } => {
                let bytes = size(&entry.key, Some(&entry.value));
                self.mailbox.count(from, &kept.to, bytes)
            }
            Content::Reminder { .. } => Shares::Reminder { _share: self.reminders.count(&kept.to) },
        };
        if self.mailbox.arrived(kept, entry.position, count) {
            self.notify(&to);
        }
    }

    /// Sends messages to their receiver, if that is connected to this server.
    fn notify(&self, to: &str) {
        if let Some(session) = self.hub.upgrade().and_then(|hub| hub.find(to)) {
            // A session that is about to end leaves the messages for the next login.
            let _ = session.execute(|session, ctx| session.deliver_kept(ctx));
        }
    }

    /// Returns a message whose connection has closed. If the receiver has another connection to
    /// this server, the message is sent there.
    pub(super) fn return_kept(&self, kept: &Kept) {
        if self.mailbox.put_back(kept) {
            self.notify(&kept.to);
        }
    }

    /// Adds a message to the map, unless it is there.
    pub(super) fn store(&self, kept: &Kept) -> Completion<Changed> {
        self.mail().update(vec![kept.addition()])
    }

    /// Keeps a direct message. The sender is notified when it is stored.
    ///
    /// # Errors
    /// Returns a human-readable reason if a limit is reached.
    pub(crate) fn keep(
        self: &Arc<Self>,
        from: &Arc<str>,
        sender: Channel<Reply>,
        to: String,
        text: String,
        id: Option<MessageId>,
    ) -> Result<(), String> {
        let own_id = id.as_ref().map(|id| id.as_json().to_owned());
        let content = Content::Direct { from: from.to_string(), text, ts: self.unix_ms(), id: own_id };
        let number = KeptId { number: self.number(), server: self.server };
        let kept = Kept { id: number, to: to.clone(), expires: self.expires(), content };
        let addition = kept.addition();
        let shares = self.mailbox.reserve(from, &to, size(&addition.key, addition.value.as_ref()))?;
        let kept = self.mailbox.add(kept, shares);
        let (later, from, expires) = (self.clone(), from.clone(), kept.expires);
        self.mail().update(vec![addition]).on_complete(move |stored| {
            let stored = stored.map(|changed| is_made(&changed));
            let is_stored = matches!(stored, Ok(true));
            let error = |code, why: String| {
                let message = format!("{to} is not connected, and the message was {why}");
                Reply::Error { code, message, room: None, to: Some(to.clone()), id: id.clone() }
            };
            let reply = match stored {
                Ok(true) => Reply::Kept { to: to.clone(), expires, id: id.clone() },
                Ok(false) => error(Code::Undelivered, "not kept: there are too many".to_owned()),
                Err(reason) => {
                    let perhaps = if may_be_stored(&reason) { "perhaps " } else { "" };
                    error(Code::Busy, format!("{perhaps}not kept, try again later: {reason:#}"))
                }
            };
            hub::send(&from, &sender, reply);
            // Not before, so that the outcome is behind this reply.
            let answered = later.mailbox.answered(&kept, is_stored);
            if answered.is_ready {
                later.notify(&to);
            }
            if let (Some(end), Some(hub)) = (answered.outcome, later.hub.upgrade()) {
                Nodes::kept_ended(&hub, &end);
            }
        });
        Ok(())
    }

    /// Keeps an outcome until the sender knows that the message is stored. Returns `false` if the
    /// sender knows it already.
    pub(crate) fn hold_outcome(&self, end: &KeptEnd) -> bool {
        self.mailbox.hold_outcome(end)
    }

    /// Ends a message: removes it from the map. The server that has removed it reports the outcome.
    pub(super) fn end(self: &Arc<Self>, to: &str, id: KeptId, end: End) {
        let Some(removal) = self.mailbox.begin_end(to, id, end) else { return };
        let mut change = MapChange::remove(removal.kept.key());
        change.condition = Some(MapCondition::Unchanged(removal.position));
        let later = self.clone();
        self.mail().update(vec![change]).on_complete(move |changed| {
            let removed = match &changed {
                Ok(changed) if is_made(changed) => Removed::Yes,
                Ok(_) => Removed::No,
                Err(error) if may_be_stored(error) => Removed::Uncertain,
                Err(_) => Removed::Failed,
            };
            if let Some(end) = later.mailbox.end_answered(&removal, removed) {
                later.report(&removal.kept, end);
            }
        });
    }

    /// Reports the outcome of a direct message to its sender, if a user with that name is connected
    /// to any server.
    fn report(&self, kept: &Kept, end: End) {
        let is_delivered = match end {
            End::Delivered => true,
            End::Expired => false,
            End::Again => return,
        };
        let (Some(hub), Some((from, id))) = (self.hub.upgrade(), kept.sender()) else { return };
        let (from, id) = (from.to_owned(), id.map(str::to_owned));
        let end = KeptEnd { kept: kept.id, from, to: kept.to.clone(), id, is_delivered };
        Nodes::report(&hub, end);
    }

    /// Ends messages that have expired, and tries removals again. Called periodically.
    pub(crate) fn tick(self: &Arc<Self>, hub: &Hub) {
        let expired = self.mailbox.expired(self.unix_ms());
        // The end of a message whose removal has failed stays the same.
        for (to, id) in expired.into_iter().chain(self.mailbox.retries(hub.now())) {
            self.end(&to, id, End::Expired);
        }
        // Without a lease, messages wait for the next one, which has another id.
        let lease = hub.nodes.topics().authority();
        if lease.is_some() && lease != std::mem::replace(&mut *lock(&self.lease), lease.clone()) {
            self.mailbox.receivers().iter().for_each(|to| self.notify(to));
        }
    }
}

/// Returns the bytes of an entry, as they are counted.
fn size(key: &Bytes, value: Option<&Bytes>) -> usize {
    RECORD + key.len() + value.map_or(0, Bytes::len)
}

pub(super) fn is_made(changed: &Changed) -> bool {
    changed.made.first().is_some_and(|made| *made)
}
