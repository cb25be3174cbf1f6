//! Bytes that count towards the water marks, and notifications: C-44, C-46.

use crate::over_each_transport;
use crate::support::{
    journal::Log,
    loops::end,
    recorder::{Event, Recorder, hand_over},
    streams::{anywhere, connect},
    tcp::read_to_end,
    wait::{done, reason},
};
use crate::writing::{OVERHEAD, marks, raw, take, write, zeros};
use netwheel::{Error, buffer::KEEP_FROM, codec::RawBytes, error::Resource, prelude::*};
use std::{
    cell::Cell,
    rc::Rc,
    sync::{Arc, Barrier},
};

#[test]
fn c_44_marks_have_hysteresis() {
    let log = Log::new();
    let mut channel = raw(&marks(100, 200), Recorder::new(&log));
    let handle = channel.channel();
    channel.set_outbound_room(Some(0));
    log.take();
    write(&mut channel, 200);
    assert!(handle.is_writable(), "at the high mark, not above it");
    write(&mut channel, 1);
    assert!(!handle.is_writable());
    assert_eq!(log.take(), ["writable false"]);
    write(&mut channel, 50);
    take(&mut channel, 151);
    assert_eq!(channel.pending_bytes(), 100);
    assert!(!handle.is_writable(), "at the low mark, not below it");
    assert_eq!(log.take(), [""; 0], "no notification between the marks");
    take(&mut channel, 1);
    assert!(handle.is_writable());
    assert_eq!(log.take(), ["writable true"]);
    take(&mut channel, 99);
    write(&mut channel, 200);
    assert_eq!(log.take(), [""; 0], "one notification per change");
}

// Small messages are copied together and count only their bytes. Each chunk kept by reference
// counts 96 bytes more. An entry in the loop's queue counts 96 bytes as well, see C-46.
#[test]
fn c_44_a_chunk_kept_by_reference_counts_an_overhead() {
    let log = Log::new();
    let high = 2 * (KEEP_FROM + OVERHEAD);
    let mut channel = raw(&marks(1, high), Recorder::new(&log));
    channel.set_outbound_room(Some(0));
    write(&mut channel, KEEP_FROM);
    write(&mut channel, KEEP_FROM);
    assert_eq!(log.take(), ["active"], "exactly at the mark");
    write(&mut channel, 1);
    assert_eq!(log.take(), ["writable false"]);

    let log = Log::new();
    let mut channel = raw(&marks(1, high), Recorder::new(&log));
    channel.set_outbound_room(Some(0));
    for _ in 0..high {
        write(&mut channel, 1);
    }
    assert_eq!(log.take(), ["active"], "the same number of bytes in small messages is within the mark");
}

#[test]
fn c_44_the_scope_is_up_to_date_within_the_writing_callback() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = raw(
        &marks(100, 200),
        Recorder::with(&log, move |ctx, call| {
            if call.is_active() {
                ctx.write(zeros(200))?;
                inner.push(format!("at the mark: {}", ctx.is_writable()));
                ctx.write(zeros(1))?;
                inner.push(format!("above: {}", ctx.is_writable()));
            }
            Ok(())
        }),
    );
    assert_eq!(
        log.take(),
        ["active", "at the mark: true", "above: false", "writable false", "writable true"],
        "one notification after the callback, and one after everything is sent"
    );
    assert_eq!(channel.read_outbound().len(), 201);
}

// C-45 (user-defined writability flags) is optional and not provided: a program keeps its own flag.

#[test]
fn c_46_a_write_of_another_thread_counts_as_soon_as_it_is_submitted() {
    let log = Log::new();
    let mut channel = raw(&marks(100, 3 * (OVERHEAD + 1)), Recorder::new(&log));
    let handle = channel.channel();
    let submitted = handle.clone();
    std::thread::spawn(move || {
        for n in 1..=4 {
            submitted.write(zeros(1)).unwrap();
            assert_eq!(submitted.is_writable(), n <= 3, "{n} entries of {OVERHEAD} bytes plus one");
        }
    })
    .join()
    .unwrap();
    assert!(!handle.is_writable(), "before the loop has run");
    assert_eq!(log.take(), ["active"]);
    channel.run_pending();
    assert!(handle.is_writable());
    assert_eq!(channel.read_outbound().len(), 4);
}

