//! Water marks apply between two messages of one read, so that small requests with large replies do
//! not pile up.

use crate::over_each_transport;
use crate::support::{
    journal::Log,
    recorder::{Event, Recorder},
    streams::{anywhere, connect},
};
use crate::writability::blocked;
use bytes::Bytes;
use netwheel::{channel::ChannelOptions, codec::Line, prelude::*};
use std::io::{Read, Write};

const ANSWER: usize = 40_000;
/// The length of an answer including the end of the line.
const LINE: usize = ANSWER + 1;

fn answer() -> Bytes {
    Bytes::from(vec![b'x'; ANSWER])
}

/// Answers each line. Pauses reading itself if `pauses`.
fn answers(log: &Log, pauses: bool) -> Recorder {
    Recorder::with(log, move |ctx, call| {
        match call {
            Event::Read(_) => ctx.write(answer())?,
            Event::Writable(writable) if pauses => ctx.set_auto_read(*writable),
            _ => {}
        }
        Ok(())
    })
}

/// Runs a test with `read_while_writable`, and with pauses by the handler.
fn both(test: impl Fn(&ChannelOptions, bool)) {
    test(&ChannelOptions::new().read_while_writable(true), false);
    test(&ChannelOptions::new(), true);
}

#[test]
fn requests_of_one_read_are_answered_up_to_the_high_mark_plus_one_message() {
    both(|options, pauses| {
        let log = Log::new();
        let mut channel = blocked(options, answers(&log, pauses));
        channel.write_inbound("q\n".repeat(20).as_bytes()).unwrap();
        assert_eq!(channel.pending_bytes(), 2 * LINE, "the second answer passes 64 KiB");
        assert_eq!(log.count("read q"), 2);
        channel.set_outbound_room(Some(LINE + 10_000));
        assert_eq!(log.count("read q"), 3, "below the low mark reading resumes, up to the high mark");
        channel.set_outbound_room(None);
        assert_eq!(log.count("read q"), 20);
        assert_eq!(channel.read_outbound().len(), 20 * LINE);
    });
}

#[test]
fn a_handler_that_ignores_the_marks_keeps_reading() {
    let log = Log::new();
    let mut channel = blocked(&ChannelOptions::new(), answers(&log, false));
    channel.write_inbound("q\n".repeat(20).as_bytes()).unwrap();
    assert_eq!(channel.pending_bytes(), 20 * LINE);
}

/// The end of the stream does not overtake requests that wait until the channel is writable.
#[test]
fn waiting_requests_are_answered_after_the_end_of_the_stream() {
    both(|options, pauses| {
        let log = Log::new();
        let mut channel = blocked(options, answers(&log, pauses));
        channel.write_inbound("q\n".repeat(20).as_bytes()).unwrap();
        channel.end_inbound();
        assert_eq!(log.count("read q"), 2);
        assert!(channel.is_open());
        channel.set_outbound_room(None);
        assert_eq!(log.count("read q"), 20);
        assert_eq!(channel.read_outbound().len(), 20 * LINE);
        assert!(channel.is_closed());
    });
}

/// A peer sends all requests at once and reads the replies as fast as it can.
fn a_peer_that_pipelines_small_requests_receives_all_large_replies() {
    const REQUESTS: usize = 1000;
    both(|options, pauses| {
        let group = EventLoopGroup::builder().threads(1).build().unwrap();
        let bootstrap = ServerBootstrap::new(&group).channel_options(options.clone());
        let bootstrap = bootstrap.pipeline(move |_| {
            Pipeline::codec(Line::new().max_len(1 << 20)).handler(answers(&Log::new(), pauses))
        });
        let server = bootstrap.bind(anywhere()).unwrap();
        let mut peer = connect(&server);
        peer.write_all("q\n".repeat(REQUESTS).as_bytes()).unwrap();
        let mut left = REQUESTS * LINE;
        let mut buffer = vec![0; 1 << 20];
        while left > 0 {
            let n = peer.read(&mut buffer).unwrap();
            assert!(n > 0, "the server has closed the connection, {left} bytes before the end");
            left -= n;
        }
        let metrics = group.metrics();
        assert_eq!(metrics[0].closes_overflowed + metrics[0].messages_refused, 0);
    });
}

over_each_transport! {
    a_peer_that_pipelines_small_requests_receives_all_large_replies,
}
