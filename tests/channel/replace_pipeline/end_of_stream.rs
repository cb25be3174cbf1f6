//! Replacing a pipeline at the end of the stream: the last decoding and the last `read_complete`.

use crate::support::{
    channels::{embedded_pipeline, lines, raw},
    codecs::AtLast,
    journal::Log,
    loops::end,
    recorder::{Event, named, quiet},
    tcp::{connect, read_to_end},
};
use bytes::Bytes;
use netwheel::{Codec, buffer::OutboundBuffer, channel::ChannelOptions, codec::Line, prelude::*};
use std::{
    io::Write,
    net::Shutdown,
    sync::{Arc, Mutex},
    thread,
};

/// A codec that is replaced before `decode_last` could be called.
struct NotAtLast(Line);

impl Codec for NotAtLast {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.0.decode(input)
    }

    fn decode_last(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
        panic!("decode_last called on a replaced codec");
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        self.0.encode(message, output)
    }
}

#[test]
fn d_08_decode_last_is_not_called_on_a_replaced_codec() {
    let log = Log::new();
    let inner = log.clone();
    let old = named("old", &log, move |ctx, call| match call {
        Event::Read(_) => ctx.replace_pipeline(lines(quiet("new", &inner))),
        _ => Ok(()),
    });
    let options = ChannelOptions::new().half_close(true);
    let mut channel = embedded_pipeline(&options, Pipeline::codec(NotAtLast(Line::new())).handler(old));
    channel.write_inbound(b"a\nb\nc").unwrap();
    channel.end_inbound();
    assert!(log.take().ends_with(&["new read_complete".into(), "new read_closed".into()]));
    assert!(channel.is_open());
}

/// At the end of the stream the old codec decodes bytes until it is replaced. The new codec decodes
/// the rest.
#[test]
fn d_08_the_new_codec_decodes_the_remaining_bytes_at_the_end_of_stream() {
    let log = Log::new();
    let inner = log.clone();
    let old = named("old", &log, move |ctx, call| {
        // At the end of the stream, turning auto-read off has no effect.
        ctx.set_auto_read(false);
        match call {
            Event::Active(_) => ctx.set_auto_read(true),
            Event::ReadComplete => ctx.set_auto_read(true),
            Event::Read(message) if message == "b" => {
                ctx.replace_pipeline(Pipeline::codec(AtLast).handler(quiet("new", &inner)))?
            }
            _ => {}
        }
        Ok(())
    });
    let mut channel = embedded_pipeline(&ChannelOptions::new(), Pipeline::codec(AtLast).handler(old));
    channel.write_inbound(b"abcd").unwrap();
    channel.end_inbound();
    assert_eq!(
        log.take(),
        [
            "old active",
            "old read_complete",
            "old read a",
            "old read b",
            "old drop",
            "new active",
            "new read c",
            "new read d",
            "new read_complete",
            "new inactive",
            "new drop"
        ]
    );
}

/// D-05: after a replacement at the end of the stream, the new pipeline receives the remaining
/// bytes and then the end.
#[test]
fn d_05_replacing_in_the_last_read_complete() {
    for half_close in [false, true] {
        let log = Log::new();
        let inner = log.clone();
        let (mut completes, options) = (0, ChannelOptions::new().half_close(half_close));
        let old = named("old", &log, move |ctx, call| {
            completes += usize::from(*call == Event::ReadComplete);
            if completes == 2 { ctx.replace_pipeline(raw(quiet("new", &inner))) } else { Ok(()) }
        });
        let mut channel = embedded_pipeline(&options, lines(old));
        // The line codec does not decode an incomplete line at the end of the stream, so the bytes
        // remain.
        channel.write_inbound(b"a\nrest").unwrap();
        channel.end_inbound();
        let end: &[&str] = if half_close { &["new read_closed"] } else { &["new inactive", "new drop"] };
        assert_eq!(
            log.take(),
            [
                &[
                    "old active",
                    "old read a",
                    "old read_complete",
                    "old read_complete",
                    "old drop",
                    "new active",
                    "new read rest",
                    "new read_complete",
                    "new read_complete",
                ],
                end
            ]
            .concat()
        );
    }
}

