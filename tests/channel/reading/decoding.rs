//! When a codec is called and with which bytes: C-59, D-01, D-07.

use crate::over_each_transport;
use crate::reading::{serve, with_codec};
use crate::support::{
    codecs::AtLast,
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, Recorder},
    streams::connect,
    tcp,
};
use bytes::Bytes;
use netwheel::{
    Codec, Stage, StageContext,
    buffer::OutboundBuffer,
    channel::ChannelOptions,
    codec::{LengthField, Line},
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{cell::RefCell, io::Write, rc::Rc, time::Duration};

/// C-59, D-06: the last messages, the end of a read, the end of the channel.
#[test]
fn c_59_remaining_bytes_are_decoded_at_the_end_even_across_flushes() {
    let log = Log::new();
    let mut channel = with_codec(
        &ChannelOptions::new(),
        AtLast,
        Recorder::with(&log, |ctx, call| match call {
            Event::Read(message) => {
                ctx.write(message.clone())?;
                ctx.flush();
                Ok(())
            }
            _ => Ok(()),
        }),
    );
    channel.write_inbound(b"abc").unwrap();
    assert_eq!(log.take(), ["active", "read_complete"]);
    channel.end_inbound();
    assert_eq!(log.take(), ["read a", "read b", "read c", "read_complete", "inactive", "drop"]);
    assert_eq!(channel.read_outbound(), "abc");
}

/// Logs each call with its input. Decodes one byte at a time, except for `x`, which it decodes only
/// at the end.
struct Asked(Log);

impl Codec for Asked {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.0.push(format!("decode {}", String::from_utf8_lossy(input)));
        Ok(input.first().is_some_and(|first| *first != b'x').then(|| input.split_to(1)))
    }

    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.0.push(format!("decode_last {}", String::from_utf8_lossy(input)));
        Ok((!input.is_empty()).then(|| input.split_to(input.len())))
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(message);
        Ok(())
    }
}

/// D-06, D-07, D-08: at the end of input the remaining bytes are decoded. Then the channel closes,
/// or with `half_close` calls `read_closed`. Only `decode_last` is called with empty input,
/// because it may produce a final message.
#[test]
fn d_07_decode_last_is_called_until_no_input_remains_also_at_a_half_close() {
    for half_close in [false, true] {
        let log = Log::new();
        let options = ChannelOptions::new().half_close(half_close);
        // The recorder closes in `read_closed`, which is the default.
        let mut channel = with_codec(&options, Asked(log.clone()), Recorder::new(&log));
        channel.write_inbound(b"axy").unwrap();
        assert_eq!(log.take(), ["active", "decode axy", "read a", "decode xy", "read_complete"]);
        channel.end_inbound();
        assert_eq!(
            log.take(),
            ["decode_last xy", "read xy", "decode_last ", "read_complete", "inactive", "drop"]
        );

        let mut channel = with_codec(&options, Asked(log.clone()), Recorder::new(&log));
        channel.write_inbound(b"a").unwrap();
        channel.end_inbound();
        let told = log.take();
        assert_eq!(told[told.len() - 4..], ["decode_last ", "read_complete", "inactive", "drop"]);
    }
}

/// Reads its first byte without checking that there is one, as a decoder ported from Netty may do.
#[derive(Clone)]
struct Unasking;

impl Codec for Unasking {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        let len = usize::from(input[0] - b'0');
        Ok((input.len() > len).then(|| input.split_to(len + 1).slice(1..)))
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(message);
        Ok(())
    }
}

#[test]
fn decode_is_never_called_with_empty_input() {
    let log = Log::new();
    let hook = |ctx: &mut Context<'_, Recorder>, call: &Event| {
        if let Event::Read(message) = call {
            ctx.write(message.clone())?;
            ctx.flush();
        }
        Ok(())
    };
    let mut channel = with_codec(&ChannelOptions::new(), Unasking, Recorder::with(&log, hook));
    channel.write_inbound(b"1a").unwrap();
    channel.write_inbound(b"").unwrap();
    channel
        .channel()
        .execute(|ctx| {
            ctx.read();
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    channel.write_inbound(b"2b").unwrap();
    channel.write_inbound(b"c").unwrap();
    channel.end_inbound();
    let reads: Vec<_> = log.take().into_iter().filter(|entry| !entry.starts_with("read_complete")).collect();
    assert_eq!(reads, ["active", "read a", "read bc", "inactive", "drop"]);
}

fn decode_is_never_called_with_empty_input_over_a_socket() {
    let group = one_loop();
    let log = Log::new();
    let server = serve(&group, ChannelOptions::new(), Unasking, &log, |log| {
        Recorder::with(log, |ctx, call| match call {
            Event::Read(message) => ctx.write(message.clone()),
            _ => Ok(()),
        })
    });
    let mut peer = connect(&server);
    tcp::ask(&mut peer, "1a", "a");
    tcp::ask(&mut peer, "2bc1d", "bcd");
    drop(peer);
    log.wait_for("drop");
    assert!(log.take().iter().all(|entry| !entry.starts_with("error")));
    end(&group);
}

/// Logs its input and decodes messages of four bytes.
struct Fours(Rc<RefCell<Vec<Bytes>>>);

impl Codec for Fours {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.0.borrow_mut().push(input.clone());
        Ok((input.len() >= 4).then(|| input.split_to(4)))
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(message);
        Ok(())
    }
}

