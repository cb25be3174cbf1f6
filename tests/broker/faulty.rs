//! A broker that loses, holds, doubles and reorders the events of another one, and fails
//! operations.

use netwheel::{
    Completion, EventLoop, Result,
    broker::{
        Broker, BrokerError, MemoryBroker, NodeId, Position, TopicName,
        store::{
            BrokerEvent, BrokerSink, BrokerStart, Changed, History, MapUpdate, NodeLease, Notification,
            Partition, PartitionTops, Publication, Published, ReadRange, Snapshot, TopicSeen,
        },
    },
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

/// What happens to stored events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Events {
    Pass,
    Lose,
    /// Until [`Faulty::release`].
    Hold,
    Double,
}

/// The connection of a node with faults. Clones control the same connection.
#[derive(Clone)]
pub(crate) struct Faulty(Arc<Shared>);

struct Shared {
    broker: Arc<dyn Broker>,
    /// Makes completions.
    event_loop: EventLoop,
    state: Mutex<State>,
    /// Whether the store cannot be reached.
    is_cut: AtomicBool,
    /// Whether reads fail.
    fails_reads: AtomicBool,
    /// Whether reads return no messages.
    empties_reads: AtomicBool,
    /// Whether questions for tops fail.
    fails_tops: AtomicBool,
    /// Whether the answers to requests for leases are lost.
    loses_lease_answers: AtomicBool,
    reads: AtomicUsize,
    tops: AtomicUsize,
    ended_leases: AtomicUsize,
}

struct State {
    events: Events,
    held: Vec<BrokerEvent>,
    /// The answers of reads, while they are held.
    held_reads: Option<Vec<Held>>,
    /// The updates of maps that are not passed on yet.
    held_changes: Option<Vec<Held>>,
    /// The answers of updates of maps, while they are held.
    held_change_answers: Option<Vec<Held>>,
    /// The owner whose entries are refused, although the store renews its lease.
    refused_owner: Option<NodeId>,
    /// Called before a partition is followed.
    before_follow: Option<Box<dyn FnOnce() + Send>>,
    followed: BTreeSet<u16>,
    sink: Option<Arc<dyn BrokerSink>>,
}

/// Something that is held.
type Held = Box<dyn FnOnce() + Send>;

impl Faulty {
    pub(crate) fn new(broker: &MemoryBroker, event_loop: &EventLoop) -> Self {
        Self::over(Arc::new(broker.clone()), event_loop)
    }

