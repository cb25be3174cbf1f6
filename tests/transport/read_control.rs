//! Control of reads on an edge-triggered poll: T-26 to T-31.

use crate::over_each_transport;
use crate::support::{
    channels::{read, set_auto_read},
    loops::{block, end, metrics, one_loop, some_turns, the_loop, turn_until},
    random::Random,
    recorder::{Event, Recorder, read_bytes, silent},
    servers::{Echo, Settings, client, dial, serve_at},
    streams::{anywhere, connect},
    tcp::{ANY_PORT, assert_same, patient, ping, read_n},
    wait::done,
};
use netwheel::{
    channel::ChannelOptions,
    codec::{Line, RawBytes},
    prelude::*,
};
use std::{
    io::Write,
    net::TcpListener,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

fn message(text: &'static str) -> Event {
    Event::Read(text.into())
}

/// Bytes are read one at a time.
fn byte_by_byte() -> ChannelOptions {
    ChannelOptions::new().read_size(1)
}

// ---- T-26 --------------------------------------------------------------------------------------

fn t_26_with_auto_read_off_an_accepted_channel_reads_only_on_request() {
    let group = one_loop();
    let (server, events) = serve_at(anywhere(), &group, Settings::explicit_read(), RawBytes, silent);
    let mut stream = connect(&server);
    let child = events.channel();
    some_turns(&group);

    for text in ["first", "second"] {
        // Input is noticed (a wake for I/O) but not read.
        let wakes = metrics(&group).wakes_io;
        stream.write_all(text.as_bytes()).unwrap();
        turn_until(&group, |metrics| metrics.wakes_io > wakes);
        some_turns(&group);
        assert_eq!(events.so_far(), []);
        // One read returns all of it, and nothing more follows.
        read(&child);
        assert_eq!(events.next(), message(text));
        assert_eq!(events.next(), Event::ReadComplete);
        some_turns(&group);
        assert_eq!(events.so_far(), []);
    }
    assert_eq!(metrics(&group).bytes_read, 11);

    // A read that is requested before any input arrives waits for it.
    read(&child);
    some_turns(&group);
    assert_eq!(events.so_far(), []);
    stream.write_all(b"third").unwrap();
    assert_eq!(events.next(), message("third"));
    assert_eq!(events.next(), Event::ReadComplete);
    // The request is used up.
    stream.write_all(b"fourth").unwrap();
    some_turns(&group);
    assert_eq!(events.so_far(), []);
    end(&group);
}

fn t_26_with_auto_read_off_a_client_reads_only_on_request() {
    let group = one_loop();
    let (server, _at_server) =
        serve_at(anywhere(), &group, Settings::new(), RawBytes, |ctx, event| match event {
            Event::Active(_) => ctx.write("welcome".into()),
            _ => Ok(()),
        });
    let (channel, events) = dial(&group, server.local_address(), Settings::explicit_read(), silent);
    events.channel();
    turn_until(&group, |metrics| metrics.bytes_written == 7);
    some_turns(&group);
    assert_eq!(events.so_far(), []);
    read(&channel);
    assert_eq!(events.bytes(7), b"welcome");
    end(&group);
}

fn t_26_with_auto_read_on_input_is_read_at_once() {
    let group = one_loop();
    let (server, events) = serve_at(anywhere(), &group, Settings::new(), RawBytes, silent);
    let mut stream = connect(&server);
    events.channel();
    stream.write_all(b"at once").unwrap();
    assert_eq!(events.bytes(7), b"at once");
    end(&group);
}

fn t_26_a_server_that_does_not_accept_leaves_connections_waiting() {
    let group = one_loop();
    let codec = || Pipeline::codec(netwheel::codec::RawBytes);
    let bootstrap = ServerBootstrap::new(&group).accepting(false).pipeline(move |_| codec().handler(Echo));
    let server = bootstrap.bind(anywhere()).unwrap();

    // The kernel establishes the connection. The server is woken by it and leaves it in the
    // backlog.
    let mut early = connect(&server);
    early.write_all(b"early").unwrap();
    turn_until(&group, |metrics| metrics.wakes_io > 0);
    some_turns(&group);
    assert_eq!(metrics(&group).accepted, 0);

    server.set_accepting(true).unwrap();
    assert_eq!(read_n(&mut early, 5), b"early");
    assert_eq!(metrics(&group).accepted, 1);

    // Off again: open connections are served, new ones have to wait.
    server.set_accepting(false).unwrap();
    some_turns(&group);
    let wakes = metrics(&group).wakes_io;
    let mut late = connect(&server);
    late.write_all(b"late").unwrap();
    turn_until(&group, |metrics| metrics.wakes_io > wakes);
    some_turns(&group);
    ping(&mut early, b"still here");
    assert_eq!(metrics(&group).accepted, 1);
    server.set_accepting(true).unwrap();
    assert_eq!(read_n(&mut late, 4), b"late");
    end(&group);
}

fn t_26_turning_auto_read_on_reads_waiting_input() {
    let group = one_loop();
    let (server, events) = serve_at(anywhere(), &group, Settings::explicit_read(), RawBytes, silent);
    let mut stream = connect(&server);
    let child = events.channel();
    some_turns(&group);
    let wakes = metrics(&group).wakes_io;
    stream.write_all(b"patience").unwrap();
    turn_until(&group, |metrics| metrics.wakes_io > wakes);
    set_auto_read(&child, true);
    assert_eq!(events.bytes(8), b"patience");
    stream.write_all(b"flows").unwrap();
    assert_eq!(events.bytes(5), b"flows");
    end(&group);
}

// ---- T-27 --------------------------------------------------------------------------------------

fn t_27_auto_read_off_in_the_first_read_ends_the_burst() {
    let group = one_loop();
    let settings = Settings::channel(byte_by_byte());
    let (server, events) = serve_at(anywhere(), &group, settings, RawBytes, |ctx, event| {
        match event {
            Event::Read(byte) if byte == "a" => ctx.set_auto_read(false),
            // Requests a read on the loop, later.
            Event::Read(byte) if byte == "b" => {
                ctx.schedule(Duration::ZERO, |_, ctx| {
                    ctx.read();
                    Ok(())
                });
            }
            _ => {}
        }
        Ok(())
    });
    let mut stream = connect(&server);
    let child = events.channel();
    // The loop finds all three bytes at once.
    let release = block(&group);
    stream.write_all(b"abc").unwrap();
    drop(release);

    assert_eq!(events.next(), message("a"));
    assert_eq!(events.next(), Event::ReadComplete);
    some_turns(&group);
    assert_eq!(events.so_far(), []);
    read(&child);
    for expected in [message("b"), Event::ReadComplete, message("c"), Event::ReadComplete] {
        assert_eq!(events.next(), expected);
    }
    // Nothing is lost or duplicated, and reading continues.
    stream.write_all(b"d").unwrap();
    some_turns(&group);
    assert_eq!(events.so_far(), []);
    set_auto_read(&child, true);
    assert_eq!(events.message(), "d");
    end(&group);
}

fn t_27_auto_read_off_takes_effect_between_two_messages_of_one_read() {
    let group = one_loop();
    let (server, events) = serve_at(anywhere(), &group, Settings::new(), Line::new(), |ctx, event| {
        if matches!(event, Event::Read(_)) {
            ctx.set_auto_read(false);
        }
        Ok(())
    });
    let mut stream = connect(&server);
    let child = events.channel();
    stream.write_all(b"one\ntwo\nthree\n").unwrap();
    for line in ["one", "two", "three"] {
        assert_eq!(events.next(), message(line));
        assert_eq!(events.next(), Event::ReadComplete);
        some_turns(&group);
        assert_eq!(events.so_far(), []);
        set_auto_read(&child, true);
    }
    end(&group);
}

// ---- T-28 --------------------------------------------------------------------------------------

fn t_28_a_read_request_is_used_up_by_one_read() {
    let group = one_loop();
    let settings = Settings::channel(byte_by_byte().auto_read(false).reads_per_turn(2));
    let asked = AtomicUsize::new(0);
    let (server, events) = serve_at(anywhere(), &group, settings, RawBytes, move |ctx, event| {
        let first = matches!(event, Event::Read(_)) && asked.fetch_add(1, SeqCst) == 0;
        if first {
            ctx.read();
        }
        Ok(())
    });
    let mut stream = connect(&server);
    let child = events.channel();
    some_turns(&group);
    let wakes = metrics(&group).wakes_io;
    let release = block(&group);
    stream.write_all(b"abcd").unwrap();
    drop(release);
    turn_until(&group, |metrics| metrics.wakes_io > wakes);
    assert_eq!(events.so_far(), []);

    // The request from outside and the one from the first callback: two reads in one burst.
    read(&child);
    for expected in [message("a"), message("b"), Event::ReadComplete] {
        assert_eq!(events.next(), expected);
    }
    some_turns(&group);
    assert_eq!(events.so_far(), []);
    // The remaining bytes are still there.
    for expected in ["c", "d"] {
        read(&child);
        assert_eq!(events.next(), message(expected));
        assert_eq!(events.next(), Event::ReadComplete);
    }
    end(&group);
}

// ---- T-29 --------------------------------------------------------------------------------------

#[track_caller]
fn nothing_follows_a_failed_read(options: ChannelOptions, lines: bool) {
    let group = one_loop();
    let fail = |_: &mut Context<'_, Recorder>, event: &Event| match event {
        Event::Read(_) => Err("on purpose".into()),
        _ => Ok(()),
    };
    let settings = Settings::channel(options);
    let (server, events) = if lines {
        serve_at(anywhere(), &group, settings, Line::new(), fail)
    } else {
        serve_at(anywhere(), &group, settings, RawBytes, fail)
    };
    let mut stream = connect(&server);
    events.channel();
    let release = block(&group);
    stream.write_all(&b"\n".repeat(1024)).unwrap();
    drop(release);

    let told = events.until_inactive();
    assert!(matches!(told[..], [Event::Read(_), Event::Error(_), Event::Inactive]), "{told:?}");
    some_turns(&group);
    drop(server);
    end(&group);
    assert_eq!(events.rest(), []);
}

