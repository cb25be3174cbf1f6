//! What operators do to whole topics.

use super::timers::DurableTimers;
use crate::durable::{
    dead_work::{DeadAction, DeadWork},
    request::StoreRequest,
    store::TopicCounts,
    unix_millis::duration_millis,
};
use crate::sync::Completion;
use std::time::Duration;

impl DurableTimers {
    /// Returns the numbers of timers and runs of each topic of the store, and whether it is paused.
    /// Does not read the timers. Fails if the store has stopped, so it can serve as a health check.
    ///
    /// # Errors
    ///
    /// The errors of [`cancel`](DurableTimers::cancel).
    pub fn counts(&self) -> Completion<Vec<TopicCounts>> {
        let port = self.port.clone();
        self.query(move |store| {
            let mut counts = store.counts()?;
            for topic in &mut counts {
                let index = port.topics.iter().position(|name| *name == topic.topic);
                let runs = index.and_then(|index| port.runs.get(index));
                topic.running = runs.map_or(0, |runs| runs.taken() as u64);
            }
            Ok(counts)
        })
    }

    /// Pauses a topic: its timers stay in the store and do not fire until
    /// [`resume`](DurableTimers::resume) is called. Completes with `false` if the store has no such
    /// topic.
    ///
    /// The pause is stored. It holds for all nodes and after a restart, also for programs that do
    /// not have the topic at the moment. When the completion is done, this node begins no more runs
    /// of the topic, except for [at-most-once](crate::durable::Delivery::AtMostOnce) runs that the
    /// store has ended already. Other nodes follow when they renew their lease, about once per
    /// second. Runs that have begun go on, and are stored as usual when they are answered.
    ///
    /// Starts and commands work as usual. A timer of a paused topic that is
    /// [run](DurableTimers::run_now) is due at once, and fires when the topic goes on.
    ///
    /// # Errors
    ///
    /// The errors of [`cancel`](DurableTimers::cancel).
    ///
    /// ```
    /// use netwheel::{EventLoopGroup, durable::{Due, DurableTimers, Late, MemoryDisk, Retry, Topic}};
    ///
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let topic = Topic::new("webhook", Late::RunOnce, Retry::backoff(5), |due: Due<String>| due.done());
    /// let timers = DurableTimers::builder(MemoryDisk::new().open()?).topic(topic).start(&group)?;
    /// assert!(timers.pause("webhook").wait()?);
    /// assert!(timers.counts().wait()?[0].is_paused);
    /// assert!(timers.resume("webhook").wait()?);
    /// assert!(!timers.pause("another").wait()?);
    /// # timers.close().wait()?;
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    pub fn pause(&self, topic: &str) -> Completion<bool> {
        self.set_paused(topic, true)
    }

    /// Resumes a paused topic. Timers that became due during the pause fire, or are treated as the
    /// topic's [`Late`](crate::durable::Late) states. Completes with `false` if the store has no
    /// such topic, and `true` also if it was not paused.
    ///
    /// # Errors
    ///
    /// The errors of [`cancel`](DurableTimers::cancel).
    pub fn resume(&self, topic: &str) -> Completion<bool> {
        self.set_paused(topic, false)
    }

    /// Tries all dead letters of a topic again, with all their attempts, and returns their number.
    /// The oldest is due at once, and the others in the course of the time `over`, so that many
    /// letters do not run at the same time.
    ///
    /// Letters that die after the call are not included. At most 256 letters share a transaction,
    /// and other requests to the store are carried out in between. After an error or a crash, some
    /// letters are pending and the others are dead, so the call can be repeated.
    ///
    /// # Errors
    ///
    /// The errors of [`cancel`](DurableTimers::cancel).
    pub fn retry_dead(&self, topic: &str, over: Duration) -> Completion<u64> {
        self.dead_work(topic, DeadAction::Retry { over: duration_millis(over) })
    }

    /// Removes all dead letters of a topic, and returns their number. Like
    /// [`retry_dead`](DurableTimers::retry_dead), in transactions with at most 1000 letters.
    ///
    /// # Errors
    ///
    /// The errors of [`cancel`](DurableTimers::cancel).
    pub fn remove_dead(&self, topic: &str) -> Completion<u64> {
        self.dead_work(topic, DeadAction::Remove)
    }

    fn dead_work(&self, topic: &str, action: DeadAction) -> Completion<u64> {
        let (completer, permit, done) = match self.port.begin() {
            Ok(begun) => begun,
            Err(refused) => return refused,
        };
        let work = DeadWork::new(topic.to_owned(), action, completer, permit);
        self.port.send(StoreRequest::DeadWork(work));
        done
    }

    fn set_paused(&self, topic: &str, is_paused: bool) -> Completion<bool> {
        let (completer, permit, done) = match self.port.begin_on_loop() {
            Ok(begun) => begun,
            Err(refused) => return refused,
        };
        self.port.send(StoreRequest::Pause { topic: topic.to_owned(), is_paused, completer, permit });
        done
    }
}