    pub(crate) fn over(broker: Arc<dyn Broker>, event_loop: &EventLoop) -> Self {
        let state = State {
            events: Events::Pass,
            held: Vec::new(),
            held_reads: None,
            held_changes: None,
            held_change_answers: None,
            refused_owner: None,
            before_follow: None,
            followed: BTreeSet::new(),
            sink: None,
        };
        Faulty(Arc::new(Shared {
            broker,
            event_loop: event_loop.clone(),
            state: Mutex::new(state),
            is_cut: AtomicBool::new(false),
            fails_reads: AtomicBool::new(false),
            empties_reads: AtomicBool::new(false),
            fails_tops: AtomicBool::new(false),
            loses_lease_answers: AtomicBool::new(false),
            reads: AtomicUsize::new(0),
            tops: AtomicUsize::new(0),
            ended_leases: AtomicUsize::new(0),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    pub(crate) fn set_events(&self, events: Events) {
        self.lock().events = events;
    }

    pub(crate) fn held(&self) -> usize {
        self.lock().held.len()
    }

    /// Passes the held events, the last one first, and further events as they come.
    pub(crate) fn release_reversed(&self) {
        let (mut held, sink) = {
            let mut state = self.lock();
            state.events = Events::Pass;
            (std::mem::take(&mut state.held), state.sink.clone().unwrap())
        };
        held.reverse();
        held.into_iter().for_each(|event| sink.handle(event));
    }

    /// Lets reads run in the store, and holds their answers.
    pub(crate) fn hold_reads(&self) {
        self.lock().held_reads = Some(Vec::new());
    }

    /// Passes the answers of reads that are held, and holds no further ones.
    pub(crate) fn release_reads(&self) {
        let held = self.lock().held_reads.take();
        held.into_iter().flatten().for_each(|answer| answer());
    }

    /// Holds updates of maps, so that the store does not make them.
    pub(crate) fn hold_changes(&self) {
        self.lock().held_changes = Some(Vec::new());
    }

    /// Passes on the updates that are held, and holds no further ones.
    pub(crate) fn release_changes(&self) {
        let held = self.lock().held_changes.take();
        held.into_iter().flatten().for_each(|change| change());
    }

    /// Lets updates of maps run in the store, and holds their answers.
    #[allow(dead_code, reason = "only the tests of the chat server use it")]
    pub(crate) fn hold_change_answers(&self) {
        self.lock().held_change_answers = Some(Vec::new());
    }

    /// Passes the answers of updates that are held, and holds no further ones.
    #[allow(dead_code, reason = "only the tests of the chat server use it")]
    pub(crate) fn release_change_answers(&self) {
        let held = self.lock().held_change_answers.take();
        held.into_iter().flatten().for_each(|answer| answer());
    }

    /// Lets reads fail.
    pub(crate) fn fail_reads(&self, on: bool) {
        self.0.fails_reads.store(on, SeqCst);
    }

    /// Lets reads return the top, and no messages.
    pub(crate) fn empty_reads(&self, on: bool) {
        self.0.empties_reads.store(on, SeqCst);
    }

    /// Lets questions for tops fail.
    pub(crate) fn fail_tops(&self, on: bool) {
        self.0.fails_tops.store(on, SeqCst);
    }

    /// Lets requests for leases have their effect, and loses the answers.
    #[allow(dead_code, reason = "the tests of the chat server do not use it")]
    pub(crate) fn lose_lease_answers(&self, on: bool) {
        self.0.loses_lease_answers.store(on, SeqCst);
    }

    /// Refuses the entries of an owner, and renews its lease.
    #[allow(dead_code, reason = "the tests of the chat server do not use it")]
    pub(crate) fn refuse_entries_of(&self, owner: NodeId) {
        self.lock().refused_owner = Some(owner);
    }

    /// Calls `before` when a partition is followed the next time.
    pub(crate) fn before_follow(&self, before: impl FnOnce() + Send + 'static) {
        self.lock().before_follow = Some(Box::new(before));
    }

    /// Makes the node believe that the events of the followed partitions were interrupted.
    pub(crate) fn follow_again(&self) {
        let (followed, sink) = {
            let state = self.lock();
            (state.followed.clone(), state.sink.clone().unwrap())
        };
        followed.into_iter().for_each(|partition| {
            sink.handle(BrokerEvent::Following(Partition::new(partition)));
        });
    }

    /// Ends or restores the connection to the store.
    pub(crate) fn set_cut(&self, on: bool) {
        self.0.is_cut.store(on, SeqCst);
        let (followed, sink) = {
            let state = self.lock();
            (state.followed.clone(), state.sink.clone().unwrap())
        };
        for partition in followed.into_iter().map(Partition::new) {
            sink.handle(if on {
                BrokerEvent::Interrupted(partition, cut())
            } else {
                BrokerEvent::Following(partition)
            });
        }
    }

    pub(crate) fn reads(&self) -> usize {
        self.0.reads.load(SeqCst)
    }

    pub(crate) fn tops_asked(&self) -> usize {
        self.0.tops.load(SeqCst)
    }

    /// Returns how often the end of a lease was asked for.
    pub(crate) fn ended_leases(&self) -> usize {
        self.0.ended_leases.load(SeqCst)
    }

    fn run<T: Send + 'static>(&self, operation: impl FnOnce(&dyn Broker) -> Completion<T>) -> Completion<T> {
        if !self.0.is_cut.load(SeqCst) {
            return operation(&*self.0.broker);
        }
        self.failed()
    }

    fn failed<T: Send + 'static>(&self) -> Completion<T> {
        let (completer, completion) = self.0.event_loop.completer();
        completer.complete(Err(cut().into()));
        completion
    }
}

fn cut() -> BrokerError {
    BrokerError::Unreachable("the cable is cut".into())
}

impl BrokerSink for Faulty {
    fn handle(&self, event: BrokerEvent) {
        let (sink, times) = {
            let mut state = self.lock();
            let is_cut = self.0.is_cut.load(SeqCst);
            let sink = state.sink.clone().unwrap();
            match (state.events, &event) {
                _ if is_cut => return,
                (Events::Lose, BrokerEvent::Stored(_)) => return,
                (Events::Hold, BrokerEvent::Stored(_)) => {
                    state.held.push(event);
                    return;
                }
                (Events::Double, BrokerEvent::Stored(_)) => (sink, 2),
                _ => (sink, 1),
            }
        };
        (0..times).for_each(|_| sink.handle(event.clone()));
    }
}

impl Broker for Faulty {
    fn start(&self, mut start: BrokerStart) -> Result<()> {
        self.lock().sink = Some(start.sink);
        start.sink = Arc::new(self.clone());
        self.0.broker.start(start)
    }

    fn follow(&self, partition: Partition, on: bool) {
        let before = self.lock().before_follow.take();
        before.into_iter().for_each(|before| before());
        let mut state = self.lock();
        if on {
            state.followed.insert(partition.get());
        } else {
            state.followed.remove(&partition.get());
        }
        drop(state);
        self.0.broker.follow(partition, on);
    }

    fn publish(&self, publication: Publication) -> Completion<Published> {
        self.run(|broker| broker.publish(publication))
    }

    fn notify(&self, notification: Notification) -> Result<()> {
        if self.0.is_cut.load(SeqCst) { Err(cut().into()) } else { self.0.broker.notify(notification) }
    }

    fn read(&self, topic: &TopicName, range: ReadRange) -> Completion<History> {
        self.0.reads.fetch_add(1, SeqCst);
        if self.0.fails_reads.load(SeqCst) {
            return self.failed();
        }
        let mut answer = self.run(|broker| broker.read(topic, range));
        if self.0.empties_reads.load(SeqCst) {
            let (completer, emptied) = self.0.event_loop.completer();
            answer.on_complete(move |history: Result<History>| {
                completer.complete(history.map(|mut history| {
                    history.messages.clear();
                    history
                }));
            });
            answer = emptied;
        }
        let mut state = self.lock();
        let Some(held) = &mut state.held_reads else { return answer };
        let (completer, completion) = self.0.event_loop.completer();
        held.push(Box::new(move || answer.on_complete(move |history| completer.complete(history))));
        completion
    }

    fn tops(&self, partition: Partition, topics: Vec<TopicSeen>) -> Completion<PartitionTops> {
        self.0.tops.fetch_add(1, SeqCst);
        if self.0.fails_tops.load(SeqCst) {
            return self.failed();
        }
        self.run(|broker| broker.tops(partition, topics))
    }

    fn change(&self, update: MapUpdate) -> Completion<Changed> {
        let mut state = self.lock();
        if update.owner.is_some() && update.owner == state.refused_owner {
            let (completer, refused) = self.0.event_loop.completer();
            completer.complete(Err(BrokerError::LeaseEnded.into()));
            return refused;
        }
        let Some(held) = &mut state.held_changes else {
            drop(state);
            let answer = self.run(|broker| broker.change(update));
            let mut state = self.lock();
            let Some(held) = &mut state.held_change_answers else { return answer };
            let (completer, completion) = self.0.event_loop.completer();
            held.push(Box::new(move || answer.on_complete(move |changed| completer.complete(changed))));
            return completion;
        };
        let (completer, completion) = self.0.event_loop.completer();
        let faulty = self.clone();
        held.push(Box::new(move || {
            faulty.0.broker.change(update).on_complete(move |changed| completer.complete(changed));
        }));
        completion
    }

    fn snapshot(&self, topic: &TopicName, seen: Option<Position>) -> Completion<Snapshot> {
        self.run(|broker| broker.snapshot(topic, seen))
    }

    fn renew(&self, lease: NodeLease) -> Completion<()> {
        let answer = self.run(|broker| broker.renew(lease));
        if !self.0.loses_lease_answers.load(SeqCst) {
            return answer;
        }
        let (completer, lost) = self.0.event_loop.completer();
        answer.on_complete(move |_| {
            completer.complete(Err(BrokerError::Uncertain("the answer is lost".into()).into()));
        });
        lost
    }

    fn end_lost_leases(&self) -> Completion<Vec<NodeId>> {
        self.run(|broker| broker.end_lost_leases())
    }

    fn end_lease(&self, node: &NodeId) -> Completion<()> {
        self.0.ended_leases.fetch_add(1, SeqCst);
        self.run(|broker| broker.end_lease(node))
    }

    fn close(&self) -> Completion<()> {
        self.0.broker.close()
    }
}
