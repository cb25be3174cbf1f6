//! What a pipeline has begun when another one takes over.

use crate::support::{
    channels::{embedded_pipeline, frames, lines, raw, read},
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, named, quiet},
    tcp::connect,
    wait::done,
};
use netwheel::{ChannelOptions, prelude::*, testing::EmbeddedChannel};
use std::{
    io::Write,
    sync::{Mutex, mpsc},
};

#[test]
fn what_the_old_one_wrote_goes_first_and_its_completions_hold() {
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
    // The new one hears of the bytes of the old one that are gone.
    assert!(log.take().contains(&"new writable true".to_owned()));
    channel.set_outbound_room(None);
    done(completion).unwrap();
    let sent = channel.read_outbound();
    assert_eq!(&sent[100_000..], b"old words\n\0\x03new");
    // It does not read unless it is told to; then it reads what came before.
    assert_eq!(log.take(), [""; 0]);
    read(&channel.channel());
    channel.run_pending();
    assert_eq!(log.take(), ["new read x", "new read_complete"]);
}

#[test]
fn a_flush_of_the_old_one_goes_out_before_the_new_one_reads() {
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

/// C-10: the callback that asks goes on with the pipeline that it has; what it writes is that one's.
#[test]
fn c_10_it_is_not_replaced_under_the_running_callback() {
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

/// D-10: what is asked for while a message is handled is done behind it, also if the pipeline is another one by then.
#[test]
fn d_10_a_read_that_is_asked_for_within_a_read_comes_after_it_whoever_takes_over() {
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

/// C-03: reading goes on by itself. Bytes that were kept are decoded by the new pipeline although the peer says nothing more.
#[test]
fn over_tcp_what_was_kept_needs_no_further_event() {
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
