//! Typed commands from handles to a source.
//!
//! A source and its handles share a [`SourceInbox`], whose type names the commands of the source. A
//! message in the queue of the loop owns one command. The turn passes the source to the message,
//! which puts the command into the inbox and calls [`Source::mail`]. The source takes it out. So
//! the queue and the turn do not know the type of the command, and nothing is downcast.
//!
//! Invariants: an inbox holds a command only during the call of `mail`. A command is carried out,
//! refused, or handed back to its sender. Any thread submits. The loop's thread delivers.

use super::{
    mail::LoopMail,
    shared::LoopShared,
    source::{LoopContext, Source, SourceMail, Transition},
};
use crate::{
    error::{SendError, drop_guarded},
    id::Key,
    sync::Locked,
};
use std::sync::{Arc, OnceLock};

/// A command to a source.
pub(crate) trait SourceCommand: Send + Sized + 'static {
    /// Drops the command because the source has ended.
    fn refuse(self) {
        drop_guarded(self);
    }
}

/// The state by which handles send commands to a source.
pub(crate) struct SourceInbox<C> {
    /// Set when the loop has opened the source.
    key: OnceLock<Key>,
    arrived: Locked<Option<C>>,
}

impl<C> SourceInbox<C> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(SourceInbox { key: OnceLock::new(), arrived: Locked::new(None) })
    }
}

impl<C: SourceCommand> SourceInbox<C> {
    /// Notes the key of the source. Only the first call takes effect.
    pub(crate) fn opened(&self, key: Key) {
        let _ = self.key.set(key);
    }

    /// Returns the command for which the source is called.
    pub(crate) fn take(&self) -> Option<C> {
        self.arrived.change(|arrived| (arrived.take(), ()))
    }

    /// Puts a command into the queue of the source's loop.
    ///
    /// # Errors
    /// The command if the queue is full or closed.
    pub(crate) fn submit(self: &Arc<Self>, event_loop: &LoopShared, command: C) -> Result<(), SendError<C>> {
        let sent = event_loop.submit_with(0, self.envelope(command), |mail| LoopMail::Source(mail));
        sent.map_err(|refused| refused.map(|mail| mail.command))
    }

    /// Like [`SourceInbox::submit`], but ignores the limit of the queue.
    ///
    /// # Errors
    /// The command if the queue is closed.
    pub(crate) fn submit_always(
        self: &Arc<Self>,
        event_loop: &LoopShared,
        command: C,
    ) -> Result<(), SendError<C>> {
        let sent = event_loop.submit_always_with(self.envelope(command), |mail| LoopMail::Source(mail));
        sent.map_err(|refused| refused.map(|mail| mail.command))
    }

    fn envelope(self: &Arc<Self>, command: C) -> Box<Envelope<C>> {
        Box::new(Envelope { inbox: self.clone(), command })
    }
}

/// A command on its way to a source.
struct Envelope<C> {
    inbox: Arc<SourceInbox<C>>,
    command: C,
}

impl<C: SourceCommand> SourceMail for Envelope<C> {
    fn key(&self) -> Option<Key> {
        self.inbox.key.get().copied()
    }

    fn deliver(self: Box<Self>, source: &mut dyn Source, ctx: &mut LoopContext<'_>) -> Transition {
        let Envelope { inbox, command } = *self;
        inbox.arrived.change(|arrived| ((), arrived.replace(command)));
        let transition = source.mail(ctx);
        if let Some(command) = inbox.take() {
            command.refuse();
        }
        transition
    }

    fn refuse(self: Box<Self>) {
        self.command.refuse();
    }
}
