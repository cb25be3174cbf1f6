//! Tests of the order in which the writer carries requests out.

use super::writer::Writer;
use crate::{
    clock::{ManualClock, TimeSource},
    durable::{
        engine::{EngineInbox, Purpose},
        id::TimerId,
        metrics::Metrics,
        request::{StoreReply, StoreRequest},
        store::{Change, MemoryDisk},
        timer_clock::TimerClock,
    },
    sync::{Sender, channel, loop_id},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

fn writer() -> (Writer, Sender<StoreRequest>) {
    let (sender, requests) = channel();
    let clock = Arc::new(TimerClock::new(TimeSource::new(Arc::new(ManualClock::new()))));
    let inbox = Arc::new(EngineInbox::new(usize::MAX));
    let metrics = Arc::<Metrics>::default();
    let store = Box::new(MemoryDisk::new().open().unwrap());
    (Writer::new(store, requests, inbox, clock, metrics, Duration::ZERO, loop_id::next()), sender)
}

fn is_renewal(request: Option<&StoreRequest>) -> bool {
    matches!(request, Some(StoreRequest::Renew { .. }))
}

/// A renewal that is requested during the one before does not delay the changes forever.
#[test]
fn changes_are_committed_between_two_renewals() {
    let (mut writer, requests) = writer();
    let id = TimerId::new(1);
    writer.batch.push(Change::Cancel(id), StoreReply::Engine(id, Purpose::TimerCommand));
    let renew = || StoreRequest::Renew { asked: 0, until: 0, busy: BTreeSet::new() };
    for _ in 0..3 {
        assert!(requests.send(renew()).is_ok());
    }
    assert!(is_renewal(writer.next().as_ref()));
    assert_eq!(writer.batch.len(), 1, "a renewal does not wait for a transaction");
    assert!(is_renewal(writer.next().as_ref()));
    assert_eq!((writer.batch.len(), writer.metrics.commits.read()), (0, 1));
    assert!(is_renewal(writer.next().as_ref()));
}
