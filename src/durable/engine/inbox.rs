//! `EngineInbox`: messages that the engine has not handled yet.
//!
//! Invariants: if there are messages, a wake-up is on its way to the loop, or the loop is about to
//! take them. Any thread puts messages in; the loop takes them in their order. Stored timers take
//! at most `max_bytes`. Others are dropped, and a message behind them makes the engine load again.

use super::message::EngineMessage;
use crate::machine::Mutex;
use std::{
    collections::VecDeque,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// Wakes the loop to drain the inbox. Returns `false` if the engine is gone.
type Wake = Box<dyn Fn() -> bool + Send + Sync>;

pub(in crate::durable) struct EngineInbox {
    queue: Mutex<Queue>,
    max_bytes: usize,
    is_woken: AtomicBool,
    wake: OnceLock<Wake>,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<EngineMessage>,
    /// What the stored timers take.
    bytes: usize,
}

impl Queue {
    fn push(&mut self, message: EngineMessage, max_bytes: usize) {
        if let EngineMessage::Stored(row) = &message {
            let bytes = self.bytes.saturating_add(row.weight());
            if bytes > max_bytes {
                // One is enough for all timers that are dropped without a message in between.
                if !matches!(self.messages.back(), Some(EngineMessage::StartsDropped)) {
                    self.messages.push_back(EngineMessage::StartsDropped);
                }
                return;
            }
            self.bytes = bytes;
        }
        self.messages.push_back(message);
    }

    fn take(&mut self, limit: usize) -> Vec<EngineMessage> {
        let taken: Vec<_> = self.messages.drain(..limit.min(self.messages.len())).collect();
        for message in &taken {
            if let EngineMessage::Stored(row) = message {
                self.bytes -= row.weight();
            }
        }
        taken
    }
}

impl EngineInbox {
    pub(in crate::durable) fn new(max_bytes: usize) -> Self {
        EngineInbox {
            queue: Mutex::default(),
            max_bytes,
            is_woken: AtomicBool::new(false),
            wake: OnceLock::new(),
        }
    }

    /// Sets how the loop is woken. Called once, before the first message.
    pub(in crate::durable) fn connect(&self, wake: Wake) {
        let is_first = self.wake.set(wake).is_ok();
        debug_assert!(is_first, "an inbox belongs to one driver");
    }

    pub(in crate::durable) fn tell(&self, message: EngineMessage) {
        self.queue.lock().push(message, self.max_bytes);
        self.wake();
    }

    pub(in crate::durable) fn tell_all(&self, messages: Vec<EngineMessage>) {
        if !messages.is_empty() {
            let mut queue = self.queue.lock();
            messages.into_iter().for_each(|message| queue.push(message, self.max_bytes));
            drop(queue);
            self.wake();
        }
    }

    /// Wakes the loop, once for any number of messages. Refuses them if the engine is gone.
    fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::AcqRel)
            && let Some(wake) = self.wake.get()
            && !wake()
        {
            self.take(usize::MAX).into_iter().for_each(EngineMessage::refuse);
        }
    }

    /// Returns whether a wake-up is on its way.
    pub(in crate::durable) fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::Acquire)
    }

    /// Takes messages. Those that are left, and later ones, wake the loop again.
    pub(in crate::durable) fn take(&self, limit: usize) -> Vec<EngineMessage> {
        self.is_woken.store(false, Ordering::Release);
        let mut queue = self.queue.lock();
        let taken = queue.take(limit);
        let is_empty = queue.messages.is_empty();
        drop(queue);
        if !is_empty {
            self.wake();
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::{
        id::TimerId,
        store::{Begun, DueKey, TimerRow},
    };
    use std::sync::{Arc, atomic::AtomicU32};

    fn stored(id: i64) -> EngineMessage {
        EngineMessage::Stored(TimerRow {
            key: DueKey { due: 0, id: TimerId::new(id) },
            topic: 0,
            scheduled: 0,
            attempts: 0,
            begun: Begun::No,
            idempotency_key: None,
            schedule: None,
            payload: vec![0; 100],
            partition: 0,
            epoch: 0,
        })
    }

    fn text(messages: &[EngineMessage]) -> Vec<String> {
        let name = |message: &EngineMessage| match message {
            EngineMessage::Stored(row) => row.key.id.to_string(),
            EngineMessage::StartsDropped => "dropped".to_owned(),
            EngineMessage::LoadFailed => "other".to_owned(),
            _ => panic!("another message"),
        };
        messages.iter().map(name).collect()
    }

    #[test]
    fn stored_timers_beyond_the_limit_are_dropped_and_reported_in_their_place() {
        let EngineMessage::Stored(row) = stored(0) else { unreachable!() };
        let inbox = EngineInbox::new(2 * row.weight());
        (1..=4).for_each(|id| inbox.tell(stored(id)));
        inbox.tell(EngineMessage::LoadFailed);
        inbox.tell_all(vec![stored(5), stored(6)]);
        assert_eq!(text(&inbox.take(100)), ["1", "2", "dropped", "other", "dropped"]);
        inbox.tell(stored(7));
        assert_eq!(text(&inbox.take(100)), ["7"]);
    }

    #[test]
    fn messages_beyond_the_limit_of_a_turn_wake_the_loop_again() {
        let inbox = EngineInbox::new(usize::MAX);
        let woken = Arc::new(AtomicU32::new(0));
        let counter = woken.clone();
        inbox.connect(Box::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            true
        }));
        (1..=5).for_each(|id| inbox.tell(stored(id)));
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        assert_eq!(text(&inbox.take(2)), ["1", "2"]);
        assert_eq!((woken.load(Ordering::Relaxed), inbox.is_woken()), (2, true));
        assert_eq!(text(&inbox.take(3)), ["3", "4", "5"]);
        assert_eq!((woken.load(Ordering::Relaxed), inbox.is_woken()), (2, false));
    }
}
