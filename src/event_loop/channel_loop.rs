//! The loop of a channel, for programs that keep related work on one loop.
//!
//! The channel layer is below this one and knows its loop as a `MailSender` only.
//!
//! Invariant: a channel never changes its loop, so the handle stays valid as long as the loop.

use super::EventLoop;
use crate::{
    channel::{Channel, MailSender},
    pipeline::{Context, Handler},
};
use std::{any::Any, sync::Arc};

impl<H: Handler> Context<'_, H> {
    /// Returns the loop of this channel, or `None` in a test on an
    /// [`EmbeddedChannel`](crate::testing::EmbeddedChannel), which has no loop.
    ///
    /// State that is shared only by channels of one loop needs no lock: see
    /// [`ClientBootstrap::connect_on`](crate::ClientBootstrap::connect_on).
    #[doc(alias = "eventLoop")]
    #[doc(alias = "executor")]
    pub fn event_loop(&self) -> Option<EventLoop> {
        event_loop(self.mail_sender())
    }
}

impl<M> Channel<M> {
    /// Returns the loop of the channel, or `None` in a test on an
    /// [`EmbeddedChannel`](crate::testing::EmbeddedChannel), which has no loop.
    #[doc(alias = "eventLoop")]
    pub fn event_loop(&self) -> Option<EventLoop> {
        event_loop(self.mail_sender())
    }
}

fn event_loop(sender: &Arc<dyn MailSender>) -> Option<EventLoop> {
    let sender: Arc<dyn Any + Send + Sync> = sender.clone();
    Some(EventLoop { shared: sender.downcast().ok()? })
}