fn t_29_no_more_messages_of_the_same_read_after_an_error_that_closes() {
    nothing_follows_a_failed_read(ChannelOptions::new(), true);
}

fn t_29_no_more_reads_after_an_error_that_closes() {
    nothing_follows_a_failed_read(byte_by_byte(), false);
}

fn t_29_no_more_reads_after_an_error_that_closes_with_explicit_read() {
    let group = one_loop();
    let (server, events) = serve_at(
        anywhere(),
        &group,
        Settings::channel(byte_by_byte().auto_read(false)),
        RawBytes,
        |ctx, event| {
            ctx.read();
            match event {
                Event::Read(_) => Err("on purpose".into()),
                _ => Ok(()),
            }
        },
    );
    let mut stream = connect(&server);
    stream.write_all(&[b'x'; 1024]).unwrap();
    let told = events.until_inactive();
    assert!(
        matches!(told[..], [Event::Active(_), Event::Read(_), Event::Error(_), Event::Inactive]),
        "{told:?}"
    );
    end(&group);
}

// ---- T-30 --------------------------------------------------------------------------------------

fn t_30_bytes_that_a_bounded_burst_leaves_are_read_though_the_peer_is_silent() {
    let group = one_loop();
    let settings = Settings::channel(ChannelOptions::new().read_size(10).reads_per_turn(1));
    let (server, events) = serve_at(anywhere(), &group, settings, RawBytes, silent);
    let mut stream = connect(&server);
    events.channel();
    let before = metrics(&group);
    let sent = Random::new(30).bytes(1000);
    let release = block(&group);
    stream.write_all(&sent).unwrap();
    drop(release);
    assert_same(&events.bytes(1000), &sent);
    some_turns(&group);

    // One burst for each read, all from one or two events, and then no further reads.
    let after = metrics(&group);
    let (reads, blocked) = (after.reads - before.reads, after.reads_blocked - before.reads_blocked);
    assert_eq!((reads, blocked), (101, 1), "a hundred full reads, and one that finds nothing");
    end(&group);
}

