//! An accepted message is sent in order, or the channel closes. A message is never skipped.

use crate::support::{journal::Log, recorder::Recorder};
use crate::writability::{blocked, zeros};
use netwheel::{Error, buffer::WaterMark, channel::ChannelOptions};

#[test]
fn a_notified_write_above_the_limit_is_handed_back_and_all_others_are_sent() {
    const MOST: usize = 65_536;
    let mut channel = blocked(&ChannelOptions::new(), Recorder::new(&Log::new()));
    let handle = channel.channel();
    let mut accepted = Vec::new();
    for n in 0..MOST + 100 {
        // The loop does not run, so the channel sees these writes only later.
        match handle.write_tracked(format!("{n}").into()) {
            Ok(completion) => {
                completion.detach();
                accepted.push(n);
            }
            Err(refused) => assert_eq!(refused.into_inner(), format!("{n}"), "handed back"),
        }
    }
    assert_eq!(accepted.len(), MOST);
    handle.write("afterwards".into()).unwrap();
    channel.run_pending();
    channel.set_outbound_room(None);
    let sent = channel.read_outbound();
    let mut lines = std::str::from_utf8(&sent).unwrap().lines();
    assert!(accepted.iter().all(|n| lines.next() == Some(&format!("{n}")[..])));
    assert_eq!(lines.collect::<Vec<_>>(), ["afterwards"]);
    assert!(channel.is_open());
    handle.write_tracked("room again".into()).unwrap().detach();
}

/// The channel closes even if its handler stays open after errors: the message was accepted, and
/// others follow it.
#[test]
fn an_accepted_message_without_room_closes_the_channel() {
    let log = Log::new();
    let marks = WaterMark::new(50, 100).unwrap();
    let options = ChannelOptions::new().max_outbound(1000).water_mark(marks);
    let mut channel = blocked(&options, Recorder::exactly(&log, |_, _| Ok(())));
    let handle = channel.channel();
    handle.write(zeros(499)).unwrap();
    channel.run_pending();
    assert!(!handle.is_writable() && channel.pending_bytes() == 500);
    // This task takes the room for which the messages below are accepted.
    handle.execute(|scope| scope.write(zeros(449))).unwrap();
    handle.write(zeros(199)).expect("there is room for it when it is submitted");
    handle.write(zeros(9)).expect("and for this one");
    log.take();
    channel.run_pending();
    assert_eq!(log.take(), ["error the limit of 1000 outbound bytes of a channel is reached"]);
    assert!(!channel.is_open());
    channel.set_outbound_room(None);
    assert_eq!(channel.read_outbound().len(), 950, "all messages before it, and none after it");
    assert_eq!(log.take(), ["inactive", "drop"]);
}

#[test]
fn a_notified_write_without_room_fails_and_closes_the_channel() {
    let marks = WaterMark::new(50, 100).unwrap();
    let options = ChannelOptions::new().max_outbound(1000).water_mark(marks);
    let mut channel = blocked(&options, Recorder::exactly(&Log::new(), |_, _| Ok(())));
    let handle = channel.channel();
    handle.write(zeros(499)).unwrap();
    channel.run_pending();
    handle.execute(|ctx| ctx.write(zeros(449))).unwrap();
    let answer = handle.write_tracked(zeros(299)).unwrap();
    channel.run_pending();
    assert!(matches!(answer.wait(), Err(Error::Full { limit: 1000, .. })));
    assert!(!channel.is_open());
}
