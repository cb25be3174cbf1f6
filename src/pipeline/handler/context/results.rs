//! Results that come back to the handler: of blocking work, and of operations that complete later.

use super::{Context, handler_task::HandlerTask};
use crate::{
    channel::TaskKey,
    error::{Result, SendError},
    pipeline::{
        answer_waker::{await_completion, key_of},
        handler::Handler,
        offload::offload,
        spawned::Spawned,
    },
    sync::{Completer, Completion},
};

impl<H: Handler> Context<'_, H> {
    /// Runs `work`, which may block, on a thread of the group's
    /// [`WorkerPool`](crate::worker_pool::WorkerPool). Then runs `then` with this handler and the
    /// result of the work, on this loop.
    ///
    /// Only `work` and its result are sent to another thread. `then` stays on the loop, so it may
    /// hold values that are not `Send`. Like a task of [`schedule`](Context::schedule) it never
    /// runs within a callback, and counts towards
    /// [`max_scheduled_tasks`](crate::channel::ChannelOptions::max_scheduled_tasks) until it has
    /// run. The works of one channel run in parallel if the pool has threads. Their results are
    /// delivered in the order in which they are ready, also when the loop's queue is full.
    ///
    /// If the work panics, `then` gets [`Error::Panicked`](crate::Error::Panicked).
    ///
    /// When the channel starts to close or the task is [cancelled](Context::cancel), the result is
    /// dropped. `then` is dropped as well: at once after a cancel, otherwise when the channel is
    /// closed. Work that has not started by then is dropped without running, by a worker or when
    /// the pool needs its place in the queue. Running work is not interrupted. A shutdown of the
    /// loop does not cancel it: a handler that stays open in [`shutdown`](Handler::shutdown) gets
    /// the result.
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// # struct Session { user: Option<String> }
    /// # fn look_up(_: &[u8]) -> std::io::Result<String> { Ok(String::new()) }
    /// # impl Handler for Session {
    /// #   type Read = bytes::Bytes;
    /// #   type Write = bytes::Bytes;
    /// fn read(&mut self, ctx: &mut Context<'_, Self>, token: bytes::Bytes) -> Result {
    ///     ctx.offload(
    ///         move || look_up(&token), // on a worker: may block
    ///         |me, ctx, user| {
    ///             me.user = Some(user??); // on the loop: the work may have panicked, or failed
    ///             ctx.write("welcome".into())
    ///         },
    ///     )?;
    ///     Ok(())
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Full`](crate::Error::Full) if the pool's queue is full or the channel has reached
    ///   its limit of tasks.
    /// - [`Error::Closed`](crate::Error::Closed) if the channel is closing.
    /// - [`Error::Io`](crate::Error::Io) if no thread can be started.
    ///
    /// The work is returned and `then` is dropped.
    pub fn offload<T, W>(
        &mut self,
        work: W,
        then: impl FnOnce(&mut H, &mut Context<'_, H>, Result<T>) -> Result + 'static,
    ) -> Result<TaskKey, SendError<W>>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        offload(self.state, self.services, work, |answer| {
            HandlerTask::boxed(move |me: &mut H, ctx: &mut Context<'_, H>| match answer.take() {
                Some(result) => then(me, ctx, result),
                None => Ok(()),
            })
        })
    }

    /// Runs `future` on the executor of the group. Then runs `then` with this handler and the
    /// output of the future, on this loop.
    ///
    /// This is the bridge from a handler to async code such as a database driver or an HTTP client.
    /// Only the future and its output are sent to other threads. `then` stays on the loop, and runs
    /// as for [`offload`](Context::offload): never within a callback, and also when the loop's
    /// queue is full. The task counts towards
    /// [`max_scheduled_tasks`](crate::channel::ChannelOptions::max_scheduled_tasks) until it has
    /// run.
    ///
    /// If the future panics, `then` gets [`Error::Panicked`](crate::Error::Panicked). If the
    /// executor drops the future, `then` gets [`Error::Cancelled`](crate::Error::Cancelled).
    ///
    /// When the task is [cancelled](Context::cancel) or the channel closes, `then` is dropped, and
    /// the executor is woken to drop the future. A shutdown of the loop does not cancel the task: a
    /// handler that stays open in [`shutdown`](Handler::shutdown) gets the output.
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// # #[derive(Clone)] struct Database;
    /// # impl Database { async fn user(&self, _: bytes::Bytes) -> std::io::Result<String> { Ok(String::new()) } }
    /// struct Session { database: Database, user: Option<String> }
    ///
    /// impl Handler for Session {
    ///     type Read = bytes::Bytes;
    ///     type Write = bytes::Bytes;
    ///
    ///     fn read(&mut self, ctx: &mut Context<'_, Self>, token: bytes::Bytes) -> Result {
    ///         let database = self.database.clone();
    ///         ctx.spawn(async move { database.user(token).await }, |me, ctx, user| {
    ///             me.user = Some(user??); // the future may have panicked, or failed
    ///             ctx.write("welcome".into())
    ///         })?;
    ///         Ok(())
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Setting`](crate::Error::Setting) if the group has no
    ///   [executor](crate::group::EventLoopGroupBuilder::executor).
    /// - [`Error::Full`](crate::Error::Full) if the channel has reached its limit of tasks.
    /// - [`Error::Closed`](crate::Error::Closed) if the channel is closing.
    /// - The executor's error if it does not accept the future.
    ///
    /// The future is returned and `then` is dropped.
    pub fn spawn<F>(
        &mut self,
        future: F,
        then: impl FnOnce(&mut H, &mut Context<'_, H>, Result<F::Output>) -> Result + 'static,
    ) -> Result<TaskKey, SendError<F>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let executor = match self.services.executor.get() {
            Ok(executor) => executor.clone(),
            Err(reason) => return Err(SendError::new(future, reason)),
        };
        let (completer, completion) = self.completer();
        let key = match self.await_completion(completion, then) {
            Ok(key) => key,
            Err(reason) => return Err(SendError::new(future, reason)),
        };
        let (spawned, slot) = Spawned::new(future, completer);
        let Err(reason) = executor.spawn(Box::pin(spawned)) else { return Ok(key) };
        match slot.take() {
            Some(future) => {
                self.cancel(key);
                Err(SendError::new(future, reason))
            }
            // The executor has polled it nevertheless: `then` gets the result, or that it was
            // dropped.
            None => Ok(key),
        }
    }

    /// Calls `poll` here, in the context of the group's executor. Returns whether the executor
    /// supports that.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if the group does not have an executor.
    #[cfg(feature = "tower")]
    pub(crate) fn poll_here(&self, poll: &mut dyn FnMut()) -> Result<bool> {
        Ok(self.services.executor.get()?.poll_here(poll))
    }

    /// Runs `then` with this handler and the result of `completion`, on this loop.
    ///
    /// Like a task of [`schedule`](Context::schedule), `then` stays on the loop and never runs
    /// within a callback, not even if the completion is done already. Results are delivered in the
    /// order in which they are ready, also when the loop's queue is full.
    ///
    /// The completion belongs to the task. When the task is [cancelled](Context::cancel) or dropped
    /// with the channel, the completion is dropped, which cancels its operation as the table of
    /// [`Completion`] says. So a connection attempt ends with the channel that waits for it. A
    /// shutdown of the loop does not cancel the task.
    ///
    /// The task counts towards
    /// [`max_scheduled_tasks`](crate::channel::ChannelOptions::max_scheduled_tasks). Beyond the
    /// limit, or if the channel is closing, `then` and the completion are dropped, and the returned
    /// key names no task. Beyond the limit [`Handler::error`] gets
    /// [`Error::Full`](crate::Error::Full) when the running callback has returned.
    ///
    /// ```
    /// # use netwheel::{codec::RawBytes, prelude::*};
    /// # use bytes::Bytes;
    /// # struct Back;
    /// # impl Handler for Back {
    /// #   type Read = Bytes; type Write = Bytes;
    /// #   fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result { Ok(()) }
    /// # }
    /// struct Gateway { group: EventLoopGroup, upstream: Option<Channel<Bytes>> }
    ///
    /// impl Handler for Gateway {
    /// #   type Read = Bytes; type Write = Bytes;
    /// #   fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result { Ok(()) }
    ///     // ..
    ///     fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
    ///         ctx.set_auto_read(false);
    ///         let client =
    ///             ClientBootstrap::new(&self.group).pipeline(|_| Pipeline::codec(RawBytes).handler(Back));
    ///         ctx.on_complete(client.connect("127.0.0.1:9"), |me, ctx, channel| {
    ///             me.upstream = Some(channel?); // an error closes this channel
    ///             ctx.set_auto_read(true);
    ///             Ok(())
    ///         });
    ///         Ok(())
    ///     }
    /// }
    /// ```
    pub fn on_complete<T: 'static>(
        &mut self,
        completion: Completion<T>,
        then: impl FnOnce(&mut H, &mut Context<'_, H>, Result<T>) -> Result + 'static,
    ) -> TaskKey {
        let task = self.await_completion(completion, then);
        key_of(self.state, task)
    }

    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed) if the channel is closing, or
    /// [`Error::Full`](crate::Error::Full) if it has reached its limit of tasks. Both arguments are
    /// dropped.
    fn await_completion<T: 'static>(
        &mut self,
        completion: Completion<T>,
        then: impl FnOnce(&mut H, &mut Context<'_, H>, Result<T>) -> Result + 'static,
    ) -> Result<TaskKey> {
        await_completion(self.state, self.services, completion, |completion| {
            HandlerTask::boxed(move |me: &mut H, ctx: &mut Context<'_, H>| match completion.take() {
                Some(result) => then(me, ctx, result),
                None => Ok(()),
            })
        })
    }

    /// Creates a completion and the completer that delivers its result.
    ///
    /// Waiting for the completion on this loop fails with
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock), because this channel is assumed to
    /// complete it.
    pub fn completer<T>(&self) -> (Completer<T>, Completion<T>) {
        Completer::new(self.state.id().event_loop)
    }
}
