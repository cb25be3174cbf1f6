//! A channel whose sender races with its receiver.

use super::model;
use crate::sync::channel::{ReceiveError, channel};
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
fn a_value_is_received_dropped_or_returned_whoever_ends_first() {
    model(|| {
        let (sender, receiver) = channel();
        let value = std::sync::Arc::new(());
        let sent = value.clone();
        let sending = thread::spawn(move || {
            let returned = sender.send(sent);
            (sender, returned)
        });
        let received = receiver.try_receive();
        drop(receiver);
        let (sender, returned) = sending.join().unwrap();
        assert!(received.is_err() || returned.is_ok());
        drop((received, returned));
        // Nothing is left behind in the channel.
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
        assert!(sender.send(value).is_err());
    });
}
