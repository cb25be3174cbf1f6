//! A channel with TLS.

use super::pair::{End, HOST, VERSIONS, client_config, server_config, text};
use crate::{
    channel::{ChannelOptions, Pipeline},
    codec::Line,
    error::{Error, Result},
    pipeline::{Context, Handler},
    testing::EmbeddedChannel,
    tls::{filter::TlsFilter, info::TlsVersion},
};
use bytes::Bytes;
use std::{cell::RefCell, rc::Rc, sync::Arc};

type Log = Rc<RefCell<Vec<String>>>;

/// Echoes lines, and records its callbacks. The line `end` shuts down the write half.
struct Echo(Log);

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let info = ctx.tls().ok_or("no TLS")?;
        self.0.borrow_mut().push(format!("{:?} {:?}", info.version(), info.server_name()));
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        self.0.borrow_mut().push(String::from_utf8_lossy(&line).into());
        if line == b"end"[..] { ctx.close_with(line) } else { ctx.write(line) }
    }

    fn read_closed(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.borrow_mut().push("read closed".into());
        Ok(())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        self.0.borrow_mut().push(text(Err::<(), _>(error.clone())));
        Err(error)
    }
}

fn channel(version: TlsVersion, log: &Log) -> EmbeddedChannel<Bytes> {
    channel_with(version, log, ChannelOptions::new())
}

fn channel_with(version: TlsVersion, log: &Log, options: ChannelOptions) -> EmbeddedChannel<Bytes> {
    let filter = TlsFilter::server(Arc::new(server_config(version)), None, None).expect("a server");
    EmbeddedChannel::builder(Pipeline::codec(Line::new()).handler(Echo(log.clone())))
        .filter(filter)
        .channel_options(options)
        .build()
        .expect("a channel")
}

/// Moves bytes in segments until neither side has any.
fn exchange(client: &mut End, channel: &mut EmbeddedChannel<Bytes>, segment: usize) -> Result {
    loop {
        for bytes in std::mem::take(&mut client.output).chunks(segment) {
            channel.write_inbound(bytes)?;
        }
        let answer = channel.read_outbound();
        if answer.is_empty() {
            return Ok(());
        }
        answer.chunks(segment).try_for_each(|bytes| client.receive(bytes))?;
    }
}

/// S-01.
#[test]
fn a_channel_echoes_through_tls_in_segments_of_any_size() {
    for version in VERSIONS {
        for segment in [1, 10, usize::MAX] {
            let log = Log::default();
            let mut channel = channel(version, &log);
            let mut client = End::client(client_config(version));
            exchange(&mut client, &mut channel, segment).expect("a handshake");
            let first = format!("{version:?} Some({HOST:?})");
            assert_eq!(*log.borrow(), [&first[..]]);
            client.send(b"one\ntwo\nend\n", 5).expect("sealed");
            exchange(&mut client, &mut channel, segment).expect("an echo");
            assert_eq!(client.plain[..], b"one\ntwo\nend\n"[..]);
            assert_eq!(*log.borrow(), [&first, "one", "two", "end"]);
            client.end_of_input().expect("close_notify before the end");
            assert!(channel.is_closed() || channel.is_output_ended());
        }
    }
}

#[test]
fn the_messages_of_a_turn_are_one_record() {
    let log = Log::default();
    let mut channel = channel(TlsVersion::Tls13, &log);
    let mut client = End::client(client_config(TlsVersion::Tls13));
    exchange(&mut client, &mut channel, usize::MAX).expect("a handshake");
    client.send(&b"line\n".repeat(10), 50).expect("sealed");
    channel.write_inbound(&std::mem::take(&mut client.output)).expect("lines");
    assert_eq!(channel.read_outbound().len(), 50 + 22);
}

/// S-06.
#[test]
fn a_truncated_stream_is_reported_after_its_data() {
    let log = Log::default();
    let mut channel = channel(TlsVersion::Tls13, &log);
    let mut client = End::client(client_config(TlsVersion::Tls13));
    exchange(&mut client, &mut channel, usize::MAX).expect("a handshake");
    client.send(b"last\n", 5).expect("sealed");
    exchange(&mut client, &mut channel, usize::MAX).expect("data");
    channel.end_inbound();
    let log = log.borrow();
    assert_eq!(log[1], "last");
    assert!(log[2].contains("cut off before its end"), "{log:?}");
}

/// S-24.
/// The record may arrive together with the end of the handshake.
#[test]
fn what_precedes_a_damaged_record_is_delivered_however_it_is_split() {
    let version = TlsVersion::Tls13;
    for first in 0.. {
        let log = Log::default();
        let (mut server, mut client) = (channel(version, &log), End::client(client_config(version)));
        server.write_inbound(&std::mem::take(&mut client.output)).unwrap();
        client.receive(&server.read_outbound()).unwrap();
        assert!(client.is_established());
        client.send(b"one\n", 4).unwrap();
        client.send(b"two\n", 4).unwrap();
        let mut wire = std::mem::take(&mut client.output);
        *wire.last_mut().unwrap() ^= 1;
        if first > wire.len() {
            break;
        }
        for part in [&wire[..first], &wire[first..]] {
            // It closes at the damaged record.
            let _ = server.write_inbound(part);
        }
        let log = log.take();
        assert_eq!(log.get(1).map(String::as_str), Some("one"), "split at {first}: {log:?}");
        assert!(log[2].contains("cannot decrypt"), "{log:?}");
    }
}

#[test]
fn after_close_notify_of_the_peer_a_channel_with_half_close_still_writes() {
    for version in VERSIONS {
        let log = Log::default();
        let mut channel = channel_with(version, &log, ChannelOptions::new().half_close(true));
        let mut client = End::client(client_config(version));
        exchange(&mut client, &mut channel, usize::MAX).expect("a handshake");
        client.send(b"last\n", 5).expect("sealed");
        client.close();
        exchange(&mut client, &mut channel, usize::MAX).expect("an echo");
        channel.end_inbound();
        assert_eq!(log.borrow()[1..], ["last", "read closed"]);
        assert!(channel.is_open() && !channel.is_output_ended());
        let handle = channel.channel();
        handle.write("later".into()).expect("the write half is open");
        channel.run_pending();
        exchange(&mut client, &mut channel, usize::MAX).expect("more output");
        assert_eq!(client.plain[..], b"last\nlater\n"[..]);
        assert!(!client.has_input_ended());
        handle.close();
        channel.run_pending();
        exchange(&mut client, &mut channel, usize::MAX).expect("a clean end");
        assert!(client.has_input_ended() && channel.is_closed());
    }
}

/// S-04.
#[test]
fn plain_http_gets_an_alert_and_the_handler_is_never_called() {
    let log = Log::default();
    let mut channel = channel(TlsVersion::Tls13, &log);
    let _ = channel.write_inbound(b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(channel.read_outbound()[..], [21, 3, 3, 0, 2, 2, 50]);
    channel.run_pending();
    assert!(channel.is_closed() && log.borrow().is_empty());
}
