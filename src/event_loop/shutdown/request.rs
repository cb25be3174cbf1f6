//! The methods of a loop's handle that shut the loop down, and functions that loops and groups
//! share.
//!
//! Any thread calls them. Only the first request takes effect. The loop's thread does the rest.

use super::{
    accepted_drain::AcceptedShare,
    options::{ShutdownOptions, ShutdownRequest},
    report::ShutdownReport,
};
use crate::{
    error::Result,
    event_loop::{EventLoop, task::Task},
    sync::{Completer, Completion, completion},
};
use std::panic::Location;

/// Checks the options, and calls `begin` to shut down one loop or several. Completes the given pair
/// when they have ended, with the result of `report`, or with an error if the options contradict
/// each other.
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
    /// Shuts the loop down in phases. Completes with a report when the loop has ended.
    ///
    /// 1. Immediately, its listeners close, later connections are closed, and the loop's scheduled
    ///    tasks are cancelled. New tasks are still accepted and run. The request overtakes tasks
    ///    that wait in the queue, and all times count from the request.
    /// 2. Over the [`drain_window`](ShutdownOptions::drain_window), each accepted channel is
    ///    notified in turn: [`Handler::shutdown`](crate::Handler::shutdown) is called, which by
    ///    default closes the channel after its pending writes have been sent. A handler with a
    ///    reply in flight may stay open, with its scheduled tasks, and use and open outgoing
    ///    connections. At most 1024 channels are notified per turn. A channel that is already
    ///    closing keeps its `close_timeout`.
    /// 3. When no accepted channel is left, connections that are being established fail, later ones
    ///    are refused, and outgoing channels are notified in the same way. If a group is shut down,
    ///    this waits for the accepted channels of all its loops. A group of clients begins here.
    /// 4. The loop ends when no channel is left and no task has arrived for the `quiet_period`, or
    ///    when the `timeout` expires. New tasks are refused and queued tasks run. Each remaining
    ///    channel is notified if it has not been, and sends the bytes that the kernel accepts
    ///    without blocking. If its handler does not close it then, the connection is reset.
    /// 5. Hooks run ([`on_shutdown`](EventLoop::on_shutdown)).
    ///
    /// Only the first request takes effect. Later ones complete with the same report. The report is
    /// also logged as one line at level info. A loop that never started ends immediately.
    ///
    /// Completes with [`Error::Setting`](crate::Error::Setting) if the options contradict each
    /// other. The loop keeps running in that case. If the loop itself has panicked, completes with
    /// [`Error::Panicked`](crate::Error::Panicked).
    #[doc(alias = "shutdownGracefully")]
    #[doc(alias = "shutdown_gracefully")]
    #[doc(alias = "syncShutdownGracefully")]
    pub fn shutdown(&self, options: ShutdownOptions) -> Completion<ShutdownReport> {
        let shared = self.shared.clone();
        let told = completion(Some(shared.id));
        end_and_report(options, |request| self.begin_shutdown(request), told, move || shared.report())
    }

    fn begin_shutdown(&self, request: ShutdownRequest) -> Completion {
        // A further request adds no loop that could wait for this one.
        if !self.shared.is_shutdown_requested() {
            for share in AcceptedShare::of(&[&self.shared]) {
                self.shared.shut_down(request, share);
            }
        }
        self.terminated()
    }

    /// Adds a hook that runs on the loop's thread when the loop has ended: after the last task,
    /// when its channels are closed and their handlers dropped.
    ///
    /// Each hook runs once, in the order of addition. A hook may add further hooks, but cannot
    /// submit other work to the loop. A panic in a hook is logged. Hooks also run if the loop
    /// itself has failed. They need the loop's thread, so the first hook starts it. Hooks of a loop
    /// that is never shut down do not run.
    ///
    /// # Errors
    /// [`Error::ShutDown`](crate::Error::ShutDown) if the hooks have already run.
    /// [`Error::Full`](crate::Error::Full) if 1024 hooks were added. The hook is dropped.
    #[track_caller]
    pub fn on_shutdown(&self, hook: impl FnOnce() + Send + 'static) -> Result {
        self.shared.add_hook(Task::new(hook, Location::caller()))
    }
}