#[test]
fn over_tcp_the_old_handler_is_dropped_on_the_loop_and_the_new_one_sees_the_end() {
    /// Records the name of the thread that drops it.
    struct OnLoop(Arc<Mutex<Option<String>>>);
    impl Drop for OnLoop {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = thread::current().name().map(str::to_owned);
        }
    }
    let group = EventLoopGroup::builder().threads(1).name("replacing").build().unwrap();
    let log = Log::new();
    let dropped = Arc::new(Mutex::new(None));
    let (inner, on_loop) = (log.clone(), dropped.clone());
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().half_close(true))
        .pipeline(move |_| {
            let (log, mut guard) = (inner.clone(), Some(OnLoop(on_loop.clone())));
            lines(named("old", &inner, move |ctx, call| {
                let _held = &mut guard;
                match call {
                    // At the end of the stream the last bytes are not a line, but the new pipeline
                    // can decode them.
                    Event::ReadClosed => {
                        ctx.replace_pipeline(raw(named("new", &log, |ctx, call| match call {
                            Event::ReadClosed => {
                                ctx.write("bye".into())?;
                                ctx.close();
                                Ok(())
                            }
                            Event::Read(message) => ctx.write(message.clone()),
                            _ => Ok(()),
                        })))
                    }
                    _ => Ok(()),
                }
            }))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = connect(server.local_address());
    peer.write_all(b"line\nno line").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut peer), b"no linebye");
    log.wait_for("new drop");
    assert_eq!(dropped.lock().unwrap().as_deref(), Some("replacing-0"));
    let told = log.take();
    for once in ["old read_closed", "old drop", "new active", "new read_closed", "new inactive"] {
        assert_eq!(told.iter().filter(|e| *e == once).count(), 1, "{told:?}");
    }
    end(&group);
}

#[test]
fn replacing_in_read_closed_when_the_own_output_has_ended_loses_no_bytes() {
    let log = Log::new();
    let inner = log.clone();
    let options = ChannelOptions::new().half_close(true);
    let old = named("old", &log, move |ctx, call| match call {
        Event::Active(_) => {
            ctx.shutdown_write();
            Ok(())
        }
        Event::ReadClosed => ctx.replace_pipeline(raw(quiet("new", &inner))),
        _ => Ok(()),
    });
    let mut channel = embedded_pipeline(&options, lines(old));
    channel.write_inbound(b"rest").unwrap();
    channel.end_inbound();
    channel.run_pending();
    let log = log.take();
    let at = log.iter().position(|call| call == "new active").expect("the new one takes over");
    assert_eq!(
        log[at..],
        [
            "new active",
            "new read rest",
            "new read_complete",
            "new read_complete",
            "new read_closed",
            "new inactive",
            "new drop"
        ]
    );
}

/// Decodes a message at the end of the stream, from whatever is left.
#[derive(Default)]
struct Farewell {
    ended: bool,
}

impl Codec for Farewell {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
        Ok(None)
    }

    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        input.clear();
        let was_ended = std::mem::replace(&mut self.ended, true);
        Ok((!was_ended).then(|| "farewell".into()))
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(message);
        Ok(())
    }
}

#[test]
fn a_codec_that_takes_over_at_the_last_message_decodes_the_end() {
    let log = Log::new();
    let inner = log.clone();
    let old = named("old", &log, move |ctx, call| match call {
        Event::Read(_) => {
            let new = quiet("new", &inner);
            ctx.replace_pipeline(Pipeline::codec(Farewell::default()).handler(new))
        }
        _ => Ok(()),
    });
    let options = ChannelOptions::new().half_close(true);
    let mut channel = embedded_pipeline(&options, Pipeline::codec(Farewell::default()).handler(old));
    channel.write_inbound(b"rest").unwrap();
    channel.end_inbound();
    let log = log.take();
    assert!(log.contains(&"new read farewell".to_owned()), "{log:?}");
}
