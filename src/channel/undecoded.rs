//! The memory of bytes that a channel keeps because they are not decoded yet.
//!
//! Bytes that remain in the loop's read buffer are copied to the channel. The next read puts them
//! in front of the new bytes. If there are more than 32 KiB, the channel's own buffer grows
//! instead, so that a long message is not copied with every read. A small rest is moved out of the
//! memory of the large message before it.
//!
//! Invariants: kept bytes are in memory of the channel. While the channel waits for its peer, that
//! memory is at most twice their size. While decoding is only interrupted, it is at most the memory
//! that they had before. Each byte is copied a bounded number of times, however the messages are
//! consumed. A channel that keeps nothing pays one pointer. [`InputMemory`] is the rule, and
//! [`Undecoded`] the bytes, which the channel owns. Runs on the channel's loop.

use crate::buffer::RECEIVE_SIZE;
use bytes::Bytes;
use std::ops::Deref;

/// Bytes that a channel keeps. Boxed, because most channels usually keep none.
#[derive(Debug, Default)]
pub(crate) struct Undecoded(Option<Box<Bytes>>);

impl Undecoded {
    pub(crate) fn into_bytes(self) -> Bytes {
        self.0.map_or_else(Bytes::new, |bytes| *bytes)
    }

    /// Removes and returns the kept bytes.
    #[inline]
    pub(crate) fn take(&mut self) -> Undecoded {
        Undecoded(self.0.take())
    }
}

/// The box of kept bytes that have been decoded, for reuse. It avoids one allocation for each
/// message that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct SpareBox(Option<Box<Bytes>>);

impl SpareBox {
    /// Keeps bytes, in the spare box if there is one.
    pub(crate) fn keep(&mut self, bytes: Bytes) -> Undecoded {
        match self.0.take() {
            Some(mut spare) if !bytes.is_empty() => {
                *spare = bytes;
                Undecoded(Some(spare))
            }
            spare => {
                self.0 = spare;
                bytes.into()
            }
        }
    }

    /// Returns the box of bytes that have been decoded.
    #[inline]
    pub(crate) fn give_back(&mut self, kept: Undecoded) {
        if let Some(mut spare) = kept.0 {
            *spare = Bytes::new();
            self.0 = Some(spare);
        }
    }
}

impl From<Bytes> for Undecoded {
    fn from(bytes: Bytes) -> Self {
        Undecoded((!bytes.is_empty()).then(|| Box::new(bytes)))
    }
}

impl Deref for Undecoded {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.as_deref().map_or(&[], |bytes| bytes)
    }
}

/// The owner of the memory of the decoded bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputMemory {
    /// The loop. Kept bytes are copied.
    Lent,
    /// The channel, with this number of bytes. Kept bytes may stay there.
    Own(usize),
}

impl InputMemory {
    /// Returns `rest` in memory in which it may stay. A small rest must not hold a large buffer, so
    /// less than half of the bytes is copied. That is never more than was decoded before it,
    /// however many messages are consumed one by one. A small rest that waits for its peer
    /// (`starved`), possibly for a long time, is copied too.
    pub(super) fn keep(self, rest: Bytes, starved: bool) -> Bytes {
        let copy = match self {
            InputMemory::Lent => true,
            InputMemory::Own(whole) => rest.len() <= whole / 2 || (starved && rest.len() <= RECEIVE_SIZE / 2),
        };
        if copy { Bytes::copy_from_slice(&rest) } else { rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_without_memory() {
        assert!(Undecoded::default().is_empty() && Undecoded::from(Bytes::new()).0.is_none());
        let mut kept = Undecoded::from(bytes(3));
        assert_eq!((kept.len(), kept.take().into_bytes()), (3, bytes(3)));
        assert!(kept.0.is_none() && kept.into_bytes().is_empty());
    }

    #[test]
    fn the_box_of_decoded_bytes_is_reused() {
        let mut spare = SpareBox::default();
        let first = spare.keep(bytes(3));
        let place = std::ptr::from_ref(first.0.as_deref().expect("bytes are kept"));
        spare.give_back(first);
        assert!(spare.0.as_ref().is_some_and(|empty| empty.is_empty()), "the bytes are gone");
        assert!(spare.keep(Bytes::new()).0.is_none(), "an empty rest takes no box");
        let second = spare.keep(bytes(5));
        assert_eq!(std::ptr::from_ref(second.0.as_deref().expect("bytes are kept")), place);
        assert_eq!(*second, [7; 5]);
        assert!(spare.0.is_none());
    }

    const SMALL: usize = RECEIVE_SIZE / 2;

    fn bytes(len: usize) -> Bytes {
        vec![7; len].into()
    }

    fn is_copied(memory: InputMemory, rest: &Bytes, starved: bool) -> bool {
        let kept = memory.keep(rest.clone(), starved);
        assert_eq!(kept, *rest);
        kept.as_ptr() != rest.as_ptr()
    }

    #[test]
    fn bytes_in_memory_of_the_loop_are_copied() {
        assert!(is_copied(InputMemory::Lent, &bytes(1), false));
        assert!(is_copied(InputMemory::Lent, &bytes(SMALL + 1), true));
    }

    #[test]
    fn a_long_message_that_grows_stays_where_it_is() {
        assert!(!is_copied(InputMemory::Own(SMALL + 1), &bytes(SMALL + 1), true));
        assert!(!is_copied(InputMemory::Own(1 << 20), &bytes(1 << 20), true));
    }

    /// D-13: a small rest does not hold the memory of the large message before it.
    #[test]
    fn a_small_rest_is_copied() {
        let whole = 1 << 20;
        assert!(is_copied(InputMemory::Own(whole), &bytes(10), false));
        assert!(is_copied(InputMemory::Own(whole), &bytes(whole / 2), true));
        assert!(is_copied(InputMemory::Own(SMALL), &bytes(SMALL), true), "it may wait for a long time");
    }

    /// If messages are consumed one by one and the handler keeps them, the rest is not copied for
    /// each of them.
    #[test]
    fn consuming_messages_one_by_one_copies_no_more_than_all_at_once() {
        let mut rest = bytes(RECEIVE_SIZE);
        let (mut kept, mut copied) = (Vec::new(), 0);
        while !rest.is_empty() {
            let whole = rest.len();
            kept.push(rest.split_to(whole.min(10)));
            let before = rest.as_ptr();
            rest = InputMemory::Own(whole).keep(rest, false);
            if rest.as_ptr() != before {
                copied += rest.len();
            }
        }
        assert!(copied <= RECEIVE_SIZE, "{copied} bytes were copied");
    }
}
