//! Plaintext that filters have opened in one read.
//!
//! Invariant: bytes are in the loop's read buffer as long as they fit, then in memory of their own,
//! in order.

/// Collects plaintext in a buffer of the loop.
pub(crate) struct Opened<'a> {
    room: &'a mut [u8],
    len: usize,
    /// What did not fit.
    spilled: Vec<u8>,
}

impl<'a> Opened<'a> {
    pub(crate) fn new(room: &'a mut [u8]) -> Self {
        Opened { room, len: 0, spilled: Vec::new() }
    }

    /// Returns the current end, for [`Opened::truncate`] and [`Opened::take_from`].
    pub(super) fn mark(&self) -> (usize, usize) {
        (self.len, self.spilled.len())
    }

    /// Drops the bytes behind the mark.
    pub(super) fn truncate(&mut self, mark: (usize, usize)) {
        self.len = mark.0;
        self.spilled.truncate(mark.1);
    }

    /// Takes the bytes behind the mark.
    #[cold]
    pub(super) fn take_from(&mut self, mark: (usize, usize)) -> Vec<u8> {
        let taken = [&self.room[mark.0..self.len], &self.spilled[mark.1..]].concat();
        self.truncate(mark);
        taken
    }

    /// Fills the buffer, and keeps the bytes that do not fit.
    #[cold]
    fn fill_and_spill(&mut self, plain: &[u8]) {
        let room = &mut self.room[self.len..];
        let (first, rest) = plain.split_at(room.len());
        room.copy_from_slice(first);
        self.len += first.len();
        self.spilled.extend_from_slice(rest);
    }

    /// Returns the number of bytes in the buffer, and the bytes that did not fit.
    pub(crate) fn finish(self) -> (usize, Vec<u8>) {
        (self.len, self.spilled)
    }
}

/// Receives the plaintext of a filter.
pub(super) trait Collect {
    fn put(&mut self, plain: &[u8]);
}

impl Collect for Vec<u8> {
    fn put(&mut self, plain: &[u8]) {
        self.extend_from_slice(plain);
    }
}

impl Collect for Opened<'_> {
    #[inline]
    fn put(&mut self, plain: &[u8]) {
        // What has spilled has filled the room.
        let room = &mut self.room[self.len..];
        if let Some(room) = room.get_mut(..plain.len()) {
            room.copy_from_slice(plain);
            self.len += plain.len();
        } else {
            self.fill_and_spill(plain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Collect, Opened};

    #[test]
    fn bytes_that_do_not_fit_follow_in_order() {
        let mut room = [0; 4];
        let mut opened = Opened::new(&mut room);
        for part in ["ab", "", "cde", "f"] {
            opened.put(part.as_bytes());
        }
        let (len, spilled) = opened.finish();
        assert_eq!((&room[..len], &spilled[..]), (&b"abcd"[..], &b"ef"[..]));
    }

    #[test]
    fn bytes_behind_a_mark_are_taken_from_both_memories() {
        for before in ["", "ab", "abcd", "abcdef"] {
            let mut room = [0; 4];
            let mut opened = Opened::new(&mut room);
            opened.put(before.as_bytes());
            let mark = opened.mark();
            opened.put(b"12345");
            assert_eq!(opened.take_from(mark), b"12345");
            opened.put(b"ghi");
            let (len, spilled) = opened.finish();
            assert_eq!([&room[..len], &spilled[..]].concat(), [before.as_bytes(), b"ghi"].concat());
        }
    }
}
