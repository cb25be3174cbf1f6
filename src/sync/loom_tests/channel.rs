//! A channel whose senders race with its receiver.

use super::model;
use crate::sync::{ReceiveError, channel};
use loom::thread;

#[test]
fn a_receiver_misses_neither_a_value_nor_the_end() {
    model(|| {
        let (sender, receiver) = channel();
        let sending = thread::spawn(move || {
            sender.send(1).unwrap();
            sender.send(2).unwrap();
        });
        assert_eq!(receiver.receive(None), Ok(1));
        assert_eq!(receiver.receive(None), Ok(2));
        assert_eq!(receiver.receive(None), Err(ReceiveError::Disconnected));
        sending.join().unwrap();
    });
}

#[test]
fn a_value_is_received_or_returned() {
    model(|| {
        let (sender, receiver) = channel();
        let sending = thread::spawn(move || sender.send(1));
        let received = receiver.try_receive();
        drop(receiver);
        let sent = sending.join().unwrap();
        // A value that waits when the receiver goes is dropped with it.
        assert!(received != Ok(1) || sent == Ok(()));
    });
}
