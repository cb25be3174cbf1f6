//! Tests of the requests that the writer has not handled when it ends.

use super::{
    operation::WriterRequest,
    writer::{BrokerFile, BrokerWriter},
};
use crate::{
    broker::store::{BrokerEvent, BrokerSink, BrokerStart, Partitions},
    clock::ManualClock,
    sync::{Receiver, Sender, channel, completion, loop_id},
};
use std::{sync::Arc, time::Duration};

struct Ignore;

impl BrokerSink for Ignore {
    fn handle(&self, _: BrokerEvent) {}
}

/// Runs a writer with a request that comes behind the close of the last node.
fn run_with(request: WriterRequest, sender: &Sender<WriterRequest>, requests: Receiver<WriterRequest>) {
    let directory = tempfile::tempdir().unwrap();
    let file = BrokerFile::open(&directory.path().join("rooms.db")).unwrap();
    let start = BrokerStart::new(Partitions::default(), Arc::new(Ignore), Arc::new(ManualClock::new()), 1);
    let writer = BrokerWriter::new(file, requests, &start, Duration::from_secs(60), loop_id::next());
    let (completer, closed) = completion(None);
    assert!(sender.send(WriterRequest::Close(completer)).is_ok());
    assert!(sender.send(request).is_ok());
    writer.run();
    assert!(closed.wait().is_ok());
}

/// Two clones are closed at the same time, and the last one overtakes the other.
#[test]
fn a_node_that_leaves_behind_the_end_of_the_file_has_left() {
    let (sender, requests) = channel();
    let (completer, left) = completion(None);
    run_with(WriterRequest::Leave(0, completer), &sender, requests);
    assert!(left.wait().is_ok());
}

/// The end of one request may bring another one.
#[test]
fn a_request_that_comes_while_the_writer_ends_is_handled_or_returned() {
    let (sender, requests) = channel();
    let sender = Arc::new(sender);
    let (completer, left) = completion(None);
    let (late, late_left) = completion(None);
    let again = sender.clone();
    left.on_complete(move |_| {
        if let Err(WriterRequest::Leave(_, completer)) = again.send(WriterRequest::Leave(1, late)) {
            completer.complete(Ok(()));
        }
    });
    run_with(WriterRequest::Leave(0, completer), &sender, requests);
    assert!(late_left.wait().is_ok());
}
