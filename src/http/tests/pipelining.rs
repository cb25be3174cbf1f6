//! The time of a server whose client writes several requests before the first response.

use super::client::{Received, client, write};
use crate::{
    http::{Part, Request, settings::HttpSettings},
    testing::EmbeddedChannel,
};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[track_caller]
fn assert_late(channel: &EmbeddedChannel<Part<Request>>, received: &Received) {
    let last = received.take().pop().unwrap();
    assert!(last.starts_with("error: the response of a server"), "{last}");
    assert!(!channel.is_open());
}

#[test]
fn later_requests_do_not_extend_the_time_for_a_response() {
    let settings = || HttpSettings::new().response_timeout(5 * SECOND);
    // The response has not begun, and has begun.
    for (input, received_before) in
        [("", &[][..]), ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", &["200", "\"abc"])]
    {
        let (mut channel, received) = client(settings());
        write(&mut channel, Request::get("/1").into()).unwrap();
        channel.write_inbound(input.as_bytes()).unwrap();
        for _ in 0..4 {
            channel.advance(SECOND);
            write(&mut channel, Request::get("/2").into()).unwrap();
            assert!(channel.is_open());
        }
        assert_eq!(received.take(), received_before);
        channel.advance(SECOND + SECOND / 5);
        assert_late(&channel, &received);
    }

    // The oldest request is long, and extends its own time until it is sent.
    let (mut channel, received) = client(settings());
    channel.set_outbound_room(Some(0));
    for path in ["/1", "/2"] {
        channel.channel().write(Request::post(path, vec![b'x'; 1_000]).into()).unwrap();
    }
    channel.run_pending();
    for _ in 0..11 {
        channel.advance(SECOND);
        channel.set_outbound_room(Some(100));
    }
    channel.set_outbound_room(None);
    assert_eq!(channel.pending_bytes(), 0);
    for second in 1..=5 {
        assert!(channel.is_open(), "after {second} s: {:?}", received.take());
        channel.advance(SECOND);
        let _ = channel.channel().write(Request::get("/3").into());
        channel.run_pending();
    }
    channel.advance(SECOND / 5);
    assert_late(&channel, &received);
}