fn t_30_a_peer_that_never_stops_gets_only_its_share_of_a_turn() {
    const BYTES: usize = 2000;
    let group = one_loop();
    let settings = Settings::channel(byte_by_byte().reads_per_turn(1));
    let turns = Arc::new(Mutex::new(Vec::new()));
    let (seen, event_loop) = (turns.clone(), the_loop(&group).clone());
    let (server, events) = serve_at(anywhere(), &group, settings, RawBytes, move |_, event| {
        if matches!(event, Event::Read(_)) {
            seen.lock().unwrap().push(event_loop.metrics().turns);
        }
        Ok(())
    });
    let mut stream = connect(&server);
    // Every byte is an event of its own, and most arrive while earlier bytes are unread.
    let sender = thread::spawn(move || {
        for _ in 0..BYTES {
            stream.write_all(b"x").unwrap();
        }
        stream
    });
    events.bytes(BYTES);
    drop(sender.join().unwrap());
    let turns = turns.lock().unwrap();
    let most = turns.chunk_by(|a, b| a == b).map(<[u64]>::len).max();
    assert_eq!(most, Some(1), "reads in one turn");
    end(&group);
}

fn t_30_bytes_that_a_read_request_left_are_not_read_after_a_close() {
    let group = one_loop();
    let settings = Settings::channel(byte_by_byte().reads_per_turn(1));
    let (server, events) = serve_at(anywhere(), &group, settings, RawBytes, |ctx, event| {
        if matches!(event, Event::Read(_)) {
            ctx.close();
        }
        Ok(())
    });
    let mut stream = connect(&server);
    events.channel();
    stream.write_all(b"abc").unwrap();
    let told = events.until_inactive();
    assert_eq!(read_bytes(&told), b"a");
    end(&group);
}

