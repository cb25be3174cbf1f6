//! `DurableTimersBuilder`: settings, topics and start.

use super::timers::DurableTimers;
use crate::durable::{
    driver::{Driver, KeptTopic, Writer, paused},
    engine::{Engine, EngineInbox, EngineMessage, Limits, Rules},
    metrics::Metrics,
    policy::KeepDead,
    port::Port,
    store::{TimerStore, TopicSet},
    timer_clock::TimerClock,
    topic::Topic,
    unix_millis::duration_millis,
};
use crate::{
    error::{Error, Result},
    group::EventLoopGroup,
    machine,
    settings::check_range,
    sync::{Permits, channel, loop_id},
};
use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

/// When a timer is late, unless set otherwise.
const LATE_AFTER: Duration = Duration::from_secs(1);

/// The default in a store of several nodes: longer than the replacement of a lost node takes.
const LATE_AFTER_WITH_NODES: Duration = Duration::from_secs(15);

/// Settings of [`DurableTimers`]. [`start`](DurableTimersBuilder::start) reports invalid values.
///
/// | setting | default | range | when it is reached |
/// |---|---|---|---|
/// | `near` | 60 s | 1 s to 1 h | later timers are only in the store |
/// | `max_commit_delay` | 2 ms | 0 to 1 s | a transaction begins |
/// | `late_after` | 1 s; 15 s in a store of several nodes | 0 to 1 day | the topic's [`Late`](crate::durable::Late) decides |
/// | `max_loaded` | 65,536 timers in memory | 1 or more | the latest are dropped from memory and loaded again later |
/// | `max_loaded_bytes` | 32 MiB, with new timers and those on their way from the store | 1 or more | the same |
/// | `max_running` | 4096 runs that have not ended | 1 or more | nothing fires until one ends |
/// | `max_running_bytes` | 64 MiB | 1 or more | the same; one run may always begin |
/// | `fires_per_turn` | 64 | 1 or more | the rest fires in the next turn of the loop |
/// | `max_waiting` | 65,536 starts and commands without an answer | 1 or more | [`Error::Full`] |
/// | `max_payload` | 64 KiB of JSON | 0 or more | [`Error::Setting`] |
/// | topics | | at most 256, with different names | `start` fails |
#[must_use]
pub struct DurableTimersBuilder {
    store: Box<dyn TimerStore>,
    topics: Vec<Topic>,
    near: Duration,
    max_commit_delay: Duration,
    late_after: Option<Duration>,
    max_loaded: usize,
    max_loaded_bytes: usize,
    max_running: usize,
    max_running_bytes: usize,
    fires_per_turn: usize,
    max_waiting: usize,
    max_payload: usize,
    is_paused: bool,
}

impl DurableTimers {
    /// Returns a builder with default settings for the timers of a store.
    pub fn builder(store: impl TimerStore + 'static) -> DurableTimersBuilder {
        DurableTimersBuilder::new(Box::new(store))
    }
}

impl DurableTimersBuilder {
    fn new(store: Box<dyn TimerStore>) -> Self {
        DurableTimersBuilder {
            store,
            topics: Vec::new(),
            near: Duration::from_secs(60),
            max_commit_delay: Duration::from_millis(2),
            late_after: None,
            max_loaded: 65_536,
            max_loaded_bytes: 32 << 20,
            max_running: 4096,
            max_running_bytes: 64 << 20,
            fires_per_turn: 64,
            max_waiting: 65_536,
            max_payload: 64 << 10,
            is_paused: false,
        }
    }

    /// Adds a topic.
    pub fn topic(mut self, topic: Topic) -> Self {
        self.topics.push(topic);
        self
    }

    /// Sets how long before their time timers are loaded into memory.
    pub fn near(mut self, time: Duration) -> Self {
        self.near = time;
        self
    }

    /// Sets the longest time that a transaction waits for more changes. It waits no longer when as
    /// many starts and commands are there as in the transaction before. A longer time makes fewer
    /// transactions.
    pub fn max_commit_delay(mut self, time: Duration) -> Self {
        self.max_commit_delay = time;
        self
    }

