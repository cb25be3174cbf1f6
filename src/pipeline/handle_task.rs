//! Tasks that handles schedule on a channel, once or periodically.
//!
//! A task consists of two parts. The entry is shared by the [`ScheduledTask`] and the loop, and
//! holds the program's closure. The other part is a closure of the channel that runs the entry, and
//! ends it when it is dropped: with the channel, with its pipeline, or in refused mail.
//!
//! Invariants: the program's closure is called on the channel's loop only. The task completes once:
//! with the value of its closure, or with the reason why it did not run or will not run again. An
//! error or a panic of the closure reaches the completion first, and then the handler.

use super::{
    Context,
    handler::{Handler, RemotePeriodicTask, RemoteTask},
};
use crate::{
    channel::{
        Channel, Delay, HandleTask, Mail, MailSender, Periodic, ScheduledTask, TaskCell, TaskControl,
        TaskEntry, TaskKey, TaskPermit, TaskStart, TaskTime, continues,
    },
    clock::TimeSource,
    error::{Error, Result, panic_text},
    id::Key,
    sync::Completion,
};
use std::{
    any::Any,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind},
    sync::{Arc, OnceLock},
};

/// The state of a task with the closure `F`, which its handle and its loop share.
struct Entry<F, T> {
    cell: TaskCell<Permitted<F>, T>,
    /// Set when the channel has received the task.
    key: OnceLock<TaskKey>,
    channel: Key,
    sender: Arc<dyn MailSender>,
    origin: &'static Location<'static>,
}

/// A closure and its permit, which are dropped in this order.
struct Permitted<F>(F, TaskPermit);

/// The part that runs the task. Ends the task when dropped.
struct Runner<F: Send + 'static, T: Send + 'static>(Arc<Entry<F, T>>);

/// Runs `task` on the channel's loop after `delay`, with its handler `H`.
///
/// # Errors
/// An error if the channel does not accept the task, which is dropped.
#[track_caller]
pub(super) fn schedule<H: Handler, T: Send + 'static>(
    channel: &Channel<H::Write>,
    delay: Delay,
    task: impl FnOnce(&mut H, &mut Context<'_, H>) -> Result<T> + Send + 'static,
) -> Result<ScheduledTask<T>> {
    let when = TaskTime::at(delay, channel.mail_sender().time().now());
    let (entry, completion) = Entry::new(channel, task, when.deadline())?;
    let runner = Runner(entry.clone());
    let task = RemoteTask::<H>::boxed(move |me, ctx| runner.run_once(|task| task(me, ctx)));
    submit(channel, entry, task, TaskStart::Once(when), completion)
}

/// Runs `task` on the channel's loop again and again, with its handler `H`.
///
/// # Errors
/// [`Error::Setting`] if `periodic` is out of range, or an error if the channel does not accept the
/// task, which is dropped.
#[track_caller]
pub(super) fn schedule_periodic<H: Handler>(
    channel: &Channel<H::Write>,
    periodic: Periodic,
    task: impl FnMut(&mut H, &mut Context<'_, H>) -> Result + Send + 'static,
) -> Result<ScheduledTask> {
    periodic.check()?;
    let now = channel.mail_sender().time().now();
    let (entry, completion) = Entry::new(channel, task, periodic.first(now))?;
    let runner = Runner(entry.clone());
    let task = RemotePeriodicTask::<H>::boxed(move |me, ctx| runner.run_again(|task| task(me, ctx)));
    submit(channel, entry, task, TaskStart::Periodic(periodic, now), completion)
}

fn submit<M: 'static, F: Send + 'static, T: Send + 'static>(
    channel: &Channel<M>,
    entry: Arc<Entry<F, T>>,
    task: Box<dyn Any + Send>,
    start: TaskStart,
    completion: Completion<T>,
) -> Result<ScheduledTask<T>> {
    let mail = HandleTask { start, task, entry: entry.clone() };
    channel.deliver(Mail::Schedule(Box::new(mail)))?;
    Ok(ScheduledTask::new(entry, completion))
}

