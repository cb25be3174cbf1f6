//! `Inbox`: messages that the engine has not handled yet.
//!
//! Invariant: if there are messages, a wake-up is on its way to the loop, or the loop is about to
//! take them. Any thread puts messages in; the loop takes them, all at once.

use super::Message;
use std::sync::{
    Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// Makes the loop take the messages.
type Wake = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(in crate::durable) struct Inbox {
    messages: Mutex<Vec<Message>>,
    is_woken: AtomicBool,
    wake: OnceLock<Wake>,
}

impl Inbox {
    /// Sets how the loop is woken. Called once, before the first message.
    pub(in crate::durable) fn connect(&self, wake: Wake) {
        let is_first = self.wake.set(wake).is_ok();
        debug_assert!(is_first, "an inbox belongs to one driver");
    }

    pub(in crate::durable) fn tell(&self, message: Message) {
        self.lock().push(message);
        self.wake();
    }

    pub(in crate::durable) fn tell_all(&self, messages: Vec<Message>) {
        if !messages.is_empty() {
            self.lock().extend(messages);
            self.wake();
        }
    }

    /// Wakes the loop, once for any number of messages.
    pub(in crate::durable) fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::AcqRel)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }

    /// Takes all messages. Later ones wake the loop again.
    pub(in crate::durable) fn take(&self) -> Vec<Message> {
        self.is_woken.store(false, Ordering::Release);
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Message>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