#[test]
fn d_01_decode_is_called_again_only_with_new_bytes_after_the_kept_ones() {
    let log = Log::new();
    let asked = Rc::new(RefCell::new(Vec::new()));
    let mut channel = with_codec(&ChannelOptions::new(), Fours(asked.clone()), Recorder::new(&log));
    channel.write_inbound(b"ab").unwrap();
    channel.run_pending();
    channel.channel().execute(|ctx| ctx.write("x".into())).unwrap();
    channel
        .channel()
        .execute(|ctx| {
            ctx.read();
            ctx.set_auto_read(true);
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    channel.advance(Duration::from_secs(10));
    channel.write_inbound(b"").unwrap();
    assert_eq!(asked.take(), ["ab"], "called once, despite the other events");
    channel.write_inbound(b"cdef").unwrap();
    assert_eq!(asked.take(), ["abcdef", "ef"]);
    channel.write_inbound(b"gh").unwrap();
    assert_eq!(asked.take()[0], "efgh");
    let reads: Vec<_> = log.take().into_iter().filter(|e| e.starts_with("read ")).collect();
    assert_eq!(reads, ["read abcd", "read efgh"]);
}

fn d_01_over_tcp_a_frame_that_arrives_byte_by_byte_is_reassembled() {
    let group = one_loop();
    let log = Log::new();
    let server = serve(&group, ChannelOptions::new(), LengthField::u16(), &log, Recorder::new);
    let mut peer = connect(&server);
    for byte in b"\0\x05hello\0\x05world" {
        peer.write_all(&[*byte]).unwrap();
    }
    log.wait_for("read world");
    assert_eq!(log.count("read hello"), 1);
    end(&group);
}

fn a_large_frame_grows_across_many_reads() {
    let group = one_loop();
    let log = Log::new();
    let codec = LengthField::u32().max_len(4 << 20);
    let server = serve(&group, ChannelOptions::new(), codec, &log, |log| {
        let inner = log.clone();
        Recorder::with(&Log::new(), move |ctx, call| {
            if let Event::Read(message) = call {
                inner.push(format!("{} {}", message.len(), message.iter().all(|b| *b == 7)));
                ctx.write(message.slice(..3))?;
            }
            Ok(())
        })
    });
    let mut peer = connect(&server);
    for size in [3_000_000u32, 10, 70_000] {
        peer.write_all(&size.to_be_bytes()).unwrap();
        peer.write_all(&vec![7; size as usize]).unwrap();
        tcp::ask(&mut peer, "", "\0\0\0\x03\x07\x07\x07");
    }
    assert_eq!(log.take(), ["3000000 true", "10 true", "70000 true"]);
    end(&group);
}

/// Drops messages that begin with `-`, answers `?` itself, closes at `.`, and converts others to
/// upper case.
struct Shouting;

impl Stage for Shouting {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        match message.first() {
            Some(b'-') => Ok(None),
            Some(b'?') => ctx.write("answer".into()).map(|()| None),
            Some(b'.') => {
                ctx.close();
                Ok(None)
            }
            _ => Ok(Some(message.to_ascii_uppercase().into())),
        }
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

#[test]
fn a_stage_can_drop_answer_change_and_close() {
    let log = Log::new();
    let handler = Recorder::with(&log, |ctx, call| match call {
        Event::Read(message) => ctx.write(message.clone()),
        _ => Ok(()),
    });
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).stage(Shouting).handler(handler));
    channel.write_inbound(b"-a\nb\n?\n-c\nd\n.\ne\n").unwrap();
    assert_eq!(log.take(), ["active", "read B", "read D", "inactive", "drop"]);
    assert_eq!(channel.read_outbound(), "B\nanswer\nD\n");
}

over_each_transport! {
    decode_is_never_called_with_empty_input_over_a_socket,
    d_01_over_tcp_a_frame_that_arrives_byte_by_byte_is_reassembled,
    a_large_frame_grows_across_many_reads,
}
