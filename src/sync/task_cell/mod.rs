//! A closure sent to a loop, stored in place if it is small. Entries of the queue hold this instead
//! of a box.
//!
//! Allocating a box on one thread and freeing it on another costs more than the other steps of a
//! submission. A closure of more than [`WORDS`] words, or with an alignment above a word's, is
//! boxed, and the cell holds the box.
//!
//! Invariant: the closure is called once or dropped once. The cell owns the closure. One thread
//! creates it, and another thread may run or drop it.
//!
//! This is the only `unsafe` code of the crate. It relies on the following, all within this file:
//! 1. While `act` is `Some`, `words` hold a valid `F`, and `act` is `act_on::<F>` for the same `F`.
//!    [`TaskCell::in_place`] sets both, and nothing else sets either.
//! 2. Only `act` moves the `F` out, and `act` is taken before it is called. So the `F` is moved out
//!    at most once, even if it panics. Moving a cell moves the `F`, as with any value. Nothing else
//!    reads the words.
//! 3. `F` is `Send` and `'static`, so cells can be sent and kept. A cell is `Sync`, because a
//!    shared cell offers no operations.

#![allow(unsafe_code, reason = "a closure is stored without its type; see above for why this is sound")]

use std::mem::MaybeUninit;

/// The number of words of captures stored in place.
pub(crate) const WORDS: usize = 3;

type Words = MaybeUninit<[usize; WORDS]>;

/// A type-erased `FnOnce() + Send + 'static`.
pub(crate) struct TaskCell {
    act: Option<unsafe fn(&mut Words, Act)>,
    words: Words,
}

#[derive(Clone, Copy)]
enum Act {
    Run,
    Drop,
}

impl TaskCell {
    #[inline]
    pub(crate) fn new<F: FnOnce() + Send + 'static>(task: F) -> Self {
        if fits::<F>() { Self::in_place(task) } else { Self::in_place(Box::new(task)) }
    }

    #[inline]
    fn in_place<F: FnOnce() + Send + 'static>(task: F) -> Self {
        assert!(fits::<F>(), "the size is checked by the caller");
        let mut words = Words::uninit();
        // SAFETY: the words have the size and alignment of an `F`, as asserted above.
        unsafe { words.as_mut_ptr().cast::<F>().write(task) };
        TaskCell { act: Some(act_on::<F>), words }
    }

    /// Calls the closure, if it was not called before. If the closure panics, its captures are
    /// dropped during unwinding, as for any closure.
    ///
    /// Takes `&mut self`, because moving a cell that was just written costs more than calling it.
    #[inline]
    pub(crate) fn run(&mut self) {
        if let Some(act) = self.act.take() {
            // SAFETY: the words hold the `F` of `act`. They are not read again, because `act` was
            // taken.
            unsafe { act(&mut self.words, Act::Run) };
        }
    }
}

impl Drop for TaskCell {
    #[inline]
    fn drop(&mut self) {
        if let Some(act) = self.act.take() {
            // SAFETY: as in `run`.
            unsafe { act(&mut self.words, Act::Drop) };
        }
    }
}

const fn fits<F>() -> bool {
    size_of::<F>() <= size_of::<Words>() && align_of::<F>() <= align_of::<Words>()
}

/// Moves the closure out and calls or drops it.
///
/// # Safety
///
/// `words` must hold a valid `F`, which must not be used afterwards.
unsafe fn act_on<F: FnOnce()>(words: &mut Words, act: Act) {
    // SAFETY: guaranteed by the caller. The `F` was written by `in_place`, so size and alignment
    // match.
    let task = unsafe { words.as_mut_ptr().cast::<F>().read() };
    match act {
        Act::Run => task(),
        Act::Drop => drop(task),
    }
}

#[cfg(test)]
mod tests;
