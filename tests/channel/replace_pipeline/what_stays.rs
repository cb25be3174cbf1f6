//! State that survives a replaced pipeline: pending output, completions, requests and undecoded
//! input.

use crate::support::{
    channels::{embedded_pipeline, frames, lines, raw, read},
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, named, quiet},
    tcp::connect,
    wait::done,
};
use netwheel::{
    channel::{ChannelOptions, Overflow},
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{
    io::Write,
    sync::{Mutex, mpsc},
};

#[test]
fn output_of_the_old_pipeline_is_sent_first_and_its_completions_complete() {
    let log = Log::new();
    let inner = log.clone();
    let (sender, completions) = mpsc::channel();
    let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| {
        if let Event::Read(_) = call {
            ctx.set_auto_read(false);
            sender.send(ctx.write_tracked("old words".into())?).unwrap();
            ctx.replace_pipeline(frames(named("new", &inner, |ctx, call| match call {
                Event::Active(_) => {
                    assert!(!ctx.auto_read() && !ctx.is_writable());
                    ctx.write("new".into())
                }
                _ => Ok(()),
            })))?;
        }
        Ok(())
    })));
    channel.set_outbound_room(Some(0));
    for _ in 0..2 {
        channel.channel().write(vec![b'.'; 49_999].into()).unwrap();
    }
    channel.run_pending();
    channel.write_inbound(b"go\n\0\x01x").unwrap();
    let completion = completions.recv().unwrap();
    assert!(!completion.is_done());
    channel.set_outbound_room(Some(100_000 + 9));
    assert!(!completion.is_done());
    // The new handler is notified when bytes of the old one have been sent.
    assert!(log.take().contains(&"new writable true".to_owned()));
    channel.set_outbound_room(None);
    done(completion).unwrap();
    let sent = channel.read_outbound();
    assert_eq!(&sent[100_000..], b"old words\n\0\x03new");
    // Auto-read is off, so the new pipeline reads only on request. It then receives the buffered
    // bytes.
    assert_eq!(log.take(), [""; 0]);
    read(&channel.channel());
    channel.run_pending();
    assert_eq!(log.take(), ["new read x", "new read_complete"]);
}

#[test]
fn a_flush_of_the_old_pipeline_completes_before_the_new_one_reads() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| {
        if let Event::Read(_) = call {
            ctx.write("flushed".into())?;
            ctx.flush();
            ctx.replace_pipeline(raw(named("new", &inner, |ctx, call| {
                if let Event::Read(_) = call {
                    assert_eq!(ctx.pending_bytes(), 0);
                }
                Ok(())
            })))?;
        }
        Ok(())
    })));
    channel.write_inbound(b"go\nrest").unwrap();
    assert_eq!(channel.read_outbound(), "flushed\n");
    assert_eq!(log.count("new read rest"), 1);
}

/// C-10: the requesting callback continues with its own pipeline, which also encodes its writes.
#[test]
fn c_10_the_pipeline_is_not_replaced_during_the_callback() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| {
        if let Event::Read(_) = call {
            ctx.replace_pipeline(frames(quiet("new", &inner)))?;
            ctx.write("a line still".into())?;
            inner.push("end of read");
        }
        Ok(())
    })));
    channel.write_inbound(b"go\n").unwrap();
    assert_eq!(
        log.take(),
        ["old active", "old read go", "end of read", "old drop", "new active", "new read_complete"]
    );
    assert_eq!(channel.read_outbound(), "a line still\n");
}

/// D-10: a read requested while a message is handled happens after it, even if the pipeline has
/// been replaced by then.
#[test]
fn d_10_a_read_requested_within_a_read_survives_the_replacement() {
    let log = Log::new();
    let inner = log.clone();
    let options = ChannelOptions::new().auto_read(false).one_message_per_read(true);
    let mut channel = embedded_pipeline(
        &options,
        lines(named("old", &log, move |ctx, call| {
            match call {
                Event::Active(_) => ctx.read(),
                Event::Read(message) => {
                    ctx.read();
                    if message == "4" {
                        ctx.replace_pipeline(lines(quiet("new", &inner)))?;
                    }
                    ctx.read();
                }
                _ => {}
            }
            Ok(())
        })),
    );
    channel.write_inbound(b"1\n4\n8\n16\n").unwrap();
    assert_eq!(
        log.take(),
        [
            "old active",
            "old read 1",
            "old read 4",
            "old drop",
            "new active",
            "new read 8",
            "new read_complete"
        ]
    );
}

/// C-03: reading continues without an event. The new pipeline decodes buffered bytes although the
/// peer sends nothing more.
#[test]
fn over_tcp_buffered_bytes_are_decoded_without_a_new_event() {
    let group = one_loop();
    let log = Log::new();
    let (sender, channels) = mpsc::channel();
    let sender = Mutex::new(sender);
    let inner = log.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let sender = sender.lock().unwrap().clone();
            lines(named("old", &inner, move |ctx, call| {
                if call.is_active() {
                    sender.send(ctx.channel()).unwrap();
                }
                Ok(())
            }))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = connect(server.local_address());
    peer.write_all(b"\0\x05hello").unwrap();
    let channel = channels.recv().unwrap();
    log.wait_for("old read_complete");
    let inner = log.clone();
    channel.execute(move |ctx| ctx.replace_pipeline(frames(quiet("new", &inner)))).unwrap();
    log.wait_for("new read_complete");
    let told = log.take();
    let expected = ["old drop", "new active", "new read hello", "new read_complete"];
    assert_eq!(told[told.len() - 4..], expected, "{told:?}");
    end(&group);
}

/// The peer would take frames for lines.
#[test]
fn output_of_the_old_pipeline_is_not_dropped_in_favour_of_that_of_the_new_one() {
    let log = Log::new();
    let inner = log.clone();
    let options = ChannelOptions::new().max_outbound(64).overflow(Overflow::DropOldest);
    let mut channel = embedded_pipeline(
        &options,
        lines(named("old", &log, move |ctx, call| match call {
            Event::Read(_) => {
                ctx.write("welcome".into())?;
                ctx.replace_pipeline(frames(quiet("new", &inner)))
            }
            _ => Ok(()),
        })),
    );
    channel.set_outbound_room(Some(0));
    channel.channel().write("first".into()).unwrap();
    channel.run_pending();
    channel.write_inbound(b"go\n").unwrap();
    for n in 0..9 {
        channel.channel().write(format!("{n:010}").into()).unwrap();
        channel.run_pending();
    }
    channel.set_outbound_room(None);
    let sent = channel.read_outbound();
    let frames = sent.strip_prefix(b"first\nwelcome\n").expect("both lines are sent");
    assert!(frames.ends_with(b"\0\x0a0000000008") && frames.len() < 64, "{frames:?}");
}