impl<F: Send + 'static, T: Send + 'static> Entry<F, T> {
    #[track_caller]
    fn new<M: 'static>(channel: &Channel<M>, task: F, deadline: u64) -> Result<(Arc<Self>, Completion<T>)> {
        let (id, origin) = (channel.id(), Location::caller());
        let body = Permitted(task, channel.take_task_permit()?);
        let (cell, completion) = TaskCell::new(id.event_loop, body, deadline);
        let (key, sender) = (OnceLock::new(), channel.mail_sender().clone());
        Ok((Arc::new(Entry { cell, key, channel: id.key, sender, origin }), completion))
    }
}

impl<F: Send + 'static, T: Send + 'static> Runner<F, T> {
    fn run_once(&self, run: impl FnOnce(F) -> Result<T>) -> Result {
        let Some((Permitted(task, permit), completer)) = self.0.cell.take() else { return Ok(()) };
        drop(permit);
        match catch_unwind(AssertUnwindSafe(|| run(task))) {
            Ok(Ok(value)) => {
                completer.complete(Ok(value));
                Ok(())
            }
            Ok(Err(error)) => {
                completer.complete(Err(error.clone()));
                Err(error)
            }
            Err(panic) => {
                completer.complete(Err(Error::panicked(panic_text(&*panic))));
                resume_unwind(panic)
            }
        }
    }

    /// Runs a periodic task. Returns whether it goes on.
    fn run_again(&self, run: impl FnOnce(&mut F) -> Result) -> Result<ControlFlow<()>> {
        let cell = &self.0.cell;
        let Some((mut body, completer)) = cell.borrow() else { return Ok(ControlFlow::Break(())) };
        match catch_unwind(AssertUnwindSafe(|| run(&mut body.0))) {
            Ok(Ok(())) => {
                let Err((body, completer)) = cell.put_back(body, completer) else {
                    return Ok(ControlFlow::Continue(()));
                };
                cell.end_run(body, completer, Error::Cancelled);
                Ok(ControlFlow::Break(()))
            }
            Ok(Err(error)) => {
                cell.end_run(body, completer, error.clone());
                continues(Err(error))
            }
            Err(panic) => {
                cell.end_run(body, completer, Error::panicked(panic_text(&*panic)));
                resume_unwind(panic)
            }
        }
    }
}

impl<F: Send + 'static, T: Send + 'static> Drop for Runner<F, T> {
    fn drop(&mut self) {
        // A channel that has received the task and closes has ended it before. So the only other
        // reason is that its pipeline does not know the task.
        let received = self.0.key.get().is_some();
        self.0.cell.end(if received { Error::PipelineReplaced } else { Error::Closed });
    }
}

impl<F: Send + 'static, T: Send + 'static> TaskEntry for Entry<F, T> {
    fn is_waiting(&self) -> bool {
        self.cell.is_waiting()
    }

    fn end(&self, why: Error) {
        self.cell.end(why);
    }

    fn set_key(&self, key: TaskKey) {
        let _ = self.key.set(key);
    }

    fn set_deadline(&self, deadline: u64) {
        self.cell.set_deadline(deadline);
    }
}

impl<F: Send + 'static, T: Send + 'static> TaskControl for Entry<F, T> {
    fn cancel(self: Arc<Self>) -> bool {
        let cancelled = self.cell.end(Error::Cancelled);
        // Without a key the channel has not received the task yet, and drops it then.
        if cancelled && let Some(key) = self.key.get() {
            self.sender.deliver_quietly(self.channel, Mail::Cancel(*key));
        }
        cancelled
    }

    fn deadline(&self) -> Option<u64> {
        self.cell.deadline()
    }

    fn time(&self) -> &TimeSource {
        self.sender.time()
    }

    fn origin(&self) -> &'static Location<'static> {
        self.origin
    }
}
