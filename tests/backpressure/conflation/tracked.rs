//! Tracked writes that newer messages replace: each of them completes, and counts until then.

use super::{blocked, in_handler, sent};
use crate::support::wait::done;
use bytes::Bytes;
use netwheel::{Completion, Error, channel::ChannelOptions, testing::EmbeddedChannel};
use std::sync::{Arc, Mutex};

/// The limit of tracked writes that wait, of a channel.
const MAX_TRACKED: usize = 65_536;

/// Counts the results of tracked writes.
#[derive(Clone, Default)]
struct Results(Arc<Mutex<(usize, usize)>>);

impl Results {
    fn note(&self, completion: Completion) {
        let results = self.0.clone();
        completion.on_complete(move |result| {
            let mut results = results.lock().unwrap();
            match result {
                Ok(()) => results.0 += 1,
                Err(Error::Conflated) => results.1 += 1,
                Err(error) => panic!("{error}"),
            }
        });
    }

    /// Returns the numbers of messages that were sent and replaced.
    fn get(&self) -> (usize, usize) {
        *self.0.lock().unwrap()
    }
}

/// Fills the limit of tracked writes, which shows that none of the earlier writes counts any more.
fn assert_no_tracked_write_waits(channel: &mut EmbeddedChannel<Bytes>) {
    let handle = channel.channel();
    channel.set_outbound_room(Some(0));
    let waiting: Vec<_> = (0..MAX_TRACKED).map(|_| handle.write_tracked("".into()).unwrap()).collect();
    let refused = handle.write_tracked("".into()).unwrap_err();
    assert!(matches!(refused.error(), Error::Full { limit: MAX_TRACKED, .. }), "{}", refused.error());
    channel.run_pending();
    channel.set_outbound_room(None);
    drop(channel.read_outbound());
    waiting.into_iter().for_each(|write| done(write).unwrap());
}

#[test]
fn any_number_of_replaced_tracked_writes_completes() {
    const KEYS: usize = 7;
    const WRITES: usize = MAX_TRACKED + MAX_TRACKED / 4;
    let (mut channel, log) = blocked(ChannelOptions::new());
    let (handle, results) = (channel.channel(), Results::default());
    for n in 0..WRITES {
        let message = format!("{n:09}");
        results.note(handle.write_tracked_latest((n % KEYS) as u64, message.into()).unwrap());
        if n % 1000 == 999 {
            channel.run_pending();
            assert_eq!(results.get(), (0, n + 1 - KEYS), "a replaced write completes at once");
        }
    }
    channel.run_pending();
    assert_eq!(sent(&mut channel).len(), 1 + KEYS);
    assert_eq!(results.get(), (KEYS, WRITES - KEYS));

    // The writes of one callback of the handler.
    let (noted, begun) = (results.clone(), results.get());
    channel.set_outbound_room(Some(0));
    channel.channel().write("again".into()).unwrap();
    channel.run_pending();
    let written = in_handler(&mut channel, move |ctx| {
        for n in 0..WRITES {
            noted.note(ctx.write_tracked_latest((n % KEYS) as u64, format!("{n:09}").into())?);
        }
        Ok(())
    });
    written.unwrap();
    assert_eq!(results.get(), (begun.0, begun.1 + WRITES - KEYS));
    assert_eq!(sent(&mut channel).len(), 1 + KEYS);
    assert_eq!(results.get(), (begun.0 + KEYS, begun.1 + WRITES - KEYS));
    assert_no_tracked_write_waits(&mut channel);
    assert!(log.take().iter().all(|call| call.starts_with("writable")));
}

#[test]
fn the_keys_of_tracked_writes_that_wait_are_limited() {
    let (mut channel, _log) = blocked(ChannelOptions::new());
    let (handle, results) = (channel.channel(), Results::default());
    for key in 0..MAX_TRACKED as u64 {
        results.note(handle.write_tracked_latest(key, "x".into()).unwrap());
        if key % 1000 == 0 {
            channel.run_pending();
        }
    }
    channel.run_pending();
    // A replacement counts until the loop has taken it, so it is refused as well.
    for key in [0, MAX_TRACKED as u64] {
        let refused = handle.write_tracked_latest(key, "y".into()).unwrap_err();
        assert!(matches!(refused.error(), Error::Full { limit: MAX_TRACKED, .. }), "{}", refused.error());
    }
    handle.write_latest(0, "y".into()).unwrap();
    channel.run_pending();
    assert_eq!(results.get(), (0, 1));
    results.note(handle.write_tracked_latest(MAX_TRACKED as u64, "y".into()).unwrap());
    channel.run_pending();
    assert_eq!(sent(&mut channel).len(), 2 + MAX_TRACKED);
    assert_eq!(results.get(), (MAX_TRACKED, 1));
    assert_no_tracked_write_waits(&mut channel);
}
