//! At the end of the stream: the last decoding, the last `read_complete`.

use crate::support::{
    channels::{embedded_pipeline, lines, raw},
    codecs::AtLast,
    journal::Log,
    loops::end,
    recorder::{Event, named, quiet},
    tcp::{connect, read_to_end},
};
use bytes::Bytes;
use netwheel::{ChannelOptions, buffer::OutboundBuffer, codec::Line, pipeline::Codec, prelude::*};
use std::{
    io::Write,
    net::Shutdown,
    sync::{Arc, Mutex},
    thread,
};

/// Asked for a last message it must not be: it has been replaced by then.
struct NotAtLast(Line);

impl Codec for NotAtLast {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.0.decode(input)
    }

    fn decode_last(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
        panic!("decode_last of a codec that was replaced");
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        self.0.encode(message, output)
    }
}

#[test]
fn d_08_a_codec_that_was_replaced_is_not_asked_at_the_end() {
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

/// The last bytes of the stream, decoded by the old codec or, from the one in which it gives way, by the new one.
#[test]
fn d_08_in_the_last_decoding_what_is_left_is_decoded_for_the_last_time_by_the_new_one() {
    let log = Log::new();
    let inner = log.clone();
    let old = named("old", &log, move |ctx, call| {
        // Nor does it matter that nobody reads: it is the end.
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
            "new inactive"
        ]
    );
}

/// D-05: asked for at the very end of the stream, what is left is still the new one's, and the end comes behind it.
#[test]
fn d_05_in_the_last_read_complete() {
    for half_close in [false, true] {
        let log = Log::new();
        let inner = log.clone();
        let (mut completes, options) = (0, ChannelOptions::new().half_close(half_close));
        let old = named("old", &log, move |ctx, call| {
            completes += usize::from(*call == Event::ReadComplete);
            if completes == 2 { ctx.replace_pipeline(raw(quiet("new", &inner))) } else { Ok(()) }
        });
        let mut channel = embedded_pipeline(&options, lines(old));
        // Half a line at its end is a message only where the codec says so; this one leaves it.
        channel.write_inbound(b"a\nrest").unwrap();
        channel.end_inbound();
        let end = if half_close { "new read_closed" } else { "new inactive" };
        assert_eq!(
            log.take(),
            [
                "old active",
                "old read a",
                "old read_complete",
                "old read_complete",
                "old drop",
                "new active",
                "new read rest",
                "new read_complete",
                "new read_complete",
                end
            ]
        );
    }
}

#[test]
fn over_tcp_the_old_one_is_dropped_on_the_loop_and_the_end_is_told_to_the_new_one() {
    /// Says on which thread it is dropped.
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
                    // The end of the stream: the last bytes make no line, but they make something for the next one.
                    Event::InputShutdown => {
                        ctx.replace_pipeline(raw(named("new", &log, |ctx, call| match call {
                            Event::InputShutdown => {
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
