//! The order in which the lingering sockets of a loop began.
//!
//! Invariant: the list has one entry for each slot that holds a lingering socket, and no other.
//! Only [`Sources`](super::Sources) changes it, together with the slot. Runs on the loop's thread.

use super::Slot;
use crate::{
    event_loop::{closing::LingeringSocket, source::Source},
    id::Key,
};
use std::collections::BTreeMap;

/// A lingering socket in its slot.
pub(crate) struct LingeringSlot {
    /// The number of the socket in [`LingeringOrder`].
    number: u64,
    socket: Box<LingeringSocket>,
}

impl LingeringSlot {
    pub(super) fn source(&mut self) -> &mut dyn Source {
        &mut *self.socket
    }

    /// Returns the socket. Its slot is free by now.
    pub(crate) fn into_socket(self) -> Box<LingeringSocket> {
        self.socket
    }
}

/// The lingering sockets by age.
#[derive(Default)]
pub(super) struct LingeringOrder {
    /// Oldest first.
    keys: BTreeMap<u64, Key>,
    began: u64,
}

impl LingeringOrder {
    /// Registers a socket that takes over the slot `key`.
    pub(super) fn begin(&mut self, key: Key, socket: Box<LingeringSocket>) -> LingeringSlot {
        self.began += 1;
        self.keys.insert(self.began, key);
        LingeringSlot { number: self.began, socket }
    }

    /// Forgets the socket of a slot that has become free or holds another source.
    #[inline]
    pub(super) fn left(&mut self, slot: &Slot) {
        if let Slot::Lingering(lingering) = slot {
            self.forget(lingering.number);
        }
    }

    /// Not inlined, because most slots hold no lingering socket.
    #[cold]
    fn forget(&mut self, number: u64) {
        self.keys.remove(&number);
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn oldest(&self) -> Option<Key> {
        self.keys.first_key_value().map(|(_, key)| *key)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::{event_loop::sources::Sources, timer::ScheduledQueue, transport::Stream};
    use proptest::prelude::*;

    fn socket() -> Box<LingeringSocket> {
        let (stream, _) = mio::net::UnixStream::pair().expect("a pair of sockets");
        let (stream, deadline) = (Stream::Unix(stream), ScheduledQueue::new().insert(1, ()));
        Box::new(LingeringSocket { stream, assignment: None, deadline, to_the_end: false, listed: false })
    }

    /// Any source that is not a lingering one.
    fn other() -> Slot {
        Slot::Other(socket())
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Open,
        /// The source at this place, of any kind, leaves its slot.
        End(usize),
        /// The source at this place becomes another source, or lingers.
        Replace(usize, bool),
        /// The oldest lingering sockets end until this number is left.
        Limit(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Open),
            2 => any::<usize>().prop_map(Step::End),
            4 => any::<(usize, bool)>().prop_map(|(at, lingers)| Step::Replace(at, lingers)),
            1 => (0..4_usize).prop_map(Step::Limit),
        ]
    }

    proptest! {
        /// The model is the list of open sources, and the list of lingering sources, oldest first.
        #[test]
        fn lingering_sockets_agree_with_a_model(steps in prop::collection::vec(step(), 0..60)) {
            let mut sources = Sources::new();
            let (mut open, mut lingering) = (Vec::<Key>::new(), Vec::<Key>::new());
            for step in steps {
                match step {
                    Step::Open => {
                        open.push(sources.next_key().expect("a free key"));
                        sources.insert(other());
                    }
                    Step::End(at) if !open.is_empty() => {
                        let key = open.remove(at % open.len());
                        prop_assert!(sources.remove(key).is_some() && sources.remove(key).is_none());
                        lingering.retain(|one| *one != key);
                    }
                    Step::Replace(at, lingers) if !open.is_empty() => {
                        let key = open[at % open.len()];
                        lingering.retain(|one| *one != key);
                        if lingers {
                            prop_assert!(sources.linger(key, socket()).is_some());
                            lingering.push(key);
                        } else {
                            prop_assert!(sources.replace(key, other()).is_some());
                        }
                    }
                    Step::Limit(limit) => {
                        while sources.lingering() > limit {
                            let key = sources.oldest_lingering().expect("one lingers");
                            prop_assert!(matches!(sources.get(key), Some(Slot::Lingering(_))));
                            prop_assert!(sources.remove(key).is_some());
                            prop_assert_eq!(key, lingering.remove(0));
                            open.retain(|one| *one != key);
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!((sources.len(), sources.lingering()), (open.len(), lingering.len()));
                prop_assert_eq!(sources.oldest_lingering(), lingering.first().copied());
                for key in &open {
                    let lingers = matches!(sources.get(*key), Some(Slot::Lingering(_)));
                    prop_assert_eq!(lingers, lingering.contains(key));
                }
            }
        }
    }
}