// ---- T-31 --------------------------------------------------------------------------------------

#[test]
fn t_31_connecting_is_completed_before_reading() {
    let group = one_loop();
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    let (bootstrap, events) = client(&group, Settings::new(), |ctx, event| match event {
        Event::Active(_) => ctx.write("from active".into()),
        _ => Ok(()),
    });
    // While the loop is busy, the connection is established and bytes arrive: one event reports all
    // of it.
    let release = block(&group);
    let connecting = bootstrap.connect(listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    patient(&stream);
    stream.write_all(b"early").unwrap();
    drop(release);

    let channel = done(connecting).unwrap();
    assert_eq!(events.next(), Event::Active(channel));
    assert_eq!(events.next(), message("early"));
    assert_eq!(read_n(&mut stream, 11), b"from active");
    end(&group);
}

fn t_31_pending_bytes_are_written_before_reading() {
    const SIZE: usize = 12 * 1024 * 1024;
    let group = one_loop();
    let pending = Arc::new(AtomicUsize::new(0));
    let pending_at_read = pending.clone();
    let (server, events) =
        serve_at(anywhere(), &group, Settings::new(), RawBytes, move |ctx, event| match event {
            Event::Active(_) => ctx.write(vec![0; SIZE].into()),
            Event::Read(_) => {
                pending_at_read.store(ctx.pending_bytes(), SeqCst);
                Ok(())
            }
            _ => Ok(()),
        });
    let mut stream = connect(&server);
    turn_until(&group, |metrics| metrics.writes_blocked > 0);
    events.channel();
    assert_eq!(events.next(), Event::Writable(false));

    // While the loop is busy, the peer reads the bytes already sent, and replies. The socket is
    // writable and readable.
    let release = block(&group);
    let taken = metrics(&group).bytes_written as usize;
    read_n(&mut stream, taken);
    stream.write_all(b"answer").unwrap();
    drop(release);
    assert_eq!(events.message(), "answer");
    let (before, at_read) = (SIZE - taken, pending.load(SeqCst));
    assert!(
        at_read < before,
        "{at_read} bytes were pending when the reply was read, and {before} before it was sent"
    );
    // A graceful shutdown would wait for the peer to read the remaining bytes.
    drop(stream);
    end(&group);
}

over_each_transport! {
    t_26_with_auto_read_off_an_accepted_channel_reads_only_on_request,
    t_26_with_auto_read_off_a_client_reads_only_on_request,
    t_26_with_auto_read_on_input_is_read_at_once,
    t_26_a_server_that_does_not_accept_leaves_connections_waiting,
    t_26_turning_auto_read_on_reads_waiting_input,
    t_27_auto_read_off_in_the_first_read_ends_the_burst,
    t_27_auto_read_off_takes_effect_between_two_messages_of_one_read,
    t_28_a_read_request_is_used_up_by_one_read,
    t_29_no_more_messages_of_the_same_read_after_an_error_that_closes,
    t_29_no_more_reads_after_an_error_that_closes,
    t_29_no_more_reads_after_an_error_that_closes_with_explicit_read,
    t_30_bytes_that_a_bounded_burst_leaves_are_read_though_the_peer_is_silent,
    t_30_a_peer_that_never_stops_gets_only_its_share_of_a_turn,
    t_30_bytes_that_a_read_request_left_are_not_read_after_a_close,
    t_31_pending_bytes_are_written_before_reading,
}
