//! An unbounded channel with one sender and one receiver, for threads off the hot path.
//!
//! Invariants: values are received in the order in which they were sent. After the receiver was
//! dropped, a send returns its value. The receiver learns that the sender is gone after it has
//! received everything. A sleeping receiver is notified once for each sleep, and an awake one not
//! at all.
//!
//! Its waits are those of [`Condvar`], so a simulated machine can schedule them. Whoever sends
//! bounds the number of values, for example with permits.

use super::primitives::{Condvar, Mutex, MutexGuard};
use crate::machine;
use std::{collections::VecDeque, sync::Arc, time::Instant};

/// The space for values that an empty channel keeps. After a burst, it gives the rest back.
const KEPT_SPACE: usize = 1024;

/// Creates a channel.
pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = State { values: VecDeque::new(), has_sender: true, is_asleep: false, has_receiver: true };
    let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
    (Sender(shared.clone()), Receiver(shared))
}

/// Why nothing was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveError {
    /// Nothing has arrived in time.
    Empty,
    /// The sender is gone.
    Disconnected,
}

pub(crate) struct Sender<T>(Arc<Shared<T>>);

pub(crate) struct Receiver<T>(Arc<Shared<T>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    values: VecDeque<T>,
    has_sender: bool,
    is_asleep: bool,
    has_receiver: bool,
}

impl<T> State<T> {
    fn pop(&mut self) -> Option<T> {
        let value = self.values.pop_front()?;
        if self.values.is_empty() && self.values.capacity() > KEPT_SPACE {
            self.values = VecDeque::new();
        }
        Some(value)
    }
}

impl<T> Shared<T> {
    /// Unlocks, and wakes the receiver if it sleeps.
    fn notify(&self, mut state: MutexGuard<'_, State<T>>) {
        let was_asleep = std::mem::take(&mut state.is_asleep);
        drop(state);
        if was_asleep {
            self.changed.notify_all();
        }
    }
}

impl<T> Sender<T> {
    /// Sends a value. Returns the value if the receiver was dropped.
    pub(crate) fn send(&self, value: T) -> Result<(), T> {
        let mut state = self.0.state.lock();
        if !state.has_receiver {
            return Err(value);
        }
        state.values.push_back(value);
        self.0.notify(state);
        Ok(())
    }
}

#[cfg_attr(not(feature = "durable"), allow(dead_code, reason = "the others need less"))]
impl<T> Receiver<T> {
    /// Returns the next value if it has arrived.
    pub(crate) fn try_receive(&self) -> Result<T, ReceiveError> {
        let mut state = self.0.state.lock();
        match state.pop() {
            Some(value) => Ok(value),
            None if !state.has_sender => Err(ReceiveError::Disconnected),
            None => Err(ReceiveError::Empty),
        }
    }

    /// Waits for the next value, until `deadline` if there is one.
    pub(crate) fn receive(&self, deadline: Option<Instant>) -> Result<T, ReceiveError> {
        let mut state = self.0.state.lock();
        let mut is_over = false;
        loop {
            if let Some(value) = state.pop() {
                return Ok(value);
            }
            if !state.has_sender {
                return Err(ReceiveError::Disconnected);
            }
            let left = deadline.map(|at| at.saturating_duration_since(machine::now()));
            // A simulation may also end a wait without a deadline.
            if is_over || left.is_some_and(|left| left.is_zero()) {
                return Err(ReceiveError::Empty);
            }
            state.is_asleep = true;
            (state, is_over) = self.0.changed.wait(&self.0.state, state, left);
            state.is_asleep = false;
        }
    }

    /// Takes all values that have arrived.
    pub(crate) fn drain(&self) -> VecDeque<T> {
        std::mem::take(&mut self.0.state.lock().values)
    }

    /// Takes all values that have arrived. Later sends return their values.
    pub(crate) fn close(self) -> VecDeque<T> {
        let mut state = self.0.state.lock();
        state.has_receiver = false;
        std::mem::take(&mut state.values)
    }

    /// Returns the number of values that have arrived.
    pub(crate) fn len(&self) -> usize {
        self.0.state.lock().values.len()
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.has_sender = false;
        self.0.notify(state);
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.has_receiver = false;
        let refused = std::mem::take(&mut state.values);
        drop(state);
        // Their destructors may send.
        drop(refused);
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use std::{thread, time::Duration};

    #[test]
    fn values_arrive_in_order_and_then_the_end() {
        let (sender, receiver) = channel();
        let sending = thread::spawn(move || (0..1000).for_each(|n| sender.send(n).unwrap()));
        (0..1000).for_each(|n| assert_eq!(receiver.receive(None), Ok(n)));
        assert_eq!(receiver.receive(None), Err(ReceiveError::Disconnected));
        assert_eq!(receiver.try_receive(), Err(ReceiveError::Disconnected));
        sending.join().unwrap();
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let (sender, receiver) = channel();
        let deadline = machine::now() + Duration::from_millis(5);
        assert_eq!(receiver.receive(Some(deadline)), Err(ReceiveError::Empty));
        assert!(machine::now() >= deadline);
        sender.send(1).unwrap();
        sender.send(2).unwrap();
        assert_eq!((receiver.len(), receiver.receive(Some(deadline))), (2, Ok(1)));
        assert_eq!(receiver.drain(), [2]);
        assert_eq!(receiver.try_receive(), Err(ReceiveError::Empty));
    }

    #[test]
    fn the_space_of_a_burst_is_given_back_when_all_has_arrived() {
        let (sender, receiver) = channel();
        let space = || receiver.0.state.lock().values.capacity();
        (0..5000).for_each(|n| sender.send(n).unwrap());
        (0..4999).for_each(|n| assert_eq!(receiver.receive(None), Ok(n)));
        assert!(space() >= 5000);
        assert_eq!(receiver.try_receive(), Ok(4999));
        assert!(space() <= KEPT_SPACE);
        sender.send(5000).unwrap();
        assert_eq!((receiver.try_receive(), receiver.len()), (Ok(5000), 0));
    }

    #[test]
    fn a_send_without_a_receiver_returns_its_value() {
        for closes in [false, true] {
            let (sender, receiver) = channel();
            sender.send(1).unwrap();
            if closes {
                assert_eq!(receiver.close(), [1]);
            } else {
                drop(receiver);
            }
            assert_eq!(sender.send(2), Err(2));
        }
    }
}
