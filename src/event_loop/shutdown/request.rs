//! The methods of a loop's handle that end the loop, and the part that they share with those of a
//! group.
//!
//! Any thread calls them. The first request counts, and the loop's thread does the rest.

use super::{ShutdownOptions, ShutdownReport, ShutdownRequest};
use crate::{
    Completion, Result,
    event_loop::{EventLoop, task::Task},
    sync::{Completer, completion},
};
use std::{panic::Location, time::Duration};

/// Has `begin` end a loop, or several, unless the times contradict each other; completes when it has.
pub(crate) fn end_gracefully(
    quiet: Duration,
    timeout: Duration,
    begin: impl FnOnce(ShutdownRequest) -> Completion,
) -> Completion {
    match ShutdownOptions::new().quiet(quiet).timeout(timeout).check() {
        Ok(request) => begin(request),
        Err(e) => Completion::ready(Err(e)),
    }
}

/// The same for who asks what came of it: completes the pair with the `report` as it is then.
pub(crate) fn end_and_report(
    options: ShutdownOptions,
    begin: impl FnOnce(ShutdownRequest) -> Completion,
    (completer, completion): (Completer<ShutdownReport>, Completion<ShutdownReport>),
    report: impl FnOnce() -> ShutdownReport + Send + 'static,
) -> Completion<ShutdownReport> {
    match options.check() {
        Ok(request) => {
            begin(request).on_complete(move |ended| completer.complete(ended.map(|()| report())));
        }
        Err(e) => completer.complete(Err(e)),
    }
    completion
}

impl EventLoop {
    /// Ends the loop: as [`shut_down`](EventLoop::shut_down) with these two times and no window, for programs that
    /// do not ask what came of it.
    ///
    /// An error ([`Error::Setting`](crate::Error::Setting)) if `timeout` is shorter than `quiet`; the loop goes on then.
    pub fn shutdown_gracefully(&self, quiet: Duration, timeout: Duration) -> Completion {
        end_gracefully(quiet, timeout, |request| self.begin_shutdown(request))
    }

    /// Ends the loop, in phases; completes when it has ended, with what came of it.
    ///
    /// 1. At once: its listeners close, connections in the making fail, connections that come later are closed, and
    ///    the loop's scheduled tasks are cancelled. Tasks are still taken and run.
    /// 2. Over the [`window`](ShutdownOptions::window): one channel after the other has its own scheduled tasks
    ///    cancelled and its handler told ([`Handler::shutdown`](crate::Handler::shutdown)), which closes it after
    ///    what it wrote is sent, unless the handler says otherwise. At most 1024 are told in one turn. A channel
    ///    that is closing already is left to its `close_timeout`.
    /// 3. When no channel is left and no task came for the `quiet` period, or when the `timeout` is over: no more
    ///    tasks are taken, those that wait are run, channels that are left are told if they were not, sent what the
    ///    kernel takes at once, and closed.
    /// 4. Hooks run ([`on_shutdown`](EventLoop::on_shutdown)).
    ///
    /// The first request counts; later ones complete with the same report. One line of it is logged (info). A loop
    /// that never started ends at once.
    ///
    /// An error ([`Error::Setting`](crate::Error::Setting)) if the options contradict each other; the loop goes on then. With the loop's
    /// panic, should the loop itself have failed.
    pub fn shut_down(&self, options: ShutdownOptions) -> Completion<ShutdownReport> {
        let shared = self.shared.clone();
        let told = completion(Some(shared.id));
        end_and_report(options, |request| self.begin_shutdown(request), told, move || shared.report())
    }

    fn begin_shutdown(&self, request: ShutdownRequest) -> Completion {
        self.shared.shut_down(request);
        self.terminated()
    }

    /// Has `hook` run on the loop's thread when the loop has ended: after the last task, when its channels are closed
    /// and their handlers dropped.
    ///
    /// Hooks run once each, in the order in which they were given. A hook may give another one; it can give the loop
    /// nothing else to do. A panic in one is logged. They run as well should the loop itself have failed. As they need
    /// the loop's thread, the first one starts it. Not run: hooks of a loop that is never shut down.
    ///
    /// # Errors
    /// If the loop has run its hooks, or was given 1024 already; the hook is dropped.
    #[track_caller]
    pub fn on_shutdown(&self, hook: impl FnOnce() + Send + 'static) -> Result {
        self.shared.add_hook(Task::new(hook, Location::caller()))
    }
}
