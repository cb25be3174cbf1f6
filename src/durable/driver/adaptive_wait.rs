//! `AdaptiveWait`: how the store's thread waits for the next request.
//!
//! Waking a sleeping thread takes tens of microseconds, a good part of a commit. Programs that
//! start a timer whenever their last one is stored send the next request about that long after a
//! commit. So the thread stays awake for a moment and yields, if the last wait was short. If it was
//! long, the thread sleeps at once, so a pause of the program costs one such moment. RocksDB's
//! writers do the same (`enable_write_thread_adaptive_yield`).

use crossbeam_channel::{Receiver, TryRecvError};
use std::{
    thread,
    time::{Duration, Instant},
};

/// The longest wait that counts as short. About two wake-ups and the work of the program between
/// them.
const SHORT: Duration = Duration::from_micros(150);

pub(super) struct AdaptiveWait {
    short: Duration,
    was_short: bool,
}

impl Default for AdaptiveWait {
    fn default() -> Self {
        AdaptiveWait { short: SHORT, was_short: false }
    }
}

impl AdaptiveWait {
    /// Returns the next message, or `None` if all senders are gone.
    #[allow(clippy::disallowed_methods, reason = "a thread that waits measures real time")]
    pub(super) fn recv<T>(&mut self, messages: &Receiver<T>) -> Option<T> {
        let begun = Instant::now();
        let message = loop {
            match messages.try_recv() {
                Ok(message) => break Some(message),
                Err(TryRecvError::Disconnected) => break None,
                Err(TryRecvError::Empty) if self.was_short && begun.elapsed() < self.short => {
                    thread::yield_now();
                }
                Err(TryRecvError::Empty) => break messages.recv().ok(),
            }
        };
        self.was_short = begun.elapsed() < self.short;
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::unbounded;

    /// Receives messages that a program sends one after the other, each when the last one has
    /// arrived. Waits of up to `short` are short.
    fn play(short: Duration) {
        let (sender, messages) = unbounded();
        let (stored, next) = unbounded();
        let program = thread::spawn(move || {
            for message in 1..=1000 {
                sender.send(message).unwrap();
                next.recv().unwrap();
            }
        });
        let mut wait = AdaptiveWait { short, ..AdaptiveWait::default() };
        for message in 1..=1000 {
            assert_eq!(wait.recv(&messages), Some(message));
            assert_eq!(wait.was_short, !short.is_zero());
            stored.send(()).unwrap();
        }
        assert_eq!(wait.recv(&messages), None, "the program has ended");
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