    /// Sets how long after its time a timer is late, so that the policy of its topic applies.
    pub fn late_after(mut self, time: Duration) -> Self {
        self.late_after = Some(time);
        self
    }

    /// Sets how many timers may be in memory.
    pub fn max_loaded(mut self, timers: usize) -> Self {
        self.max_loaded = timers;
        self
    }

    /// Sets approximately how many bytes the timers in memory may take. Three parts share this.
    /// Five eighths are for waiting timers, and a quarter is for new timers that the loop has not
    /// taken yet. An eighth is for timers on their way from the store. In each part, one timer has
    /// a place however large it is.
    pub fn max_loaded_bytes(mut self, bytes: usize) -> Self {
        self.max_loaded_bytes = bytes;
        self
    }

    /// Sets how many runs may be in progress: the handler has not answered, or the answer is not
    /// stored yet.
    pub fn max_running(mut self, runs: usize) -> Self {
        self.max_running = runs;
        self
    }

    /// Sets approximately how many bytes the timers with runs in progress may take. Counts the
    /// payload as JSON, though a handler has the converted value. A single run may always begin.
    pub fn max_running_bytes(mut self, bytes: usize) -> Self {
        self.max_running_bytes = bytes;
        self
    }

    /// Sets how many handlers one turn of the event loop calls at most. The loop serves channels in
    /// between.
    pub fn fires_per_turn(mut self, runs: usize) -> Self {
        self.fires_per_turn = runs;
        self
    }

    /// Sets how many starts and commands may wait for the store.
    pub fn max_waiting(mut self, operations: usize) -> Self {
        self.max_waiting = operations;
        self
    }

    /// Sets the largest payload, in bytes of JSON.
    pub fn max_payload(mut self, bytes: usize) -> Self {
        self.max_payload = bytes;
        self
    }

    /// Fires no timers. Starts, commands and listings work as usual.
    ///
    /// This is for programs that operate on the store of a stopped program. Its timers stay
    /// pending, so a topic needs no working handler, and unknown topics are not logged.
    pub fn paused(mut self) -> Self {
        self.is_paused = true;
        self
    }

