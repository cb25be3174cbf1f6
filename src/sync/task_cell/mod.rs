//! A closure on its way to a loop, in place when it is small: what an entry of the queue holds instead of a box.
//!
//! To allocate a box on one thread and free it on another costs more than all the rest of a submission. What does not
//! fit (more than [`WORDS`] words, or an alignment beyond a word's) is boxed, and the box lies in the cell.
//!
//! Always holds: the closure is called once or dropped once, and nothing else is done with it. Made by one thread,
//! run or dropped by another; it owns the closure.
//!
//! The only `unsafe` code of the crate. It rests on this, all within this file:
//! 1. While `act` is there, `words` hold a valid `F` and `act` is `act_on::<F>` of that very `F`:
//!    [`TaskCell::in_place`] sets both, and nothing else sets either.
//! 2. The `F` is moved out by `act` alone, which is taken away before it is called: so once, even if it panics. A cell
//!    may be moved, as any `F` may; nobody else looks at the words.
//! 3. `F` is `Send` and `'static`, which is what it takes to send a cell and to keep it. A cell is `Sync` because nothing
//!    can be done with a shared one.

#![allow(unsafe_code, reason = "a closure is stored without its type; on what that rests is said above")]

use std::mem::MaybeUninit;

/// Words of captures that are kept in place.
pub(crate) const WORDS: usize = 3;

type Words = MaybeUninit<[usize; WORDS]>;

/// A `FnOnce() + Send + 'static` of whatever type.
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
        assert!(fits::<F>(), "known when it is compiled");
        let mut words = Words::uninit();
        // SAFETY: the words are as large and as aligned as an `F` needs, as was just asserted.
        unsafe { words.as_mut_ptr().cast::<F>().write(task) };
        TaskCell { act: Some(act_on::<F>), words }
    }

    /// Calls the closure, the first time. If that panics, the captures are dropped on the way, as with any closure.
    ///
    /// Not by value: moving a cell just written costs more than calling it.
    #[inline]
    pub(crate) fn run(&mut self) {
        if let Some(act) = self.act.take() {
            // SAFETY: the words hold the `F` of `act`, and nobody looks at them again: `act` is gone.
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

/// Moves the closure out, to call or to drop it.
///
/// # Safety
/// `words` hold a valid `F`, which is not used afterwards.
unsafe fn act_on<F: FnOnce()>(words: &mut Words, act: Act) {
    // SAFETY: by the caller's promise; it was written by `in_place`, so size and alignment are right.
    let task = unsafe { words.as_mut_ptr().cast::<F>().read() };
    match act {
        Act::Run => task(),
        Act::Drop => drop(task),
    }
}

#[cfg(test)]
mod tests;
