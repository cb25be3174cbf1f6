//! Completions that an event loop's tasks complete.

use super::EventLoop;
use crate::sync::{Completer, Completion};

impl EventLoop {
    /// Creates a completion and the completer that delivers its result.
    ///
    /// For operations that a task of this loop completes. Any thread may complete it, but waiting
    /// for it on this loop fails with [`WouldDeadlock`](crate::Error::WouldDeadlock).
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// # fn main() -> Result {
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let event_loop = group.next();
    /// let (completer, completion) = event_loop.completer();
    /// event_loop.execute(move || completer.complete(Ok(42)))?;
    /// assert_eq!(completion.wait()?, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn completer<T>(&self) -> (Completer<T>, Completion<T>) {
        Completer::new(self.shared.id)
    }
}
