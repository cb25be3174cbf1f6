//! `Writer`: the thread that owns the store.
//!
//! Invariants: requests are carried out in the order of their submission, and the engine receives
//! their outcomes in that order. Renewals of the lease go first. What takes several transactions
//! lets other requests pass, and is finished before the store closes. Consecutive changes share a
//! transaction. A start is completed after its transaction was committed. After a transient error,
//! starts and commands fail, and the changes of runs are repeated. If the server has refused a
//! transaction, and so stored nothing, it is split, so that one change fails and not all. After any
//! other error nothing is written again.

use super::{batch::CommitBatch, batch_limit::BatchLimit, kept_topic::KeptTopic, skew_watch::SkewWatch};
use crate::durable::{
    backoff::Backoff,
    engine::{EngineInbox, EngineMessage},
    metrics::Metrics,
    request::{StoreReply, StoreRequest, refuse},
    starting::Starting,
    store::{Change, DueKey, Effect, Lease, LoadRange, Loaded, NewTimer, StoreError, TimerStore, TopicSet},
    timer_clock::TimerClock,
};
use crate::{
    clock::nanos,
    error::{Error, panic_message},
    machine,
    sync::{AdaptiveWait, Completer, ReceiveError, Receiver, loop_id},
};
use std::{
    collections::{BTreeSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

/// The largest number of changes that are gathered for a transaction.
const BATCH_LIMIT: usize = 1024;

/// About the largest size of an answer with changes of other nodes.
const CHANGED_BYTES: usize = 1024 * 1024;

/// About how many bytes of timers of other connections are read at once.
const LOOK_BYTES: usize = 1 << 20;

pub(in crate::durable) struct Writer {
    pub(super) store: Box<dyn TimerStore>,
    pub(super) requests: Receiver<StoreRequest>,
    wait: AdaptiveWait,
    pub(super) inbox: Arc<EngineInbox>,
    pub(super) clock: Arc<TimerClock>,
    pub(super) metrics: Arc<Metrics>,
    max_commit_delay: Duration,
    /// The number of the thread, by which completions know that a wait on it would never end.
    thread_id: u32,
    /// How many starts and commands to expect for a transaction: as many as were under way when the
    /// last one was committed.
    expected: usize,
    /// The latest due time of any load. The engine holds no timer that is due later.
    pub(super) loaded_until: i64,
    /// Changes that wait for a commit.
    pub(super) batch: CommitBatch,
    limit: BatchLimit,
    /// Changes of runs that have failed, and that are repeated at `retry_at`.
    failed_before: CommitBatch,
    retry_at: Option<Instant>,
    /// Failures to commit since all changes were committed.
    commits: Backoff,
    /// Failures to read and to renew the lease in a row.
    reads: Backoff,
    skew: SkewWatch,
    /// Whether the last request was a renewal that was carried out before others.
    has_renewed: bool,
    /// Requests that were received and not begun.
    pub(super) queue: VecDeque<StoreRequest>,
    pub(super) failed: Option<Error>,
    pub(super) topics: Vec<KeptTopic>,
    /// The topics that are paused, as the engine knows it.
    pub(super) paused: TopicSet,
}

impl Writer {
    pub(in crate::durable) fn new(
        store: Box<dyn TimerStore>,
        requests: Receiver<StoreRequest>,
        inbox: Arc<EngineInbox>,
        clock: Arc<TimerClock>,
        metrics: Arc<Metrics>,
        max_commit_delay: Duration,
        thread_id: u32,
    ) -> Self {
        Writer {
            store,
            requests,
            wait: AdaptiveWait::default(),
            inbox,
            clock,
            metrics,
            max_commit_delay,
            thread_id,
            expected: 0,
            loaded_until: i64::MIN,
            batch: CommitBatch::default(),
            limit: BatchLimit::default(),
            failed_before: CommitBatch::default(),
            retry_at: None,
            commits: Backoff::default(),
            reads: Backoff::default(),
            skew: SkewWatch::default(),
            has_renewed: false,
            queue: VecDeque::new(),
            failed: None,
            topics: Vec::new(),
            paused: TopicSet::default(),
        }
    }

    /// Sets the topics of the program, and which of them are paused as the engine knows it.
    pub(in crate::durable) fn with_topics(mut self, topics: Vec<KeptTopic>, paused: TopicSet) -> Self {
        self.topics = topics;
        self.paused = paused;
        self
    }

    /// Works until the store is closed. If the store panics, nothing is written again.
    pub(in crate::durable) fn run(mut self) {
        let _entered = loop_id::enter(self.thread_id);
        let closed = loop {
            match catch_unwind(AssertUnwindSafe(|| self.work())) {
                Ok(closed) => break closed,
                Err(panic) => {
                    let message = panic_message(panic);
                    self.stop(StoreError::failed(format!("it panicked: {message}")));
                }
            }
        };
        let Some(Closed { completers, result }) = closed else { return };
        // The file is unlocked and requests are refused before the completions are done.
        drop(self.store);
        refuse(self.queue.into_iter().chain(self.requests.close()));
        completers.into_iter().for_each(|completer| completer.complete(result.clone()));
    }

    /// Works until the store is closed. `None` if all handles are gone.
    fn work(&mut self) -> Option<Closed> {
        self.count();
        while let Some(request) = self.next() {
            match request {
                StoreRequest::Change { change, reply } => {
                    self.batch.push(change, reply);
                    self.gather();
                    self.commit();
                }
                StoreRequest::StartMany(starts) => self.start_many(starts),
                StoreRequest::Load(range) => self.load(range),
                StoreRequest::Survey { after, limit } => self.survey(after, limit),
                StoreRequest::Drain => self.store.drain(),
                StoreRequest::Renew { asked, until, busy } => self.renew(asked, until, &busy),
                StoreRequest::Look { until } => self.look(until),
                StoreRequest::Query(query) => match &self.failed {
                    Some(error) => query(Err(error.clone())),
                    None => query(Ok(&mut *self.store)),
                },
                StoreRequest::Pause { topic, is_paused, completer, permit } => {
                    self.pause(&topic, is_paused, completer, permit);
                }
                StoreRequest::DeadWork(work) => self.dead_work(work),
                StoreRequest::Prune => self.prune(),
                StoreRequest::Transaction { work, reply } => self.transaction(work, reply),
                StoreRequest::Close(completers) => return Some(Closed { completers, result: self.close() }),
            }
        }
        None
    }

    /// Returns the next request, or `None` if the sender is gone. Commits changes that are left
    /// first, however many requests there are. A renewal waits neither for them nor for other
    /// requests, but at least one of these lies between two renewals: the answer to one may bring
    /// the next one.
    pub(super) fn next(&mut self) -> Option<StoreRequest> {
        loop {
            if !std::mem::take(&mut self.has_renewed)
                && self.store.needs_claims()
                && let Some(renewal) = self.take_renewal()
            {
                self.has_renewed = matches!(renewal, StoreRequest::Renew { .. });
                return Some(renewal);
            }
            if !self.batch.is_empty() {
                self.commit();
                continue;
            }
            let retry_at = self.retry_at.filter(|_| !self.failed_before.is_empty());
            if retry_at.is_some_and(|at| at <= machine::now()) {
                self.batch.append(&mut self.failed_before);
                self.limit.try_again();
                continue;
            }
            if let Some(request) = self.queue.pop_front() {
                return Some(request);
            }
            let Some(retry_at) = retry_at else {
                let store = &mut self.store;
                let request = self.wait.recv(&self.requests, None, || store.set_busy(false)).ok();
                self.store.set_busy(self.wait.was_short());
                return request;
            };
            self.store.set_busy(false);
            match self.requests.receive(Some(retry_at)) {
                Ok(request) => return Some(request),
                Err(ReceiveError::Empty) => {}
                Err(ReceiveError::Disconnected) => return None,
            }
        }
    }

    /// Takes a waiting renewal out of the queue, or the request that must precede it.
    fn take_renewal(&mut self) -> Option<StoreRequest> {
        self.queue.extend(self.requests.drain());
        // A renewal after `Drain` gives partitions back, so `Drain` goes first.
        self.take_waiting(|request| matches!(request, StoreRequest::Renew { .. } | StoreRequest::Drain))
    }

    /// Takes the first of the requests that wait for which `is_wanted` returns `true`.
    fn take_waiting(&mut self, is_wanted: impl Fn(&StoreRequest) -> bool) -> Option<StoreRequest> {
        self.queue.iter().position(is_wanted).and_then(|index| self.queue.remove(index))
    }

    /// Receives more changes for the same transaction, for at most `max_commit_delay`. Does not
    /// wait any longer once the expected starts and commands are there. No caller waits for the end
    /// of a run, so ends alone wait for the whole time.
    fn gather(&mut self) {
        let until = machine::now() + self.max_commit_delay;
        while self.batch.len() < BATCH_LIMIT {
            match self.queue.pop_front() {
                None => {}
                Some(StoreRequest::Change { change, reply }) => {
                    self.batch.push(change, reply);
                    continue;
                }
                Some(other) => {
                    self.queue.push_front(other);
                    break;
                }
            }
            let awaited = self.batch.awaited();
            let is_complete = awaited > 0 && awaited >= self.expected;
            let request = match self.requests.try_receive() {
                Err(ReceiveError::Empty) if !is_complete => self.requests.receive(Some(until)).ok(),
                received => received.ok(),
            };
            match request {
                Some(StoreRequest::Change { change, reply }) => self.batch.push(change, reply),
                Some(other) => self.queue.push_back(other),
                None => break,
            }
        }
    }

    /// Commits as many starts as a transaction takes. The others follow the requests that wait, so
    /// that these are not delayed by more than one transaction.
    fn start_many(&mut self, mut starts: VecDeque<(NewTimer, Starting)>) {
        let space = BATCH_LIMIT.saturating_sub(self.batch.len()).clamp(1, starts.len());
        for (timer, starting) in starts.drain(..space) {
            self.batch.push(Change::Start(timer), StoreReply::Start(starting));
        }
        if starts.is_empty() {
            self.gather();
        } else {
            self.put_back(StoreRequest::StartMany(starts));
        }
        self.commit();
    }

    /// Puts a request behind the waiting requests.
    pub(super) fn put_back(&mut self, request: StoreRequest) {
        self.queue.extend(self.requests.drain());
        self.queue.push_back(request);
    }

    /// Commits the gathered changes, and delivers their outcomes.
    fn commit(&mut self) {
        if let Some(error) = self.failed.clone() {
            return self.batch.refuse(&error);
        }
        let size = self.limit.of(self.batch.len());
        let now = self.clock.present_millis();
        let begun = machine::now();
        let result = self.store.commit(self.batch.changes(size), now);
        let took = machine::now().saturating_duration_since(begun);
        match result {
            Ok(outcomes) => {
                self.limit.succeeded(took);
                let size = outcomes.len() as u64;
                self.metrics.commits.add(1);
                self.metrics.changes.add(size);
                self.metrics.largest_batch.set(self.metrics.largest_batch.read().max(size));
                self.metrics.commit_time.record(nanos(took));
                if self.batch.awaited() > 0 {
                    self.expected = self.batch.awaited() + self.requests.len();
                }
                // Several nodes change the numbers, so each renewal asks for them.
                if !self.store.needs_claims() {
                    self.count();
                }
                self.batch.deliver(outcomes, self.loaded_until, &self.inbox, &self.metrics);
                if self.batch.is_empty() && self.failed_before.is_empty() {
                    works(&mut self.commits);
                }
                self.maintain();
            }
            Err(StoreError::Server(_)) if size > 1 => {
                self.metrics.commit_failures.add(1);
                self.limit.failed(size);
            }
            Err(error) if error.is_transient() => {
                self.metrics.commit_failures.add(1);
                let is_refusal = matches!(error, StoreError::Server(_));
                let fails_all = !is_refusal || self.limit.refused();
                if !is_refusal {
                    self.limit.failed(size);
                }
                let pause = fails(&mut self.commits, &error);
                // Changes that already wait keep their time, even if starts fail in the meantime.
                if self.failed_before.is_empty() {
                    self.retry_at = Some(machine::now() + pause);
                }
                // The change that was refused is repeated behind the others.
                let mut refused = self.batch.take_first(if is_refusal { size } else { 0 });
                let mut rest =
                    if fails_all { std::mem::take(&mut self.batch) } else { CommitBatch::default() };
                let error = Error::from(error);
                for batch in [&mut rest, &mut refused] {
                    batch.refuse_awaited(&error, &self.inbox);
                    self.failed_before.append(batch);
                }
            }
            Err(error) => self.stop(error),
        }
    }

    /// Lets the store do its own work.
    pub(super) fn maintain(&mut self) {
        if self.failed.is_some() {
            return;
        }
        match self.store.maintain() {
            Ok(state) => {
                self.metrics.log_bytes.set(state.log_bytes);
                self.metrics.maintenance_failures.set(state.failures);
            }
            Err(error) => self.stop(error),
        }
    }

    pub(super) fn stop(&mut self, error: StoreError) {
        let error = Error::from(error);
        log::error!("durable timers have stopped: {error:#}");
        self.metrics.is_stopped.set(1);
        self.failed = Some(error.clone());
        self.inbox.tell(EngineMessage::Stopped(error.clone()));
        self.batch.refuse(&error);
        self.failed_before.refuse(&error);
    }

    fn transaction(&mut self, mut work: Effect, reply: Box<dyn FnOnce(Result<(), Error>) + Send>) {
        if let Some(error) = &self.failed {
            return reply(Err(error.clone()));
        }
        let result = self.store.transaction(&mut work);
        reply(result.clone().map_err(Error::from));
        match result {
            Ok(()) => self.maintain(),
            Err(error) => self.failed_alone(error),
        }
    }

    fn load(&mut self, range: LoadRange) {
        if self.failed.is_some() {
            return;
        }
        self.loaded_until = self.loaded_until.max(range.until);
        match self.store.load(range) {
            Ok(loaded) => {
                works(&mut self.reads);
                self.inbox.tell_all(vec![EngineMessage::Loaded { range, loaded }]);
            }
            Err(error) if error.is_transient() => {
                self.metrics.commit_failures.add(1);
                fails(&mut self.reads, &error);
                self.inbox.tell_all(vec![EngineMessage::LoadFailed]);
            }
            Err(error) => self.stop(error),
        }
    }

    fn survey(&mut self, after: DueKey, limit: usize) {
        if self.failed.is_some() {
            return;
        }
        let rows = match self.store.far_periodic(after, limit) {
            Ok(rows) => Some(rows),
            Err(error) if error.is_transient() => None,
            Err(error) => return self.stop(error),
        };
        self.inbox.tell_all(vec![EngineMessage::Surveyed { rows }]);
    }

    fn renew(&mut self, asked: u64, until: i64, busy: &BTreeSet<u32>) {
        if self.failed.is_some() {
            return;
        }
        // A load whose answer the engine has not received may have covered more.
        let until = until.max(self.loaded_until);
        let renewed = self
            .store
            .renew(busy)
            .and_then(|lease| Ok((lease, self.store.changed_by_others(until, CHANGED_BYTES)?)));
        let (lease, changed): (Option<Lease>, Loaded) = match renewed {
            Ok(renewed) => {
                works(&mut self.reads);
                renewed
            }
            Err(error) if error.is_transient() => {
                self.metrics.renewal_failures.add(1);
                fails(&mut self.reads, &error);
                (None, Loaded { rows: Vec::new(), is_complete: true })
            }
            Err(error) => return self.stop(error),
        };
        if let Some(reading) = self.store.clock().filter(|_| lease.is_some()) {
            let ahead = self.clock.set(reading);
            self.skew.observe(ahead, &self.metrics);
        }
        self.count();
        self.inbox.tell_all(vec![EngineMessage::Renewed { asked, lease, changed }]);
    }

    /// Passes timers of other connections to the engine. If there are many, goes on after the
    /// requests that wait.
    fn look(&mut self, until: i64) {
        if self.failed.is_some() {
            return;
        }
        // A load whose answer the engine has not received may have covered more.
        match self.store.changed_by_others(until.max(self.loaded_until), LOOK_BYTES) {
            Ok(found) => {
                if !found.rows.is_empty() {
                    self.count();
                }
                self.inbox.tell_all(found.rows.into_iter().map(EngineMessage::Stored).collect());
                if found.is_complete {
                    self.inbox.tell(EngineMessage::Looked);
                } else {
                    self.put_back(StoreRequest::Look { until });
                }
            }
            Err(error) if error.is_transient() => self.inbox.tell(EngineMessage::Looked),
            Err(error) => self.stop(error),
        }
    }

    fn close(&mut self) -> Result<(), Error> {
        // The rest of work that began before, and has let this request pass.
        let is_work = |request: &StoreRequest| {
            matches!(request, StoreRequest::StartMany(_) | StoreRequest::DeadWork(_))
        };
        while let Some(request) = self.take_waiting(is_work) {
            match request {
                StoreRequest::StartMany(starts) => self.start_many(starts),
                StoreRequest::DeadWork(work) => self.dead_work(work),
                _ => {}
            }
        }
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.batch.append(&mut self.failed_before);
        self.limit.try_again();
        // What fails now fires again after the next start.
        while !self.batch.is_empty() {
            self.commit();
        }
        self.store.release().map_err(Error::from)
    }

    /// Publishes the numbers of timers in the store, and which topics are paused.
    pub(super) fn count(&mut self) {
        if self.failed.is_none()
            && let Ok(counts) = self.store.counts()
        {
            self.metrics.pending.set(counts.iter().map(|topic| topic.pending).sum());
            self.metrics.dead.set(counts.iter().map(|topic| topic.dead).sum());
            self.tell_paused(&counts);
        }
    }
}

/// Counts a failure of the store. Logs it, ever less often. Returns the pause before the next
/// attempt.
fn fails(backoff: &mut Backoff, error: &StoreError) -> Duration {
    let pause = backoff.failed();
    if backoff.is_worth_a_line() {
        log::warn!("the timer store has failed {} times in a row: {error}", backoff.failures());
    }
    pause
}

/// Notes that the store has executed a request.
fn works(backoff: &mut Backoff) {
    let failures = backoff.succeeded();
    if failures > 1 {
        log::info!("the timer store works again, after {failures} failures");
    }
}

/// The end of a store, with the completions of `close`.
struct Closed {
    completers: Vec<Completer<()>>,
    result: Result<(), Error>,
}
