//! Commands on timers, by number and by key.

use super::{timers::DurableTimers, when::When};
use crate::durable::{
    engine::{Asked, EngineMessage, TimerCommand},
    id::TimerId,
    request::StoreRequest,
    store::{TimerFilter, TimerInfo, TimerStore},
};
use crate::{error::Error, sync::Completion};

impl DurableTimers {
    /// Cancels a timer. Completes with `true` if the timer was removed and will not fire again.
    /// `false` if there is no such timer, because it has ended or was never stored.
    ///
    /// If the timer's handler runs at the moment, the completion waits for its answer. A periodic
    /// timer, and one that will be retried, is then removed. Dead letters are removed too.
    ///
    /// # Errors
    ///
    /// - [`Error::Full`] if too many operations wait.
    /// - [`Error::ShutDown`] after [`close`](DurableTimers::close).
    /// - [`Error::Other`] with a [`StoreError`](crate::durable::StoreError) if the store fails.
    ///
    /// The completion fails with the error, and the timer is unchanged. After
    /// [`StoreError::Busy`](crate::durable::StoreError::Busy) from a store on another machine, the
    /// timer may have been changed; the command can be repeated.
    pub fn cancel(&self, id: TimerId) -> Completion<bool> {
        self.ask(id, TimerCommand::Cancel)
    }

    /// Moves a timer or a dead letter to another time, as if it had been started for that time.
    /// `false` if there is no such timer. A periodic timer goes on from the new time.
    ///
    /// # Errors
    ///
    /// The errors of [`cancel`](DurableTimers::cancel).
    pub fn move_to(&self, id: TimerId, when: impl Into<When>) -> Completion<bool> {
        let due = when.into().due(self.port.wall_time());
        self.ask(id, TimerCommand::MoveTo(due))
    }

    /// Runs a timer or a dead letter at once. `false` if there is no such timer. The runs of
    /// [`every`](DurableTimers::every) then follow from now, and those of a cron expression as
    /// before.
    ///
    /// # Errors
    ///
    /// The errors of [`cancel`](DurableTimers::cancel).
    pub fn run_now(&self, id: TimerId) -> Completion<bool> {
        self.ask(id, TimerCommand::RunNow)
    }

    /// Returns the timer or dead letter with an idempotency key. `None` if no timer of the topic
    /// has it, also if that timer has ended. Periodic timers have the key `periodic` unless they
    /// were started with another one.
    ///
    /// ```
    /// use netwheel::{EventLoopGroup, durable::{Due, DurableTimers, Late, MemoryDisk, Retry, Topic}};
    /// use std::time::Duration;
    ///
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let topic = Topic::new("unpaid", Late::RunOnce, Retry::never(), |due: Due<u32>| due.done());
    /// let timers = DurableTimers::builder(MemoryDisk::new().open()?).topic(topic).start(&group)?;
    /// let hour = Duration::from_secs(3600);
    /// timers.at("unpaid", hour, &17).key("order-17").start().wait()?;
    ///
    /// let timer = timers.find("unpaid", "order-17").wait()?.expect("stored");
    /// assert_eq!(timer.payload, "17");
    /// assert!(timers.move_key("unpaid", "order-17", 2 * hour).wait()?);
    /// assert!(timers.cancel_key("unpaid", "order-17").wait()?);
    /// assert_eq!(timers.find("unpaid", "order-17").wait()?, None);
    /// # timers.close().wait()?;
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`cancel`](DurableTimers::cancel).
    pub fn find(&self, topic: &str, key: &str) -> Completion<Option<TimerInfo>> {
        let filter = TimerFilter::new().topic(topic).key(key).limit(1);
        self.query(move |store| Ok(store.list(&filter)?.pop()))
    }

    /// Removes the timer with an idempotency key, like [`cancel`](DurableTimers::cancel). `false`
    /// if no timer of the topic has the key.
    ///
    /// The key of a one-shot timer is remembered as if the timer had ended: for a day, a start with
    /// the key stores nothing.
    ///
    /// # Errors
    ///
    /// The errors of [`cancel`](DurableTimers::cancel).
    pub fn cancel_key(&self, topic: &str, key: &str) -> Completion<bool> {
        self.ask_key(topic, key, TimerCommand::Cancel)
    }

    /// Moves the timer or dead letter with an idempotency key to another time, like
    /// [`move_to`](DurableTimers::move_to). `false` if no timer of the topic has the key.
    ///
    /// # Errors
    ///
    /// The errors of [`cancel`](DurableTimers::cancel).
    pub fn move_key(&self, topic: &str, key: &str, when: impl Into<When>) -> Completion<bool> {
        let due = when.into().due(self.port.wall_time());
        self.ask_key(topic, key, TimerCommand::MoveTo(due))
    }

    /// Runs the timer or dead letter with an idempotency key at once, like
    /// [`run_now`](DurableTimers::run_now). `false` if no timer of the topic has the key.
    ///
    /// # Errors
    ///
    /// The errors of [`cancel`](DurableTimers::cancel).
    pub fn run_key(&self, topic: &str, key: &str) -> Completion<bool> {
        self.ask_key(topic, key, TimerCommand::RunNow)
    }

    fn ask(&self, id: TimerId, command: TimerCommand) -> Completion<bool> {
        let (completer, permit, done) = match self.port.begin_on_loop() {
            Ok(begun) => begun,
            Err(refused) => return refused,
        };
        self.port.inbox.tell(EngineMessage::Asked(Asked { id, command, completer, permit }));
        done
    }

    /// Finds the timer, and then asks for a command by its id. A timer that ends in between is
    /// not found by the command either.
    fn ask_key(&self, topic: &str, key: &str, command: TimerCommand) -> Completion<bool> {
        let (completer, permit, done) = match self.port.begin_on_loop() {
            Ok(begun) => begun,
            Err(refused) => return refused,
        };
        let filter = TimerFilter::new().topic(topic).key(key).limit(1);
        let inbox = self.port.inbox.clone();
        let find = move |store: Result<&mut dyn TimerStore, Error>| {
            let found = store.and_then(|store| Ok(store.list(&filter)?.pop()));
            match found {
                Ok(Some(timer)) => {
                    let asked = Asked { id: timer.id, command, completer, permit };
                    inbox.tell(EngineMessage::Asked(asked));
                }
                Ok(None) => completer.complete(Ok(false)),
                Err(error) => completer.complete(Err(error)),
            }
        };
        self.port.send(StoreRequest::Query(Box::new(find)));
        done
    }
}
