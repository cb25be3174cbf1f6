//! The wire log of a channel: records, order, and cost if the level is disabled.

use crate::support::{
    logs,
    loops::{settle, single},
    wait::{PATIENCE, done, ms},
};
use bytes::Bytes;
use netwheel::{
    ClientBootstrap,
    buffer::WaterMark,
    channel::{ChannelOptions, LogLevel, WireLog},
    codec::{LengthField, RawBytes},
    filter::{Filter, FilterContext, FilterState},
    prelude::*,
    shutdown::ShutdownOptions,
    testing::EmbeddedChannel,
};
use std::{
    cell::Cell,
    fmt,
    io::{Read, Write},
    net::TcpListener,
};

/// Returns the records of a target without the channel's id in front. Every test uses its own
/// target, so that tests can run in parallel.
fn said(target: &str) -> Vec<String> {
    let text = logs::records_of(target).into_iter().map(|record| record.text);
    text.map(|text| text.split_once(": ").expect("a channel's id").1.to_owned()).collect()
}

struct Echo;

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        match &message[..] {
            b"fail" => Err(Error::other(Costly)),
            b"hush" => {
                ctx.set_wire_log(None);
                Ok(())
            }
            _ => ctx.write(message),
        }
    }

    /// Keeps the channel open, unlike the default.
    fn idle(&mut self, _: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        Ok(())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, _: Error) -> Result {
        Ok(())
    }
}

thread_local!(static FORMATTED: Cell<usize> = const { Cell::new(0) });

/// Counts how often it is formatted.
#[derive(Debug)]
struct Costly;

impl fmt::Display for Costly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FORMATTED.set(FORMATTED.get() + 1);
        f.write_str("costly")
    }
}

impl std::error::Error for Costly {}

fn open(wire: WireLog) -> EmbeddedChannel<Bytes> {
    logs::collect();
    let idle = IdleTimeouts::new().reader(ms(100));
    let pipeline = Pipeline::codec(LengthField::u8()).wire_log(wire).idle(idle).handler(Echo);
    let options = ChannelOptions::new().water_mark(WaterMark::new(1, 4).unwrap());
    EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap()
}

/// H-16: every event is logged once with its bytes, and no event is withheld.
#[test]
fn h_16_every_event_is_logged_once_and_passed_on() {
    let mut channel = open(WireLog::new().target("every event"));
    let text = "0000:   02 68 69                                             .hi";
    channel.write_inbound(b"\x02hi").unwrap();
    assert_eq!(channel.read_outbound(), "\x02hi");
    let read = format!("read 3 bytes\n{text}");
    let written = format!("written 3 bytes\n{text}");
    assert_eq!(said("every event"), ["active", &read, "read complete", &written]);
    channel.advance(ms(100));
    assert_eq!(said("every event")[4..], ["idle: Reader, first"]);
    channel.set_outbound_room(Some(2));
    channel.write_inbound(b"\x04fail\x04many").unwrap();
    channel.set_outbound_room(None);
    assert_eq!(channel.read_outbound(), "\x04many");
    let said_then = said("every event")[5..].to_vec();
    let heads: Vec<_> = said_then.iter().map(|text| text.lines().next().unwrap()).collect();
    let expected = [
        "read 10 bytes",
        "error: costly",
        "not writable, 5 bytes are pending",
        "written 2 bytes",
        "read complete",
        "written 3 bytes",
        "writable",
    ];
    assert_eq!(heads, expected);
    assert!(
        said_then[5].ends_with("61 6e 79                                             any"),
        "the remaining bytes"
    );
    channel.end_inbound();
    assert_eq!(said("every event")[12..], ["read complete", "closing", "inactive"]);
}

/// H-16: messages without bytes.
#[test]
fn h_16_empty_reads_and_messages_are_logged_correctly() {
    let mut channel = open(WireLog::new().target("empty"));
    channel.write_inbound(b"").unwrap();
    channel.write_inbound(b"\0").unwrap();
    assert_eq!(channel.read_outbound(), "\0");
    let said = said("empty");
    assert_eq!(said[..2], ["active", "read complete"], "an empty read is not logged as bytes");
    assert!(said[2].starts_with("read 1 bytes\n0000:   00 ") && said[2].ends_with(" ."), "{said:?}");
    assert!(said[4].starts_with("written 1 bytes\n0000:   00 "), "{said:?}");
    assert_eq!(said.len(), 5);
}

/// H-16: if the level is disabled nothing is formatted, and the behaviour is unchanged.
#[test]
fn h_16_nothing_is_formatted_if_the_level_is_disabled() {
    let cases = [
        (WireLog::new().target("level").level(LogLevel::Trace), 0),
        (WireLog::new().target(logs::OFF), 0),
        (WireLog::new().target("level").level(LogLevel::Warn), 1),
    ];
    for (wire, times) in cases {
        let mut channel = open(wire);
        channel.write_inbound(b"\x04fail\x04cost").unwrap();
        assert_eq!(channel.read_outbound(), "\x04cost");
        assert_eq!(FORMATTED.take(), times);
    }
    assert!(logs::records_of(logs::OFF).is_empty());
    let levels: Vec<_> = logs::records_of("level").iter().map(|record| record.level).collect();
    assert_eq!(levels, [log::Level::Warn; 7]);
}

