//! `Unsent`: outcomes that could not be sent, because the store cannot be reached.

use super::NodeMessage;
use crate::{hub::lock, retry_pause::RetryPause};
use netwheel::broker::MessageId;
use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

/// Maximum number of outcomes that wait. Further ones are dropped.
const MAX: usize = 10_000;
/// Number of attempts for each outcome. After them, a direct message has usually ended at the
/// sender's server. The outcome of a kept message is lost.
const ATTEMPTS: u32 = 60;

/// An outcome for the server of a sender.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) node: String,
    pub(super) message: Arc<NodeMessage>,
    /// By which a repetition is recognised.
    pub(super) id: MessageId,
    pub(super) attempts: u32,
}

#[derive(Default)]
pub(super) struct Unsent(Mutex<State>);

#[derive(Default)]
struct State {
    letters: Vec<Letter>,
    pause: RetryPause,
}

impl Unsent {
    /// Keeps an outcome for another attempt.
    pub(super) fn add(&self, mut letter: Letter) {
        letter.attempts += 1;
        let mut state = lock(&self.0);
        if letter.attempts < ATTEMPTS && state.letters.len() < MAX {
            state.letters.push(letter);
        }
    }

    /// Takes all outcomes, if it is time to send them again.
    pub(super) fn take(&self, now: Instant) -> Vec<Letter> {
        let mut state = lock(&self.0);
        if state.letters.is_empty() || !state.pause.is_over(now) {
            return Vec::new();
        }
        std::mem::take(&mut state.letters)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::node_message::{Outcome, Ticket},
        *,
    };
    use std::time::Duration;

    #[test]
    fn outcomes_are_bounded_and_given_up() {
        let (unsent, mut now) = (Unsent::default(), Instant::now());
        let outcome = Outcome { ticket: Ticket { server: 1, number: 1 }, failure: None };
        let message = Arc::new(NodeMessage::Outcome(outcome));
        let letter =
            Letter { node: "a".to_owned(), message, id: MessageId::new("a", "1").unwrap(), attempts: 0 };
        (0..MAX + 1).for_each(|_| unsent.add(letter.clone()));
        assert_eq!(unsent.take(now).len(), MAX);
        unsent.add(letter);
        assert!(unsent.take(now).is_empty(), "not so soon");
        let mut attempts = 1;
        loop {
            now += Duration::from_secs(1);
            let Some(letter) = unsent.take(now).pop() else { break };
            attempts += 1;
            unsent.add(letter);
        }
        assert_eq!(attempts, ATTEMPTS);
    }
}
