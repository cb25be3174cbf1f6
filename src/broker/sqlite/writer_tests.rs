//! Tests of the requests that the writer has not handled when it ends.

use super::{
    operation::WriterRequest,
    writer::{BrokerFile, BrokerWriter},
};
use crate::{
    broker::store::{BrokerEvent, BrokerSink, BrokerStart, Partitions},
    clock::ManualClock,
    sync::{channel, completion, loop_id},
};
use std::{sync::Arc, time::Duration};

struct Ignore;

impl BrokerSink for Ignore {
    fn handle(&self, _: BrokerEvent) {}
}

/// Two clones are closed at the same time, and the last one overtakes the other.
#[test]
fn a_node_that_leaves_behind_the_end_of_the_file_has_left() {
    let directory = tempfile::tempdir().unwrap();
    let file = BrokerFile::open(&directory.path().join("rooms.db")).unwrap();
    let start = BrokerStart::new(Partitions::default(), Arc::new(Ignore), Arc::new(ManualClock::new()), 1);
    let (sender, requests) = channel();
    let writer = BrokerWriter::new(file, requests, &start, Duration::from_secs(60), loop_id::next());
    let (completer, closed) = completion(None);
    assert!(sender.send(WriterRequest::Close(completer)).is_ok());
    let (completer, left) = completion(None);
    assert!(sender.send(WriterRequest::Leave(0, completer)).is_ok());
    writer.run();
    assert!(closed.wait().is_ok());
    assert!(left.wait().is_ok());
}
