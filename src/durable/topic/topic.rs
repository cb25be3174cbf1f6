//! `Topic`: the handler and the policies of a kind of timer.

use super::due::{Answering, Due};
use crate::durable::{
    engine::Rules,
    policy::{Delivery, KeepDead, Late, Retry},
    unix_millis::duration_millis,
};
use crate::{
    error::{Error, Result},
    settings::check_range,
};
use serde::de::DeserializeOwned;
use std::{fmt, time::Duration};

/// The longest name of a topic, in bytes.
const NAME_LIMIT: usize = 128;

/// A kind of timer: a name, policies for late and for failed timers, and the handler.
///
/// ```
/// use netwheel::durable::{Delivery, Due, Late, Retry, Topic};
///
/// let topic = Topic::new("remind", Late::RunOnce, Retry::backoff(5), |due: Due<String>| {
///     println!("{}", due.payload());
///     due.done();
/// })
/// .delivery(Delivery::AtLeastOnce);
/// ```
#[must_use]
pub struct Topic {
    pub(in crate::durable) name: String,
    pub(in crate::durable) rules: Rules,
    pub(in crate::durable) keep: KeepDead,
    pub(in crate::durable) handler: TopicHandler,
}

/// A handler without its payload's type.
pub(in crate::durable) type TopicHandler = Box<dyn FnMut(Answering) + Send>;

impl Topic {
    /// Creates a topic. `T` is the payload, which is stored as JSON.
    ///
    /// `handler` runs on the event loop of the timers, one run after the other, and must not block.
    /// It answers with the methods of [`Due`], at once or later and from any thread. A run fails if
    /// the handler panics, or if the stored payload is not a `T`.
    pub fn new<T: DeserializeOwned + Send + 'static>(
        name: impl Into<String>,
        late: Late,
        retry: Retry,
        mut handler: impl FnMut(Due<T>) + Send + 'static,
    ) -> Self {
        // The conversion is code of the program too, and may panic.
        let call = move |mut answering: Answering| {
            let reply = answering.reply();
            reply.guard(|| match answering.take_payload() {
                Ok(payload) => handler(Due::new(answering, payload)),
                Err(error) => answering.fail(format!("the payload is not understood: {error}")),
            });
        };
        let rules = Rules::new(late, retry, Delivery::AtLeastOnce);
        Topic { name: name.into(), rules, keep: KeepDead::default(), handler: Box::new(call) }
    }

    /// Sets whether a run that a crash interrupted is repeated. At least once by default.
    ///
    /// At most once excludes retries: its [`Retry`] must be [`Retry::never`].
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.rules.delivery = delivery;
        self
    }

    /// Limits the number of the topic's dead letters in the store. When there are more, the oldest
    /// are removed. Without a limit by default, so all letters are kept.
    ///
    /// A program removes surplus letters at its start and every ten seconds, at most 1000 in one
    /// transaction. [`pruned`](crate::durable::DurableMetrics::pruned) counts them.
    pub fn keep_dead(mut self, letters: u64) -> Self {
        self.keep.letters = Some(letters);
        self
    }

    /// Sets how long the topic's dead letters are kept, counted from the failure of the last
    /// attempt. Older ones are removed, like those beyond [`keep_dead`](Topic::keep_dead). Without
    /// a limit by default.
    pub fn keep_dead_for(mut self, time: Duration) -> Self {
        self.keep.millis = Some(duration_millis(time));
        self
    }

    /// Limits how many runs of this topic may be without an answer on this node, 1 or more. Without
    /// a limit by default.
    ///
    /// While that many runs are under way, other timers of the topic that are due wait in the store
    /// and a small part of the memory. Other topics are not delayed. Timers of the topic that wait
    /// longer than [`late_after`](crate::durable::DurableTimersBuilder::late_after) are late, so
    /// [`Late`] applies. [`max_running`](crate::durable::DurableTimersBuilder::max_running) limits
    /// the runs of all topics together: keep the limits of slow topics well below it.
    ///
    /// The timers of a topic fire in the order of their due times. A topic with a limit and other
    /// topics are loaded separately, so timers of other topics may overtake those of this one.
    ///
    /// ```
    /// use netwheel::durable::{Due, Late, Retry, Topic};
    ///
    /// let topic = Topic::new("webhook", Late::RunOnce, Retry::backoff(5), |due: Due<String>| due.done())
    ///     .max_running(16);
    /// ```
    pub fn max_running(mut self, runs: usize) -> Self {
        self.rules.concurrency = Some(runs);
        self
    }

    /// Sets how long a handler may take to answer, 1 ms or more. There is no limit by default.
    ///
    /// The time counts from the call of the handler, by the monotonic clock of the event loop. A
    /// run without an answer has then failed: it is retried or becomes a dead letter, as its
    /// [`Retry`] states. A later answer has no effect, and its
    /// [`done_with`](Due::done_with) is not called ([`DurableMetrics::late_answers`]).
    ///
    /// A time limit frees the place of a run that is never answered, for other runs and for
    /// [`close`](crate::durable::DurableTimers::close). It does not end the work: a retry may begin
    /// while the work of the earlier attempt goes on. The work finds the time to give up with
    /// [`Due::deadline`].
    ///
    /// [`DurableMetrics::late_answers`]: crate::durable::DurableMetrics::late_answers
    ///
    /// ```
    /// use netwheel::durable::{Due, Late, Retry, Topic};
    /// use std::time::Duration;
    ///
    /// let topic = Topic::new("call", Late::RunOnce, Retry::backoff(5), |due: Due<String>| {
    ///     // Calls a server, which may never answer.
    /// #   due.done();
    /// })
    /// .run_timeout(Duration::from_secs(30));
    /// ```
    pub fn run_timeout(mut self, limit: Duration) -> Self {
        self.rules.run_timeout = Some(limit);
        self
    }

    pub(in crate::durable) fn check(&self) -> Result {
        if self.name.is_empty() || self.name.len() > NAME_LIMIT {
            let name = format!("a name of {} bytes", self.name.len());
            return Err(Error::setting("topic", name, "1 to 128 bytes"));
        }
        self.rules.retry.check()?;
        if self.rules.concurrency == Some(0) {
            return Err(Error::setting("max_running", 0, "1 or more runs"));
        }
        if let Some(limit) = self.rules.run_timeout {
            check_range("run_timeout", limit, Duration::from_millis(1).., "1 ms or more")?;
        }
        if let Late::RunAll { at_most } = self.rules.late
            && !(1..=1000).contains(&at_most)
        {
            return Err(Error::setting("at_most", at_most, "1 to 1000 runs"));
        }
        if self.rules.delivery == Delivery::AtMostOnce && !self.rules.retry.is_never() {
            return Err(Error::setting(
                "retry",
                "retries",
                "`Retry::never` in a topic that runs at most once",
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic").field("name", &self.name).field("rules", &self.rules).finish_non_exhaustive()
    }
}