    /// Starts firing on an event loop of the group, and a thread for the store.
    ///
    /// Topics of the store that were not added are reported in the log and by
    /// [`DurableTimers::unknown_topics`]. Their timers are kept and do not fire.
    ///
    /// # Errors
    ///
    /// - [`Error::Setting`] if a setting is out of range, also of the store, or if two topics have
    ///   the same name.
    /// - [`Error::Other`] with a [`StoreError`](crate::durable::StoreError) if the store fails.
    /// - [`Error::Io`] if the thread cannot be started.
    pub fn start(mut self, group: &EventLoopGroup) -> Result<DurableTimers> {
        self.check()?;
        let names: Vec<String> = self.topics.iter().map(|topic| topic.name.clone()).collect();
        let counts = self.store.attach(&names)?;
        let kept = self.topics.iter().map(|topic| KeptTopic { name: topic.name.clone(), keep: topic.keep });
        let kept: Vec<KeptTopic> = kept.collect();
        let paused = paused(&counts, &kept);
        let unknown: Vec<String> = counts
            .into_iter()
            .filter(|topic| topic.pending + topic.dead > 0 && !names.contains(&topic.topic))
            .map(|topic| {
                let timers = topic.pending + topic.dead;
                let level = if self.is_paused { log::Level::Debug } else { log::Level::Warn };
                log::log!(
                    level,
                    "{timers} durable timers have the unknown topic {:?}; they are kept",
                    topic.topic
                );
                topic.topic
            })
            .collect();
        let (rules, handlers): (Vec<Rules>, Vec<_>) =
            self.topics.into_iter().map(|topic| (topic.rules, topic.handler)).unzip();
        let metrics = Arc::new(Metrics::default());
        let usual = if self.store.needs_claims() { LATE_AFTER_WITH_NODES } else { LATE_AFTER };
        let late_after = self.late_after.unwrap_or(usual);
        let limits = Limits {
            near: duration_millis(self.near),
            late_after: duration_millis(late_after),
            max_loaded: self.max_loaded,
            max_loaded_bytes: self.max_loaded_bytes,
            max_running: self.max_running,
            max_running_bytes: self.max_running_bytes,
            fires_per_turn: self.fires_per_turn,
            has_other_writers: self.store.has_other_writers(),
            is_paused: self.is_paused,
            prunes: !self.is_paused && kept.iter().any(|topic| topic.keep != KeepDead::default()),
        };
        let mut engine = Engine::new(rules, limits, self.store.needs_claims(), metrics.clone());
        if self.store.was_interrupted() {
            log::info!("the last program has not closed the timer store; attempts of due timers are noted");
            engine.suspect_store();
        }
        let (sender, requests) = channel();
        let event_loop = group.next().clone();
        let clock = Arc::new(TimerClock::new(event_loop.shared.time.clone()));
        if let Some(reading) = self.store.clock() {
            clock.set(reading);
        }
        let inbox = Arc::new(EngineInbox::new(limits.inbox_bytes()));
        let store_thread = loop_id::next();
        let port = Arc::new(Port {
            inbox: inbox.clone(),
            requests: sender,
            clock: clock.clone(),
            event_loop: event_loop.clone(),
            store_thread,
            metrics: metrics.clone(),
            topics: names,
            unknown,
            runs: engine.permits().to_vec(),
            permits: Arc::new(Permits::new(self.max_waiting)),
            max_payload: self.max_payload,
            is_closing: false.into(),
            near: duration_millis(self.near),
            starter: self.store.starter(),
        });
        let driver = Driver::new(event_loop, port.clone(), engine, handlers);
        let writer = Writer::new(
            self.store,
            requests,
            inbox.clone(),
            clock,
            metrics,
            self.max_commit_delay,
            store_thread,
        )
        .with_topics(kept, paused);
        machine::spawn("netwheel-timers".to_owned(), move || writer.run())
            .map_err(|e| Error::io("starting the thread of a timer store", e))?;
        inbox.tell(EngineMessage::Paused { topics: paused, pausing: None });
        Ok(DurableTimers::new(port, driver))
    }

    fn check(&self) -> Result {
        let seconds = Duration::from_secs;
        check_range("near", self.near, seconds(1)..=seconds(3600), "1 s to 1 h")?;
        check_range("max_commit_delay", self.max_commit_delay, ..=seconds(1), "0 to 1 s")?;
        let late_after = self.late_after.unwrap_or(LATE_AFTER);
        check_range("late_after", late_after, ..=seconds(24 * 3600), "0 to 1 day")?;
        check_range("max_loaded", self.max_loaded, 1.., "1 or more")?;
        check_range("max_loaded_bytes", self.max_loaded_bytes, 1.., "1 or more")?;
        check_range("max_running", self.max_running, 1.., "1 or more")?;
        check_range("max_running_bytes", self.max_running_bytes, 1.., "1 or more")?;
        check_range("fires_per_turn", self.fires_per_turn, 1.., "1 or more")?;
        check_range("max_waiting", self.max_waiting, 1.., "1 or more")?;
        if self.topics.len() > TopicSet::LIMIT {
            return Err(Error::setting("topics", self.topics.len(), "at most 256 topics"));
        }
        let mut names = BTreeSet::new();
        for topic in &self.topics {
            topic.check()?;
            if !names.insert(&topic.name) {
                return Err(Error::setting("topic", &topic.name, "a name that no other topic has"));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for DurableTimersBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableTimersBuilder")
            .field("topics", &self.topics)
            .field("near", &self.near)
            .field("max_commit_delay", &self.max_commit_delay)
            .field("late_after", &self.late_after)
            .finish_non_exhaustive()
    }
}