#[test]
fn records_are_truncated_to_the_byte_limit() {
    for (most, expected) in [
        (0, "read 40 bytes"),
        (
            3,
            "read 40 bytes, of which the first 3\n0000:   27 61 61                                             'aa",
        ),
    ] {
        let target = format!("at most {most}");
        let mut channel = open(WireLog::new().target(target.clone()).max_bytes(most));
        let message = [&[39][..], &[b'a'; 39]].concat();
        channel.write_inbound(&message).unwrap();
        assert_eq!(channel.read_outbound(), message);
        let said = said(&target);
        assert_eq!(said[1], expected);
        assert!(said.contains(&expected.replace("read", "written")), "{said:?}");
    }
    let mut channel = open(WireLog::new().target("by default"));
    channel.write_inbound(&[b'x'; 1025]).unwrap();
    let first = &said("by default")[1];
    assert!(first.starts_with("read 1025 bytes, of which the first 1024\n"), "{first}");
    assert_eq!(first.lines().count(), 1 + 64);
}

/// Opens each byte as 50,000, which is more than a read buffer takes for two bytes.
struct Expand;

impl Filter for Expand {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        input.iter().for_each(|byte| ctx.deliver(&[*byte; 50_000]));
        Ok(input.len())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend_from_slice(plain);
        Ok(())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

#[test]
fn all_plaintext_is_logged_also_beyond_the_read_buffer() {
    logs::collect();
    let wire = WireLog::new().target("wire of much plaintext").plaintext(true).max_bytes(0);
    let pipeline = Pipeline::codec(RawBytes).wire_log(wire).on_read(|_, _: Bytes| Ok(()));
    let mut channel = EmbeddedChannel::builder(pipeline).filter(Expand).build().unwrap();
    channel.write_inbound(b"abc").unwrap();
    let opened: usize = said("wire of much plaintext")
        .iter()
        .filter_map(|line| line.strip_prefix("opened ")?.split_once(' ')?.0.parse::<usize>().ok())
        .sum();
    assert_eq!(opened, 150_000);
}

#[test]
fn a_handler_can_switch_the_wire_log_off_and_on() {
    let mut channel = open(WireLog::new().target("switched"));
    channel.write_inbound(b"\x04hush").unwrap();
    channel.write_inbound(b"\x02no").unwrap();
    assert_eq!(said("switched").len(), 2, "active, and the read that switched it off");
    channel
        .channel()
        .execute(|ctx| {
            ctx.set_wire_log(WireLog::new().target("switched"));
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    channel.write_inbound(b"\x03yes").unwrap();
    assert_eq!(said("switched").len(), 5);
}

#[test]
fn over_tcp_the_log_contains_each_byte_of_the_socket_once() {
    const SIZE: usize = 200_000;
    logs::collect();
    let (group, event_loop) = single(EventLoopGroup::builder());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let wire = WireLog::new().target("tcp").max_bytes(usize::MAX);
    let client = ClientBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(LengthField::u32()).wire_log(wire.clone()).handler(Echo));
    let channel = done(client.connect(listener.local_addr().unwrap())).unwrap();
    let mut peer = listener.accept().unwrap().0;
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let message: Vec<u8> =
        (SIZE as u32).to_be_bytes().into_iter().chain((0..SIZE).map(|n| (n % 251) as u8)).collect();
    peer.write_all(&message).unwrap();
    let mut back = vec![0; message.len()];
    peer.read_exact(&mut back).unwrap();
    channel.close();
    done(channel.closed()).unwrap();
    // The handler is notified later in the turn.
    settle(&event_loop);
    let said = said("tcp");
    let addresses = (channel.local_address().unwrap(), channel.peer_address().unwrap());
    assert_eq!(said[0], format!("active, local {}, peer {}", addresses.0, addresses.1));
    for what in ["read ", "written "] {
        let dumps = said.iter().filter(|line| line.starts_with(what) && line.contains(" bytes"));
        assert_eq!(dumps.flat_map(|dump| undump(dump)).collect::<Vec<_>>(), message, "{what}");
    }
    assert_eq!(said[said.len() - 2..], ["closing", "inactive"]);
    done(group.shutdown(ShutdownOptions::new().quiet_period(ms(0)).timeout(PATIENCE))).unwrap();
}

/// Returns the bytes of a hex dump.
fn undump(dump: &str) -> Vec<u8> {
    let hex = |line: &str| {
        let columns = &line.split_once(":   ").unwrap().1[..50];
        columns.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect::<Vec<_>>()
    };
    dump.lines().skip(1).flat_map(hex).collect()
}
