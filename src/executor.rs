//! The executor that runs the futures of handlers.
//!
//! The crate has no executor. A program connects its own, and handlers start futures on it with
//! `Context::spawn`. Each future is bounded by its channel's limit of tasks.

use crate::error::{Error, Result};
use std::{fmt, pin::Pin, sync::Arc};

/// An executor that runs futures for the handlers of a group.
///
/// Set it with [`EventLoopGroupBuilder::executor`](crate::group::EventLoopGroupBuilder::executor).
/// With the feature `tokio`, `tokio::runtime::Handle` implements this trait. For other executors it
/// takes a few lines:
///
/// ```
/// use netwheel::{Result, executor::Spawn};
/// use std::pin::Pin;
/// # mod smol { pub fn spawn<F>(_: F) -> Task { Task } pub struct Task; impl Task { pub fn detach(self) {} } }
///
/// struct Smol;
///
/// impl Spawn for Smol {
///     fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) -> Result {
///         smol::spawn(future).detach();
///         Ok(())
///     }
/// }
/// ```
pub trait Spawn: Send + Sync + 'static {
    /// Starts running `future`.
    ///
    /// Called on event loops, so it must not block. The executor polls the future on its own
    /// threads. It may drop the future at any time, for example when it shuts down; the handler
    /// then gets [`Error::Cancelled`].
    ///
    /// # Errors
    /// [`Error::ShutDown`], for example, if the executor does not accept the future any more. The
    /// executor drops the future, and [`Context::spawn`](crate::Context::spawn) fails with this
    /// error.
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) -> Result;

    /// Calls `poll` on the calling thread, in the context that futures of this executor need, and
    /// returns `true`. Returns `false` without calling it if the executor does not support this,
    /// which is the default.
    ///
    /// Called on event loops. The feature `tower` polls each future this way first, and spawns it
    /// only if it is pending. An executor whose futures do not depend on a context calls `poll` and
    /// returns `true`.
    fn poll_here(&self, poll: &mut dyn FnMut()) -> bool {
        let _ = poll;
        false
    }
}

/// A runtime that has shut down drops the future instead of refusing it. A future that is polled on
/// a loop then panics when it uses the runtime's timers or sockets, so shut the group down first.
#[cfg(feature = "tokio")]
impl Spawn for tokio::runtime::Handle {
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) -> Result {
        // A dropped join handle detaches its task.
        drop(tokio::runtime::Handle::spawn(self, future));
        Ok(())
    }

    fn poll_here(&self, poll: &mut dyn FnMut()) -> bool {
        let _context = self.enter();
        poll();
        true
    }
}

/// The executor of a group, if it has one.
#[derive(Clone, Default)]
pub(crate) struct Executor(Option<Arc<dyn Spawn>>);

impl Executor {
    pub(crate) fn new(executor: impl Spawn) -> Self {
        Executor(Some(Arc::new(executor)))
    }

    /// Returns the executor.
    ///
    /// # Errors
    /// [`Error::Setting`] if there is none.
    pub(crate) fn get(&self) -> Result<&Arc<dyn Spawn>> {
        let needed = "set with `EventLoopGroup::builder().executor(..)` for `Context::spawn`";
        self.0.as_ref().ok_or_else(|| Error::setting("executor", "none", needed))
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Executor" } else { "no executor" })
    }
}
