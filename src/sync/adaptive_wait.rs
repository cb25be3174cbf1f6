//! `AdaptiveWait`: how the thread of a store waits for the next request.
//!
//! Waking a sleeping thread takes tens of microseconds, a good part of a commit. Programs that wait
//! for one commit before they send the next request send it about that long after a commit. So the
//! thread stays awake for a moment and yields, if the last wait was short. If it was long, the
//! thread sleeps at once, so a pause of the program costs one such moment. RocksDB's writers do the
//! same (`enable_write_thread_adaptive_yield`).

use super::channel::{ReceiveError, Receiver};
use crate::machine;
use std::{
    thread,
    time::{Duration, Instant},
};

/// The longest wait that counts as short. About two wake-ups and the work of the program between
/// them.
const SHORT: Duration = Duration::from_micros(150);

pub(crate) struct AdaptiveWait {
    short: Duration,
    was_short: bool,
}

impl Default for AdaptiveWait {
    fn default() -> Self {
        AdaptiveWait { short: SHORT, was_short: false }
    }
}

impl AdaptiveWait {
    /// Returns whether the last message came so soon that the next one is awaited awake.
    #[cfg(any(test, feature = "durable"))]
    pub(crate) fn was_short(&self) -> bool {
        self.was_short
    }

    /// Returns the next message. Waits until the deadline if there is one. Calls `sleeps` before
    /// the thread sleeps.
    pub(crate) fn recv<T>(
        &mut self,
        messages: &Receiver<T>,
        deadline: Option<Instant>,
        sleeps: impl FnOnce(),
    ) -> Result<T, ReceiveError> {
        let begun = machine::now();
        let message = loop {
            match messages.try_receive() {
                Ok(message) => break Ok(message),
                Err(ReceiveError::Disconnected) => break Err(ReceiveError::Disconnected),
                Err(ReceiveError::Empty) if self.was_short && self.is_short(begun) => thread::yield_now(),
                Err(ReceiveError::Empty) => {
                    sleeps();
                    break messages.receive(deadline);
                }
            }
        };
        self.was_short = machine::may_spin() && self.is_short(begun);
        message
    }

    fn is_short(&self, begun: Instant) -> bool {
        machine::now().saturating_duration_since(begun) < self.short
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::channel::channel;

    /// Receives messages that a program sends one after the other, each when the last one has
    /// arrived. Waits of up to `short` are short.
    fn play(short: Duration) {
        let (sender, messages) = channel();
        let (stored, next) = channel();
        let program = thread::spawn(move || {
            for message in 1..=1000 {
                sender.send(message).unwrap();
                next.receive(None).unwrap();
            }
        });
        let mut wait = AdaptiveWait { short, ..AdaptiveWait::default() };
        for message in 1..=1000 {
            let was_short = wait.was_short();
            assert_eq!(wait.recv(&messages, None, || assert!(!was_short, "it stays awake")), Ok(message));
            assert_eq!(wait.was_short(), !short.is_zero());
            stored.send(()).unwrap();
        }
        assert_eq!(
            wait.recv(&messages, None, || {}),
            Err(ReceiveError::Disconnected),
            "the program has ended"
        );
        program.join().unwrap();
    }

    #[test]
    fn messages_and_the_end_arrive_at_an_awake_thread() {
        play(Duration::MAX);
    }

    #[test]
    fn messages_and_the_end_arrive_at_a_sleeping_thread() {
        play(Duration::ZERO);
    }
}