#[test]
fn c_46_a_refused_write_of_another_thread_is_not_counted() {
    let mut channel = raw(&marks(1, 400).max_outbound(300), Recorder::new(&Log::new()));
    let handle = channel.channel();
    for _ in 0..3 {
        assert!(handle.is_writable());
        handle.write(zeros(10)).unwrap();
    }
    assert!(!handle.is_writable(), "3 entries of {OVERHEAD} bytes plus 10 exceed the limit, and so the mark");
    for _ in 0..10 {
        assert!(matches!(reason(handle.write(zeros(10))), Error::Full { limit: 300, .. }));
    }
    channel.run_pending();
    assert!(handle.is_writable());
    handle.write(zeros(10)).unwrap();
    assert!(handle.is_writable(), "only one entry of {OVERHEAD} bytes is counted, not the refused ones");
}

fn c_46_a_write_refused_by_the_loops_queue_is_not_counted() {
    let group = EventLoopGroup::builder().threads(1).max_pending_tasks(16).build().unwrap();
    let (hand_over, channels) = hand_over();
    let server = ServerBootstrap::new(&group)
        .channel_options(marks(1, 3 * OVERHEAD))
        .pipeline(move |_| Pipeline::codec(RawBytes).handler(Recorder::with(&Log::new(), hand_over.clone())))
        .bind(anywhere())
        .unwrap();
    let mut peer = connect(&server);
    let channel = channels.recv().unwrap();
    // Block the loop and fill its queue.
    let gate = Arc::new(Barrier::new(2));
    let inside = gate.clone();
    let hold = move || {
        inside.wait();
        inside.wait();
    };
    group.next().execute(hold).unwrap();
    gate.wait();
    while group.next().execute(|| ()).is_ok() {}
    // Messages to a writable channel have reserved room in the queue, however full it is.
    while channel.is_writable() {
        channel.write("taken".into()).unwrap();
    }
    for _ in 0..10 {
        let refused = channel.write("refused".into()).unwrap_err();
        assert_eq!(refused.value(), "refused", "the message comes back");
        assert!(
            matches!(refused.error(), Error::Full { resource: Resource::LoopQueue, limit: 16, .. }),
            "{refused}"
        );
    }
    gate.wait();
    done(channel.writable()).unwrap();
    channel.write("taken".into()).unwrap();
    channel.close();
    assert_eq!(read_to_end(&mut peer), b"taken".repeat(4));
    end(&group);
}

#[test]
fn c_46_flushing_within_writability_changed_is_allowed() {
    let log = Log::new();
    let mut channel = raw(
        &marks(512, 1024),
        Recorder::with(&log, |ctx, call| {
            if let Event::Writable(_) = call {
                ctx.flush();
            }
            Ok(())
        }),
    );
    let handle = channel.channel();
    for n in [2000, 300, 1600] {
        handle.write(zeros(n)).unwrap();
    }
    channel.run_pending();
    assert_eq!(channel.read_outbound().len(), 3900);
    assert_eq!(channel.pending_bytes(), 0);
    assert!(handle.is_writable());
    let told = log.take();
    assert_eq!(told[0], "active");
    // Netty's test sees WRITABILITY false, FLUSH, WRITABILITY true. This crate may notify more than
    // once, alternating.
    assert!(told.len() >= 3 && told.len() % 2 == 1, "{told:?}");
    for (n, entry) in told[1..].iter().enumerate() {
        assert_eq!(*entry, format!("writable {}", n % 2 == 1));
    }
}

/// Writes while the channel is writable, until `left` is used up.
fn fill(ctx: &mut Context<'_, Recorder>, left: &Cell<usize>) -> Result {
    while ctx.is_writable() && left.get() > 0 {
        left.set(left.get() - 1);
        ctx.write(zeros(100))?;
    }
    Ok(())
}

// A writer that fills the channel in `writability_changed` ends above the mark, and its bytes may
// be sent immediately.
#[test]
fn c_44_a_writer_that_obeys_the_marks_is_always_notified() {
    let left = Rc::new(Cell::new(1000));
    let inner = left.clone();
    let mut channel = raw(
        &marks(100, 250),
        Recorder::with(&Log::new(), move |ctx, call| match call {
            Event::Active(_) | Event::Writable(true) => fill(ctx, &inner),
            _ => Ok(()),
        }),
    );
    assert_eq!((left.get(), channel.read_outbound().len()), (0, 100_000));
}

over_each_transport! {
    c_46_a_write_refused_by_the_loops_queue_is_not_counted,
}
