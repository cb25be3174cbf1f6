//! Tests of the order in which the writer carries requests out.

use super::{kept_topic::KeptTopic, writer::Writer};
use crate::{
    clock::{ManualClock, TimeSource},
    durable::{
        engine::{EngineInbox, EngineMessage, Permit, Purpose},
        id::TimerId,
        metrics::Metrics,
        policy::KeepDead,
        request::{StoreReply, StoreRequest, refuse},
        store::{
            Change, LoadRange, Loaded, MemoryDatabase, Outcome, StoreError, TimerFilter, TimerInfo,
            TimerStore, TopicCounts, TopicSet,
        },
        timer_clock::TimerClock,
    },
    sync::{Permits, Sender, channel, completion, loop_id},
};
use std::{
    collections::BTreeSet,
    sync::{Arc, mpsc},
    time::Duration,
};

fn writer_on(store: impl TimerStore + 'static) -> (Writer, Sender<StoreRequest>) {
    let (sender, requests) = channel();
    let clock = Arc::new(TimerClock::new(TimeSource::new(Arc::new(ManualClock::new()))));
    let inbox = Arc::new(EngineInbox::new(usize::MAX));
    let metrics = Arc::<Metrics>::default();
    let store = Box::new(store);
    (Writer::new(store, requests, inbox, clock, metrics, Duration::ZERO, loop_id::next()), sender)
}

/// The writer of a node that shares its store.
fn sharing_writer() -> (Writer, Sender<StoreRequest>) {
    let mut store = MemoryDatabase::new().open().unwrap();
    store.attach(&["topic".to_owned()]).unwrap();
    writer_on(store)
}

fn renewal() -> StoreRequest {
    StoreRequest::Renew { asked: 0, until: 0, busy: BTreeSet::new() }
}

fn is_renewal(request: Option<&StoreRequest>) -> bool {
    matches!(request, Some(StoreRequest::Renew { .. }))
}

/// A renewal that is requested during the one before does not delay the changes forever.
#[test]
fn changes_are_committed_between_two_renewals() {
    let (mut writer, requests) = sharing_writer();
    let id = TimerId::new(1);
    writer.batch.push(Change::Cancel(id), StoreReply::Engine(id, Purpose::TimerCommand));
    for _ in 0..3 {
        assert!(requests.send(renewal()).is_ok());
    }
    assert!(is_renewal(writer.next().as_ref()));
    assert_eq!(writer.batch.len(), 1, "a renewal does not wait for a transaction");
    assert!(is_renewal(writer.next().as_ref()));
    assert_eq!((writer.batch.len(), writer.metrics.commits.read()), (0, 1));
    assert!(is_renewal(writer.next().as_ref()));
}

#[test]
fn a_renewal_goes_before_queries_and_behind_the_drain_that_it_carries_out() {
    let (mut writer, requests) = sharing_writer();
    let query = || StoreRequest::Query(Box::new(|_| {}));
    for request in [query(), query(), StoreRequest::Drain, renewal(), renewal()] {
        assert!(requests.send(request).is_ok());
    }
    assert!(matches!(writer.next(), Some(StoreRequest::Drain)));
    assert!(is_renewal(writer.next().as_ref()));
    assert!(matches!(writer.next(), Some(StoreRequest::Query(_))), "one request between two renewals");
    assert!(is_renewal(writer.next().as_ref()));
    assert!(matches!(writer.next(), Some(StoreRequest::Query(_))));
}

/// The refusal of one request may bring another one.
#[test]
fn a_request_that_comes_while_others_are_refused_is_refused_too() {
    let (writer, requests) = sharing_writer();
    let requests = Arc::new(requests);
    let again = requests.clone();
    let (sender, refused) = mpsc::channel();
    let query = StoreRequest::Query(Box::new(move |_| {
        let query = StoreRequest::Query(Box::new(move |result| sender.send(result.is_err()).unwrap()));
        refuse(again.send(query).err());
    }));
    for request in [StoreRequest::Close(Vec::new()), query] {
        assert!(requests.send(request).is_ok());
    }
    writer.run();
    assert_eq!(refused.try_recv(), Ok(true));
}

/// A store whose pauses work, and whose counts do not.
struct Uncounted;

impl TimerStore for Uncounted {
    fn attach(&mut self, _: &[String]) -> Result<Vec<TopicCounts>, StoreError> {
        Ok(Vec::new())
    }

    fn commit(&mut self, _: &mut [Change], _: i64) -> Result<Vec<Outcome>, StoreError> {
        Ok(Vec::new())
    }

    fn load(&mut self, _: LoadRange) -> Result<Loaded, StoreError> {
        Ok(Loaded { rows: Vec::new(), is_complete: true })
    }

    fn list(&mut self, _: &TimerFilter) -> Result<Vec<TimerInfo>, StoreError> {
        Ok(Vec::new())
    }

    fn counts(&mut self) -> Result<Vec<TopicCounts>, StoreError> {
        Err(StoreError::Busy("injected".into()))
    }

    fn set_paused(&mut self, _: &str, _: bool) -> Result<bool, StoreError> {
        Ok(true)
    }
}

#[test]
fn the_engine_learns_of_a_pause_also_if_the_counts_fail() {
    let (writer, _requests) = writer_on(Uncounted);
    let kept = |name: &str| KeptTopic { name: name.to_owned(), keep: KeepDead::default() };
    let mut writer = writer.with_topics(vec![kept("a"), kept("b")], [0].into_iter().collect());
    for (topic, is_paused, expected) in [("b", true, vec![0, 1]), ("a", false, vec![1])] {
        let (completer, _done) = completion(None);
        let permit = Permit::take(&Arc::new(Permits::new(1))).unwrap();
        writer.pause(topic, is_paused, completer, permit);
        let told = writer.inbox.take(usize::MAX);
        let [EngineMessage::Paused { topics, pausing: Some(_) }] = &told[..] else {
            panic!("{}", told.len())
        };
        assert_eq!(*topics, expected.into_iter().collect::<TopicSet>());
    }
}
